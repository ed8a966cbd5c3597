#include "client/lookup_check.h"

#include "client/lookup_layout.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Room for "results[N]: shape [N, N] ": numbers of 20 digits, with ", " between them. */
#define SUBJECT_TEXT_BYTES (40 + EMBAG_RANK_MAX * 22)

/* ---- facts about a request ---- */

struct eb_lookup_asked eb_lookup_check_keep_query(const struct eb_wire_query *query)
{
    return (struct eb_lookup_asked){
        .bags = eb_lookup_layout_count_bags(query),
        .index_count = eb_wire_array_count(&query->indices),
        .reduction = query->reduction,
        .sequence = query->sequence,
    };
}

struct eb_lookup_asked eb_lookup_check_keep_group(const struct eb_wire_group *group)
{
    return (struct eb_lookup_asked){
        .bags = group->bags,
        .index_count = eb_wire_array_count(&group->values),
        .feature_count = (uint32_t)group->feature_count,
        .reduction = group->reduction,
        .sequence = group->sequence,
    };
}

/* ---- texts ---- */

static const char *name_type(enum embag_type type)
{
    static const char *const names[] = {[EMBAG_F32] = "F32",
        [EMBAG_F64] = "F64",
        [EMBAG_F16] = "F16",
        [EMBAG_BF16] = "BF16",
        [EMBAG_I8] = "I8",
        [EMBAG_U8] = "U8",
        [EMBAG_I16] = "I16",
        [EMBAG_U16] = "U16",
        [EMBAG_I32] = "I32",
        [EMBAG_U32] = "U32",
        [EMBAG_I64] = "I64",
        [EMBAG_U64] = "U64"};
    return embag_type_bytes(type) > 0 ? names[type] : "of no type";
}

/* One result, the request that it must fit, and the error that says why it does not. */
struct checked {
    const struct eb_lookup_expected *expected;
    const struct eb_wire_result *result; /* NULL: the answer as a whole */
    size_t position;
    struct eb_error *error;
};

/* The subject of an error. */
enum subject { ANSWER, RESULT, SHAPE };

/* Writes the subject, which the error's text begins with: "results[2]: shape [3, 4] ". */
static void write_subject(
    const struct checked *checked, enum subject subject, char text[SUBJECT_TEXT_BYTES])
{
    const struct eb_wire_result *result = checked->result;
    size_t used = 0;
    text[0] = '\0';
    if (subject == ANSWER) {
        return;
    }
    used += (size_t)snprintf(text, SUBJECT_TEXT_BYTES, "results[%zu]: ", checked->position);
    if (subject == RESULT) {
        return;
    }
    used += (size_t)snprintf(text + used, SUBJECT_TEXT_BYTES - used, "shape [");
    for (uint32_t i = 0; i < result->shape_count && i < EMBAG_RANK_MAX; i++) {
        used += (size_t)snprintf(text + used, SUBJECT_TEXT_BYTES - used, "%s%" PRIu64,
            i > 0 ? ", " : "", result->shape[i]);
    }
    snprintf(text + used, SUBJECT_TEXT_BYTES - used, "] ");
}

/* Sets the error of an answer that does not fit the request. Returns false. */
static bool refuse_answer(const struct checked *checked, enum subject subject, const char *format,
    ...) __attribute__((format(printf, 3, 4)));
static bool refuse_answer(
    const struct checked *checked, enum subject subject, const char *format, ...)
{
    char subject_text[SUBJECT_TEXT_BYTES];
    char text[EB_ERROR_TEXT_BYTES / 2];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    write_subject(checked, subject, subject_text);
    eb_error_set(checked->error, EB_STATUS_INTERNAL, "the answer does not fit the request: %s%s",
        subject_text, text);
    return false;
}

/* ---- sequences: rows that are not pooled ---- */

/* Returns whether a result is that of a sequence lookup. The request decides that, except if a
 * group leaves the reduction to its features. Without bags, both results of such a group look the
 * same. */
static bool is_sequence(const struct checked *checked)
{
    const struct eb_lookup_expected *expected = checked->expected;
    if (expected->concat) {
        return false;
    }
    const struct eb_lookup_asked *asked = &expected->asked[checked->position];
    bool is_group = checked->position >= expected->query_count;
    return eb_wire_sequence_is_set(&asked->sequence) ||
           (is_group && asked->reduction == EMBAG_NONE) ||
           (is_group && asked->reduction == EMBAG_REDUCTION_UNSPECIFIED &&
               (checked->result->lengths_bytes > 0 || asked->bags == 0));
}

/* Checks that there is a length for each bag, or in a group for each feature and bag. If the model
 * lists the features, there is a count of missing indices for each of them. */
static bool check_lengths_count(const struct checked *checked)
{
    const struct eb_lookup_expected *expected = checked->expected;
    const struct eb_lookup_asked *asked = &expected->asked[checked->position];
    const struct eb_wire_result *result = checked->result;
    uint64_t feature_count = 1;
    if (checked->position >= expected->query_count) {
        feature_count = asked->feature_count > 0 ? asked->feature_count
                                                 : (uint64_t)result->missing_by_query_count;
    }
    uint64_t bytes = sizeof(int32_t);
    bool is_sound = !__builtin_mul_overflow(bytes, feature_count, &bytes) &&
                    !__builtin_mul_overflow(bytes, asked->bags, &bytes) &&
                    bytes == result->lengths_bytes;
    return is_sound ||
           refuse_answer(checked, RESULT,
               "lengths has %zu bytes, %" PRIu64 " features of %" PRIu64 " bags need 4 for each",
               result->lengths_bytes, feature_count, asked->bags);
}

/* Checks the lengths and sets *sum to their sum. */
static bool check_sequence_lengths(const struct checked *checked, uint64_t *sum)
{
    const struct eb_lookup_asked *asked = &checked->expected->asked[checked->position];
    const struct eb_wire_result *result = checked->result;
    uint32_t max_len = asked->sequence.max_len;
    *sum = 0;
    if (!check_lengths_count(checked)) {
        return false;
    }
    for (size_t i = 0; i < result->lengths_bytes / sizeof(int32_t); i++) {
        int32_t length;
        memcpy(&length, result->lengths + i * sizeof length, sizeof length);
        if (length < 0 || (max_len > 0 && (uint32_t)length > max_len)) {
            return refuse_answer(checked, RESULT,
                "lengths[%zu] = %" PRId32 ", the request has max_len = %" PRIu32, i, length,
                max_len);
        }
        *sum += (uint64_t)length;
    }
    return *sum <= asked->index_count ||
           refuse_answer(checked, RESULT,
               "lengths add up to %" PRIu64 ", the request has %" PRIu64 " indices", *sum,
               asked->index_count);
}

/* Checks that `inverse` has `count` entries and names all rows of the result, in ascending order if
 * only the first entry of each row counts. */
static bool check_inverse(const struct checked *checked, uint64_t count)
{
    const struct eb_wire_result *result = checked->result;
    uint64_t named_count = 0;
    if (result->inverse_bytes != count * sizeof(uint32_t)) {
        return refuse_answer(checked, RESULT,
            "inverse has %zu bytes, a sum of lengths of %" PRIu64 " needs %" PRIu64,
            result->inverse_bytes, count, (uint64_t)(count * sizeof(uint32_t)));
    }
    for (uint64_t i = 0; i < count; i++) {
        uint32_t row;
        memcpy(&row, result->inverse + i * sizeof row, sizeof row);
        if (row > named_count) {
            return refuse_answer(checked, RESULT,
                "inverse[%" PRIu64 "] = %" PRIu32 ", but only %" PRIu64
                " rows have been named before",
                i, row, named_count);
        }
        named_count += row == named_count;
    }
    return result->shape[0] == named_count ||
           refuse_answer(checked, SHAPE, "has %" PRIu64 " rows, inverse names %" PRIu64,
               result->shape[0], named_count);
}

/* Checks the lists of a sequence lookup, and the dimensions that they determine. The shape has at
 * least one dimension. */
static bool check_sequence(const struct checked *checked)
{
    const struct eb_wire_sequence *sequence = &checked->expected->asked[checked->position].sequence;
    const struct eb_wire_result *result = checked->result;
    uint64_t sum;
    if (!check_sequence_lengths(checked, &sum)) {
        return false;
    }
    if (sequence->unique) {
        return check_inverse(checked, sum);
    }
    if (result->inverse_bytes > 0) {
        return refuse_answer(
            checked, RESULT, "it has inverse, but the request does not ask for unique rows");
    }
    if (!sequence->pad) {
        return result->shape[0] == sum ||
               refuse_answer(checked, SHAPE, "has %" PRIu64 " rows, lengths add up to %" PRIu64,
                   result->shape[0], sum);
    }
    uint64_t bags = result->lengths_bytes / sizeof(int32_t);
    return (result->shape_count >= 2 && result->shape[0] == bags &&
               result->shape[1] == sequence->max_len) ||
           refuse_answer(checked, SHAPE,
               "is not that of %" PRIu64 " bags of max_len = %" PRIu32 " rows", bags,
               sequence->max_len);
}

/* Checks that a result that is not that of a sequence lookup has no lists. */
static bool check_no_lists(const struct checked *checked)
{
    const struct eb_wire_result *result = checked->result;
    return (result->lengths_bytes == 0 && result->inverse_bytes == 0) ||
           refuse_answer(checked, RESULT, "it has %s, but the request does not ask for sequences",
               result->lengths_bytes > 0 ? "lengths" : "inverse");
}

/* ---- shape and type ---- */

/* Returns whether each row has the vectors of several queries (concat) or of a group's features. */
static bool is_concatenated(const struct checked *checked)
{
    return checked->expected->concat || checked->position >= checked->expected->query_count;
}

static bool is_float(enum embag_type type)
{
    return type == EMBAG_F32 || type == EMBAG_F64 || type == EMBAG_F16 || type == EMBAG_BF16;
}

static bool check_input_type(const struct checked *checked)
{
    enum embag_type type = (enum embag_type)checked->result->type;
    enum embag_type asked = checked->expected->output_type;
    if (embag_type_bytes(type) == 0) {
        return refuse_answer(checked, RESULT,
            "type %" PRId32 " is not an element type that this client knows",
            checked->result->type);
    }
    if (asked != EMBAG_TYPE_UNSPECIFIED && type != asked) {
        return refuse_answer(checked, RESULT, "values are %s, the request asks for %s",
            name_type(type), name_type(asked));
    }
    return !is_concatenated(checked) || is_float(type) ||
           refuse_answer(checked, RESULT,
               "values are %s, but only floating-point values can stand side by side",
               name_type(type));
}

/* Checks the first dimension: the number of bags, or of indices if they are not reduced. */
static bool check_input_rows(const struct checked *checked)
{
    const struct eb_lookup_asked *asked = &checked->expected->asked[checked->position];
    uint64_t rows = checked->result->shape[0];
    bool is_own = asked->reduction == EMBAG_REDUCTION_UNSPECIFIED && !is_concatenated(checked);
    if (is_concatenated(checked) || (!is_own && asked->reduction != EMBAG_NONE)) {
        return rows == asked->bags ||
               refuse_answer(checked, SHAPE, "has %" PRIu64 " bags, the request has %" PRIu64, rows,
                   asked->bags);
    }
    if (rows == asked->index_count || (is_own && rows == asked->bags)) {
        return true;
    }
    return is_own ? refuse_answer(checked, SHAPE,
                        "has %" PRIu64 " rows, the request has %" PRIu64 " bags of %" PRIu64
                        " indices",
                        rows, asked->bags, asked->index_count)
                  : refuse_answer(checked, SHAPE,
                        "has %" PRIu64 " rows, the request has %" PRIu64 " indices", rows,
                        asked->index_count);
}

/* Checks the columns of a concatenated result, or of a group's sequences. */
static bool check_columns(const struct checked *checked)
{
    const struct eb_lookup_expected *expected = checked->expected;
    if (is_sequence(checked)) {
        uint32_t rank = expected->asked[checked->position].sequence.pad ? 3 : 2;
        return checked->result->shape_count == rank ||
               refuse_answer(checked, SHAPE, "does not have %" PRIu32 " dimensions", rank);
    }
    uint64_t vector_count =
        expected->concat ? expected->query_count : expected->asked[checked->position].feature_count;
    if (checked->result->shape_count != 2) {
        return refuse_answer(checked, SHAPE, "does not have two dimensions");
    }
    return checked->result->shape[1] >= vector_count ||
           refuse_answer(checked, SHAPE, "has fewer columns than %" PRIu64 " %s", vector_count,
               expected->concat ? "queries" : "features");
}

/* Checks that there are as many values as the shape says. */
static bool check_input_size(const struct checked *checked)
{
    const struct eb_wire_result *result = checked->result;
    enum embag_type type = (enum embag_type)result->type;
    uint64_t bytes = embag_type_bytes(type);
    for (uint32_t i = 1; i < result->shape_count; i++) {
        if (result->shape[i] == 0) {
            return refuse_answer(checked, SHAPE, "has rows without values");
        }
        if (__builtin_mul_overflow(bytes, result->shape[i], &bytes)) {
            return refuse_answer(
                checked, SHAPE, "of %s needs more bytes than memory can hold", name_type(type));
        }
    }
    if (__builtin_mul_overflow(bytes, result->shape[0], &bytes)) {
        return refuse_answer(
            checked, SHAPE, "of %s needs more bytes than memory can hold", name_type(type));
    }
    return bytes == result->values_bytes ||
           refuse_answer(checked, SHAPE, "of %s needs %" PRIu64 " bytes, but there are %zu",
               name_type(type), bytes, result->values_bytes);
}

static bool check_input_shape(const struct checked *checked)
{
    uint32_t rank = checked->result->shape_count;
    if (rank == 0) {
        return refuse_answer(checked, SHAPE, "has no dimensions");
    }
    if (rank > EMBAG_RANK_MAX) {
        return refuse_answer(checked, RESULT, "%" PRIu32 " dimensions, at most %d are allowed",
            rank, EMBAG_RANK_MAX);
    }
    bool has_rows = is_sequence(checked) ? check_sequence(checked)
                                         : check_no_lists(checked) && check_input_rows(checked);
    return has_rows && (!is_concatenated(checked) || check_columns(checked)) &&
           check_input_size(checked);
}

/* ---- missing indices ---- */

/* Counts the indices that a result covers. */
static uint64_t count_input_indices(const struct checked *checked)
{
    const struct eb_lookup_expected *expected = checked->expected;
    if (!expected->concat) {
        return expected->asked[checked->position].index_count;
    }
    uint64_t count = 0;
    for (size_t i = 0; i < expected->query_count; i++) {
        count += expected->asked[i].index_count;
    }
    return count;
}

/* Checks how many counts of missing indices there are, if the request determines that. */
static bool check_missing_counts(const struct checked *checked)
{
    const struct eb_lookup_expected *expected = checked->expected;
    size_t count = checked->result->missing_by_query_count;
    uint64_t wanted = 0;
    if (expected->concat) {
        wanted = expected->query_count;
    } else if (is_concatenated(checked)) {
        wanted = expected->asked[checked->position].feature_count;
        wanted = wanted > 0 ? wanted : count;
    }
    return count == wanted ||
           refuse_answer(checked, RESULT,
               "%zu counts of missing indices, the request needs %" PRIu64, count, wanted);
}

/* Checks that the counts of the queries or features add up to the result's count. */
static bool check_missing_sum(const struct checked *checked)
{
    const struct eb_lookup_expected *expected = checked->expected;
    const struct eb_wire_result *result = checked->result;
    uint64_t sum = 0;
    for (size_t i = 0; i < result->missing_by_query_count; i++) {
        uint64_t count = result->missing_by_query[i];
        if (__builtin_add_overflow(sum, count, &sum)) {
            return refuse_answer(checked, RESULT,
                "%" PRIu64 " indices are missing, but the sum of the counts overflows",
                result->missing);
        }
        if (expected->concat && count > expected->asked[i].index_count) {
            return refuse_answer(checked, RESULT,
                "%" PRIu64 " indices are missing in queries[%zu], which has %" PRIu64, count, i,
                expected->asked[i].index_count);
        }
    }
    return sum == result->missing ||
           refuse_answer(checked, RESULT,
               "%" PRIu64 " indices are missing, but the counts add up to %" PRIu64,
               result->missing, sum);
}

/* Checks the positions [first, first + count) of one query or group, which ascend. */
static bool check_run(
    const struct checked *checked, uint64_t first, uint64_t count, uint64_t index_count)
{
    uint64_t least = 0;
    for (uint64_t i = first; i < first + count; i++) {
        uint32_t position;
        memcpy(
            &position, checked->result->missing_positions + i * sizeof position, sizeof position);
        if (position < least) {
            return refuse_answer(checked, RESULT,
                "missing_positions[%" PRIu64 "] = %" PRIu32 " is not above %" PRIu64, i, position,
                least - 1);
        }
        if (position >= index_count) {
            return refuse_answer(checked, RESULT,
                "missing_positions[%" PRIu64 "] = %" PRIu32 ", the request has %" PRIu64 " indices",
                i, position, index_count);
        }
        least = (uint64_t)position + 1;
    }
    return true;
}

/* Checks the positions of the missing indices, whose number has been checked. */
static bool check_positions(const struct checked *checked)
{
    const struct eb_lookup_expected *expected = checked->expected;
    const struct eb_wire_result *result = checked->result;
    size_t bytes = result->missing_positions_bytes;
    if (!expected->report_missing) {
        return bytes == 0 || refuse_answer(checked, RESULT,
                                 "it has missing_positions, but the request does not ask for them");
    }
    if (bytes != result->missing * sizeof(uint32_t)) {
        return refuse_answer(checked, RESULT,
            "missing_positions has %zu bytes, %" PRIu64 " missing indices need %" PRIu64, bytes,
            result->missing, (uint64_t)(result->missing * sizeof(uint32_t)));
    }
    if (!expected->concat) {
        return check_run(
            checked, 0, result->missing, expected->asked[checked->position].index_count);
    }
    uint64_t first = 0;
    for (size_t i = 0; i < expected->query_count; i++) {
        uint64_t count = result->missing_by_query[i];
        if (!check_run(checked, first, count, expected->asked[i].index_count)) {
            return false;
        }
        first += count;
    }
    return true;
}

static bool check_missing(const struct checked *checked)
{
    uint64_t missing = checked->result->missing;
    if (!check_missing_counts(checked) ||
        (is_concatenated(checked) && !check_missing_sum(checked))) {
        return false;
    }
    if (missing > 0 && missing > count_input_indices(checked)) {
        return refuse_answer(checked, RESULT,
            "%" PRIu64 " indices are missing, the request has %" PRIu64, missing,
            count_input_indices(checked));
    }
    return check_positions(checked);
}

/* Checks the number of unreached indices, after the missing ones. */
static bool check_unreached(const struct checked *checked)
{
    const struct eb_wire_result *result = checked->result;
    if (result->unreached == 0) {
        return true;
    }
    if (!checked->expected->allow_incomplete) {
        return refuse_answer(checked, RESULT,
            "%" PRIu64 " indices were not reached, but the request does not allow that",
            result->unreached);
    }
    return result->unreached <= count_input_indices(checked) - result->missing ||
           refuse_answer(checked, RESULT,
               "%" PRIu64 " indices were not reached and %" PRIu64
               " are missing, the request has %" PRIu64,
               result->unreached, result->missing, count_input_indices(checked));
}

/* ---- one result, all results ---- */

static bool check_result(const struct checked *checked)
{
    const struct eb_lookup_expected *expected = checked->expected;
    const struct eb_wire_result *result = checked->result;
    if (result->query != checked->position) {
        return refuse_answer(checked, RESULT, "it belongs to query %" PRIu32, result->query);
    }
    if (result->error_code != 0) {
        return (expected->errors_per_query && !expected->concat) ||
               refuse_answer(checked, RESULT,
                   "error %s, but the request does not allow errors of single results",
                   eb_status_name((int)eb_status_of_number(result->error_code)));
    }
    return check_input_type(checked) && check_input_shape(checked) && check_missing(checked) &&
           check_unreached(checked);
}

/* Checks that an answer says that it is incomplete if one of its results is. */
static bool check_incomplete(const struct checked *whole, const struct eb_wire_response *response)
{
    if (response->incomplete) {
        return whole->expected->allow_incomplete ||
               refuse_answer(
                   whole, ANSWER, "it is incomplete, but the request does not allow that");
    }
    for (size_t i = 0; i < response->result_count; i++) {
        if (response->results[i].error_code == 0 && response->results[i].unreached > 0) {
            return refuse_answer(
                whole, ANSWER, "results have unreached indices, but incomplete is not set");
        }
    }
    return true;
}

static bool check_count(const struct checked *whole, const struct eb_wire_response *response)
{
    const struct eb_lookup_expected *expected = whole->expected;
    size_t wanted = expected->query_count + expected->group_count;
    if (expected->concat) {
        wanted = expected->query_count > 0;
    }
    return response->result_count == wanted ||
           refuse_answer(whole, ANSWER, "%zu results, the request has %zu queries and %zu groups%s",
               response->result_count, expected->query_count, expected->group_count,
               expected->concat ? ", concatenated into one result" : "");
}

bool eb_lookup_check_response(const struct eb_lookup_expected *expected,
    const struct eb_wire_response *response, struct eb_error *error)
{
    struct checked whole = {expected, NULL, 0, error};
    if (response->error_code != 0) {
        eb_error_set(
            error, eb_status_of_number(response->error_code), "%s", response->error_message);
        return false;
    }
    if (response->more) {
        return refuse_answer(&whole, ANSWER, "more is set, but the request asks for one message");
    }
    if (response->version == 0) {
        return refuse_answer(&whole, ANSWER, "it names version 0, which no model has");
    }
    if (expected->version != 0 && response->version != expected->version) {
        return refuse_answer(&whole, ANSWER,
            "version %" PRIu64 " answered, but the request names %" PRIu64, response->version,
            expected->version);
    }
    bool is_good = check_count(&whole, response);
    for (size_t i = 0; is_good && i < response->result_count; i++) {
        struct checked checked = {expected, &response->results[i], i, error};
        is_good = check_result(&checked);
    }
    return is_good && check_incomplete(&whole, response);
}
