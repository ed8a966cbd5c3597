#include "proto/grpc_headers.h"

#include "proto/grpc_text.h"

#include <string.h>
#include <strings.h>

static bool is_header_text(struct eb_grpc_text text, const char *expected)
{
    return text.size == strlen(expected) && memcmp(text.bytes, expected, text.size) == 0;
}

/* Returns whether the value is application/grpc, alone or followed by a format or parameters. */
static bool is_grpc_type(struct eb_grpc_text value)
{
    static const char type[] = "application/grpc";
    size_t size = sizeof type - 1;
    if (value.size < size || strncasecmp(value.bytes, type, size) != 0) {
        return false;
    }
    return value.size == size || value.bytes[size] == '+' || value.bytes[size] == ';';
}

static void add_path(struct eb_grpc_headers *headers, struct eb_grpc_text value)
{
    if (value.size >= sizeof headers->path) {
        headers->is_path_long = true;
        return;
    }
    memcpy(headers->path, value.bytes, value.size);
    headers->path[value.size] = '\0';
}

static void add_timeout(struct eb_grpc_headers *headers, struct eb_grpc_text value)
{
    headers->is_timeout_bad = !eb_grpc_timeout_parse(value.bytes, value.size, &headers->timeout_us);
    if (headers->timeout_us == 0) {
        headers->timeout_us = 1; /* already over; 0 would mean no timeout */
    }
}

static void add_authorization(struct eb_grpc_headers *headers, struct eb_grpc_text value)
{
    bool is_good = !headers->has_authorization && value.size < sizeof headers->authorization;
    headers->has_authorization = true;
    memcpy(headers->authorization, value.bytes, is_good ? value.size : 0);
    headers->authorization[is_good ? value.size : 0] = '\0';
}

static void add_header_trace(struct eb_grpc_headers *headers, struct eb_grpc_text value)
{
    if (headers->has_trace) {
        headers->trace = (struct eb_trace_parent){0};
        return;
    }
    headers->has_trace = true;
    (void)eb_trace_parent_parse(value.bytes, value.size, &headers->trace);
}

static enum eb_grpc_encoding read_encoding(struct eb_grpc_text value)
{
    if (is_header_text(value, "gzip")) {
        return EB_GRPC_GZIP;
    }
    return is_header_text(value, "identity") ? EB_GRPC_IDENTITY : EB_GRPC_UNKNOWN_ENCODING;
}

/* Returns the number of bytes to which an honest block of `wire_bytes` can expand. */
static size_t find_honest_bytes(size_t wire_bytes)
{
    return EB_GRPC_TABLES_BYTES + EB_GRPC_EXPANSION_MAX * wire_bytes;
}

size_t eb_grpc_block_bytes_max(size_t wire_bytes, const struct eb_grpc_headers_limits *limits)
{
    size_t honest = find_honest_bytes(wire_bytes);
    size_t most = (size_t)EB_GRPC_BLOCK_LIMITS_MAX * limits->bytes_max;
    return honest < most ? honest : most;
}

size_t eb_grpc_block_excess(
    const struct eb_grpc_block *block, const struct eb_grpc_headers_limits *limits)
{
    size_t honest = find_honest_bytes(block->wire_bytes);
    size_t fields_paid = limits->fields_max + block->wire_bytes / EB_GRPC_FIELD_WIRE_BYTES;
    size_t excess = 0;
    if (block->bytes > (size_t)EB_GRPC_BLOCK_LIMITS_MAX * limits->bytes_max) {
        return SIZE_MAX;
    }
    if (block->bytes > honest) {
        excess += (block->bytes - honest) * EB_GRPC_EXPANSION_WEIGHT;
    }
    if (block->field_count > fields_paid) {
        excess += (block->field_count - fields_paid) * (limits->bytes_max / limits->fields_max);
    }
    return excess;
}

void eb_grpc_headers_add(struct eb_grpc_headers *headers, struct eb_grpc_text name,
    struct eb_grpc_text value, const struct eb_grpc_headers_limits *limits)
{
    headers->bytes += (uint32_t)(name.size + value.size);
    headers->field_count++;
    if (headers->bytes > limits->bytes_max || headers->field_count > limits->fields_max) {
        headers->is_over_limit = true;
        return;
    }
    switch (name.size) {
    case 5:
        if (is_header_text(name, ":path")) {
            add_path(headers, value);
        }
        break;
    case 7:
        if (is_header_text(name, ":method")) {
            headers->is_post = is_header_text(value, "POST");
        }
        break;
    case 11:
        if (is_header_text(name, "traceparent")) {
            add_header_trace(headers, value);
        }
        break;
    case 12:
        if (is_header_text(name, "content-type")) {
            headers->is_grpc = is_grpc_type(value);
        } else if (is_header_text(name, "grpc-timeout")) {
            add_timeout(headers, value);
        }
        break;
    case 13:
        if (is_header_text(name, "grpc-encoding")) {
            headers->encoding = read_encoding(value);
        } else if (is_header_text(name, "authorization")) {
            add_authorization(headers, value);
        }
        break;
    case 26:
        if (is_header_text(name, "grpc-previous-rpc-attempts")) {
            headers->is_repeated = !is_header_text(value, "0");
        }
        break;
    default: break;
    }
}

static void explain_size(const struct eb_grpc_headers *headers,
    const struct eb_grpc_headers_limits *limits, struct eb_error *error)
{
    if (headers->field_count > limits->fields_max) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED,
            "the call has %u header fields, more than header_fields_max (%u): send fewer",
            headers->field_count, limits->fields_max);
    } else {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED,
            "the call has %u bytes of header fields, more than header_bytes_max (%u): send fewer "
            "or shorter ones",
            headers->bytes, limits->bytes_max);
    }
}

int eb_grpc_headers_check(const struct eb_grpc_headers *headers,
    const struct eb_grpc_headers_limits *limits, struct eb_error *error)
{
    error->status = EB_STATUS_OK;
    if (headers->is_over_limit) {
        explain_size(headers, limits, error);
    } else if (!headers->is_post) {
        return 405;
    } else if (!headers->is_grpc) {
        return 415;
    } else if (headers->is_path_long) {
        eb_error_set(error, EB_STATUS_UNIMPLEMENTED,
            "unknown method: the path is longer than that of any method");
    } else if (headers->is_timeout_bad) {
        eb_error_set(error, EB_STATUS_INVALID_ARGUMENT,
            "invalid grpc-timeout: expected at most 8 digits and one of H M S m u n");
    }
    return 200;
}
