#include "kernels/bag_ops.h"

#include "kernels/bag_variant.h"

#include <assert.h>
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

static bool runs_anywhere(void)
{
    return true;
}

#ifdef __x86_64__
/* Returns whether the processor has F16C. The feature tests of some compilers do not know F16C. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

/* Returns whether AVX2, FMA and F16C can be used. The compiler's feature test also checks that the
 * operating system saves the registers. */
static bool runs_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

static bool runs_avx512vl(void)
{
    return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");
}

static bool runs_avx512(void)
{
    return runs_avx512vl() && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq");
}

/* After arithmetic on 512-bit vectors of floats, Skylake and its successors up to Cooper Lake lower
 * the core's clock for a while, which slows all code that follows. Not measured here. Source: Intel
 * 64 and IA-32 Architectures Optimization Reference Manual, "Skylake Server Power Management". */
static bool lowers_clock(enum eb_processor_family family)
{
    return family == EB_PROCESSOR_SKYLAKE;
}

EB_BAG_VARIANT_DEFINE(avx2, avx2, avx2);
EB_BAG_VARIANT_DEFINE(avx512vl, avx2, avx2);
EB_BAG_VARIANT_DEFINE(avx512, avx512, avx2);
#endif
#ifdef __aarch64__
EB_BAG_VARIANT_DEFINE(neon, neon, neon);
#endif

/* All tables of functions in this build. Each is faster than those before it, except on the
 * families for which loses_on returns true. */
static const struct eb_bag_ops variants[] = {
    {&eb_bag_ref, runs_anywhere, NULL},
#ifdef __x86_64__
    {&eb_bag_avx2, runs_avx2, NULL},
    {&eb_bag_avx512vl, runs_avx512vl, NULL},
    {&eb_bag_avx512, runs_avx512, lowers_clock},
#endif
#ifdef __aarch64__
    {&eb_bag_neon, runs_anywhere, NULL},
#endif
};

#define VARIANT_COUNT (sizeof variants / sizeof variants[0])

const struct eb_bag_ops *eb_bag_ops_fastest_on(enum eb_processor_family family)
{
    const struct eb_bag_ops *fastest = &variants[0];
    for (size_t n = 1; n < VARIANT_COUNT; n++) {
        const struct eb_bag_ops *ops = &variants[n];
        bool loses = ops->loses_on && ops->loses_on(family);
        fastest = ops->runs_here() && !loses ? ops : fastest;
    }
    return fastest;
}

const struct eb_bag_ops *eb_bag_ops_find(const char *name)
{
    if (!name) {
        struct eb_processor processor = eb_processor_read();
        return eb_bag_ops_fastest_on(eb_processor_family_of(&processor));
    }
    for (size_t n = 0; n < VARIANT_COUNT; n++) {
        if (strcmp(name, variants[n].variant->name) == 0) {
            return variants[n].runs_here() ? &variants[n] : NULL;
        }
    }
    return NULL;
}

const struct eb_bag_ops *eb_bag_ops_at(size_t n)
{
    return n < VARIANT_COUNT ? &variants[n] : NULL;
}

const char *eb_bag_ops_name(const struct eb_bag_ops *ops)
{
    return ops->variant->name;
}

bool eb_bag_ops_runs_here(const struct eb_bag_ops *ops)
{
    return ops->runs_here();
}

/* How many times longer the reference takes than vector functions. Measured on a Sapphire Rapids
 * virtual machine with rows of 128 elements: 26 times for f64, 37 for i8, 41 for i32, 64 for
 * f16. */
#define REFERENCE_SLOWNESS 40

unsigned eb_bag_ops_slowness(const struct eb_bag_ops *ops)
{
    return ops->variant == &eb_bag_ref ? REFERENCE_SLOWNESS : 1;
}

const struct eb_bag_variant *eb_bag_ops_variant(const struct eb_bag_ops *ops)
{
    return ops->variant;
}
