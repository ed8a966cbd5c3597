#include "client/cli/output.h"

#include "kernels/types.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_BYTES 32 /* "-1.7976931348623157e+308" and the NUL */
/* Range of the decimal exponents of numbers that are written without an exponent. */
#define EXPONENT_MIN (-4)
#define EXPONENT_MAX 15

const char *const eb_output_types[] = {
#define X(name, number, bytes, text) [number] = text,
    [0] = "unspecified",
    EB_TYPE_LIST(X)
#undef X
        NULL};

const char *eb_output_type(enum embag_type type)
{
    size_t count = sizeof eb_output_types / sizeof eb_output_types[0] - 1;
    return (size_t)type < count ? eb_output_types[type] : eb_output_types[0];
}

/* Widens an f16 to f32. Its bits are moved to their place in an f32, and scaling corrects the
 * exponent; this works for subnormals too. */
static float widen_f16(uint16_t bits)
{
    uint32_t shifted = (uint32_t)(bits & 0x7fff) << 13;
    if ((bits & 0x7c00) == 0x7c00) {
        shifted |= UINT32_C(0x7f800000);
    }
    shifted |= (uint32_t)(bits & 0x8000) << 16;
    float value;
    memcpy(&value, &shifted, sizeof value);
    return isfinite(value) ? value * 0x1p112f : value;
}

static float widen_bf16(uint16_t bits)
{
    uint32_t shifted = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &shifted, sizeof value);
    return value;
}

static bool reads_back(const char *text, double value, bool is_f64)
{
    return is_f64 ? strtod(text, NULL) == value : (double)strtof(text, NULL) == value;
}

static void format_finite(double value, bool is_f64, char out[NUMBER_BYTES])
{
    int decimals = 0;
    snprintf(out, NUMBER_BYTES, "%.0e", value);
    while (!reads_back(out, value, is_f64)) {
        snprintf(out, NUMBER_BYTES, "%.*e", ++decimals, value);
    }
    long exponent = strtol(strchr(out, 'e') + 1, NULL, 10);
    if (exponent >= EXPONENT_MIN && exponent <= EXPONENT_MAX) {
        decimals = decimals > (int)exponent ? decimals - (int)exponent : 0;
        snprintf(out, NUMBER_BYTES, "%.*f", decimals, value);
    }
}

/* Returns the JSON string for a value that JSON has no number for. */
static const char *name_special(double value)
{
    if (isnan(value)) {
        return "\"NaN\"";
    }
    return value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
}

static double read_float(enum embag_type type, const uint8_t *bytes)
{
    double wide = 0;
    float narrow = 0;
    uint16_t half = 0;
    if (type == EMBAG_F64) {
        memcpy(&wide, bytes, sizeof wide);
        return wide;
    }
    if (type == EMBAG_F32) {
        memcpy(&narrow, bytes, sizeof narrow);
        return (double)narrow;
    }
    memcpy(&half, bytes, sizeof half);
    return (double)(type == EMBAG_F16 ? widen_f16(half) : widen_bf16(half));
}

static void print_float(FILE *out, enum embag_type type, const uint8_t *bytes, bool as_json)
{
    char text[NUMBER_BYTES];
    double value = read_float(type, bytes);
    if (isfinite(value)) {
        format_finite(value, type == EMBAG_F64, text);
        fputs(text, out);
    } else if (as_json) {
        fputs(name_special(value), out);
    } else {
        fprintf(out, "%f", value);
    }
}

/* Widens an integer of 1 to 8 bytes. The top bit of its type is the sign. */
static int64_t widen_signed(const uint8_t *bytes, size_t count)
{
    uint64_t value = 0;
    memcpy(&value, bytes, count);
    uint64_t sign = UINT64_C(1) << (8 * count - 1);
    return (int64_t)((value ^ sign) - sign);
}

void eb_output_value(FILE *out, const struct embag_result *result, uint64_t position, bool as_json)
{
    size_t count = embag_type_bytes(result->type);
    const uint8_t *bytes = (const uint8_t *)result->values + position * count;
    uint64_t value = 0;
    switch (result->type) {
    case EMBAG_F32:
    case EMBAG_F64:
    case EMBAG_F16:
    case EMBAG_BF16: print_float(out, result->type, bytes, as_json); return;
    case EMBAG_I8:
    case EMBAG_I16:
    case EMBAG_I32:
    case EMBAG_I64: (void)fprintf(out, "%" PRId64, widen_signed(bytes, count)); return;
    case EMBAG_U8:
    case EMBAG_U16:
    case EMBAG_U32:
    case EMBAG_U64:
        memcpy(&value, bytes, count);
        fprintf(out, "%" PRIu64, value);
        return;
    case EMBAG_TYPE_UNSPECIFIED: return;
    }
}

void eb_output_shape(FILE *out, const uint64_t *shape, uint32_t rank)
{
    fputc('[', out);
    for (uint32_t i = 0; i < rank; i++) {
        fprintf(out, "%s%" PRIu64, i > 0 ? ", " : "", shape[i]);
    }
    fputc(']', out);
}

void eb_output_json_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\') {
            fprintf(out, "\\%c", *c);
        } else if ((unsigned char)*c < 0x20) {
            fprintf(out, "\\u%04x", (unsigned)*c);
        } else {
            fputc(*c, out);
        }
    }
    fputc('"', out);
}

/* Returns the bytes of the control character at `text`: one byte of ASCII, or U+0080 to U+009F.
 * Returns 0 if there is none. */
static size_t measure_control(const char *text)
{
    unsigned char first = (unsigned char)text[0];
    if (first < 0x20 || first == 0x7f) {
        return 1;
    }
    return first == 0xc2 && (unsigned char)text[1] >= 0x80 && (unsigned char)text[1] < 0xa0 ? 2 : 0;
}

struct eb_output_text eb_output_printable(const char *text)
{
    static const char hex[] = "0123456789abcdef";
    struct eb_output_text out = {0};
    size_t used = 0;
    size_t escaped_count = 0;
    for (const char *c = text; *c != '\0' && used + 4 < sizeof out.bytes; c++) {
        escaped_count = escaped_count > 0 ? escaped_count : measure_control(c);
        if (escaped_count == 0) {
            out.bytes[used++] = *c;
            continue;
        }
        escaped_count--;
        out.bytes[used++] = '\\';
        out.bytes[used++] = 'x';
        out.bytes[used++] = hex[(unsigned char)*c >> 4];
        out.bytes[used++] = hex[*c & 15];
    }
    return out;
}

const char *eb_output_state(enum embag_version_state state)
{
    switch (state) {
    case EMBAG_STATE_LOADING: return "loading";
    case EMBAG_STATE_READY: return "ready";
    case EMBAG_STATE_SERVING: return "serving";
    case EMBAG_STATE_RETIRED: return "retired";
    case EMBAG_STATE_FAILED: return "failed";
    case EMBAG_STATE_UNSPECIFIED: break;
    }
    return "unknown";
}

struct eb_output_size eb_output_size(uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    struct eb_output_size out;
    size_t unit = 0;
    double size = (double)bytes;
    for (; size >= 1024; size /= 1024) {
        unit++;
    }
    snprintf(out.bytes, sizeof out.bytes, "%.*f %s", unit > 0, size, units[unit]);
    return out;
}

int eb_output_error(const struct embag_error *error)
{
    fprintf(stderr, "%s: %s\n", embag_status_name(error->status),
        eb_output_printable(error->text).bytes);
    return 1;
}
