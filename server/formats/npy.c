#include "server/formats/npy.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAGIC "\x93NUMPY"
#define MAGIC_BYTES 6
/* Bytes of the magic, the version, and a length of two bytes (version 1.0) or four (later
 * versions). */
#define PREFIX_BYTES 10
#define PREFIX_BYTES_LONG 12
#define ALIGNMENT 64
#define WORD_BYTES 24 /* bytes of the longest key or type that has a meaning, with its NUL */

/* NumPy's type codes without the byte order. */
static const struct {
    char code[3];
    enum eb_storage storage;
} elements[] = {
    {"f4", EB_STORAGE_F32},
    {"f8", EB_STORAGE_F64},
    {"f2", EB_STORAGE_F16},
    {"i1", EB_STORAGE_I8},
    {"u1", EB_STORAGE_U8},
    {"i2", EB_STORAGE_I16},
    {"u2", EB_STORAGE_U16},
    {"i4", EB_STORAGE_I32},
    {"u4", EB_STORAGE_U32},
    {"i8", EB_STORAGE_I64},
    {"u8", EB_STORAGE_U64},
};
#define ELEMENT_COUNT (sizeof elements / sizeof elements[0])

/* Other types that NumPy writes, by the letter of their kind. */
static const struct {
    char kind;
    const char *what;
} refused_kinds[] = {
    {'b', "a boolean; convert it with astype('u1')"},
    {'?', "a boolean; convert it with astype('u1')"},
    {'c', "a complex number; store real and imaginary part side by side"},
    {'S', "a byte string, not a number"},
    {'a', "a byte string, not a number"},
    {'U', "a string, not a number"},
    {'O', "a Python object; convert it to a numeric type"},
    {'M', "a date; convert it with astype('i8')"},
    {'m', "a time span; convert it with astype('i8')"},
    {'V', "raw bytes or a record; store bfloat16 and fp8 tables as safetensors"},
};
#define REFUSED_KIND_COUNT (sizeof refused_kinds / sizeof refused_kinds[0])

/* A position in the header. Offsets count from the start of the file. */
struct cursor {
    const uint8_t *head;
    uint64_t at;
    uint64_t end;
};

/* The values of the dict. */
struct fields {
    bool has_descr;
    bool has_order;
    bool has_shape;
    bool fortran_order;
    char descr[WORD_BYTES];
    struct eb_tensor *tensor; /* receives the dims */
};

static bool fail_at(const struct cursor *cursor, const char *what, struct eb_failure *failure)
{
    return eb_failure_set(failure,
        "byte %" PRIu64 " of the npy header: %s; write the file again with numpy.save", cursor->at,
        what);
}

static bool is_space(uint8_t byte)
{
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

/* Skips white space. Returns the next byte, or -1 at the end. */
static int peek(struct cursor *cursor)
{
    while (cursor->at < cursor->end && is_space(cursor->head[cursor->at])) {
        cursor->at++;
    }
    return cursor->at < cursor->end ? cursor->head[cursor->at] : -1;
}

static bool accept(struct cursor *cursor, char wanted)
{
    if (peek(cursor) != wanted) {
        return false;
    }
    cursor->at++;
    return true;
}

static bool accept_word(struct cursor *cursor, const char *word)
{
    size_t length = strlen(word);
    peek(cursor);
    if (cursor->end - cursor->at < length || memcmp(cursor->head + cursor->at, word, length) != 0) {
        return false;
    }
    cursor->at += length;
    return true;
}

static bool read_string(struct cursor *cursor, char out[WORD_BYTES], struct eb_failure *failure)
{
    int quote = peek(cursor);
    if (quote != '\'' && quote != '"') {
        return fail_at(cursor, "expected a string", failure);
    }
    cursor->at++;
    size_t length = 0;
    while (cursor->at < cursor->end && cursor->head[cursor->at] != quote) {
        uint8_t byte = cursor->head[cursor->at];
        if (length == WORD_BYTES - 1 || byte < ' ' || byte > '~' || byte == '\\') {
            return fail_at(cursor, "this string is neither a key nor a type", failure);
        }
        out[length++] = (char)byte;
        cursor->at++;
    }
    out[length] = '\0';
    return accept(cursor, (char)quote) || fail_at(cursor, "a string has no closing quote", failure);
}

static bool read_dim(struct cursor *cursor, struct eb_tensor *tensor, struct eb_failure *failure)
{
    if (peek(cursor) == '-') {
        return fail_at(cursor, "field 'shape': a dimension is negative", failure);
    }
    uint64_t value = 0;
    uint64_t start = cursor->at;
    while (cursor->at < cursor->end && cursor->head[cursor->at] >= '0' &&
           cursor->head[cursor->at] <= '9') {
        uint64_t digit = cursor->head[cursor->at] - (uint64_t)'0';
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, digit, &value)) {
            return fail_at(cursor, "field 'shape': a dimension is above 2^64", failure);
        }
        cursor->at++;
    }
    if (cursor->at == start) {
        return fail_at(cursor, "field 'shape': expected a number", failure);
    }
    accept(cursor, 'L'); /* Python 2 wrote long integers with an L. */
    return eb_tensor_add_dim(tensor, value, failure);
}

static bool read_npy_shape(
    struct cursor *cursor, struct eb_tensor *tensor, struct eb_failure *failure)
{
    if (!accept(cursor, '(')) {
        return fail_at(cursor, "field 'shape': expected a tuple", failure);
    }
    bool has_comma = false;
    while (!accept(cursor, ')')) {
        if (tensor->rank > 0 && !has_comma) {
            return fail_at(cursor, "field 'shape': expected ',' or ')'", failure);
        }
        if (!read_dim(cursor, tensor, failure)) {
            return false;
        }
        has_comma = accept(cursor, ',');
    }
    if (tensor->rank == 1 && !has_comma) {
        return fail_at(cursor, "field 'shape': a tuple of one number needs a comma", failure);
    }
    return true;
}

static bool read_order(struct cursor *cursor, bool *fortran_order, struct eb_failure *failure)
{
    *fortran_order = accept_word(cursor, "True");
    return *fortran_order || accept_word(cursor, "False") ||
           fail_at(cursor, "field 'fortran_order': expected True or False", failure);
}

static bool read_descr(struct cursor *cursor, char out[WORD_BYTES], struct eb_failure *failure)
{
    if (peek(cursor) == '[') {
        return eb_failure_set(failure,
            "field 'descr': a record of several fields is not a table; save each field on its own");
    }
    return read_string(cursor, out, failure);
}

/* Marks a field as seen. Returns false if it was seen before. */
static bool note_once(const struct cursor *cursor, bool *seen, struct eb_failure *failure)
{
    if (*seen) {
        return fail_at(cursor, "a field is given twice", failure);
    }
    *seen = true;
    return true;
}

static bool read_npy_field(struct cursor *cursor, struct fields *fields, struct eb_failure *failure)
{
    char key[WORD_BYTES];
    if (!read_string(cursor, key, failure)) {
        return false;
    }
    if (!accept(cursor, ':')) {
        return fail_at(cursor, "expected ':'", failure);
    }
    if (strcmp(key, "descr") == 0) {
        return note_once(cursor, &fields->has_descr, failure) &&
               read_descr(cursor, fields->descr, failure);
    }
    if (strcmp(key, "fortran_order") == 0) {
        return note_once(cursor, &fields->has_order, failure) &&
               read_order(cursor, &fields->fortran_order, failure);
    }
    if (strcmp(key, "shape") == 0) {
        return note_once(cursor, &fields->has_shape, failure) &&
               read_npy_shape(cursor, fields->tensor, failure);
    }
    return fail_at(cursor, "unknown field; expected descr, fortran_order or shape", failure);
}

static bool read_dict(struct cursor *cursor, struct fields *fields, struct eb_failure *failure)
{
    if (!accept(cursor, '{')) {
        return fail_at(cursor, "expected '{'", failure);
    }
    for (bool has_comma = true; !accept(cursor, '}'); has_comma = accept(cursor, ',')) {
        if (!has_comma) {
            return fail_at(cursor, "expected ',' or '}'", failure);
        }
        if (!read_npy_field(cursor, fields, failure)) {
            return false;
        }
    }
    if (peek(cursor) != -1) {
        return fail_at(cursor, "unexpected text after the dict", failure);
    }
    if (!fields->has_descr || !fields->has_order || !fields->has_shape) {
        return fail_at(cursor, "one of descr, fortran_order and shape is missing", failure);
    }
    return true;
}

/* Reads magic, version and length. Leaves the cursor at the dict. */
static bool read_prefix(struct cursor *cursor, uint64_t file_bytes, struct eb_failure *failure)
{
    const uint8_t *head = cursor->head;
    if (cursor->end < MAGIC_BYTES || memcmp(head, MAGIC, MAGIC_BYTES) != 0) {
        return eb_failure_set(failure,
            "byte 0: not an npy file, since it does not start with \\x93NUMPY; use numpy.save");
    }
    if (cursor->end < PREFIX_BYTES_LONG) {
        return eb_failure_set(failure,
            "byte %" PRIu64 ": the file ends inside the npy header; write it again", cursor->end);
    }
    if (head[6] < 1 || head[6] > 3 || head[7] != 0) {
        return eb_failure_set(failure,
            "byte 6: npy version %u.%u is not supported; expected 1.0, 2.0 or 3.0",
            (unsigned)head[6], (unsigned)head[7]);
    }
    uint64_t length = (uint64_t)head[8] | (uint64_t)head[9] << 8;
    cursor->at = PREFIX_BYTES;
    if (head[6] > 1) {
        length |= (uint64_t)head[10] << 16 | (uint64_t)head[11] << 24;
        cursor->at = PREFIX_BYTES_LONG;
    }
    uint64_t end = cursor->at + length;
    if (end > file_bytes) {
        return eb_failure_set(failure,
            "byte 8: a header of %" PRIu64 " bytes reaches past the end of the file, which has "
            "%" PRIu64 " bytes; write it again",
            length, file_bytes);
    }
    if (end > cursor->end) {
        return eb_failure_set(failure,
            "byte 8: a header of %" PRIu64 " bytes is too long; expected at most %d", length,
            EB_NPY_HEADER_BYTES_MAX);
    }
    cursor->end = end;
    return true;
}

static bool find_storage(const char *descr, enum eb_storage *storage, struct eb_failure *failure)
{
    bool has_order = descr[0] != '\0' && strchr("<>=|", descr[0]);
    const char *code = descr + has_order;
    for (size_t i = 0; i < REFUSED_KIND_COUNT; i++) {
        if (code[0] == refused_kinds[i].kind) {
            return eb_failure_set(
                failure, "field 'descr': '%s' is %s", descr, refused_kinds[i].what);
        }
    }
    for (size_t i = 0; i < ELEMENT_COUNT; i++) {
        if (strcmp(code, elements[i].code) != 0) {
            continue;
        }
        *storage = elements[i].storage;
        if (descr[0] == '>' && eb_storage_bytes(*storage) > 1) {
            return eb_failure_set(failure,
                "field 'descr': '%s' is big-endian; convert it with astype('<%s')", descr, code);
        }
        return true;
    }
    return eb_failure_set(failure,
        "field 'descr': '%s' is not an element type of a table; expected f2 f4 f8, i1 i2 i4 i8 or "
        "u1 u2 u4 u8",
        descr);
}

/* Fills in the tensor from the fields. Returns false if they do not describe a table. */
static bool interpret(const struct fields *fields, struct eb_failure *failure)
{
    struct eb_tensor *tensor = fields->tensor;
    if (!find_storage(fields->descr, &tensor->storage, failure)) {
        return false;
    }
    if (fields->fortran_order && tensor->rank > 1) {
        return eb_failure_set(failure, "field 'fortran_order': the array is in column-major order; "
                                       "convert it with numpy.ascontiguousarray");
    }
    return eb_tensor_measure(tensor, failure);
}

bool eb_npy_parse(const uint8_t *head, uint64_t head_bytes, uint64_t file_bytes,
    struct eb_tensor *tensor, struct eb_failure *failure)
{
    assert(head_bytes <= file_bytes);
    *tensor = (struct eb_tensor){0};
    struct cursor cursor = {.head = head, .end = head_bytes};
    struct fields fields = {.tensor = tensor};
    if (!read_prefix(&cursor, file_bytes, failure) || !read_dict(&cursor, &fields, failure) ||
        !interpret(&fields, failure)) {
        return false;
    }
    tensor->data_offset = cursor.end;
    uint64_t found = file_bytes - cursor.end;
    if (found != tensor->data_bytes) {
        char shape[EB_TENSOR_SHAPE_BYTES];
        eb_tensor_shape_text(tensor, shape);
        return eb_failure_set(failure,
            "byte %" PRIu64 ": %s, %" PRIu64
            " bytes follow the header, but shape %s of %s needs %" PRIu64 "; write it again",
            cursor.end,
            found < tensor->data_bytes ? "the file is cut short" : "the file is too long", found,
            shape, eb_storage_name(tensor->storage), tensor->data_bytes);
    }
    return true;
}

static const char *find_npy_code(enum eb_storage storage)
{
    for (size_t i = 0; i < ELEMENT_COUNT; i++) {
        if (elements[i].storage == storage) {
            return elements[i].code;
        }
    }
    return NULL;
}

uint64_t eb_npy_header_write(struct eb_tensor *tensor, uint8_t *out, uint64_t out_bytes)
{
    const char *code = find_npy_code(tensor->storage);
    if (!code) {
        return 0;
    }
    char shape[EB_TENSOR_SHAPE_BYTES];
    eb_tensor_shape_text(tensor, shape);
    char dict[EB_TENSOR_SHAPE_BYTES + 64];
    int printed =
        snprintf(dict, sizeof dict, "{'descr': '%c%s', 'fortran_order': False, 'shape': %s, }",
            eb_storage_bytes(tensor->storage) == 1 ? '|' : '<', code, shape);
    assert(printed > 0 && (size_t)printed < sizeof dict);
    uint64_t length = (uint64_t)printed;
    /* The length includes the newline at the end. */
    uint64_t total = (PREFIX_BYTES + length + 1 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (total > out_bytes) {
        return 0;
    }
    memset(out, ' ', total);
    memcpy(out, MAGIC "\x01\x00", PREFIX_BYTES - 2);
    out[8] = (uint8_t)((total - PREFIX_BYTES) & 0xff);
    out[9] = (uint8_t)((total - PREFIX_BYTES) >> 8);
    memcpy(out + PREFIX_BYTES, dict, length);
    out[total - 1] = '\n';
    tensor->data_offset = total;
    return total;
}
