#include "client/cli/output.h"

#include "kernels/types.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_BYTES 32 /* "-1.7976931348623157e+308" and its end */

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

/* The value of an f16 is that of an f32 after its exponent has been moved; scaling does that for
 * subnormals too. */
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

static void format_f32(float value, char out[NUMBER_BYTES])
{
    for (int digits = 1; digits <= 9; digits++) {
        (void)snprintf(out, NUMBER_BYTES, "%.*g", digits, (double)value);
        if (strtof(out, NULL) == value) {
            return;
        }
    }
}

static void format_f64(double value, char out[NUMBER_BYTES])
{
    for (int digits = 1; digits <= 17; digits++) {
        (void)snprintf(out, NUMBER_BYTES, "%.*g", digits, value);
        if (strtod(out, NULL) == value) {
            return;
        }
    }
}

/* What `printf` cannot make JSON of. */
static const char *name_special(double value)
{
    if (isnan(value)) {
        return "\"NaN\"";
    }
    return value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
}

static void print_float(FILE *out, enum embag_type type, const uint8_t *bytes, bool as_json)
{
    char text[NUMBER_BYTES];
    double value = 0;
    if (type == EMBAG_F64) {
        memcpy(&value, bytes, sizeof value);
        format_f64(value, text);
    } else {
        float narrow = 0;
        uint16_t half = 0;
        memcpy(&half, bytes, sizeof half);
        if (type == EMBAG_F32) {
            memcpy(&narrow, bytes, sizeof narrow);
        } else {
            narrow = type == EMBAG_F16 ? widen_f16(half) : widen_bf16(half);
        }
        value = (double)narrow;
        format_f32(narrow, text);
    }
    (void)fputs(as_json && !isfinite(value) ? name_special(value) : text, out);
}

/* Widens an integer of 1 to 8 bytes; the sign is the top bit of its type. */
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
        (void)fprintf(out, "%" PRIu64, value);
        return;
    case EMBAG_TYPE_UNSPECIFIED: return;
    }
}

void eb_output_shape(FILE *out, const uint64_t *shape, uint32_t rank)
{
    (void)fputc('[', out);
    for (uint32_t i = 0; i < rank; i++) {
        (void)fprintf(out, "%s%" PRIu64, i > 0 ? ", " : "", shape[i]);
    }
    (void)fputc(']', out);
}

void eb_output_json_text(FILE *out, const char *text)
{
    (void)fputc('"', out);
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\') {
            (void)fprintf(out, "\\%c", *c);
        } else if ((unsigned char)*c < 0x20) {
            (void)fprintf(out, "\\u%04x", (unsigned)*c);
        } else {
            (void)fputc(*c, out);
        }
    }
    (void)fputc('"', out);
}
