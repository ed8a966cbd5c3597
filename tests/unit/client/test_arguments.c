#include "client/cli/arguments.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

struct options {
    const char *text;
    const char *place;
    uint64_t number;
    struct eb_flag_integer integer;
    struct embag_integers list;
    struct eb_flag_rest rest;
    int colour;
    bool on;
};

static const char *const colours[] = {"", "RED", "GREEN", NULL};

#define AT(field) offsetof(struct options, field)
static const struct eb_flag flags[] = {
    {"text", EB_FLAG_TEXT, AT(text), 0, 0, NULL},
    {"number", EB_FLAG_NUMBER, AT(number), 1, 10, NULL},
    {"integer", EB_FLAG_INTEGER, AT(integer), 0, 0, NULL},
    {"list", EB_FLAG_INTEGERS, AT(list), 0, 0, NULL},
    {"colour", EB_FLAG_CHOICE, AT(colour), 0, 0, colours},
    {"on", EB_FLAG_SWITCH, AT(on), 0, 0, NULL},
    {"PLACE", EB_FLAG_POSITIONAL, AT(place), 0, 0, NULL},
};
#undef AT

static const struct eb_command with_place = {"try", {"usage\n"}, flags, 7};
static const struct eb_command without_place = {"try", {"usage\n"}, flags, 6};
static const struct eb_command of_its_own = {"embag-try", {"usage\n"}, flags, 7};

#define ARGUMENTS_MAX 8

/* Reads a command line whose words are separated by "|". The options point into *copy, which the
 * caller frees. */
static enum eb_arguments_outcome read_line(
    const struct eb_command *command, const char *line, struct options *options, char **copy)
{
    char *words[ARGUMENTS_MAX + 1] = {NULL};
    int count = 0;
    *copy = strdup(line);
    assert_non_null(*copy);
    for (char *rest = *copy, *word; (word = strsep(&rest, "|"));) {
        words[count++] = word;
    }
    memset(options, 0, sizeof *options);
    return eb_arguments_read(command, count, words, options);
}

static void reads_every_kind_of_flag(void **state)
{
    (void)state;
    struct options options;
    char *copy = NULL;
    assert_int_equal(read_line(&with_place,
                         "try|--text=a b|--number=10|--integer=-3|here|--list|-1,2|--colour=green",
                         &options, &copy),
        EB_ARGUMENTS_READ);
    assert_string_equal(options.text, "a b");
    assert_int_equal(options.number, 10);
    assert_true(options.integer.given);
    assert_int_equal(options.integer.value, -3);
    assert_int_equal(options.list.count, 2);
    assert_int_equal(options.list.width, 8);
    assert_int_equal(((const int64_t *)options.list.data)[0], -1);
    assert_int_equal(((const int64_t *)options.list.data)[1], 2);
    assert_int_equal(options.colour, 2);
    assert_string_equal(options.place, "here");
    assert_false(options.on);
    free((void *)options.list.data);
    free(copy);
}

static void takes_an_empty_list_and_a_switch_twice(void **state)
{
    (void)state;
    struct options options;
    char *copy = NULL;
    assert_int_equal(
        read_line(&without_place, "try|--on|--list||--on", &options, &copy), EB_ARGUMENTS_READ);
    assert_int_equal(options.list.count, 0);
    assert_int_equal(options.list.width, 8);
    assert_true(options.on);
    free((void *)options.list.data);
    free(copy);
}

static void rejects_malformed_values(void **state)
{
    (void)state;
    static const char *const lines[] = {"try|--number=0", "try|--number=11", "try|--number=-1",
        "try|--number=1x", "try|--number=", "try|--number=99999999999999999999", "try|--list=1,,2",
        "try|--list=,", "try|--list=1,", "try|--list=1 2", "try|--list=9223372036854775808",
        "try|--list=1.5", "try|--list= 1", "try|--integer=", "try|--integer=1,2",
        "try|--colour=blue", "try|--colour=", "try|--what", "try|-1", "try|-12", "try|--text",
        "try|--on=1", "try|here"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct options options;
        char *copy = NULL;
        if (read_line(&without_place, lines[i], &options, &copy) != EB_ARGUMENTS_WRONG) {
            fail_msg("\"%s\" was taken", lines[i]);
        }
        free((void *)options.list.data);
        free(copy);
    }
}

static void rejects_a_second_value_of_each_kind(void **state)
{
    (void)state;
    static const char *const lines[] = {"try|--text=a|--text=a", "try|--number=1|--number=2",
        "try|--integer=0|--integer=0", "try|--list=0|--list|0",
        "try|--list=|--li=", "try|--colour=red|--on|--colour=red"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct options options;
        char *copy = NULL;
        if (read_line(&without_place, lines[i], &options, &copy) != EB_ARGUMENTS_WRONG) {
            fail_msg("\"%s\" was taken", lines[i]);
        }
        free((void *)options.list.data);
        free(copy);
    }
}

static void wants_exactly_one_place(void **state)
{
    (void)state;
    struct options options;
    char *copy = NULL;
    assert_int_equal(read_line(&with_place, "try", &options, &copy), EB_ARGUMENTS_WRONG);
    free(copy);
    assert_int_equal(read_line(&with_place, "try|a|b", &options, &copy), EB_ARGUMENTS_WRONG);
    free(copy);
}

static void takes_a_place_and_the_rest_wherever_flags_stand(void **state)
{
    (void)state;
    static const struct eb_flag mixed[] = {
        {"FIRST", EB_FLAG_POSITIONAL, offsetof(struct options, place), 0, 0, NULL},
        {"on", EB_FLAG_SWITCH, offsetof(struct options, on), 0, 0, NULL},
        {"REST", EB_FLAG_REST, offsetof(struct options, rest), 0, 0, NULL},
    };
    static const struct eb_command with_rest = {"try", {"usage\n"}, mixed, 3};
    struct options options;
    char *words[] = {"try", "a", "b", "--on", "c", NULL};
    memset(&options, 0, sizeof options);
    assert_int_equal(eb_arguments_read(&with_rest, 5, words, &options), EB_ARGUMENTS_READ);
    assert_string_equal(options.place, "a");
    assert_true(options.on);
    assert_int_equal(options.rest.count, 2);
    assert_string_equal(options.rest.texts[0], "b");
    assert_string_equal(options.rest.texts[1], "c");
    char *copy = NULL;
    assert_int_equal(read_line(&with_rest, "try|a|--on", &options, &copy), EB_ARGUMENTS_WRONG);
    free(copy);
}

/* Expects the line to be refused with this message. */
static void assert_says(const struct eb_command *command, const char *line, const char *message)
{
    struct options options;
    char *copy = NULL;
    char text[256] = {0};
    int saved = dup(STDERR_FILENO), file = memfd_create("stderr", 0);
    assert_true(saved >= 0 && file >= 0);
    assert_int_equal(fflush(stderr), 0);
    assert_true(dup2(file, STDERR_FILENO) >= 0);
    enum eb_arguments_outcome outcome = read_line(command, line, &options, &copy);
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    assert_int_equal(outcome, EB_ARGUMENTS_WRONG);
    assert_true(pread(file, text, sizeof text - 1, 0) > 0);
    assert_string_equal(text, message);
    assert_int_equal(close(saved), 0);
    assert_int_equal(close(file), 0);
    free(copy);
}

static void names_flag_and_value_in_one_line(void **state)
{
    (void)state;
    assert_says(&without_place, "try|--list=1,b,3",
        "embag: --list 1,b,3: \"b\" is not a number of type i64\n");
    assert_says(&without_place, "try|--nothing", "embag: try: unrecognized option '--nothing'\n");
    assert_says(&without_place, "try|--list", "embag: try: option '--list' requires an argument\n");
    assert_says(&without_place, "try|more", "embag: try: unexpected argument \"more\"\n");
}

static void speaks_as_the_program_whose_arguments_they_are(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        const char *message;
    } cases[] = {
        {"x|--number=0|here", "embag-try: --number 0: not in 1..10\n"},
        {"x|--number=a|here", "embag-try: --number a: not a whole number in 1..10\n"},
        {"x|--colour=blue|here", "embag-try: --colour blue: not one of red, green\n"},
        {"x|--list=b|here", "embag-try: --list b: \"b\" is not a number of type i64\n"},
        {"x", "embag-try: PLACE is missing\n"},
        {"x|here|more", "embag-try: unexpected argument \"more\"\n"},
        {"x|-1", "embag-try: \"-1\" is not a flag, and a negative number is not allowed here\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_says(&of_its_own, cases[i].line, cases[i].message);
    }
    assert_says(&with_place, "try", "embag: try: PLACE is missing\n");
    assert_says(&with_place, "try|--number=0", "embag: --number 0: not in 1..10\n");
}

static void reads_values_of_each_type(void **state)
{
    (void)state;
    static const struct {
        enum embag_type type;
        const char *text;
        bool good;
    } cases[] = {{EMBAG_I8, "-128,127", true}, {EMBAG_I8, "128", false}, {EMBAG_I8, "-129", false},
        {EMBAG_U8, "0,255", true}, {EMBAG_U8, "256", false}, {EMBAG_U8, "-1", false},
        {EMBAG_U64, "18446744073709551615", true}, {EMBAG_U64, "18446744073709551616", false},
        {EMBAG_I64, "-9223372036854775808", true}, {EMBAG_F32, "1e-3,-2.5,nan,inf", true},
        {EMBAG_F32, "1e", false}, {EMBAG_F64, "0.1", true}, {EMBAG_F16, "1", false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct eb_arguments_values values;
        if (eb_arguments_read_values("weights", cases[i].text, cases[i].type, &values) !=
            cases[i].good) {
            fail_msg("\"%s\" as type %d", cases[i].text, (int)cases[i].type);
        }
        free(values.data);
    }
}

static void packs_values_by_their_type(void **state)
{
    (void)state;
    struct eb_arguments_values values;
    const int16_t shorts[] = {-2, 300};
    assert_true(eb_arguments_read_values("weights", "-2,300", EMBAG_I16, &values));
    assert_int_equal(values.count, 2);
    assert_memory_equal(values.data, shorts, sizeof shorts);
    free(values.data);
    const double doubles[] = {0.1, -3};
    assert_true(eb_arguments_read_values("weights", "0.1,-3", EMBAG_F64, &values));
    assert_memory_equal(values.data, doubles, sizeof doubles);
    free(values.data);
}

static void prints_help_and_does_nothing(void **state)
{
    (void)state;
    struct options options;
    char *copy = NULL;
    assert_int_equal(read_line(&with_place, "try|--help", &options, &copy), EB_ARGUMENTS_HELP);
    free(copy);
}

EB_TEST_GROUP(arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_kind_of_flag),
        cmocka_unit_test(takes_an_empty_list_and_a_switch_twice),
        cmocka_unit_test(rejects_malformed_values),
        cmocka_unit_test(rejects_a_second_value_of_each_kind),
        cmocka_unit_test(wants_exactly_one_place),
        cmocka_unit_test(takes_a_place_and_the_rest_wherever_flags_stand),
        cmocka_unit_test(names_flag_and_value_in_one_line),
        cmocka_unit_test(speaks_as_the_program_whose_arguments_they_are),
        cmocka_unit_test(reads_values_of_each_type),
        cmocka_unit_test(packs_values_by_their_type),
        cmocka_unit_test(prints_help_and_does_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
