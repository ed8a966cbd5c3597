#include "proto/send_queue.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES 16384 /* a full frame of HEADERS, or several hundred small answers */
#define PIECES_MIN 32     /* a power of two, as is every capacity */

/* Copied bytes are kept in chunks, which are filled and emptied in order. */
struct chunk {
    struct chunk *next;
    size_t capacity;
    size_t filled;
    size_t dropped;
    uint8_t room[];
};

struct piece {
    const uint8_t *bytes;
    size_t count;
    struct eb_outgoing *message; /* NULL: the bytes lie in a chunk */
};

struct eb_send_queue {
    const struct eb_memory *memory;
    struct piece *pieces; /* a ring */
    size_t capacity;
    size_t first;
    size_t piece_count;
    size_t bytes;
    struct chunk *head;
    struct chunk *tail;
};

void eb_outgoing_hold(struct eb_outgoing *message)
{
    assert(message->holds > 0);
    message->holds++;
}

void eb_outgoing_drop(struct eb_outgoing *message)
{
    assert(message->holds > 0);
    if (--message->holds == 0) {
        message->release(message);
    }
}

struct eb_send_queue *eb_send_queue_create(const struct eb_memory *memory)
{
    struct eb_send_queue *queue = calloc(1, sizeof *queue);
    if (queue) {
        queue->memory = memory;
    }
    return queue;
}

void eb_send_queue_destroy(struct eb_send_queue *queue)
{
    if (!queue) {
        return;
    }
    eb_send_queue_drop(queue, queue->bytes);
    if (queue->pieces) {
        const struct eb_memory *memory = queue->memory;
        memory->give(memory->context, queue->pieces, queue->capacity * sizeof *queue->pieces);
    }
    free(queue);
}

static struct piece *piece_at(const struct eb_send_queue *queue, size_t index)
{
    return &queue->pieces[(queue->first + index) & (queue->capacity - 1)];
}

/* Makes room for one more piece. Returns false if out of memory. */
static bool reserve_send_piece(struct eb_send_queue *queue)
{
    if (queue->piece_count < queue->capacity) {
        return true;
    }
    const struct eb_memory *memory = queue->memory;
    size_t capacity = queue->capacity ? queue->capacity * 2 : PIECES_MIN;
    struct piece *pieces = memory->take(memory->context, capacity * sizeof *pieces);
    if (!pieces) {
        return false;
    }
    for (size_t i = 0; i < queue->piece_count; i++) {
        pieces[i] = *piece_at(queue, i);
    }
    if (queue->pieces) {
        memory->give(memory->context, queue->pieces, queue->capacity * sizeof *pieces);
    }
    queue->pieces = pieces;
    queue->capacity = capacity;
    queue->first = 0;
    return true;
}

/* Makes room for `count` contiguous bytes in the last chunk. Returns false if out of memory. */
static bool reserve_room(struct eb_send_queue *queue, size_t count)
{
    if (queue->tail && queue->tail->capacity - queue->tail->filled >= count) {
        return true;
    }
    size_t capacity = CHUNK_BYTES - sizeof(struct chunk);
    if (capacity < count) {
        capacity = count;
    }
    struct chunk *chunk =
        queue->memory->take(queue->memory->context, sizeof(struct chunk) + capacity);
    if (!chunk) {
        return false;
    }
    *chunk = (struct chunk){.capacity = capacity};
    if (queue->tail) {
        queue->tail->next = chunk;
    } else {
        queue->head = chunk;
    }
    queue->tail = chunk;
    return true;
}

bool eb_send_queue_copy(struct eb_send_queue *queue, const void *bytes, size_t count)
{
    if (count == 0) {
        return true;
    }
    if (!reserve_send_piece(queue) || !reserve_room(queue, count)) {
        return false;
    }
    uint8_t *at = queue->tail->room + queue->tail->filled;
    memcpy(at, bytes, count);
    queue->tail->filled += count;
    queue->bytes += count;
    struct piece *last = queue->piece_count > 0 ? piece_at(queue, queue->piece_count - 1) : NULL;
    if (last && !last->message && last->bytes + last->count == at) {
        last->count += count;
        return true;
    }
    *piece_at(queue, queue->piece_count++) = (struct piece){.bytes = at, .count = count};
    return true;
}

bool eb_send_queue_lend(
    struct eb_send_queue *queue, struct eb_outgoing *message, size_t first, size_t count)
{
    assert(first <= message->size && count <= message->size - first);
    if (count == 0) {
        return true;
    }
    if (!reserve_send_piece(queue)) {
        return false;
    }
    eb_outgoing_hold(message);
    *piece_at(queue, queue->piece_count++) =
        (struct piece){.bytes = message->bytes + first, .count = count, .message = message};
    queue->bytes += count;
    return true;
}

size_t eb_send_queue_bytes(const struct eb_send_queue *queue)
{
    return queue->bytes;
}

size_t eb_send_queue_peek(const struct eb_send_queue *queue, struct iovec *out, size_t max)
{
    size_t count = queue->piece_count < max ? queue->piece_count : max;
    for (size_t i = 0; i < count; i++) {
        const struct piece *piece = piece_at(queue, i);
        out[i] = (struct iovec){.iov_base = (void *)piece->bytes, .iov_len = piece->count};
    }
    return count;
}

/* Drops copied bytes. The oldest are always in the first chunk. */
static void drop_copied(struct eb_send_queue *queue, size_t count)
{
    struct chunk *chunk = queue->head;
    chunk->dropped += count;
    if (chunk->dropped < chunk->filled) {
        return;
    }
    queue->head = chunk->next;
    if (!queue->head) {
        queue->tail = NULL;
    }
    queue->memory->give(queue->memory->context, chunk, sizeof *chunk + chunk->capacity);
}

void eb_send_queue_drop(struct eb_send_queue *queue, size_t count)
{
    assert(count <= queue->bytes);
    while (count > 0) {
        struct piece *piece = piece_at(queue, 0);
        size_t step = piece->count < count ? piece->count : count;
        struct eb_outgoing *message = piece->message;
        piece->bytes += step;
        piece->count -= step;
        queue->bytes -= step;
        count -= step;
        bool over = piece->count == 0;
        if (over) {
            queue->first = (queue->first + 1) & (queue->capacity - 1);
            queue->piece_count--;
        }
        if (!message) {
            drop_copied(queue, step);
        } else if (over) {
            eb_outgoing_drop(message);
        }
    }
}
