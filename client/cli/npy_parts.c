#include "client/cli/npy_parts.h"

#include "server/contents/file_name.h"
#include "server/formats/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_DIGITS 5

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool eb_npy_parts_read_header(
    const struct eb_table_file *file, struct eb_tensor *tensor, struct eb_file_fault *fault)
{
    uint64_t bytes = file->bytes < EB_NPY_HEADER_BYTES_MAX ? file->bytes : EB_NPY_HEADER_BYTES_MAX;
    uint8_t *head = malloc(bytes + 1);
    if (!head) {
        return eb_file_fault_set(fault, "out of memory");
    }
    bool is_good = eb_table_file_read(file, 0, head, bytes, fault) &&
                   eb_npy_parse(head, bytes, file->bytes, tensor, fault);
    free(head);
    return is_good;
}

bool eb_npy_parts_is_one(const char *path)
{
    struct eb_file_name name = eb_file_name_parse(base_of(path));
    return name.is_split && (name.kind == EB_FILE_NPY || name.kind == EB_FILE_KEYS);
}

/* Puts the path of the part at hand before a fault, unless it is the one that was given. Always
 * false. */
static bool locate(const struct eb_npy_parts *parts, struct eb_file_fault *fault)
{
    return parts->at != parts->given && eb_file_fault_locate(fault, parts->path);
}

static void close_part(struct eb_npy_parts *parts)
{
    if (parts->is_open) {
        eb_table_file_close(&parts->file);
    }
    parts->is_open = false;
}

static bool open_part(struct eb_npy_parts *parts, uint32_t number, struct eb_file_fault *fault)
{
    char digits[2 * NUMBER_DIGITS + 1]; /* of any number; those of parts have five */
    close_part(parts);
    parts->at = number;
    snprintf(digits, sizeof digits, "%0*" PRIu32, NUMBER_DIGITS, number);
    memcpy(parts->path + parts->number, digits, NUMBER_DIGITS);
    parts->is_open = eb_table_file_open(parts->path, &parts->file, fault);
    return parts->is_open || locate(parts, fault);
}

/* Looks at the next part and puts its rows behind those before it. */
static bool add_part(struct eb_npy_parts *parts, struct eb_tensor *whole, uint32_t number,
    struct eb_file_fault *fault)
{
    struct eb_npy_part *part = &parts->parts[number];
    if (!open_part(parts, number, fault)) {
        return false;
    }
    part->look = parts->file;
    if (!eb_npy_parts_read_header(&parts->file, &part->tensor, fault)) {
        return locate(parts, fault);
    }
    const struct eb_tensor *tensor = &part->tensor;
    if (number == 0) {
        *whole = *tensor;
        whole->data_offset = 0;
        return true;
    }
    bool is_alike =
        tensor->storage == whole->storage && tensor->rank == whole->rank &&
        memcmp(tensor->dims + 1, whole->dims + 1, (tensor->rank - 1) * sizeof tensor->dims[0]) == 0;
    if (!is_alike || __builtin_add_overflow(whole->dims[0], tensor->dims[0], &whole->dims[0]) ||
        __builtin_add_overflow(whole->data_bytes, tensor->data_bytes, &whole->data_bytes)) {
        eb_file_fault_set(
            fault, "it has another type or row shape than part 0; write all parts in one way");
        return locate(parts, fault);
    }
    return true;
}

static bool add_parts(
    struct eb_npy_parts *parts, struct eb_tensor *whole, struct eb_file_fault *fault)
{
    for (uint32_t i = 0; i < parts->count; i++) {
        if (!add_part(parts, whole, i, fault)) {
            return false;
        }
    }
    return true;
}

bool eb_npy_parts_open(struct eb_npy_parts *parts, const char *path, struct eb_tensor *whole,
    struct eb_file_fault *fault)
{
    const char *base = base_of(path);
    struct eb_file_name name = eb_file_name_parse(base);
    *parts = (struct eb_npy_parts){
        .number = (size_t)(base - path) + name.base_bytes + 1,
        .given = name.part,
        .count = name.parts,
    };
    if (name.part >= name.parts) {
        return eb_file_fault_set(fault,
            "it is called part %" PRIu32 " of %" PRIu32 "; parts are numbered from 0", name.part,
            name.parts);
    }
    parts->path = strdup(path);
    parts->parts = calloc(name.parts, sizeof *parts->parts);
    bool is_good = parts->path && parts->parts ? add_parts(parts, whole, fault)
                                               : eb_file_fault_set(fault, "out of memory");
    if (!is_good) {
        eb_npy_parts_close(parts);
    }
    return is_good;
}

void eb_npy_parts_close(struct eb_npy_parts *parts)
{
    close_part(parts);
    free(parts->path);
    free(parts->parts);
    *parts = (struct eb_npy_parts){0};
}

/* Makes a part the one at hand. */
static bool turn_to(struct eb_npy_parts *parts, uint32_t number, struct eb_file_fault *fault)
{
    if (parts->is_open && parts->at == number) {
        return true;
    }
    if (!open_part(parts, number, fault)) {
        return false;
    }
    if (!eb_table_file_is_same(&parts->file, &parts->parts[number].look)) {
        close_part(parts);
        eb_file_fault_set(fault, "the file has changed while it was read; pack it again");
        return locate(parts, fault);
    }
    return true;
}

bool eb_npy_parts_read(struct eb_npy_parts *parts, uint64_t offset, void *out, uint64_t bytes,
    struct eb_file_fault *fault)
{
    uint8_t *to = out;
    for (uint32_t i = 0; bytes > 0 && i < parts->count; i++) {
        const struct eb_tensor *tensor = &parts->parts[i].tensor;
        if (offset >= tensor->data_bytes) {
            offset -= tensor->data_bytes;
            continue;
        }
        uint64_t left = tensor->data_bytes - offset;
        uint64_t count = bytes < left ? bytes : left;
        if (!turn_to(parts, i, fault)) {
            return false;
        }
        if (!eb_table_file_read(&parts->file, tensor->data_offset + offset, to, count, fault)) {
            return locate(parts, fault);
        }
        to += count;
        bytes -= count;
        offset = 0;
    }
    return true;
}
