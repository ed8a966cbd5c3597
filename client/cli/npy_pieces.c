#include "client/cli/npy_pieces.h"

#include "server/contents/file_name.h"
#include "server/formats/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_DIGITS 5

static const char *base_of_npy(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool eb_npy_pieces_read_header(
    const struct eb_table_file *file, struct eb_tensor *tensor, struct eb_failure *failure)
{
    uint64_t bytes = file->bytes < EB_NPY_HEADER_BYTES_MAX ? file->bytes : EB_NPY_HEADER_BYTES_MAX;
    uint8_t *head = malloc(bytes + 1);
    if (!head) {
        return eb_failure_set(failure, "out of memory");
    }
    bool is_good = eb_table_file_read(file, 0, head, bytes, failure) &&
                   eb_npy_parse(head, bytes, file->bytes, tensor, failure);
    free(head);
    return is_good;
}

bool eb_npy_pieces_is_one(const char *path)
{
    struct eb_file_name name = eb_file_name_parse(base_of_npy(path));
    return name.is_split && (name.kind == EB_FILE_NPY || name.kind == EB_FILE_KEYS);
}

/* Puts the path of the piece at hand before an error, unless it is the one that was given. Always
 * false. */
static bool locate_npy_error(const struct eb_npy_pieces *pieces, struct eb_failure *failure)
{
    return pieces->at != pieces->given && eb_failure_locate(failure, pieces->path);
}

static void close_piece(struct eb_npy_pieces *pieces)
{
    if (pieces->is_open) {
        eb_table_file_close(&pieces->file);
    }
    pieces->is_open = false;
}

static bool open_piece(struct eb_npy_pieces *pieces, uint32_t number, struct eb_failure *failure)
{
    char digits[2 * NUMBER_DIGITS + 1]; /* of any number; those of pieces have five */
    close_piece(pieces);
    pieces->at = number;
    snprintf(digits, sizeof digits, "%0*" PRIu32, NUMBER_DIGITS, number);
    memcpy(pieces->path + pieces->number, digits, NUMBER_DIGITS);
    pieces->is_open = eb_table_file_open(pieces->path, &pieces->file, failure);
    return pieces->is_open || locate_npy_error(pieces, failure);
}

/* Looks at the next piece and puts its rows behind those before it. */
static bool add_npy_piece(struct eb_npy_pieces *pieces, struct eb_tensor *whole, uint32_t number,
    struct eb_failure *failure)
{
    struct eb_npy_piece *piece = &pieces->pieces[number];
    if (!open_piece(pieces, number, failure)) {
        return false;
    }
    piece->look = pieces->file;
    if (!eb_npy_pieces_read_header(&pieces->file, &piece->tensor, failure)) {
        return locate_npy_error(pieces, failure);
    }
    const struct eb_tensor *tensor = &piece->tensor;
    if (number == 0) {
        *whole = *tensor;
        whole->data_offset = 0;
        return true;
    }
    bool is_alike =
        tensor->storage == whole->storage && tensor->rank == whole->rank &&
        memcmp(tensor->dims + 1, whole->dims + 1, (tensor->rank - 1) * sizeof tensor->dims[0]) == 0;
    if (!is_alike || __builtin_add_overflow(whole->dims[0], tensor->dims[0], &whole->dims[0]) ||
        __builtin_add_overflow(whole->data_bytes, tensor->data_bytes, &whole->data_bytes)) {
        eb_failure_set(
            failure, "it has another type or row shape than part 0; write all parts in one way");
        return locate_npy_error(pieces, failure);
    }
    return true;
}

static bool add_npy_pieces(
    struct eb_npy_pieces *pieces, struct eb_tensor *whole, struct eb_failure *failure)
{
    for (uint32_t i = 0; i < pieces->count; i++) {
        if (!add_npy_piece(pieces, whole, i, failure)) {
            return false;
        }
    }
    return true;
}

bool eb_npy_pieces_open(struct eb_npy_pieces *pieces, const char *path, struct eb_tensor *whole,
    struct eb_failure *failure)
{
    const char *base = base_of_npy(path);
    struct eb_file_name name = eb_file_name_parse(base);
    *pieces = (struct eb_npy_pieces){
        .number = (size_t)(base - path) + name.base_bytes + 1,
        .given = name.piece,
        .count = name.pieces,
    };
    if (name.piece >= name.pieces) {
        return eb_failure_set(failure,
            "it is called part %" PRIu32 " of %" PRIu32 "; parts are numbered from 0", name.piece,
            name.pieces);
    }
    pieces->path = strdup(path);
    pieces->pieces = calloc(name.pieces, sizeof *pieces->pieces);
    bool is_good = pieces->path && pieces->pieces ? add_npy_pieces(pieces, whole, failure)
                                                  : eb_failure_set(failure, "out of memory");
    if (!is_good) {
        eb_npy_pieces_close(pieces);
    }
    return is_good;
}

void eb_npy_pieces_close(struct eb_npy_pieces *pieces)
{
    close_piece(pieces);
    free(pieces->path);
    free(pieces->pieces);
    *pieces = (struct eb_npy_pieces){0};
}

/* Makes a piece the one at hand. */
static bool turn_to(struct eb_npy_pieces *pieces, uint32_t number, struct eb_failure *failure)
{
    if (pieces->is_open && pieces->at == number) {
        return true;
    }
    if (!open_piece(pieces, number, failure)) {
        return false;
    }
    if (!eb_table_file_is_same(&pieces->file, &pieces->pieces[number].look)) {
        close_piece(pieces);
        eb_failure_set(failure, "the file has changed while it was read; pack it again");
        return locate_npy_error(pieces, failure);
    }
    return true;
}

bool eb_npy_pieces_read(struct eb_npy_pieces *pieces, uint64_t offset, void *out, uint64_t bytes,
    struct eb_failure *failure)
{
    uint8_t *to = out;
    for (uint32_t i = 0; bytes > 0 && i < pieces->count; i++) {
        const struct eb_tensor *tensor = &pieces->pieces[i].tensor;
        if (offset >= tensor->data_bytes) {
            offset -= tensor->data_bytes;
            continue;
        }
        uint64_t left = tensor->data_bytes - offset;
        uint64_t count = bytes < left ? bytes : left;
        if (!turn_to(pieces, i, failure)) {
            return false;
        }
        if (!eb_table_file_read(&pieces->file, tensor->data_offset + offset, to, count, failure)) {
            return locate_npy_error(pieces, failure);
        }
        to += count;
        bytes -= count;
        offset = 0;
    }
    return true;
}
