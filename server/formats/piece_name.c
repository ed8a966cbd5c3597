#include "server/formats/piece_name.h"

static const char split_pattern[] = "-00000-of-00000";
#define SPLIT_BYTES (sizeof split_pattern - 1)
#define SPLIT_PIECE 1 /* positions of the two numbers: the piece, and the number of pieces */
#define SPLIT_PIECES 10

static bool matches_pattern(const char *at)
{
    for (size_t i = 0; i < SPLIT_BYTES; i++) {
        bool is_digit = at[i] >= '0' && at[i] <= '9';
        if (split_pattern[i] == '0' ? !is_digit : at[i] != split_pattern[i]) {
            return false;
        }
    }
    return true;
}

static uint32_t read_digits(const char *at)
{
    uint32_t number = 0;
    for (; *at >= '0' && *at <= '9'; at++) {
        number = number * 10 + (uint32_t)(*at - '0');
    }
    return number;
}

bool eb_piece_name_split(
    const char *name, size_t bytes, size_t *base_bytes, uint32_t *piece, uint32_t *pieces)
{
    if (bytes < SPLIT_BYTES || !matches_pattern(name + bytes - SPLIT_BYTES)) {
        return false;
    }
    *base_bytes = bytes - SPLIT_BYTES;
    *piece = read_digits(name + *base_bytes + SPLIT_PIECE);
    *pieces = read_digits(name + *base_bytes + SPLIT_PIECES);
    return true;
}
