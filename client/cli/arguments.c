#include "client/cli/arguments.h"

#include "client/cli/output.h"
#include "proto/link/target.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Digits are short flags for getopt_long, so that it prints no message of its own for them. */
#define DIGITS "0123456789"
/* Room for "embag: models status", or for the name of a program. */
#define WHOSE_BYTES 64
static_assert(EB_FLAGS_MAX < '0', "no flag is taken for a digit");

/* The program that messages name: embag, or the one whose arguments were read last. */
static const char *program = "embag";

/* Returns whether the command is a separate program, such as embag-load. */
static bool is_program(const struct eb_command *command)
{
    return strncmp(command->name, "embag-", 6) == 0;
}

/* Prints the beginning of a message: "embag: lookup: ", or "embag-load: ". */
static void say_whose(const struct eb_command *command)
{
    fprintf(stderr, "%s: ", program);
    if (!is_program(command)) {
        fprintf(stderr, "%s: ", command->name);
    }
}

static void print_usage(const struct eb_command *command)
{
    for (size_t i = 0; i < EB_USAGE_PIECES_MAX && command->usage[i]; i++) {
        fputs(command->usage[i], stdout);
    }
}

/* Prints that a value is not valid for its flag. Always returns false. */
static bool refuse_argument(const char *flag, const char *text, const char *why)
{
    fprintf(stderr, "%s: --%s %s: %s\n", program, flag, text, why);
    return false;
}

static bool read_argument_number(const struct eb_flag *flag, const char *text, uint64_t *out)
{
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    bool is_number = text[0] >= '0' && text[0] <= '9' && *end == '\0';
    if (!is_number || errno == ERANGE || value < flag->min || value > flag->max) {
        fprintf(stderr, "%s: --%s %s: not %sin %" PRIu64 "..%" PRIu64 "\n", program, flag->name,
            text, is_number ? "" : "a whole number ", flag->min, flag->max);
        return false;
    }
    *out = value;
    return true;
}

/* Reads one element of a list, a value of the given type, at *text, and moves *text past it. */
static bool read_argument_value(const char **text, enum embag_type type, void *out)
{
    char *end = NULL;
    const char *start = *text;
    int bits = (int)(8 * embag_type_bytes(type));
    bool fits = true;
    union {
        float f32;
        double f64;
        int64_t i64;
        uint64_t u64;
    } value = {.u64 = 0};
    if (*start == ' ' || *start == '\0') {
        return false; /* strtod would skip a space, and read no text as 0. */
    }
    errno = 0;
    switch (type) {
    case EMBAG_F32: value.f32 = strtof(start, &end); break;
    case EMBAG_F64: value.f64 = strtod(start, &end); break;
    case EMBAG_I8:
    case EMBAG_I16:
    case EMBAG_I32:
    case EMBAG_I64:
        value.i64 = strtoll(start, &end, 10);
        fits = errno == 0 && value.i64 >= -1 - (INT64_MAX >> (64 - bits)) &&
               value.i64 <= INT64_MAX >> (64 - bits);
        break;
    case EMBAG_U8:
    case EMBAG_U16:
    case EMBAG_U32:
    case EMBAG_U64:
        value.u64 = strtoull(start, &end, 10);
        fits = errno == 0 && *start != '-' && value.u64 <= UINT64_MAX >> (64 - bits);
        break;
    case EMBAG_F16:
    case EMBAG_BF16:
    case EMBAG_TYPE_UNSPECIFIED: return false;
    }
    memcpy(out, &value, (size_t)bits / 8);
    *text = end;
    return fits && end != start;
}

bool eb_arguments_read_values(
    const char *flag, const char *text, enum embag_type type, struct eb_arguments_values *out)
{
    size_t count = text[0] != '\0';
    for (const char *c = text; *c != '\0'; c++) {
        count += *c == ',';
    }
    *out = (struct eb_arguments_values){.data = calloc(count + 1, 8)};
    if (!out->data) {
        return refuse_argument(flag, text, "out of memory for these values");
    }
    const char *next = text;
    size_t bytes = embag_type_bytes(type);
    for (; out->count < count; out->count++) {
        const char *element = next;
        bool good = read_argument_value(&next, type, (uint8_t *)out->data + out->count * bytes);
        if (!good || *next != (out->count + 1 < count ? ',' : '\0')) {
            fprintf(stderr, "%s: --%s %s: \"%.*s\" is not a number of type %s\n", program, flag,
                text, (int)strcspn(element, ","), element, eb_output_type(type));
            free(out->data);
            *out = (struct eb_arguments_values){0};
            return false;
        }
        next++;
    }
    return true;
}

static bool read_integers(const char *flag, const char *text, struct embag_integers *out)
{
    struct eb_arguments_values values;
    if (!eb_arguments_read_values(flag, text, EMBAG_I64, &values)) {
        return false;
    }
    *out = (struct embag_integers){.data = values.data, .count = values.count, .width = 8};
    return true;
}

static bool read_argument_integer(const char *flag, const char *text, struct eb_flag_integer *out)
{
    const char *end = text;
    out->given = true;
    if (!read_argument_value(&end, EMBAG_I64, &out->value) || *end != '\0') {
        return refuse_argument(flag, text, "not a 64-bit integer");
    }
    return true;
}

static bool read_argument_choice(const struct eb_flag *flag, const char *text, int *out)
{
    for (int i = 1; flag->choices[i]; i++) {
        if (strcasecmp(flag->choices[i], text) == 0) {
            *out = i;
            return true;
        }
    }
    fprintf(stderr, "%s: --%s %s: not one of", program, flag->name, text);
    for (int i = 1; flag->choices[i]; i++) {
        fputs(i > 1 ? ", " : " ", stderr);
        for (const char *c = flag->choices[i]; *c != '\0'; c++) {
            fputc(tolower((unsigned char)*c), stderr);
        }
    }
    fputc('\n', stderr);
    return false;
}

static bool read_argument_flag(const struct eb_flag *flag, const char *text, void *options)
{
    void *field = (uint8_t *)options + flag->offset;
    switch (flag->kind) {
    case EB_FLAG_SWITCH: *(bool *)field = true; return true;
    case EB_FLAG_POSITIONAL:
    case EB_FLAG_TEXT: *(const char **)field = text; return true;
    case EB_FLAG_NUMBER: return read_argument_number(flag, text, field);
    case EB_FLAG_INTEGER: return read_argument_integer(flag->name, text, field);
    case EB_FLAG_INTEGERS: return read_integers(flag->name, text, field);
    case EB_FLAG_CHOICE: return read_argument_choice(flag, text, field);
    case EB_FLAG_REST: break;
    }
    return false;
}

/* Reads a flag's first value and refuses a second one. A switch may be given twice. */
static bool read_flag_once(const struct eb_flag *flag, const char *text, bool *given, void *options)
{
    if (*given && flag->kind != EB_FLAG_SWITCH) {
        return refuse_argument(flag->name, text, "the flag is given twice");
    }
    *given = true;
    return read_argument_flag(flag, text, options);
}

static bool is_positional(const struct eb_flag *flag)
{
    return flag->kind == EB_FLAG_POSITIONAL || flag->kind == EB_FLAG_REST;
}

/* Lists the command's flags in the form that getopt_long takes, --help last. The value of a flag is
 * its index. */
static void list_options(const struct eb_command *command, struct option *out)
{
    assert(command->flag_count <= EB_FLAGS_MAX);
    for (size_t i = 0; i < command->flag_count; i++) {
        const struct eb_flag *flag = &command->flags[i];
        bool takes_value = flag->kind != EB_FLAG_SWITCH;
        /* Positional arguments have an empty name, which cannot be typed. */
        out[i] = (struct option){.name = is_positional(flag) ? "" : flag->name,
            .has_arg = takes_value ? required_argument : no_argument,
            .val = (int)i};
    }
    out[command->flag_count] =
        (struct option){.name = "help", .has_arg = no_argument, .val = EB_FLAGS_MAX};
    out[command->flag_count + 1] = (struct option){0};
}

/* Takes the next argument or, for EB_FLAG_REST, all arguments that are left. */
static bool take_positional(
    const struct eb_flag *flag, int argument_count, char **arguments, void *options)
{
    if (flag->kind == EB_FLAG_POSITIONAL) {
        return read_argument_flag(flag, arguments[optind++], options);
    }
    *(struct eb_flag_rest *)(void *)((uint8_t *)options + flag->offset) = (struct eb_flag_rest){
        .count = (size_t)(argument_count - optind), .texts = arguments + optind};
    optind = argument_count;
    return true;
}

/* Reads the positional arguments of the command. Refuses missing and excess ones. */
static bool read_positionals(
    const struct eb_command *command, int argument_count, char **arguments, void *options)
{
    for (size_t i = 0; i < command->flag_count; i++) {
        const struct eb_flag *flag = &command->flags[i];
        if (is_positional(flag) && optind == argument_count) {
            say_whose(command);
            fprintf(stderr, "%s is missing\n", flag->name);
            return false;
        }
        if (is_positional(flag) && !take_positional(flag, argument_count, arguments, options)) {
            return false;
        }
    }
    if (optind < argument_count) {
        say_whose(command);
        fprintf(stderr, "unexpected argument \"%s\"\n", arguments[argument_count - 1]);
        return false;
    }
    return true;
}

/* Refuses an argument like -1, which getopt_long reads as short flags. */
static void refuse_negative(
    const struct eb_command *command, int argument_count, char **arguments, int digit)
{
    /* getopt_long increases optind only after the last flag of an argument. */
    bool is_next = optind < argument_count && arguments[optind][0] == '-' &&
                   arguments[optind][1] == (char)digit;
    say_whose(command);
    fprintf(stderr, "\"%s\" is not a flag, and a negative number is not allowed here\n",
        arguments[is_next ? optind : optind - 1]);
}

static enum eb_arguments_outcome read_flags(
    const struct eb_command *command, int argument_count, char **arguments, void *options)
{
    struct option known[EB_FLAGS_MAX + 2];
    bool given[EB_FLAGS_MAX] = {false};
    list_options(command, known);
    optind = 0; /* Makes getopt_long start again, whatever was read before. */
    for (int flag; (flag = getopt_long(argument_count, arguments, DIGITS, known, NULL)) != -1;) {
        if (flag == '?') {
            return EB_ARGUMENTS_WRONG;
        }
        if (flag >= DIGITS[0]) {
            refuse_negative(command, argument_count, arguments, flag);
            return EB_ARGUMENTS_WRONG;
        }
        if (flag == EB_FLAGS_MAX) {
            print_usage(command);
            return EB_ARGUMENTS_HELP;
        }
        if (!read_flag_once(&command->flags[flag], optarg, &given[flag], options)) {
            return EB_ARGUMENTS_WRONG;
        }
    }
    return read_positionals(command, argument_count, arguments, options) ? EB_ARGUMENTS_READ
                                                                         : EB_ARGUMENTS_WRONG;
}

enum eb_arguments_outcome eb_arguments_read(
    const struct eb_command *command, int argument_count, char **arguments, void *options)
{
    char whose[WHOSE_BYTES];
    char *given = arguments[0];
    program = is_program(command) ? command->name : "embag";
    snprintf(whose, sizeof whose, "%s%s%s", program, is_program(command) ? "" : ": ",
        is_program(command) ? "" : command->name);
    arguments[0] = whose; /* getopt_long begins its messages with this text. */
    enum eb_arguments_outcome outcome = read_flags(command, argument_count, arguments, options);
    arguments[0] = given;
    return outcome;
}

bool eb_arguments_check_server(const struct eb_command *command, const char *server)
{
    struct eb_targets targets;
    struct eb_error error;
    if (!server) {
        say_whose(command);
        fputs("--server is missing\n", stderr);
        return false;
    }
    if (!eb_targets_parse(server, &targets, &error)) {
        return true;
    }
    bool is_one = targets.count == 1;
    eb_targets_free(&targets);
    if (!is_one) {
        say_whose(command);
        fprintf(stderr, "--server %s: expected one server: run the command for each of them\n",
            eb_output_printable(server).bytes);
    }
    return is_one;
}
