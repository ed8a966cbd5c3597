#include "tests/variants/variant_draw.h"

#include "kernels/element.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t seed;

void draw_seed(void)
{
    const char *given = getenv("EMBAG_TEST_SEED");
    seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    print_message("EMBAG_TEST_SEED=%llu\n", (unsigned long long)seed);
}

uint32_t draw(uint32_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((seed >> 32) % below);
}

/* Draws a number from -2 to 2. */
static float draw_everyday(void)
{
    return ((float)draw(1 << 24) - (1 << 23)) * 0x1p-22f;
}

static void draw_bits(void *memory, size_t count)
{
    uint8_t *bytes = memory;
    for (size_t i = 0; i < count; i++) {
        bytes[i] = (uint8_t)draw(256);
    }
}

/* Draws zeros of both signs, small numbers, subnormals, and large numbers whose sums overflow. */
static void draw_extremes(uint8_t *bytes, size_t count, size_t element_bytes)
{
    static const uint8_t tops[] = {0x00, 0x80, 0x80, 0x3f, 0xbf, 0x7f, 0xff};
    memset(bytes, 0, count);
    for (size_t i = 0; i + element_bytes <= count; i += element_bytes) {
        bytes[i] = draw(8) == 0;
        bytes[i + element_bytes - 1] |= tops[draw(draw(2) ? 3 : sizeof tops)];
    }
}

static void draw_everyday_floats(uint8_t *bytes, size_t count, enum eb_type type)
{
    size_t element_bytes = eb_type_bytes(type);
    for (size_t i = 0; i + element_bytes <= count; i += element_bytes) {
        eb_element_store_float(type, draw_everyday(), bytes + i);
    }
}

/* Draws bytes whose highest exponent bit is clear, so that their values are below 2. */
static void draw_everyday_fp8(uint8_t *bytes, size_t count)
{
    draw_bits(bytes, count);
    for (size_t i = 0; i < count; i++) {
        bytes[i] &= 0xbf;
    }
}

static bool is_float(enum eb_storage storage)
{
    return !eb_storage_is_code(storage) && eb_type_is_float(eb_storage_type(storage));
}

void draw_values(uint8_t *bytes, size_t count, enum eb_storage storage)
{
    uint32_t kind = draw(is_float(storage) ? 5 : 2);
    if (kind == 0) {
        draw_bits(bytes, count);
    } else if (kind == 1) {
        size_t is_byte = eb_storage_bits(storage) <= 8;
        draw_extremes(bytes, count, is_byte ? 1 : eb_storage_bytes(storage));
    } else if (storage == EB_STORAGE_F8_E4M3 || storage == EB_STORAGE_F8_E5M2) {
        draw_everyday_fp8(bytes, count);
    } else {
        draw_everyday_floats(bytes, count, (enum eb_type)storage);
    }
}

static float draw_extreme(void)
{
    static const float extremes[] = {
        0, 1, FLT_MIN, FLT_MIN / 2, FLT_TRUE_MIN, 0x1p-100f, 0x1p100f, FLT_MAX, INFINITY, NAN};
    float value = extremes[draw(sizeof extremes / sizeof extremes[0])];
    return draw(2) ? value : -value;
}

void draw_scales(struct eb_row_scale *scales, uint64_t count, enum eb_storage storage)
{
    uint32_t kind = draw(4);
    if (kind == 0) {
        draw_bits(scales, count * sizeof scales[0]);
        return;
    }
    int bits = (int)eb_storage_bits(storage);
    for (uint64_t row = 0; row < count; row++) {
        bool has_extremes = kind == 1 && draw(2);
        scales[row].scale = has_extremes ? draw_extreme() : ldexpf(draw_everyday(), -bits);
        scales[row].bias = has_extremes && draw(2) ? draw_extreme() : draw_everyday();
    }
}
