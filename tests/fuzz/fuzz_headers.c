/* Parses the header fields of a call, and the small texts in them. Each line of the input is a
 * field, "name value". No text is read past its end, and accepted values are valid. */
#include "proto/grpc_headers.h"
#include "proto/grpc_text.h"
#include "tests/fuzz/input.h"

#include <stdlib.h>
#include <string.h>

#define MESSAGE_BYTES_MAX 300
#define TIMEOUT_US_MAX (UINT64_C(99999999) * 3600 * 1000000)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct eb_grpc_headers_limits limits = {.fields_max = 24, .bytes_max = 2000};

/* Copies the text, so that a sanitizer detects reads past its end. */
static struct eb_grpc_text copy_text(const uint8_t *bytes, size_t size)
{
    char *copy = malloc(size > 0 ? size : 1);
    require(copy);
    memcpy(copy, bytes, size);
    return (struct eb_grpc_text){copy, size};
}

static void check_timeout(struct eb_grpc_text text)
{
    uint64_t timeout_us;
    uint64_t again_us;
    char formatted[16];
    if (!eb_grpc_timeout_parse(text.bytes, text.size, &timeout_us)) {
        return;
    }
    require(timeout_us <= TIMEOUT_US_MAX);
    eb_grpc_timeout_format(timeout_us, formatted);
    require(eb_grpc_timeout_parse(formatted, strlen(formatted), &again_us));
    require(again_us >= timeout_us);
}

/* Checks that a decoded text survives encoding and decoding, if it fits. */
static void check_message(struct eb_grpc_text text)
{
    char decoded[MESSAGE_BYTES_MAX];
    char again[MESSAGE_BYTES_MAX];
    char encoded[EB_GRPC_MESSAGE_BYTES_MAX];
    eb_grpc_message_decode(text.bytes, text.size, decoded, sizeof decoded);
    require(memchr(decoded, '\0', sizeof decoded));
    size_t size = eb_grpc_message_encode(decoded, encoded);
    for (size_t i = 0; i < size; i++) {
        require(encoded[i] >= ' ' && encoded[i] <= '~');
    }
    eb_grpc_message_decode(encoded, size, again, sizeof again);
    require(strcmp(again, decoded) == 0);
}

static void check_trace(struct eb_grpc_text text)
{
    struct eb_trace_parent trace;
    bool is_good = eb_trace_parent_parse(text.bytes, text.size, &trace);
    require(strlen(trace.trace_id) == (is_good ? EB_TRACE_ID_BYTES - 1 : 0));
    require(strlen(trace.parent_id) == (is_good ? EB_TRACE_SPAN_BYTES - 1 : 0));
    require(strspn(trace.trace_id, "0123456789abcdef") == strlen(trace.trace_id));
}

static void add_line(struct eb_grpc_headers *headers, const uint8_t *line, size_t size)
{
    const uint8_t *space = memchr(line, ' ', size);
    size_t name_bytes = space ? (size_t)(space - line) : size;
    size_t value_bytes = space ? size - name_bytes - 1 : 0;
    struct eb_grpc_text name = copy_text(line, name_bytes);
    struct eb_grpc_text value = copy_text(line + size - value_bytes, value_bytes);
    eb_grpc_headers_add(headers, name, value, &limits);
    check_timeout(value);
    check_message(value);
    check_trace(value);
    free((char *)name.bytes);
    free((char *)value.bytes);
}

static void check_headers(const struct eb_grpc_headers *headers)
{
    struct eb_error error;
    int http_status = eb_grpc_headers_check(headers, &limits, &error);
    require(memchr(headers->path, '\0', sizeof headers->path));
    require(memchr(headers->authorization, '\0', sizeof headers->authorization));
    require(headers->is_over_limit || headers->bytes <= limits.bytes_max);
    if (http_status == 200 && error.status == EB_STATUS_OK) {
        require(headers->is_post && headers->is_grpc && !headers->is_timeout_bad);
    } else if (http_status == 200) {
        require(strlen(error.text) > 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct eb_grpc_headers headers = {0};
    while (size > 0) {
        const uint8_t *end = memchr(data, '\n', size);
        size_t line_bytes = end ? (size_t)(end - data) : size;
        add_line(&headers, data, line_bytes);
        data += line_bytes + (end ? 1 : 0);
        size -= line_bytes + (end ? 1 : 0);
    }
    check_headers(&headers);
    return 0;
}
