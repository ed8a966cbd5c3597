#include "server/net/socket_output.h"

#include "proto/net/tls_stream.h"

#include <assert.h>

#define BUFFERS_MAX 64       /* buffers in one gathered write */
#define PROGRESS_BYTES 65536 /* bytes that are progress if they go out within the longest time */

static void on_output_write(uv_write_t *write, int status)
{
    struct eb_socket_output *output = write->data;
    size_t written = output->writing_bytes;
    *output->sent_bytes += status == 0 ? written : 0;
    output->writing_bytes = 0;
    output->unwritten_bytes = 0; /* A stall of the next write is timed from its own start. */
    if (status == 0 && output->tls) {
        eb_tls_stream_end_write(output->tls);
    } else if (status == 0) {
        eb_send_queue_drop(output->queue, written);
    }
    output->on_written(output, status);
}

/* Hands libuv the bytes that the socket did not take at once. Their buffers must stay valid until
 * on_output_write. */
static int write_later(struct eb_socket_output *output, const uv_buf_t *buffers, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        output->writing_bytes += buffers[i].len;
    }
    output->write.data = output;
    int rc = uv_write(&output->write, output->stream, buffers, count, on_output_write);
    if (rc < 0) {
        output->writing_bytes = 0;
    }
    return rc;
}

/* Returns how many bytes the socket took at once, or a negative libuv code. */
static int write_now(struct eb_socket_output *output, const uv_buf_t *buffers, unsigned count)
{
    int written = uv_try_write(output->stream, buffers, count);
    *output->sent_bytes += written > 0 ? (uint64_t)written : 0;
    return written == UV_EAGAIN ? 0 : written;
}

static int write_output_sealed(struct eb_socket_output *output)
{
    size_t count;
    if (!eb_tls_stream_seal(output->tls, output->queue)) {
        return UV_EPROTO;
    }
    uint8_t *bytes = eb_tls_stream_begin_write(output->tls, &count);
    if (count == 0) {
        return 0;
    }
    uv_buf_t buffer = uv_buf_init((char *)bytes, (unsigned)count);
    int written = write_now(output, &buffer, 1);
    if (written < 0) {
        return written;
    }
    if ((size_t)written == count) {
        eb_tls_stream_end_write(output->tls);
        return 1;
    }
    buffer = uv_buf_init((char *)bytes + written, (unsigned)(count - (size_t)written));
    return write_later(output, &buffer, 1);
}

/* Fills in the first buffers of the queue. Sets *offered to the sum of their bytes. */
static unsigned fill_buffers(
    const struct eb_send_queue *queue, uv_buf_t buffers[BUFFERS_MAX], size_t *offered)
{
    struct iovec parts[BUFFERS_MAX];
    unsigned count = (unsigned)eb_send_queue_peek(queue, parts, BUFFERS_MAX);
    *offered = 0;
    for (unsigned i = 0; i < count; i++) {
        buffers[i] = uv_buf_init(parts[i].iov_base, (unsigned)parts[i].iov_len);
        *offered += parts[i].iov_len;
    }
    return count;
}

int eb_socket_output_write(struct eb_socket_output *output)
{
    assert(output->writing_bytes == 0);
    if (output->tls) {
        return write_output_sealed(output);
    }
    uv_buf_t buffers[BUFFERS_MAX];
    size_t offered;
    unsigned count = fill_buffers(output->queue, buffers, &offered);
    if (count == 0) {
        return 0;
    }
    int written = write_now(output, buffers, count);
    if (written < 0) {
        return written;
    }
    eb_send_queue_drop(output->queue, (size_t)written);
    if ((size_t)written == offered) {
        return 1;
    }
    count = fill_buffers(output->queue, buffers, &offered);
    return write_later(output, buffers, count);
}

void eb_socket_output_end(struct eb_socket_output *output)
{
    if (!output->tls || output->writing_bytes > 0) {
        return;
    }
    size_t count;
    eb_tls_stream_end(output->tls);
    uint8_t *bytes = eb_tls_stream_begin_write(output->tls, &count);
    uv_buf_t buffer = uv_buf_init((char *)bytes, (unsigned)count);
    if (count > 0) {
        (void)write_now(output, &buffer, 1);
    }
    eb_tls_stream_end_write(output->tls);
}

/* Returns whether bytes are waiting that cannot be written because of the peer. */
static bool is_held_up(const struct eb_socket_output *output)
{
    return output->tls && eb_send_queue_bytes(output->queue) > 0 &&
           eb_tls_stream_is_held_up(output->tls);
}

bool eb_socket_output_is_stalled(
    struct eb_socket_output *output, uint64_t now_ms, uint64_t longest_ms)
{
    size_t unwritten = uv_stream_get_write_queue_size(output->stream);
    if ((output->writing_bytes == 0 && !is_held_up(output)) ||
        unwritten > output->unwritten_bytes ||
        output->unwritten_bytes - unwritten >= PROGRESS_BYTES) {
        output->unwritten_bytes = unwritten;
        output->moved_ms = now_ms;
    }
    return now_ms - output->moved_ms >= longest_ms;
}
