#include "tests/unit/grpc/frame_script.h"

#include <string.h>

#define STEP_BYTES 4 /* kind, flags, stream, count */
#define STREAMS 16
#define ADVANCES 0x40          /* bit of the stream byte: each repetition uses the next stream */
#define REPEATS_SHIFT_MAX 12   /* up to 2048 times: the budgets of frames are about 1000 */
#define SCRIPT_BYTES_MAX 65536 /* no frame is added beyond this size */
#define ZEROS_KIB 16

enum kind {
    KIND_HEADERS = 10,
    KIND_CONTINUATION,
    KIND_MESSAGE,
    KIND_ZEROS,
    KIND_COMPRESSED,
    KIND_UNKNOWN,
    KIND_COUNT
};

/* The description of one frame. */
struct step {
    enum kind kind;
    uint8_t flags;
    uint8_t stream;
    unsigned repetition;
    const uint8_t *bytes;
    size_t count;
};

static uint32_t stream_of(const struct step *step)
{
    unsigned advance = step->stream & ADVANCES ? 2 * step->repetition : 0;
    return step->stream % STREAMS + advance;
}

static void put_block(
    struct frames *out, const struct frame_script_fields *fields, const struct step *step)
{
    struct frames block = {0};
    for (size_t i = 0; i < step->count; i++) {
        const char *const *field = fields->fields[step->bytes[i] % fields->count];
        frames_field(&block, field[0], field[1]);
    }
    uint8_t type = step->kind == KIND_HEADERS ? FRAME_HEADERS : FRAME_CONTINUATION;
    /* Drops the flags for padding and priority: the block has no room for those fields. */
    frames_head(
        out, block.size, type, step->flags & (FLAG_END_STREAM | FLAG_END_HEADERS), stream_of(step));
    frames_put(out, block.bytes, block.size);
    frames_deinit(&block);
}

static void put_message(
    struct frames *out, const struct step *step, uint8_t flag, const uint8_t *bytes, size_t count)
{
    struct frames message = {0};
    frames_put(&message, &flag, 1);
    frames_put32(&message, (uint32_t)count);
    frames_put(&message, bytes, count);
    frames_data(out, stream_of(step), step->flags & FLAG_END_STREAM, message.bytes, message.size);
    frames_deinit(&message);
}

static void put_zeros(struct frames *out, const struct step *step)
{
    static const uint8_t zeros[ZEROS_KIB * 1024];
    size_t kib = step->count > 0 ? step->bytes[0] % ZEROS_KIB : 0;
    frames_data(out, stream_of(step), step->flags & FLAG_END_STREAM, zeros, kib * 1024);
}

/* Adds a gzip-compressed message: "hello", or 50 000 zeros. */
static void put_compressed(struct frames *out, const struct step *step)
{
    static const uint8_t hello[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03,
        0xcb, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x86, 0xa6, 0x10, 0x36, 0x05, 0x00, 0x00, 0x00};
    static const uint8_t bomb[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0xed,
        0xc1, 0x01, 0x0d, 0x00, 0x00, 0x00, 0xc2, 0xa0, 0xf7, 0x4f, 0x6d, 0x0f, 0x07, 0x14, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x4f, 0x06, 0x25, 0xb3, 0xb7, 0x16, 0x50, 0xc3, 0x00, 0x00};
    if (step->count > 0 && step->bytes[0] & 1) {
        put_message(out, step, 1, bomb, sizeof bomb);
    } else {
        put_message(out, step, 1, hello, sizeof hello);
    }
}

static void put_step(
    struct frames *out, const struct frame_script_fields *fields, const struct step *step)
{
    switch (step->kind) {
    case KIND_HEADERS:
    case KIND_CONTINUATION: put_block(out, fields, step); break;
    case KIND_MESSAGE: put_message(out, step, step->stream >> 7, step->bytes, step->count); break;
    case KIND_ZEROS: put_zeros(out, step); break;
    case KIND_COMPRESSED: put_compressed(out, step); break;
    default:
        frames_head(out, step->count, (uint8_t)step->kind, step->flags, stream_of(step));
        frames_put(out, step->bytes, step->count);
    }
}

void frame_script_run(struct frames *out, const struct frame_script_fields *fields,
    const uint8_t *script, size_t size)
{
    size_t at = 0;
    while (size - at >= STEP_BYTES) {
        struct step step = {
            .kind = script[at] % KIND_COUNT,
            .flags = script[at + 1],
            .stream = script[at + 2],
            .bytes = script + at + STEP_BYTES,
            .count = script[at + 3],
        };
        size_t left = size - at - STEP_BYTES;
        step.count = step.count < left ? step.count : left;
        unsigned repeats = 1u << (script[at] / KIND_COUNT) % REPEATS_SHIFT_MAX;
        for (; step.repetition < repeats && out->size < SCRIPT_BYTES_MAX; step.repetition++) {
            put_step(out, fields, &step);
        }
        at += STEP_BYTES + step.count;
    }
}
