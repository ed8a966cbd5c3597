/* Identifies the processor, to choose settings that depend on it. All processors of one family have
 * caches and vector units similar enough for that.
 * Thread: any. Memory: none. */
#pragma once

#include <stdint.h>

enum eb_processor_vendor {
    EB_PROCESSOR_VENDOR_OTHER, /* also every processor that has no CPUID */
    EB_PROCESSOR_VENDOR_AMD,
    EB_PROCESSOR_VENDOR_INTEL,
};

/* A processor as CPUID identifies it. */
struct eb_processor {
    enum eb_processor_vendor vendor;
    uint32_t cpuid_family; /* as the vendor's manuals count it, with the extended family */
    uint32_t cpuid_model;  /* with the extended model */
};

enum eb_processor_family {
    EB_PROCESSOR_OTHER, /* also the processors of a known vendor that are not listed here */
    EB_PROCESSOR_ZEN2,
    EB_PROCESSOR_ZEN3,
    EB_PROCESSOR_ZEN4,
    EB_PROCESSOR_ZEN5,            /* also later processors with CPUID family 1Ah */
    EB_PROCESSOR_HASWELL,         /* servers: Haswell, Broadwell */
    EB_PROCESSOR_SKYLAKE,         /* servers: Skylake, Cascade Lake, Cooper Lake */
    EB_PROCESSOR_ICE_LAKE,        /* servers: Ice Lake */
    EB_PROCESSOR_SAPPHIRE_RAPIDS, /* servers: Sapphire, Emerald and Granite Rapids */
    EB_PROCESSOR_FAMILY_COUNT
};

/* Returns the processor that this thread runs on. */
struct eb_processor eb_processor_read(void);

/* Returns the processor of CPUID's vendor text and of its signature, EAX of leaf 1. */
struct eb_processor eb_processor_of(const char vendor[12], uint32_t signature);

enum eb_processor_family eb_processor_family_of(const struct eb_processor *processor);

/* Returns the name of a family, such as "zen3" or "sapphire-rapids"; "other" for
 * EB_PROCESSOR_OTHER. */
const char *eb_processor_family_name(enum eb_processor_family family);
