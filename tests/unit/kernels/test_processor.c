#include "kernels/processor.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define AMD "AuthenticAMD"
#define INTEL "GenuineIntel"

static void decodes_signatures(void **state)
{
    (void)state;
    static const struct {
        const char *vendor;
        uint32_t signature;
        struct eb_processor expected;
    } cases[] = {
        {AMD, 0x00830f10, {EB_PROCESSOR_VENDOR_AMD, 0x17, 0x31}},
        {AMD, 0x00a00f11, {EB_PROCESSOR_VENDOR_AMD, 0x19, 0x01}},
        {AMD, 0x00a10f11, {EB_PROCESSOR_VENDOR_AMD, 0x19, 0x11}},
        {AMD, 0x00b00f21, {EB_PROCESSOR_VENDOR_AMD, 0x1a, 0x02}},
        {AMD, 0x0ff00fff, {EB_PROCESSOR_VENDOR_AMD, 0x10e, 0x0f}},
        {INTEL, 0x00050657, {EB_PROCESSOR_VENDOR_INTEL, 6, 0x55}},
        {INTEL, 0x000606a6, {EB_PROCESSOR_VENDOR_INTEL, 6, 0x6a}},
        {INTEL, 0x000806f8, {EB_PROCESSOR_VENDOR_INTEL, 6, 0x8f}},
        /* Outside families 6 and 15, there is no extended model; outside 15, no extended family. */
        {INTEL, 0x0ff20543, {EB_PROCESSOR_VENDOR_INTEL, 5, 4}},
        {"HygonGenuine", 0x00900f02, {EB_PROCESSOR_VENDOR_OTHER, 0x18, 0}},
        {"authenticamd", 0x00a00f11, {EB_PROCESSOR_VENDOR_OTHER, 0x19, 1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct eb_processor processor = eb_processor_of(cases[i].vendor, cases[i].signature);
        assert_int_equal(processor.vendor, cases[i].expected.vendor);
        assert_int_equal(processor.cpuid_family, cases[i].expected.cpuid_family);
        assert_int_equal(processor.cpuid_model, cases[i].expected.cpuid_model);
    }
}

static void expect_family(enum eb_processor_vendor vendor, uint32_t cpuid_family,
    uint32_t cpuid_model, const char *expected)
{
    struct eb_processor processor = {vendor, cpuid_family, cpuid_model};
    const char *name = eb_processor_family_name(eb_processor_family_of(&processor));
    if (strcmp(name, expected) != 0) {
        fail_msg("family %#x model %#x: %s, expected %s", (unsigned)cpuid_family,
            (unsigned)cpuid_model, name, expected);
    }
}

static void tells_amd_apart(void **state)
{
    (void)state;
    static const struct {
        uint32_t cpuid_family;
        uint32_t model_first;
        uint32_t model_last;
        const char *expected;
    } cases[] = {
        {0x16, 0x00, 0xff, "other"},
        {0x17, 0x00, 0x2f, "other"},
        {0x17, 0x30, 0x4f, "zen2"},
        {0x17, 0x50, 0x5f, "other"},
        {0x17, 0x60, 0xff, "zen2"},
        {0x18, 0x00, 0xff, "other"},
        {0x19, 0x00, 0x0f, "zen3"},
        {0x19, 0x10, 0x1f, "zen4"},
        {0x19, 0x20, 0x5f, "zen3"},
        {0x19, 0x60, 0xaf, "zen4"},
        {0x19, 0xb0, 0xff, "other"},
        {0x1a, 0x00, 0xff, "zen5"},
        {0x1b, 0x00, 0xff, "other"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (uint32_t model = cases[i].model_first; model <= cases[i].model_last; model++) {
            expect_family(EB_PROCESSOR_VENDOR_AMD, cases[i].cpuid_family, model, cases[i].expected);
            expect_family(EB_PROCESSOR_VENDOR_OTHER, cases[i].cpuid_family, model, "other");
            expect_family(EB_PROCESSOR_VENDOR_INTEL, cases[i].cpuid_family, model, "other");
        }
    }
}

static const char *name_intel(uint32_t cpuid_model)
{
    switch (cpuid_model) {
    case 0x3f:
    case 0x4f:
    case 0x56: return "haswell";
    case 0x55: return "skylake";
    case 0x6a:
    case 0x6c: return "ice-lake";
    case 0x8f:
    case 0xcf:
    case 0xad:
    case 0xae: return "sapphire-rapids";
    default: return "other";
    }
}

static void tells_intel_apart(void **state)
{
    (void)state;
    for (uint32_t model = 0; model <= 0xff; model++) {
        expect_family(EB_PROCESSOR_VENDOR_INTEL, 6, model, name_intel(model));
        expect_family(EB_PROCESSOR_VENDOR_INTEL, 19, model, "other");
        expect_family(EB_PROCESSOR_VENDOR_AMD, 6, model, "other");
    }
}

/* All families have different names. */
static void names_families(void **state)
{
    (void)state;
    for (unsigned i = 0; i < EB_PROCESSOR_FAMILY_COUNT; i++) {
        for (unsigned n = 0; n < i; n++) {
            assert_string_not_equal(eb_processor_family_name(i), eb_processor_family_name(n));
        }
    }
}

static void reads_this_processor(void **state)
{
    (void)state;
    struct eb_processor processor = eb_processor_read();
#ifdef __x86_64__
    assert_true(processor.cpuid_family >= 6);
    assert_int_equal(processor.vendor == EB_PROCESSOR_VENDOR_AMD, !!__builtin_cpu_is("amd"));
    assert_int_equal(processor.vendor == EB_PROCESSOR_VENDOR_INTEL, !!__builtin_cpu_is("intel"));
#else
    assert_int_equal(eb_processor_family_of(&processor), EB_PROCESSOR_OTHER);
#endif
}

EB_TEST_GROUP(processor)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decodes_signatures),
        cmocka_unit_test(tells_amd_apart),
        cmocka_unit_test(tells_intel_apart),
        cmocka_unit_test(names_families),
        cmocka_unit_test(reads_this_processor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
