#include "proto/grpc_output.h"

#include <assert.h>
#include <nghttp2/nghttp2.h>

/* Once the write queue has this many bytes, no more frames are produced. Messages then stay in
 * their streams' outputs, so that frames of different streams still take turns. */
#define QUEUE_HIGH_BYTES (256u * 1024)
/* Largest DATA frame of ours. nghttp2 keeps a buffer of this size per connection. */
#define DATA_FRAME_BYTES_MAX (256u * 1024)
#define FRAME_HEAD_BYTES 9
/* Up to this size a copy is cheaper than one more buffer in the gathered write. */
#define COPY_BYTES_MAX 1024

void eb_grpc_output_push(struct eb_grpc_output *output, struct eb_outgoing *message)
{
    assert(message->size > 0);
    message->next = NULL;
    if (output->tail) {
        output->tail->next = message;
    } else {
        output->head = message;
    }
    output->tail = message;
    output->bytes += message->size;
    *output->total_bytes += message->size;
}

static void drop_head(struct eb_grpc_output *output)
{
    struct eb_outgoing *message = output->head;
    output->head = message->next;
    if (!output->head) {
        output->tail = NULL;
    }
    output->head_sent = 0;
    eb_outgoing_drop(message);
}

void eb_grpc_output_clear(struct eb_grpc_output *output)
{
    if (output->bytes > 0) {
        *output->total_bytes -= output->bytes;
    }
    while (output->head) {
        drop_head(output);
    }
    output->bytes = 0;
}

/* Replaces the message at *link, of `bytes` bytes, by `by`, which may be NULL. */
static void replace(
    struct eb_grpc_output *output, struct eb_outgoing **link, size_t bytes, struct eb_outgoing *by)
{
    size_t by_bytes = by ? by->size : 0;
    *link = by;
    output->bytes = output->bytes - bytes + by_bytes;
    *output->total_bytes = *output->total_bytes - bytes + by_bytes;
}

void eb_grpc_output_drop_expired(
    struct eb_grpc_output *output, size_t count, eb_grpc_output_drop_fn *drop)
{
    struct eb_outgoing **link = &output->head;
    struct eb_outgoing *previous = NULL;
    for (size_t at = 0; *link && at < count;) {
        struct eb_outgoing *message = *link;
        struct eb_outgoing *next = message->next;
        size_t bytes = message->size;
        size_t sent_bytes = previous ? 0 : output->head_sent;
        struct eb_outgoing *kept = message;
        if (message->is_timed && sent_bytes == 0) {
            /* The returned message may lie in the memory of the dropped one. */
            kept = drop(output->owner, message);
            replace(output, link, bytes, kept);
        }
        if (!kept) {
            *link = next;
            continue;
        }
        kept->next = next;
        at += kept->size - sent_bytes;
        previous = kept;
        link = &kept->next;
    }
    if (!*link) {
        output->tail = previous;
    }
}

/* Moves the next `count` bytes of the output's messages into the write queue. Returns false if out
 * of memory. */
static bool move(struct eb_grpc_output *output, size_t count)
{
    assert(count <= output->bytes);
    while (count > 0) {
        struct eb_outgoing *message = output->head;
        size_t left = message->size - output->head_sent;
        size_t step = left < count ? left : count;
        bool moved =
            step <= COPY_BYTES_MAX
                ? eb_send_queue_copy(output->queue, message->bytes + output->head_sent, step)
                : eb_send_queue_lend(output->queue, message, output->head_sent, step);
        if (!moved) {
            return false;
        }
        count -= step;
        output->bytes -= step;
        *output->total_bytes -= step;
        output->head_sent += step;
        output->sent_bytes += step;
        if (output->head_sent == message->size) {
            message->has_left = true;
            drop_head(output);
        }
    }
    return true;
}

static int on_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head,
    size_t count, nghttp2_data_source *source, void *context)
{
    (void)session;
    (void)frame;
    (void)context;
    struct eb_grpc_output *output = source->ptr;
    if (eb_send_queue_bytes(output->queue) >= QUEUE_HIGH_BYTES) {
        return NGHTTP2_ERR_WOULDBLOCK;
    }
    if (!eb_send_queue_copy(output->queue, head, FRAME_HEAD_BYTES) || !move(output, count)) {
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    return 0;
}

static ssize_t on_read_length(nghttp2_session *session, uint8_t type, int32_t stream_id,
    int32_t connection_window, int32_t stream_window, uint32_t frame_bytes_max, void *context)
{
    (void)session;
    (void)type;
    (void)stream_id;
    (void)context;
    int64_t length = connection_window < stream_window ? connection_window : stream_window;
    if (length > frame_bytes_max) {
        length = frame_bytes_max;
    }
    return (ssize_t)(length < DATA_FRAME_BYTES_MAX ? length : DATA_FRAME_BYTES_MAX);
}

void eb_grpc_output_install(nghttp2_session_callbacks *callbacks)
{
    nghttp2_session_callbacks_set_send_data_callback(callbacks, on_send_data);
    nghttp2_session_callbacks_set_data_source_read_length_callback(callbacks, on_read_length);
}

bool eb_grpc_output_flush(nghttp2_session *session, struct eb_send_queue *queue)
{
    while (eb_send_queue_bytes(queue) < QUEUE_HIGH_BYTES) {
        const uint8_t *bytes;
        ssize_t count = nghttp2_session_mem_send(session, &bytes);
        if (count <= 0) {
            return count == 0;
        }
        if (!eb_send_queue_copy(queue, bytes, (size_t)count)) {
            return false;
        }
    }
    return true;
}
