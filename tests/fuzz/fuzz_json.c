/* Reads bytes as JSON, and compares the outcome with that of another parser. */
#include "server/formats/json_reader.h"

#include "tests/fuzz/input.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Returns whether the other parser refuses the text only because it cannot represent a number, or
 * because of its depth. */
static bool is_too_large(const json_error_t *error)
{
    enum json_error_code code = json_error_code(error);
    return code == json_error_numeric_overflow || code == json_error_stack_overflow;
}

/* Compares the strings of an object's names with those of the other parser. */
static void compare_names(const uint8_t *data, size_t size, const json_t *root)
{
    struct eb_json_reader reader = {.bytes = data, .size = size};
    struct eb_json_text text;
    bool is_first = true;
    require(eb_json_enter(&reader, '{'));
    while (eb_json_next(&reader, '}', &is_first)) {
        require(eb_json_name(&reader, &text));
        char *name = malloc(text.bytes + 1);
        require(name);
        eb_json_decode(data, &text, name);
        require(json_object_get(root, name));
        free(name);
        require(eb_json_skip(&reader));
    }
    require(eb_json_end(&reader));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct eb_json_reader reader = {.bytes = data, .size = size};
    bool is_good = eb_json_skip(&reader) && eb_json_end(&reader);
    bool is_deep = reader.error && strstr(reader.error, "deep");
    json_error_t error;
    json_t *root = json_loadb((const char *)data, size, JSON_DECODE_ANY, &error);
    require(reader.at <= size && is_good == !reader.error);
    /* The other parser takes a NUL byte for the end of the text. */
    bool has_nul = size > 0 && memchr(data, 0, size);
    require(is_good == !!root || is_deep || has_nul || (!root && is_too_large(&error)));
    if (is_good && json_is_object(root)) {
        compare_names(data, size, root);
    }
    json_decref(root);
    return 0;
}
