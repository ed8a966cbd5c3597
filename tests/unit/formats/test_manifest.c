#include "server/formats/manifest.h"

#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HEAD "format: 1\nparts: 1\nfiles:\n"
#define ENTRY "{name: a.npy, bytes: 1, xxh3_64: 0123456789abcdef}"

static void parse_manifest(const char *yaml, struct eb_manifest *manifest)
{
    struct eb_failure failure = {.text = ""};
    if (!eb_manifest_parse((const uint8_t *)yaml, strlen(yaml), manifest, &failure)) {
        fail_msg("%s: %s", yaml, failure.text);
    }
}

static void expect_refused(const char *yaml, size_t yaml_bytes, const char *part)
{
    struct eb_manifest manifest;
    struct eb_failure failure = {.text = ""};
    assert_false(eb_manifest_parse((const uint8_t *)yaml, yaml_bytes, &manifest, &failure));
    assert_int_equal(manifest.count, 0);
    assert_null(manifest.files);
    eb_scratch_expect(failure.text, part);
}

static void reads_what_the_importer_writes(void **state)
{
    (void)state;
    struct eb_manifest manifest;
    parse_manifest(HEAD "  - {name: t1.keys.npy, bytes: 8, xxh3_64: \"0123456789012345\"}\n"
                        "  - {name: \"\\U0000200bt.safetensors\", bytes: 0, "
                        "xxh3_64: abcdef0123456789}\n"
                        "  - {name: a.safetensors, bytes: 17592186044416, "
                        "xxh3_64: \"00000000000000ff\"}\n",
        &manifest);
    assert_int_equal(manifest.count, 3);
    assert_string_equal(manifest.files[0].name, "a.safetensors");
    assert_true(manifest.files[0].bytes == EB_MANIFEST_FILE_BYTES_MAX);
    assert_int_equal(manifest.files[0].digest, 0xff);
    const struct eb_manifest_file *keys = eb_manifest_find(&manifest, "t1.keys.npy");
    assert_non_null(keys);
    assert_true(keys->bytes == 8 && keys->digest == UINT64_C(0x0123456789012345));
    assert_non_null(eb_manifest_find(&manifest, "\xe2\x80\x8bt.safetensors"));
    assert_null(eb_manifest_find(&manifest, "t1"));
    eb_manifest_deinit(&manifest);
    assert_null(eb_manifest_find(&manifest, "a.safetensors"));
}

static void refuses_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *yaml;
        const char *part;
    } cases[] = {
        {"", "the file is empty; expected format, parts and files"},
        {"parts: 1\nfiles: [" ENTRY "]", "format: is missing; expected 1"},
        {"format: 2\nparts: 1\nfiles: [" ENTRY "]", "format: '2' is not supported"},
        {"format: one\nparts: 1\nfiles: [" ENTRY "]", "format: 'one' is not a number; expected 1"},
        {"format: 0\nparts: 1\nfiles: [" ENTRY "]", "format: '0' is not a number"},
        {"format: 1\nfiles: [" ENTRY "]", "parts: is missing; expected 1"},
        {"format: 1\nparts: 4\nfiles: [" ENTRY "]", "parts: '4' is not the number of parts"},
        {"format: 1\nparts: -1\nfiles: [" ENTRY "]", "parts: '-1' is not a number"},
        {"format: 1\nparts: 1", "files: is missing or empty"},
        {"format: 1\nparts: 1\nfiles: []", "files: is missing or empty"},
        {HEAD "- " ENTRY "\nextra: 1", "extra"},
        {HEAD "- {name: a.npy, bytes: 1, xxh3_64: 0123456789abcdef, mode: 1}", "mode"},
        {HEAD "- " ENTRY "\n- " ENTRY, "files: 'a.npy' is listed twice"},
        {HEAD "- {bytes: 1, xxh3_64: 0123456789abcdef}", "files[0].name: is missing"},
        {HEAD "- " ENTRY "\n- {name: '', bytes: 1, xxh3_64: 0123456789abcdef}",
            "files[1].name: '' is empty"},
        {HEAD "- {name: ../a, bytes: 1, xxh3_64: 0123456789abcdef}", "'../a' has a slash"},
        {HEAD "- {name: .a, bytes: 1, xxh3_64: 0123456789abcdef}", "'.a' begins with a dot"},
        {HEAD "- {name: manifest.yaml, bytes: 1, xxh3_64: 0123456789abcdef}",
            "is the manifest itself"},
        {HEAD "- {name: a, xxh3_64: 0123456789abcdef}", "files[0].bytes: is missing"},
        {HEAD "- {name: a, bytes: -1, xxh3_64: 0123456789abcdef}",
            "files[0].bytes: '-1' is not a number from 0 to 17592186044416"},
        {HEAD "- {name: a, bytes: 17592186044417, xxh3_64: 0123456789abcdef}",
            "files[0].bytes: '17592186044417' is not a number"},
        {HEAD "- {name: a, bytes: 1}", "files[0].xxh3_64: is missing"},
        {HEAD "- {name: a, bytes: 1, xxh3_64: 0123456789ABCDEF}",
            "files[0].xxh3_64: '0123456789ABCDEF' is not a digest; expected 16 hex digits"},
        {HEAD "- {name: a, bytes: 1, xxh3_64: 0123456789abcde}", "is not a digest"},
        {HEAD "- {name: a, bytes: 1, xxh3_64: 0123456789abcdef0}", "is not a digest"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_refused(cases[i].yaml, strlen(cases[i].yaml), cases[i].part);
    }
}

static void limits_the_length_of_names(void **state)
{
    (void)state;
    char name[EB_MANIFEST_NAME_BYTES_MAX + 2];
    char yaml[1024];
    struct eb_manifest manifest;
    for (unsigned more = 0; more < 2; more++) {
        memset(name, 'n', sizeof name);
        name[EB_MANIFEST_NAME_BYTES_MAX + more] = '\0';
        snprintf(yaml, sizeof yaml, HEAD "- {name: %s, bytes: 1, xxh3_64: 0123456789abcdef}", name);
        if (more == 0) {
            parse_manifest(yaml, &manifest);
            eb_manifest_deinit(&manifest);
        } else {
            expect_refused(yaml, strlen(yaml), "files[0].name: ");
        }
    }
}

/* Not with a sanitizer: libcyaml makes room for one file after the other, and a sanitizer's realloc
 * copies all of them each time. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define HAS_MANY_FILES

/* Returns a manifest of `count` files with short names, which the caller frees. */
static char *list_many(size_t count)
{
    char *yaml = malloc(sizeof HEAD + count * 64);
    assert_non_null(yaml);
    size_t used = (size_t)sprintf(yaml, HEAD);
    for (size_t i = 0; i < count; i++) {
        used += (size_t)sprintf(
            yaml + used, "- {name: f%zu, bytes: 1, xxh3_64: 0123456789abcdef}\n", i);
    }
    return yaml;
}

static void limits_the_number_of_files(void **state)
{
    (void)state;
    struct eb_manifest manifest;
    char *yaml = list_many(EB_MANIFEST_FILES_MAX);
    parse_manifest(yaml, &manifest);
    assert_int_equal(manifest.count, EB_MANIFEST_FILES_MAX);
    eb_manifest_deinit(&manifest);
    free(yaml);
    yaml = list_many(EB_MANIFEST_FILES_MAX + 1);
    expect_refused(yaml, strlen(yaml), "files");
    free(yaml);
}

#endif

static void limits_the_bytes(void **state)
{
    (void)state;
    struct eb_manifest manifest;
    struct eb_failure failure = {.text = ""};
    char *yaml = malloc(EB_MANIFEST_BYTES_MAX + 2);
    assert_non_null(yaml);
    memset(yaml, '\n', EB_MANIFEST_BYTES_MAX + 1);
    memcpy(yaml, HEAD "- " ENTRY, strlen(HEAD "- " ENTRY));
    assert_true(eb_manifest_parse((uint8_t *)yaml, EB_MANIFEST_BYTES_MAX, &manifest, &failure));
    eb_manifest_deinit(&manifest);
    expect_refused(yaml, EB_MANIFEST_BYTES_MAX + 1, "larger than 16777216 bytes");
    free(yaml);
}

static void reads_back_the_manifest_that_it_writes(void **state)
{
    (void)state;
    struct eb_manifest_file files[] = {{"\\0", 5, 5}, {"a \"quoted\\\" # name.npy", 0, UINT64_MAX},
        {"yes", EB_MANIFEST_FILE_BYTES_MAX, 7}, {"\xc3\xa4: b.embag", 12, 0},
        {"line \u2028 separator", 1, 1}, {"paragraph \u2029 separator", 2, 2},
        {"\ufeffbyte order mark\ufeff", 3, 3}, {"\xef\xbf\xbe and \xef\xbf\xbf", 4, 4}};
    size_t count = sizeof files / sizeof files[0];
    struct eb_manifest manifest = {count, files};
    struct eb_manifest back;
    struct eb_failure failure = {.text = ""};
    size_t bytes;
    char *text = eb_manifest_write(&manifest, &bytes, &failure);
    assert_non_null(text);
    assert_int_equal(bytes, strlen(text));
    parse_manifest(text, &back);
    free(text);
    assert_int_equal(back.count, count);
    for (size_t i = 0; i < count; i++) {
        const struct eb_manifest_file *file = eb_manifest_find(&back, files[i].name);
        assert_non_null(file);
        assert_true(file->bytes == files[i].bytes && file->digest == files[i].digest);
    }
    eb_manifest_deinit(&back);
}

static void does_not_write_what_it_would_refuse(void **state)
{
    (void)state;
    static const struct {
        struct eb_manifest_file file;
        const char *part;
    } cases[] = {
        {{"a\nb", 1, 1}, "the file name 'a"},
        {{"\xff.npy", 1, 1}, "the file name '"},
        {{".a", 1, 1}, "begins with a dot"},
        {{"a", EB_MANIFEST_FILE_BYTES_MAX + 1, 1}, "'a' has 17592186044417 bytes"},
    };
    struct eb_failure failure = {.text = ""};
    size_t bytes;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct eb_manifest_file file = cases[i].file;
        assert_null(eb_manifest_write(&(struct eb_manifest){1, &file}, &bytes, &failure));
        eb_scratch_expect(failure.text, cases[i].part);
    }
    assert_null(eb_manifest_write(&(struct eb_manifest){0}, &bytes, &failure));
    eb_scratch_expect(failure.text, "0 files cannot be listed; expected 1 to 32768");
}

EB_TEST_GROUP(manifest)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_the_importer_writes),
        cmocka_unit_test(refuses_what_is_wrong),
        cmocka_unit_test(limits_the_length_of_names),
#ifdef HAS_MANY_FILES
        cmocka_unit_test(limits_the_number_of_files),
#endif
        cmocka_unit_test(limits_the_bytes),
        cmocka_unit_test(reads_back_the_manifest_that_it_writes),
        cmocka_unit_test(does_not_write_what_it_would_refuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
