"""Sequence lookups, which return the rows of bags without pooling, in queries and in groups."""

import json
import subprocess
import unittest
from dataclasses import replace

import numpy as np

import sequence_model
import served
from bag_query import to_message
from element_types import TYPE_NUMBERS
from embag.v1 import embedding_bag_pb2 as pb
from jagged import FORMS, VALUE_FIELDS, random_jagged
from random_query import random_query, random_vector_tables
from rpc import error_of
from sequence_model import Sequence, random_sequence
from served import SEED, OwnServerTest, ServedTest, scaled
from table_files import Table, write_model, write_vectors

INVALID, EXHAUSTED, OUT_OF_RANGE = 'INVALID_ARGUMENT', 'RESOURCE_EXHAUSTED', 'OUT_OF_RANGE'
NONE, SUM = 7, 1
QUERIES = 6000
VECTOR_QUERIES = 3000
GROUPS = 800
BATCH = 100


class Case:
    """A random query that is a sequence lookup, and its expected answer."""

    def __init__(self, rng, tables):
        self.table = tables[rng.choice(list(tables))]
        query = random_query(rng, self.table)
        while query.reduction == 'none':
            query = random_query(rng, self.table)
        self.sequence = random_sequence(rng, query.weights is not None)
        self.query = replace(query, reduction='none')
        self.expected = sequence_model.expect(self.query, self.table, self.sequence)
        self.message = to_message(self.query, len(self.expected.lengths))
        self.sequence.set(self.message)

    def check(self, result, number=0):
        """Compares the result with the expected answer, and names the case if they differ."""
        try:
            sequence_model.check_result(self.expected, self.table, result, number)
        except AssertionError as error:
            raise AssertionError('seed %d: %s\n%r\n%r' % (
                SEED, error, self.query, self.sequence)) from error


class Sequences(ServedTest):
    """Sequence lookups of single queries."""

    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng([SEED, 61])

    def cases(self, count):
        """Returns random cases."""
        return [Case(self.rng, self.tables['every']) for _ in range(count)]

    def request(self, cases, **fields):
        """Returns a request of several cases."""
        return pb.LookupRequest(
            model='every', queries=[case.message for case in cases], **fields)

    def test_answers_unary_calls_as_the_model_does(self):
        for _ in range(scaled(QUERIES) // BATCH):
            cases = self.cases(BATCH)
            answer = self.client.lookup(self.request(cases))
            for number, (case, result) in enumerate(zip(cases, answer.results)):
                case.check(result, number)

    def test_answers_streams_as_the_model_does(self):
        cases = self.cases(scaled(1000))
        requests = [self.request([case], request_id=number + 1)
                    for number, case in enumerate(cases)]
        answers = {answer.request_id: answer for answer in self.client.stream(requests)}
        for number, case in enumerate(cases):
            case.check(answers[number + 1].results[0])

    def test_partial_answers_have_the_same_results(self):
        cases = self.cases(scaled(1000))
        results = {}
        for answer in self.client.stream([self.request(cases, request_id=5, partial=True)]):
            self.assertEqual((answer.error_code, answer.error_message), (0, ''))
            results.update({result.query: result for result in answer.results})
        for number, case in enumerate(cases):
            case.check(results[number], number)

    def test_a_faulty_query_fails_alone(self):
        cases = self.cases(9)
        bad = pb.BagQuery(table='f32_64x16', indices=[1], num_bags=1, reduction=SUM, unique=True)
        request = self.request(cases, errors_per_query=True)
        request.queries.insert(4, bad)
        results = self.client.lookup(request).results
        self.assertEqual((results[4].error_code, results[4].lengths), (3, b''))
        self.assertIn('unique', results[4].error_message)
        for number, case in enumerate(cases):
            number += number >= 4
            case.check(results[number], number)

    def test_converts_to_the_output_type(self):
        query = pb.BagQuery(table='f32_64x16', indices=[3, 5, 3], num_bags=1, reduction=NONE,
                            max_len=2)
        plain = pb.BagQuery(table='f32_64x16', indices=[5, 3], reduction=NONE)
        results = self.client.lookup(pb.LookupRequest(
            model='every', queries=[query, plain], output_type=TYPE_NUMBERS['f16'])).results
        self.assertEqual(results[0].values, results[1].values)
        self.assertEqual(results[0].type, TYPE_NUMBERS['f16'])

    def test_lists_missing_indices_that_max_len_cuts(self):
        query = pb.BagQuery(table='f32_64x16', indices=[64, 1, 2, 3, -1, 4], lengths_i32=np.array(
            [4, 2], '<i4').tobytes(), reduction=NONE, missing=2, max_len=1)
        result, = self.client.lookup(pb.LookupRequest(
            model='every', queries=[query], report_missing=True)).results
        self.assertEqual(np.frombuffer(result.missing_positions, '<u4').tolist(), [0, 4])
        self.assertEqual(np.frombuffer(result.lengths, '<i4').tolist(), [1, 1])

    def test_a_query_without_the_fields_is_read_index_by_index(self):
        query = pb.BagQuery(table='f32_64x16', indices=[1, 2, 99], offsets=[0, 2],
                            reduction=NONE, missing=2)
        result, = self.client.lookup(pb.LookupRequest(model='every', queries=[query])).results
        self.assertEqual((list(result.shape), result.lengths, result.inverse), ([3, 16], b'', b''))


class Refused(ServedTest):
    """Combinations of fields that are not allowed."""

    def check(self, pattern, status=INVALID, **fields):
        """Expects a query with these fields to be refused."""
        fields = {'table': 'f32_64x16', 'indices': [1, 2], 'num_bags': 1, 'reduction': NONE,
                  **fields}
        code, text = error_of(self.client.lookup, pb.LookupRequest(
            model='every', queries=[pb.BagQuery(**fields)]))
        self.assertEqual(code.name, status, text)
        self.assertRegex(text, r'^queries\[0\] "f32_64x16": ' + pattern)

    def test_with_a_pooling_reduction(self):
        for field, value in (('max_len', 3), ('keep_first', True), ('pad', True),
                             ('unique', True)):
            self.check(field + ' is set.*is MEAN: expected NONE', reduction=2, **{field: value})
            self.check(field + ' is set.*is SUM: expected NONE', reduction=0, **{field: value})

    def test_without_max_len(self):
        self.check('keep_first needs a max_len', keep_first=True)
        self.check('pad needs a max_len', pad=True)

    def test_unique_with_weights_or_padding(self):
        self.check('unique.*weights', unique=True, weights_f32=[1, 2])
        self.check('unique and pad', unique=True, max_len=3, pad=True)

    def test_without_a_layout(self):
        self.check('indices need a layout', num_bags=0, max_len=3)

    def test_checks_indices_that_max_len_cuts(self):
        self.check(r'indices\[0\] = 64', OUT_OF_RANGE, indices=[64, 1, 2], max_len=1)
        self.check('default_index = 64', OUT_OF_RANGE, default_index=64, max_len=1)

    def test_with_concat(self):
        query = pb.BagQuery(table='f32_64x16', indices=[1], num_bags=1, reduction=NONE, max_len=1)
        code, text = error_of(self.client.lookup, pb.LookupRequest(
            model='every', queries=[query, query], concat=True))
        self.assertEqual((code.name, text), (
            INVALID, 'queries[0] "f32_64x16": concat is not possible with the reduction NONE'))


class Groups(ServedTest):
    """Groups with NONE, whose results are those of the queries, one after the other."""

    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng([SEED, 62])
        self.wide = self.tables['wide']

    def random_group(self):
        """Returns random bags, some of whose indices may be missing, and the fields of a group."""
        features = ['t%02d' % n for n in self.rng.integers(0, 26, self.rng.integers(1, 6))]
        jagged = random_jagged(self.rng, self.wide, features, bags=int(self.rng.integers(0, 6)),
                               reduction='none')
        jagged.missing = str(self.rng.choice(['error', 'skip', 'zero']))
        if jagged.missing != 'error':
            jagged.values[self.rng.random(len(jagged.values)) < 0.3] = 5000
        if self.rng.random() < 0.3 and len(jagged.values):
            jagged.weights = self.rng.normal(size=len(jagged.values)).astype('<f4')
        return jagged, random_sequence(self.rng, jagged.weights is not None)

    def expect(self, jagged, sequence, singles):
        """Returns shape, lengths, inverse, missing and values of a group, from its queries."""
        rows = sum(single.shape[0] for single in singles)
        inverse, base = [], 0
        for single in singles:
            numbers = np.frombuffer(single.inverse, '<u4').astype(np.int64) + base
            inverse += numbers.tolist()
            base += single.shape[0]
        shape = [rows, sequence.max_len, 128] if sequence.pad else [rows, 128]
        return (shape, b''.join(single.lengths for single in singles), inverse,
                [single.missing for single in singles],
                b''.join(single.values for single in singles))

    def test_equals_the_same_lookups_as_queries(self):
        for _ in range(scaled(GROUPS)):
            jagged, sequence = self.random_group()
            group = jagged.group(str(self.rng.choice(FORMS)), str(self.rng.choice(VALUE_FIELDS)))
            sequence.set(group)
            queries = jagged.messages()
            for query in queries:
                sequence.set(query)
                query.num_bags = jagged.lengths.shape[1]
            answer = self.client.lookup(pb.LookupRequest(
                model='wide', queries=queries, groups=[group]))
            result = answer.results[-1]
            got = (list(result.shape), result.lengths,
                   np.frombuffer(result.inverse, '<u4').tolist(), list(result.missing_by_query),
                   result.values)
            self.assertEqual(got, self.expect(jagged, sequence, answer.results[:-1]),
                             'seed %d: %r %r' % (SEED, jagged, sequence))

    def test_without_fields_gives_all_rows(self):
        jagged = random_jagged(self.rng, self.wide, ['t03', 't01'], reduction='none')
        result, = self.client.lookup(
            pb.LookupRequest(model='wide', groups=[jagged.group()])).results
        self.assertEqual(list(result.shape), [len(jagged.values), 128])
        self.assertEqual(np.frombuffer(result.lengths, '<i4').tolist(),
                         jagged.lengths.reshape(-1).tolist())
        self.assertEqual(result.missing_by_query, [0, 0])

    def check_refused(self, features, pattern, model='every', **fields):
        """Expects a group with these fields to be refused."""
        group = pb.FeatureGroup(
            features=features, bags=1, values_i64=np.zeros(len(features), '<i8').tobytes(),
            lengths_i32=np.ones(len(features), '<i4').tobytes(), **fields)
        code, text = error_of(
            self.client.lookup, pb.LookupRequest(model=model, groups=[group]))
        self.assertEqual(code.name, INVALID, text)
        self.assertRegex(text, r'^groups\[0\].*' + pattern)

    def test_refuses_rows_of_several_sizes(self):
        self.check_refused(['t00', 'narrow'], r'features\[1\] "narrow": .*one size.*1.*128',
                           'wide', reduction=NONE)

    def test_refuses_types_as_other_groups_do(self):
        self.check_refused(['i32_64x16'], 'integers', reduction=NONE)
        self.check_refused(['f32_64x16', 'f16_64x16'], 'output_type', reduction=NONE)

    def test_refuses_fields_with_a_pooling_reduction(self):
        self.check_refused(['t00'], 'pad is set.*SUM', 'wide', pad=True)


class DefaultVectors(OwnServerTest):
    """Tables with default vectors, some with keys and some of codes. Each row of a sequence has the
    bits that its index alone gets with NONE."""

    CODES = {'f32_64x16': 'int8', 'bf16_64x16': 'int4'}

    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng([SEED, 67])
        tables = random_vector_tables(self.rng)
        write_model(self.repository.path, 'vectors', 1, tables)
        write_vectors(self.repository.path, 'vectors', 1, tables)
        path = self.repository.join('vectors', 'model.yaml')
        with open(path, encoding='utf-8') as file:
            text = file.read()
        for name, storage in self.CODES.items():
            self.assertIn('{name: %s,' % name, text)
            text = text.replace('{name: %s,' % name, '{name: %s, storage: %s,' % (name, storage))
        with open(path, 'w', encoding='utf-8') as file:
            file.write(text)
        self.tables = {table.name: table for table in tables}
        self.client = self.connect(self.serve())

    def check(self, table):
        """Looks up a random sequence, and its indices one by one."""
        query = random_query(self.rng, table)
        while query.reduction == 'none':
            query = random_query(self.rng, table)
        sequence = random_sequence(self.rng, query.weights is not None)
        bags = sequence_model.kept_positions(query, table, sequence)
        positions, inverse = sequence_model.result_positions(query, table, sequence, bags)
        message = to_message(replace(query, reduction='none'), len(bags))
        sequence.set(message)
        policy = 'unknown_row' if query.missing == 'unknown_row' else 'zero'
        single = to_message(replace(query, reduction='none', layout=None, num_bags=0,
                                    default_index=None, missing=policy))
        got, rows = self.client.lookup(
            pb.LookupRequest(model='vectors', queries=[message, single])).results
        size = len(rows.values) // max(len(query.indices), 1)
        wanted = [bytes(size) if p == sequence_model.ABSENT
                  else rows.values[p * size:(p + 1) * size] for p in positions]
        case = 'seed %d: %r\n%r' % (SEED, query, sequence)
        self.assertEqual(np.frombuffer(got.lengths, '<i4').tolist(), [len(b) for b in bags], case)
        self.assertEqual(np.frombuffer(got.inverse, '<u4').tolist(), inverse, case)
        if size:
            self.assertEqual(got.values, b''.join(wanted), case)

    def test_rows_are_those_of_their_indices(self):
        names = list(self.tables)
        for number in range(scaled(VECTOR_QUERIES)):
            codes = list(self.CODES)[number // 3 % 2]
            self.check(self.tables[codes if number % 3 == 0 else self.rng.choice(names)])


class Limits(OwnServerTest):
    """Limits at the edge, and one past it."""

    def serve_rows(self, *flags):
        """Starts a server with a table of 4 rows of 2 values."""
        table = Table.of_values('emb_table', 'f32', np.arange(8).reshape(4, 2))
        return self.connect(self.serve(*flags, tables=[table]))

    def ask(self, bags, group=False, **fields):
        """Returns a request of empty bags."""
        if group:
            asked = pb.FeatureGroup(features=['emb_table'], bags=bags, lengths_i32=bytes(4 * bags),
                                    reduction=NONE, **fields)
            return pb.LookupRequest(groups=[asked])
        query = pb.BagQuery(table='emb_table', num_bags=bags, reduction=NONE, **fields)
        return pb.LookupRequest(queries=[query])

    def check(self, client, good, bad, pattern):
        """Checks a request at the limit, and one past it."""
        self.assertTrue(client.lookup(good).results)
        code, text = error_of(client.lookup, bad)
        self.assertEqual(code.name, EXHAUSTED, text)
        self.assertRegex(text, pattern)
        self.assertTrue(client.lookup(good).results)

    def test_padded_rows_count_as_bags(self):
        client = self.serve_rows('--bags-max', '100')
        for group in (False, True):
            self.check(client, self.ask(20, group, max_len=5, pad=True),
                       self.ask(20, group, max_len=6, pad=True), 'bags_max')

    def test_padding_counts_against_the_answer(self):
        client = self.serve_rows('--response-bytes-max', '65536')
        for group in (False, True):
            self.check(client, self.ask(8, group, max_len=1000, pad=True),
                       self.ask(8, group, max_len=1025, pad=True), 'response_bytes_max')

    def test_padding_cannot_overflow(self):
        client = self.serve_rows()
        for max_len in (2**32 - 1, 2**29, 2**24 // 4 + 1):
            self.check(client, self.ask(4, max_len=7, pad=True),
                       self.ask(4, max_len=max_len, pad=True), 'can be padded')

    def test_unique_rows_count_once_against_the_answer(self):
        client = self.serve_rows('--response-bytes-max', '65536')

        def ask(count, **fields):
            query = pb.BagQuery(table='emb_table', indices_i32=bytes(4 * count), num_bags=1,
                                reduction=NONE, **fields)
            return pb.LookupRequest(queries=[query])

        self.check(client, ask(8000, unique=True), ask(8193, max_len=9000), 'response_bytes_max')
        self.check(client, ask(16000, unique=True), ask(17000, unique=True), 'response_bytes_max')
        self.check(client, ask(9000, max_len=8), ask(9000, max_len=8193), 'response_bytes_max')

    def test_the_least_rows_of_a_table_without_rows(self):
        table = Table('empty', 'f32', np.zeros((0, 3), '<f4'))
        client = self.connect(self.serve(tables=[table]))
        query = pb.BagQuery(table='empty', indices=[1, 2], lengths_i32=np.array(
            [2, 0], '<i4').tobytes(), reduction=NONE, missing=2, max_len=2, pad=True)
        result, = client.lookup(pb.LookupRequest(queries=[query])).results
        self.assertEqual((list(result.shape), result.values), ([2, 2, 3], bytes(48)))


class Features(OwnServerTest):
    """Features whose own reduction is NONE."""

    MODEL = '''
features:
- {name: clicks, table: emb_table, reduction: none, max_ids: 3, missing: skip}
- {name: views, table: emb_table, reduction: none, id_map: modulo}
- {name: likes, table: emb_table}
groups:
- {name: history, features: [clicks, views]}
'''

    def setUp(self):
        super().setUp()
        table = Table.of_values('emb_table', 'f32', np.arange(8).reshape(4, 2))
        self.serve(tables=[table]).stop()
        with open(self.repository.join('spec', 'model.yaml'), 'w', encoding='utf-8') as file:
            file.write(self.MODEL)
        self.client = self.connect(self.serve())

    def query(self, **fields):
        """Looks up one query. Returns its shape, lengths and values."""
        result, = self.client.lookup(pb.LookupRequest(queries=[pb.BagQuery(**fields)])).results
        return (list(result.shape), np.frombuffer(result.lengths, '<i4').tolist(),
                np.frombuffer(result.values, '<f4').tolist())

    def test_a_query_may_leave_the_reduction_to_its_feature(self):
        self.assertEqual(self.query(table='clicks', indices=[1, 9, 3], num_bags=1, max_len=1),
                         ([1, 2], [1], [6, 7]))

    def test_ids_are_mapped_and_bags_are_limited(self):
        self.assertEqual(self.query(table='views', indices=[5, -1], num_bags=1, max_len=7),
                         ([2, 2], [2], [2, 3, 6, 7]))
        code, text = error_of(self.query, table='clicks', indices=[1, 2, 3, 0], num_bags=1,
                              max_len=2)
        self.assertEqual(code.name, INVALID)
        self.assertIn('more than max_ids = 3', text)

    def group(self, *features, **fields):
        """Returns a group of one bag of row 1 for each feature."""
        return pb.LookupRequest(groups=[pb.FeatureGroup(
            features=features, bags=1, values_i64=np.ones(len(features), '<i8').tobytes(),
            lengths_i32=np.ones(len(features), '<i4').tobytes(), **fields)])

    def test_a_group_may_leave_the_reduction_to_its_features(self):
        result, = self.client.lookup(self.group('clicks', 'views')).results
        self.assertEqual(list(result.shape), [2, 2])
        self.assertEqual(np.frombuffer(result.lengths, '<i4').tolist(), [1, 1])

    def test_a_group_of_the_model_may_be_one_of_sequences(self):
        group = pb.FeatureGroup(
            name='history', bags=1, values_i64=np.array([9, 1, 3], '<i8').tobytes(),
            lengths_i32=np.array([2, 1], '<i4').tobytes(), max_len=2, pad=True)
        result, = self.client.lookup(pb.LookupRequest(groups=[group])).results
        self.assertEqual((list(result.shape), result.missing_by_query), ([2, 2, 2], [1, 0]))
        self.assertEqual(np.frombuffer(result.values, '<f4').tolist(), [2, 3, 0, 0, 6, 7, 0, 0])

    def test_a_group_is_pooled_or_not_as_a_whole(self):
        for features in (('clicks', 'likes'), ('likes', 'clicks')):
            code, text = error_of(self.client.lookup, self.group(*features))
            self.assertEqual(code.name, INVALID)
            self.assertRegex(text, r'^groups\[0\].features\[1\] .*for all features or for none')
        result, = self.client.lookup(self.group('clicks', 'likes', reduction=NONE)).results
        self.assertEqual(list(result.shape), [2, 2])


class CommandLine(OwnServerTest):
    """The tool's flags."""

    def run_tool(self, *flags):
        """Looks up three bags of the specification's table. Returns the output."""
        if not hasattr(self, 'address'):
            self.address = self.serve().address
        return subprocess.run(
            [served.EMBAG, 'lookup', '--server', self.address, '--table', 'emb_table',
             '--indices', '3,1,3,9,0', '--lengths', '3,0,2', '--reduction', 'none', '--missing',
             'skip', *flags], capture_output=True, text=True, timeout=60, check=True).stdout

    def test_prints_the_rows_of_each_bag(self):
        rows = ['     0.0: -0.1 -0.4', '     0.1: -1 1.5', '     2.0: -0.2 -0.6']
        for flags, shape in ((('--max-len', '2'), '[3, 2]'),
                             (('--max-len', '2', '--pad'), '[3, 2, 2]')):
            first, second, *lines = self.run_tool(*flags).splitlines()
            self.assertRegex(first, '^model spec')
            self.assertEqual(second, 'emb_table: f32 %s, 1 missing' % shape)
            self.assertEqual(lines, rows)

    def test_prints_unique_rows_and_their_numbers(self):
        lines = self.run_tool('--unique').splitlines()[2:]
        self.assertEqual(lines, ['     0: -1 1.5', '     1: -0.1 -0.4', '     2: -0.2 -0.6',
                                 'bag 0: 0 1 0', 'bag 1:', 'bag 2: 2'])

    def test_prints_lists_as_json(self):
        result, = json.loads(self.run_tool('--unique', '--json'))['results']
        self.assertEqual((result['lengths'], result['inverse'], result['shape']),
                         ([3, 0, 1], [0, 1, 0, 2], [3, 2]))
        result, = json.loads(self.run_tool('--max-len', '2', '--keep-first', '--json'))['results']
        self.assertEqual((result['lengths'], 'inverse' in result), ([2, 0, 1], False))
        self.assertEqual(result['values'][:4], [-1, 1.5, -0.1, -0.4])


if __name__ == '__main__':
    unittest.main()
