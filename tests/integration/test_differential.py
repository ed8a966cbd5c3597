"""Random lookups against the model of lib/bag_model.py."""

import unittest

import numpy as np

import bag_model
from bag_query import to_message
from element_types import FLOAT_TYPES, TYPE_NAMES, TYPE_NUMBERS
from embag.v1 import embedding_bag_pb2 as pb
from random_query import random_query, random_vector_tables
from rpc import error_of
from served import SEED, OwnServerTest, ServedTest, scaled
from table_files import write_model, write_vectors

UNARY_REQUESTS = 5000
STREAM_REQUESTS = 4000
CONCAT_REQUESTS = 1500
VECTOR_REQUESTS = 2000
STREAM_BATCH = 100
OUTPUTS = ('f32', 'f16', 'bf16')


class Lookup:
    """One random request and its expected answer."""

    def __init__(self, rng, model, tables, concat=False):
        self.rng = rng
        self.concat = concat
        self.tables = tables
        self.request = pb.LookupRequest(model=model, concat=concat)
        if concat:
            self.make_concat()
        else:
            self.make_queries()

    def make_queries(self):
        """Returns a few queries on any tables."""
        names = self.rng.choice(list(self.tables), self.rng.integers(1, 6))
        self.chosen = [self.tables[name] for name in names]
        self.output = self.choose_output()
        self.queries = [random_query(self.rng, table) for table in self.chosen]
        self.fill()

    def make_concat(self):
        """Returns queries on floating-point tables with one number of bags and one type."""
        tables = [table for table in self.tables.values() if table.is_float]
        if self.rng.random() < 0.5:
            only = self.rng.choice(FLOAT_TYPES)
            tables = [table for table in tables if table.type == only]
        count = int(self.rng.integers(1, 6))
        self.chosen = [tables[n] for n in self.rng.integers(0, len(tables), count)]
        self.output = self.choose_output()
        if len({table.type for table in self.chosen}) > 1 and self.output is None:
            self.output = 'f32'
        bags = int(self.rng.integers(1, 9))
        self.queries = [random_query(self.rng, table, bags) for table in self.chosen]
        self.fill()

    def choose_output(self):
        """Returns None, or any result type that all the chosen tables support."""
        types = {table.type for table in self.chosen}
        allowed = [None]
        if all(table.is_float for table in self.chosen):
            allowed += OUTPUTS
        if len(types) == 1:
            allowed.append(types.pop())
        return allowed[self.rng.integers(0, len(allowed))]

    def fill(self):
        """Builds the message and the expectations."""
        self.request.output_type = TYPE_NUMBERS.get(self.output, 0)
        self.expected = [bag_model.expect(query, table, self.output)
                         for query, table in zip(self.queries, self.chosen)]
        for query, expected in zip(self.queries, self.expected):
            self.request.queries.append(to_message(query, expected.shape[0]))

    def check(self, answer):
        """Compares an answer; names the query whose result differs."""
        if self.concat:
            self.check_concat(answer)
            return
        if len(answer.results) != len(self.queries):
            raise AssertionError('%d results' % len(answer.results))
        for number, query in enumerate(self.queries):
            try:
                bag_model.check_result(
                    self.expected[number], self.chosen[number], answer.results[number], number)
            except AssertionError as error:
                raise AssertionError('seed %d, query %d: %s\n%r' % (SEED, number, error, query))

    def check_concat(self, answer):
        """Splits the single result into those of the queries."""
        result, = answer.results
        bags = self.expected[0].shape[0]
        widths = [table.row_elements for table in self.chosen]
        missing = [expected.missing for expected in self.expected]
        head = (result.query, tuple(result.shape), list(result.missing_by_query), result.missing)
        want = (0, (bags, sum(widths)), missing, sum(missing))
        if head != want:
            raise AssertionError('seed %d: %s, not %s' % (SEED, head, want))
        rows = np.frombuffer(result.values, np.uint8).reshape(bags, -1)
        width = rows.shape[1] // sum(widths)
        cuts = np.cumsum([0] + widths) * width
        for number, query in enumerate(self.queries):
            try:
                bag_model.check_values(
                    self.expected[number], self.chosen[number], TYPE_NAMES[result.type],
                    rows[:, cuts[number]:cuts[number + 1]].tobytes())
            except AssertionError as error:
                raise AssertionError('seed %d, query %d: %s\n%r' % (SEED, number, error, query))


class Differential(ServedTest):
    """The server answers as the model computes."""

    def lookups(self, stream_number, count, **keywords):
        """Yields random requests; every third uses the tables of a safetensors file."""
        rng = np.random.default_rng([SEED, stream_number])
        for number in range(count):
            model = 'packed' if number % 3 == 2 else 'every'
            yield Lookup(rng, model, self.tables[model], **keywords)

    def test_answers_unary_calls_as_the_model_does(self):
        for lookup in self.lookups(1, scaled(UNARY_REQUESTS)):
            answer = self.client.lookup(lookup.request)
            self.assertEqual(answer.model, lookup.request.model)
            self.assertEqual(answer.version, {'every': 3, 'packed': 12}[answer.model])
            lookup.check(answer)

    def test_answers_streams_as_the_model_does(self):
        for start in range(0, scaled(STREAM_REQUESTS), STREAM_BATCH):
            lookups = list(self.lookups(1000 + start, STREAM_BATCH))
            for number, lookup in enumerate(lookups):
                lookup.request.request_id = start + number + 1
            answers = {a.request_id: a for a in self.client.stream([x.request for x in lookups])}
            self.assertEqual(len(answers), len(lookups))
            for lookup in lookups:
                answer = answers[lookup.request.request_id]
                self.assertEqual((answer.error_code, answer.error_message), (0, ''))
                lookup.check(answer)

    def test_answers_concat_as_the_model_does(self):
        for lookup in self.lookups(2, scaled(CONCAT_REQUESTS), concat=True):
            lookup.check(self.client.lookup(lookup.request))

    def test_bits_do_not_depend_on_the_layout(self):
        rng = np.random.default_rng([SEED, 3])
        for table in self.tables['every'].values():
            if table.rows:
                self.check_same_bits(rng, table)

    def check_same_bits(self, rng, table):
        """Makes one lookup in four layouts, alone and beside others."""
        indices = rng.integers(0, table.rows, 24).astype('<i8')
        ids = np.repeat(np.arange(6), 4)
        forms = [
            pb.BagQuery(table=table.name, indices_i64=indices.tobytes(), indices_per_bag=4),
            pb.BagQuery(table=table.name, indices=indices.tolist(), offsets=range(0, 24, 4)),
            pb.BagQuery(table=table.name, indices_i32=indices.astype('<i4').tobytes(),
                        lengths_i32=np.full(6, 4, '<i4').tobytes()),
            pb.BagQuery(table=table.name, indices_i64=indices.tobytes(), num_segments=6,
                        segment_ids_i64=ids.astype('<i8').tobytes()),
        ]
        together = self.client.lookup(pb.LookupRequest(model='every', queries=forms))
        alone = self.client.lookup(pb.LookupRequest(model='every', queries=forms[:1]))
        values = {result.values for result in [*together.results, *alone.results]}
        self.assertEqual(len(values), 1, table.name)

    def test_refuses_a_missing_index_where_the_model_does(self):
        rng = np.random.default_rng([SEED, 4])
        tables = list(self.tables['every'].values())
        for _ in range(scaled(200)):
            query = random_query(rng, tables[rng.integers(0, len(tables))])
            query.missing = 'error'
            try:
                bag_model.expect(query, self.tables['every'][query.table])
                continue
            except ValueError:
                request = pb.LookupRequest(model='every', queries=[to_message(query)])
            code, _ = error_of(self.client.lookup, request)
            self.assertEqual(code.name, 'OUT_OF_RANGE', query)


class DefaultVectors(OwnServerTest):
    """Tables with default vectors and with keys answer as the model computes."""

    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng([SEED, 5])
        tables = random_vector_tables(self.rng)
        write_model(self.repository.path, 'vectors', 1, tables)
        write_vectors(self.repository.path, 'vectors', 1, tables)
        self.tables = {table.name: table for table in tables}
        self.client = self.connect(self.serve())

    def test_answers_as_the_model_does(self):
        for concat in (False, True):
            for _ in range(scaled(VECTOR_REQUESTS) // 2):
                lookup = Lookup(self.rng, 'vectors', self.tables, concat=concat)
                lookup.check(self.client.lookup(lookup.request))


if __name__ == '__main__':
    unittest.main()
