#include "server/rpc/method.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

size_t eb_method_table_count(void)
{
    size_t count = 0;
    while (eb_method_tables[count]) {
        count++;
    }
    return count;
}

const struct eb_method_table *eb_method_table_at(size_t index)
{
    return index < eb_method_table_count() ? eb_method_tables[index] : NULL;
}

unsigned eb_method_count(void)
{
    size_t count = 0;
    for (size_t i = 0; eb_method_tables[i]; i++) {
        count += eb_method_tables[i]->count;
    }
    return (unsigned)count;
}

/* Finds a method in a table. The first method of the table has the number `index`. */
static struct eb_method_entry find_method(
    const struct eb_method_table *table, size_t index, const char *name)
{
    for (size_t i = 0; i < table->count; i++) {
        if (strcmp(name, table->methods[i].name) == 0) {
            return (struct eb_method_entry){table, &table->methods[i], (unsigned)(index + i)};
        }
    }
    return (struct eb_method_entry){.table = table, .index = eb_method_count()};
}

struct eb_method_entry eb_method_find(const char *path)
{
    const char *service = path + (path[0] == '/');
    const char *slash = strchr(service, '/');
    size_t size = slash ? (size_t)(slash - service) : 0;
    size_t index = 0;
    for (size_t i = 0; size > 0 && service > path && eb_method_tables[i]; i++) {
        const struct eb_method_table *table = eb_method_tables[i];
        if (strncmp(service, table->service, size) == 0 && table->service[size] == '\0') {
            return find_method(table, index, slash + 1);
        }
        index += table->count;
    }
    return (struct eb_method_entry){.index = eb_method_count()};
}

/* Appends a name to a list of names. Returns the length of the list. */
static size_t add_name(char names[EB_ERROR_TEXT_BYTES], size_t used, const char *name)
{
    used += (size_t)snprintf(
        names + used, EB_ERROR_TEXT_BYTES - used, "%s%s", used > 0 ? ", " : "", name);
    assert(used < EB_ERROR_TEXT_BYTES);
    return used;
}

void eb_method_refuse(const char *path, struct eb_error *error)
{
    const struct eb_method_table *table = eb_method_find(path).table;
    char names[EB_ERROR_TEXT_BYTES] = "";
    size_t used = 0;
    for (size_t i = 0; table && i < table->count; i++) {
        used = add_name(names, used, table->methods[i].name);
    }
    for (size_t i = 0; !table && eb_method_tables[i]; i++) {
        used = add_name(names, used, eb_method_tables[i]->service);
    }
    if (table) {
        eb_error_set(error, EB_STATUS_UNIMPLEMENTED, "no method \"%s\"; %s has the methods %s",
            path, table->service, names);
        return;
    }
    eb_error_set(error, EB_STATUS_UNIMPLEMENTED,
        "no method \"%s\"; this server has the services %s", path, names);
}

uint64_t eb_method_timeout_us(
    const struct eb_method *method, uint64_t asked_us, uint64_t unary_longest_us)
{
    if (method->kind != EB_METHOD_UNARY) {
        return asked_us;
    }
    return asked_us == 0 || asked_us > unary_longest_us ? unary_longest_us : asked_us;
}
