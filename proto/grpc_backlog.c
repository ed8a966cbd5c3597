#include "proto/grpc_backlog.h"

#include <string.h>

/* Of a piece, head included; each is twice as large as the one before. */
#define PIECE_BYTES_MIN 4096
#define PIECE_BYTES_MAX 131072

/* Adds an empty piece. false: no memory. */
static bool add_backlog_piece(struct eb_grpc_backlog *backlog, const struct eb_memory *memory)
{
    size_t bytes = PIECE_BYTES_MIN;
    if (backlog->tail) {
        bytes = 2 * (sizeof(*backlog->tail) + backlog->tail->capacity);
        bytes = bytes < PIECE_BYTES_MAX ? bytes : PIECE_BYTES_MAX;
    }
    struct eb_grpc_piece *piece = memory->take(memory->context, bytes);
    if (!piece) {
        return false;
    }
    *piece = (struct eb_grpc_piece){.capacity = bytes - sizeof(*piece)};
    if (backlog->tail) {
        backlog->tail->next = piece;
    } else {
        backlog->head = piece;
    }
    backlog->tail = piece;
    return true;
}

bool eb_grpc_backlog_append(struct eb_grpc_backlog *backlog, const struct eb_memory *memory,
    const uint8_t *bytes, size_t count, uint64_t now_ms)
{
    while (count > 0) {
        size_t room = backlog->tail ? backlog->tail->capacity - backlog->tail->end : 0;
        size_t step = room < count ? room : count;
        if (room == 0 && !add_backlog_piece(backlog, memory)) {
            return false;
        }
        struct eb_grpc_piece *tail = backlog->tail;
        memcpy(tail->room + tail->end, bytes, step);
        tail->end += step;
        tail->filled_ms = now_ms;
        bytes += step;
        count -= step;
    }
    return true;
}

struct eb_grpc_piece *eb_grpc_backlog_pop(struct eb_grpc_backlog *backlog)
{
    struct eb_grpc_piece *piece = backlog->head;
    backlog->head = piece->next;
    if (!backlog->head) {
        backlog->tail = NULL;
    }
    return piece;
}

void eb_grpc_backlog_restore(
    struct eb_grpc_backlog *backlog, const struct eb_memory *memory, struct eb_grpc_piece *piece)
{
    if (piece->first == piece->end) {
        memory->give(memory->context, piece, sizeof(*piece) + piece->capacity);
        return;
    }
    piece->next = backlog->head;
    backlog->head = piece;
    backlog->tail = backlog->tail ? backlog->tail : piece;
}

void eb_grpc_backlog_clear(struct eb_grpc_backlog *backlog, const struct eb_memory *memory)
{
    while (backlog->head) {
        struct eb_grpc_piece *piece = eb_grpc_backlog_pop(backlog);
        piece->first = piece->end;
        eb_grpc_backlog_restore(backlog, memory, piece);
    }
}
