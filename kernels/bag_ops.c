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

static bool runs_avx512(void)
{
    return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
#endif

#ifdef __x86_64__
EB_BAG_VARIANT_DEFINE(avx2);
EB_BAG_VARIANT_DEFINE(avx512);
#endif
#ifdef __aarch64__
EB_BAG_VARIANT_DEFINE(neon);
#endif

/* All tables of functions in this build, the slowest first. */
static const struct eb_bag_ops variants[] = {
    {&eb_bag_ref, runs_anywhere},
#ifdef __x86_64__
    {&eb_bag_avx2, runs_avx2},
    {&eb_bag_avx512, runs_avx512},
#endif
#ifdef __aarch64__
    {&eb_bag_neon, runs_anywhere},
#endif
};

#define VARIANT_COUNT (sizeof variants / sizeof variants[0])

const struct eb_bag_ops *eb_bag_ops_find(const char *name)
{
    for (size_t n = VARIANT_COUNT; n-- > 0;) {
        const struct eb_bag_ops *ops = &variants[n];
        bool is_meant = !name || strcmp(name, ops->variant->name) == 0;
        if (is_meant && ops->runs_here()) {
            return ops;
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
