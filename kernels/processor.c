#include "kernels/processor.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#define VENDOR_BYTES 12

/* Processors of one vendor and CPUID family, from one model to another. */
struct range {
    enum eb_processor_vendor vendor;
    uint32_t cpuid_family;
    uint32_t model_first;
    uint32_t model_last;
    enum eb_processor_family family;
};

/* The models as Linux tells them apart, in arch/x86/kernel/cpu/amd.c and asm/intel-family.h. */
static const struct range ranges[] = {
    {EB_PROCESSOR_VENDOR_AMD, 0x17, 0x30, 0x4f, EB_PROCESSOR_ZEN2},
    {EB_PROCESSOR_VENDOR_AMD, 0x17, 0x60, 0xff, EB_PROCESSOR_ZEN2}, /* 0x50 to 0x5f are Zen 1 */
    {EB_PROCESSOR_VENDOR_AMD, 0x19, 0x00, 0x0f, EB_PROCESSOR_ZEN3},
    {EB_PROCESSOR_VENDOR_AMD, 0x19, 0x20, 0x5f, EB_PROCESSOR_ZEN3},
    {EB_PROCESSOR_VENDOR_AMD, 0x19, 0x10, 0x1f, EB_PROCESSOR_ZEN4},
    {EB_PROCESSOR_VENDOR_AMD, 0x19, 0x60, 0xaf, EB_PROCESSOR_ZEN4},
    {EB_PROCESSOR_VENDOR_AMD, 0x1a, 0x00, 0xff, EB_PROCESSOR_ZEN5},
    {EB_PROCESSOR_VENDOR_INTEL, 6, 0x3f, 0x3f, EB_PROCESSOR_HASWELL},
    {EB_PROCESSOR_VENDOR_INTEL, 6, 0x4f, 0x4f, EB_PROCESSOR_HASWELL}, /* Broadwell */
    {EB_PROCESSOR_VENDOR_INTEL, 6, 0x56, 0x56, EB_PROCESSOR_HASWELL}, /* Broadwell-DE */
    {EB_PROCESSOR_VENDOR_INTEL, 6, 0x55, 0x55, EB_PROCESSOR_SKYLAKE},
    {EB_PROCESSOR_VENDOR_INTEL, 6, 0x6a, 0x6a, EB_PROCESSOR_ICE_LAKE},
    {EB_PROCESSOR_VENDOR_INTEL, 6, 0x6c, 0x6c, EB_PROCESSOR_ICE_LAKE},
    {EB_PROCESSOR_VENDOR_INTEL, 6, 0x8f, 0x8f, EB_PROCESSOR_SAPPHIRE_RAPIDS},
    {EB_PROCESSOR_VENDOR_INTEL, 6, 0xcf, 0xcf, EB_PROCESSOR_SAPPHIRE_RAPIDS}, /* Emerald Rapids */
    {EB_PROCESSOR_VENDOR_INTEL, 6, 0xad, 0xae, EB_PROCESSOR_SAPPHIRE_RAPIDS}, /* Granite Rapids */
};

#define RANGE_COUNT (sizeof ranges / sizeof ranges[0])

static enum eb_processor_vendor find_vendor(const char vendor[VENDOR_BYTES])
{
    if (memcmp(vendor, "AuthenticAMD", VENDOR_BYTES) == 0) {
        return EB_PROCESSOR_VENDOR_AMD;
    }
    if (memcmp(vendor, "GenuineIntel", VENDOR_BYTES) == 0) {
        return EB_PROCESSOR_VENDOR_INTEL;
    }
    return EB_PROCESSOR_VENDOR_OTHER;
}

struct eb_processor eb_processor_of(const char vendor[VENDOR_BYTES], uint32_t signature)
{
    uint32_t family = signature >> 8 & 0xf;
    uint32_t model = signature >> 4 & 0xf;
    uint32_t extended_family = signature >> 20 & 0xff;
    uint32_t extended_model = signature >> 16 & 0xf;
    bool is_extended = family == 6 || family == 15;
    return (struct eb_processor){
        .vendor = find_vendor(vendor),
        .cpuid_family = family == 15 ? family + extended_family : family,
        .cpuid_model = is_extended ? extended_model << 4 | model : model,
    };
}

#ifdef __x86_64__
struct eb_processor eb_processor_read(void)
{
    unsigned leaf_max, signature, b, c, d;
    char vendor[VENDOR_BYTES];
    if (!__get_cpuid(0, &leaf_max, &b, &c, &d)) {
        return (struct eb_processor){.vendor = EB_PROCESSOR_VENDOR_OTHER};
    }
    memcpy(vendor, &b, sizeof b);
    memcpy(vendor + 4, &d, sizeof d);
    memcpy(vendor + 8, &c, sizeof c);
    if (!__get_cpuid(1, &signature, &b, &c, &d)) {
        return (struct eb_processor){.vendor = EB_PROCESSOR_VENDOR_OTHER};
    }
    return eb_processor_of(vendor, signature);
}
#else
struct eb_processor eb_processor_read(void)
{
    return (struct eb_processor){.vendor = EB_PROCESSOR_VENDOR_OTHER};
}
#endif

enum eb_processor_family eb_processor_family_of(const struct eb_processor *processor)
{
    for (size_t i = 0; i < RANGE_COUNT; i++) {
        const struct range *range = &ranges[i];
        if (processor->vendor == range->vendor && processor->cpuid_family == range->cpuid_family &&
            processor->cpuid_model >= range->model_first &&
            processor->cpuid_model <= range->model_last) {
            return range->family;
        }
    }
    return EB_PROCESSOR_OTHER;
}

const char *eb_processor_family_name(enum eb_processor_family family)
{
    switch (family) {
    case EB_PROCESSOR_OTHER: break;
    case EB_PROCESSOR_ZEN2: return "zen2";
    case EB_PROCESSOR_ZEN3: return "zen3";
    case EB_PROCESSOR_ZEN4: return "zen4";
    case EB_PROCESSOR_ZEN5: return "zen5";
    case EB_PROCESSOR_HASWELL: return "haswell";
    case EB_PROCESSOR_SKYLAKE: return "skylake";
    case EB_PROCESSOR_ICE_LAKE: return "ice-lake";
    case EB_PROCESSOR_SAPPHIRE_RAPIDS: return "sapphire-rapids";
    case EB_PROCESSOR_FAMILY_COUNT: break;
    }
    return "other";
}
