"""Feature groups: they answer with the same bytes as equivalent queries; invalid groups are
refused."""

import unittest

import numpy as np

import bag_model
from bag_query import Query, to_message
from embag.v1 import embedding_bag_pb2 as pb
from jagged import (FEATURES, FORMS, VALUE_FIELDS, Jagged, check_group_result, random_jagged)
from rpc import error_of
from served import SEED, OwnServerTest, ServedTest
from table_files import Table

INVALID, NOT_FOUND, EXHAUSTED, OUT_OF_RANGE = (
    'INVALID_ARGUMENT', 'NOT_FOUND', 'RESOURCE_EXHAUSTED', 'OUT_OF_RANGE')
F32 = 1


def request(groups, model='wide', **fields):
    """Returns a request of some groups."""
    return pb.LookupRequest(model=model, groups=groups, **fields)


class GroupTest(ServedTest):
    """Tests on the shared server's model with a table for each of 26 features."""

    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng([SEED, 41])
        self.wide = self.tables['wide']

    def jagged(self, features=None, **keywords):
        """Returns random bags."""
        return random_jagged(self.rng, self.wide, features, **keywords)

    def singles(self, jagged, model='wide', **fields):
        """Returns the results of the equivalent queries."""
        asked = pb.LookupRequest(model=model, queries=jagged.messages(), **fields)
        return self.client.lookup(asked).results

    def check(self, jagged, model='wide', **fields):
        """Compares the group, in every form, with the queries."""
        singles = self.singles(jagged, model, **fields)
        for form in FORMS:
            for values in VALUE_FIELDS:
                result, = self.client.lookup(
                    request([jagged.group(form, values)], model, **fields)).results
                with self.subTest(form=form, values=values):
                    check_group_result(result, singles, 0)


class Groups(GroupTest):
    """Groups that are answered."""

    def test_equals_the_same_lookups_as_queries(self):
        for bags in (1, 2, 7, 64):
            self.check(self.jagged(bags=bags))

    def test_equals_concat(self):
        jagged = self.jagged(bags=9)
        joined = self.client.lookup(
            pb.LookupRequest(model='wide', queries=jagged.messages(), concat=True)).results[0]
        group = self.client.lookup(request([jagged.group()])).results[0]
        self.assertEqual(group, joined)

    def test_is_what_the_definition_says(self):
        jagged = self.jagged(bags=6)
        result, = self.client.lookup(request([jagged.group()])).results
        values = np.frombuffer(result.values, '<f4').reshape(6, 26, 128)
        for number, query in enumerate(jagged.queries()):
            table = self.wide[query.table]
            bag_model.check_values(bag_model.expect(query, table), table, 'f32',
                                   values[:, number].tobytes())

    def test_every_reduction(self):
        for reduction in (None, 'sum', 'mean', 'weighted_mean', 'sqrtn', 'max', 'min'):
            self.check(self.jagged(reduction=reduction))

    def test_weights(self):
        for reduction in ('sum', 'weighted_mean', 'sqrtn'):
            jagged = self.jagged(reduction=reduction)
            jagged.weights = self.rng.normal(size=len(jagged.values)).astype('<f4')
            self.check(jagged)
            typed = jagged.group()
            untyped = jagged.group()
            untyped.weights_type = 0
            typed, untyped = (self.client.lookup(request([group])) for group in (typed, untyped))
            self.assertEqual(typed.results, untyped.results)

    def test_empty_bags_are_zeros(self):
        empty = Jagged(FEATURES, np.zeros(0, np.int64), np.zeros((26, 3), np.int64))
        for form in FORMS:
            result, = self.client.lookup(request([empty.group(form)])).results
            self.assertEqual(list(result.shape), [3, 26 * 128])
            self.assertEqual(result.values, bytes(3 * 26 * 128 * 4))
        some = self.jagged(bags=4)
        some.lengths[::2] = 0
        some.values = np.zeros(some.lengths.sum(), np.int64)
        self.check(some)

    def test_no_bags_at_all(self):
        for form in FORMS:
            none = Jagged(['t00', 't01'], np.zeros(0, np.int64), np.zeros((2, 0), np.int64))
            result, = self.client.lookup(request([none.group(form)])).results
            self.assertEqual((list(result.shape), result.values), ([0, 256], b''))
            self.assertEqual(list(result.missing_by_query), [0, 0])

    def test_a_table_may_come_often(self):
        self.check(self.jagged(['t03', 't03', 't01', 't03']))
        self.check(self.jagged(['narrow', 'wide', 't00', 'narrow']))

    def test_many_features_of_one_table(self):
        self.check(self.jagged(['narrow'] * 4000, bags=1, longest=2))

    def test_rows_of_several_dimensions_lie_flat(self):
        features = ['f32_11x3x5', 'f32_40', 'f32_64x16']
        self.check(random_jagged(self.rng, self.tables['every'], features), 'every')

    def test_other_types_of_rows_and_results(self):
        every = self.tables['every']
        for storage in ('f64', 'f16', 'bf16'):
            features = [storage + '_23x7', storage + '_64x16']
            self.check(random_jagged(self.rng, every, features), 'every')
        mixed = random_jagged(self.rng, every, ['f32_23x7', 'f64_64x16', 'bf16_23x7', 'f16_23x7',
                                                'f8_e4m3_64x16'])
        for output_type in (F32, 3, 4):
            self.check(mixed, 'every', output_type=output_type)

    def test_missing_values_are_counted_by_feature(self):
        for missing in ('skip', 'zero'):
            jagged = self.jagged(missing=missing, bags=8)
            away = self.rng.random(len(jagged.values)) < 0.3
            jagged.values[away] = self.rng.choice([-1, 10**6, -2**31, 2**31 - 1], away.sum())
            self.check(jagged)

    def test_queries_come_first(self):
        jagged, other = self.jagged(bags=3), self.jagged(['t20', 'narrow'], bags=9)
        queries = [to_message(Query('t0%d' % n, np.array([n]), num_bags=1)) for n in (1, 2)]
        answer = self.client.lookup(pb.LookupRequest(
            model='wide', queries=queries, groups=[jagged.group(), other.group('offsets_i32')]))
        self.assertEqual([result.query for result in answer.results], [0, 1, 2, 3])
        for number in (1, 2):
            self.assertEqual(answer.results[number - 1].values,
                             self.wide['t0%d' % number].raw[number].tobytes())
        check_group_result(answer.results[2], self.singles(jagged), 2)
        check_group_result(answer.results[3], self.singles(other), 3)

    def test_on_a_stream(self):
        jagged = [self.jagged(bags=bags) for bags in (1, 5, 17, 200)]
        asked = [request([j.group('offsets_i64')], request_id=n + 1) for n, j in enumerate(jagged)]
        answers = {answer.request_id: answer for answer in self.client.stream(asked)}
        self.assertEqual(sorted(answers), [1, 2, 3, 4])
        for number, one in enumerate(jagged):
            check_group_result(answers[number + 1].results[0], self.singles(one), 0)


class FaultyGroups(GroupTest):
    """Groups that are refused, with texts that name the position."""

    def check_refused(self, group, code, pattern, model='wide', **fields):
        """Checks that the request is refused, alone and after a valid group."""
        refused, text = error_of(self.client.lookup, request([group], model, **fields))
        self.assertEqual(refused.name, code, text)
        self.assertRegex(text, r'groups\[0\]' + pattern)
        good = self.jagged(['t00'])
        if model == 'wide':
            refused, text = error_of(
                self.client.lookup, request([good.group(), group], model, **fields))
            self.assertEqual(refused.name, code, text)
            self.assertRegex(text, r'groups\[1\]' + pattern)

    def group(self, form='lengths_i32', **keywords):
        """Returns a group of two features with two bags each: t00 (1) (2 3), t01 () (4)."""
        return Jagged(['t00', 't01'], np.array([1, 2, 3, 4]), np.array([[1, 2], [0, 1]]),
                      **keywords).group(form)

    def test_names_group_and_feature_of_a_value(self):
        for bad in (-1, 57, 2**31 - 1):
            group = self.group()
            group.values_i64 = np.array([1, 2, 3, bad], '<i8').tobytes()
            self.check_refused(group, OUT_OF_RANGE, r'\.features\[1\] "t01": .*%d' % bad)
        group = self.group('offsets_i32')
        group.values_i64 = np.array([1, 2, 50, 4], '<i8').tobytes()
        self.check_refused(group, OUT_OF_RANGE, r'\.features\[0\] "t00": .*50')

    def test_counts_of_lengths(self):
        for lengths in ([1, 2, 0], [1, 2, 0, 1, 0], [1], []):
            group = self.group()
            group.lengths_i32 = np.array(lengths, '<i4').tobytes()
            self.check_refused(group, INVALID, '.*lengths')
        for lengths in ([1, 2, 0, 2], [1, 2, 0, 0], [1, 4, 0, -1], [-1, 2, 2, 1],
                        [2**31 - 1] * 4, [5, 0, 0, 0]):
            group = self.group()
            group.lengths_i32 = np.array(lengths, '<i4').tobytes()
            self.check_refused(group, INVALID, '.*lengths_i32')

    def test_counts_of_offsets(self):
        for field, width in (('offsets_i32', '<i4'), ('offsets_i64', '<i8')):
            for offsets in ([0, 1, 3, 3], [0, 1, 3, 3, 4, 4], [0, 1, 3, 3, 3], [0, 1, 3, 3, 5],
                            [1, 1, 3, 3, 4], [-1, 1, 3, 3, 4], [0, 3, 1, 3, 4], [0, 1, 9, 3, 4],
                            [0, 1, 3, -2**31, 4], [0]):
                group = self.group(field)
                setattr(group, field, np.array(offsets, width).tobytes())
                self.check_refused(group, INVALID, '.*' + field)
        group = self.group('offsets_i64')
        group.offsets_i64 = np.array([0, 2**63 - 1, 3, 3, 4], '<i8').tobytes()
        self.check_refused(group, INVALID, '.*offsets_i64')

    def test_bytes_that_are_no_whole_numbers(self):
        for field in ('values_i64', 'lengths_i32'):
            group = self.group()
            setattr(group, field, getattr(group, field) + b'\0')
            self.check_refused(group, INVALID, '.*' + field)
        group = self.group('offsets_i64')
        group.offsets_i64 += bytes(4)
        self.check_refused(group, INVALID, '.*offsets_i64')

    def test_two_forms_of_one_array(self):
        offsets = self.group('offsets_i64').offsets_i64
        for field, data in (('values_i32', bytes(16)), ('offsets_i64', offsets),
                            ('offsets_i32', bytes(20))):
            group = self.group()
            setattr(group, field, data)
            self.check_refused(group, INVALID, '.*' + field[:-4])
        group = self.group('offsets_i64')
        group.offsets_i32 = bytes(20)
        self.check_refused(group, INVALID, '.*offsets')

    def test_neither_lengths_nor_offsets(self):
        group = self.group()
        group.lengths_i32 = b''
        self.check_refused(group, INVALID, '.*lengths')
        self.check_refused(pb.FeatureGroup(features=['t00'], values_i64=bytes(8)), INVALID,
                           '.*(values|lengths)')

    def test_weights(self):
        group = self.group()
        for weights in (bytes(12), bytes(20), bytes(3), bytes(32)):
            group.weights = weights
            group.weights_type = F32
            self.check_refused(group, INVALID, '.*weight')
        for reduction in ('mean', 'max', 'min'):
            group = self.group(reduction=reduction, weights=np.ones(4, '<f4'))
            self.check_refused(group, INVALID, r'\.features\[0\] "t00".*weight')
        group = self.group(weights=np.ones(4, '<f4'))
        group.weights_type = 2
        self.check_refused(group, INVALID, '.*weight')

    def test_an_unknown_table(self):
        group = self.group()
        group.features[1] = 'nowhere'
        self.check_refused(group, NOT_FOUND, r'\.features\[1\] "nowhere"')

    def test_a_list_of_features_that_the_model_does_not_name(self):
        self.check_refused(pb.FeatureGroup(name='user', bags=1), NOT_FOUND, ' "user".*group')

    def test_no_features(self):
        self.check_refused(pb.FeatureGroup(), INVALID, '.*features')

    def test_invalid_reductions_and_policies(self):
        group = self.group()
        group.reduction = 8
        self.check_refused(group, INVALID, '.*reduction')
        group = self.group()
        group.missing = 5
        self.check_refused(group, INVALID, '.*missing')

    def test_no_row_for_unknown_values(self):
        self.check_refused(self.group(missing='unknown_row'), INVALID, r'\.features\[0\] "t00"')

    def test_integers(self):
        group = self.group()
        group.features[:] = ['f32_64x16', 'i32_64x16']
        self.check_refused(group, INVALID, r'\.features\[1\] "i32_64x16": .*integers', 'every')
        group.features[:] = ['i32_64x16', 'i32_64x16']
        self.check_refused(group, INVALID, r'\.features\[0\] "i32_64x16": .*integers', 'every')

    def test_results_of_two_types(self):
        group = self.group()
        group.features[:] = ['f32_64x16', 'f64_64x16']
        self.check_refused(group, INVALID, r'\.features\[1\] "f64_64x16": .*output_type', 'every')

    def test_concat(self):
        code, text = error_of(self.client.lookup, request([self.group()], concat=True))
        self.assertEqual(code.name, INVALID, text)
        self.assertRegex(text, 'concat')


class GroupLimits(OwnServerTest):
    """Features count as queries; their bags and values count with those of the whole request."""

    def serve_spec(self, *flags):
        """Starts a server with a table of 5 rows."""
        table = Table.of_values('emb_table', 'f32', np.arange(10).reshape(5, 2))
        return self.connect(self.serve(*flags, tables=[table]))

    def asked(self, queries, features, bags=1, values=0):
        """Returns this many one-bag queries, and a group whose first bag has the values."""
        lengths = np.zeros((features, bags), np.int64)
        lengths[0, 0] = values
        group = Jagged(['emb_table'] * features, np.zeros(values, np.int64), lengths).group()
        query = pb.BagQuery(table='emb_table', num_bags=1)
        return pb.LookupRequest(model='spec', queries=[query] * queries, groups=[group])

    def check(self, client, good, bad):
        """Checks a request at the limit, and one past it."""
        self.assertTrue(client.lookup(good).results)
        code, text = error_of(client.lookup, bad)
        self.assertEqual(code.name, EXHAUSTED, text)
        self.assertTrue(client.lookup(good).results)

    def test_features_count_as_queries(self):
        client = self.serve_spec('--queries-max', '6')
        self.check(client, self.asked(2, 4), self.asked(2, 5))
        self.check(client, self.asked(0, 6), self.asked(0, 7))

    def test_bags_and_values(self):
        client = self.serve_spec('--bags-max', '10', '--indices-max', '10')
        self.check(client, self.asked(2, 4, 2), self.asked(3, 4, 2))
        self.check(client, self.asked(0, 2, 5), self.asked(0, 2, 6))
        self.check(client, self.asked(0, 2, 1, 10), self.asked(0, 2, 1, 11))

    def test_claims_without_data(self):
        client = self.serve_spec()
        group = pb.FeatureGroup(features=['emb_table'] * 4000, bags=2**32 - 1)
        code, text = error_of(client.lookup, pb.LookupRequest(model='spec', groups=[group]))
        self.assertIn(code.name, (INVALID, EXHAUSTED), text)


if __name__ == '__main__':
    unittest.main()
