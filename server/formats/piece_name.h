/* The end of the base of a file's name that says which piece of a table the file holds:
 * "-00003-of-00016", five digits each. Table names must not end like that, because the name of a
 * table's file would then be that of a piece.
 * Thread: pure. Memory: none. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns whether the first `bytes` bytes of a name end in -PIECE-of-PIECES. If so, sets the two
 * numbers and the length of the name before that. */
bool eb_piece_name_split(
    const char *name, size_t bytes, size_t *base_bytes, uint32_t *piece, uint32_t *pieces);
