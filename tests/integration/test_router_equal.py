"""A router gives the answers of one server that has all tables.

All values and weights are small whole numbers, so that every sum is exact and does not depend on
how rows are divided. Only the sign of zeros may differ."""

import unittest

import numpy as np

from bag_query import to_message
from cluster import Cluster, wait_served
from element_types import FLOAT_TYPES, TYPE_NAMES, TYPE_NUMBERS, decode_bytes, encode
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import Embagd
from random_query import random_query, random_vector_tables
from rpc import error_of
from served import SEED, scaled
from table_files import Table, write_model, write_vectors

PARTS = 4
REQUESTS = 2500
FEATURES = '''
features:
  - {name: hashed, table: DENSE, id_map: hash_modulo, seed: 5, missing: zero, reduction: mean}
  - {name: modulo, table: DENSE, id_map: modulo, max_ids: 9}
  - {name: keyed, table: KEYED, missing: unknown_row, reduction: mean}
groups:
  - {name: all, features: [hashed, modulo]}
'''


def whole_numbers(rng, table):
    """Returns a table of the same form with small whole numbers."""
    values = rng.integers(0 if table.type.startswith('u') else -3, 4, (table.rows, *table.dims))
    made = Table.of_values(table.name, table.storage, values)
    made.keys = table.keys
    made.vector = encode(rng.integers(0, 4, table.row_elements), table.type)
    return made


class Pair(unittest.TestCase):
    """Routers, and a server with the same tables."""

    @classmethod
    def setUpClass(cls):
        rng = np.random.default_rng([SEED, 31])
        cls.cluster = Cluster(PARTS)
        cls.addClassCleanup(cls.cluster.remove)
        tables = [whole_numbers(rng, table) for table in random_vector_tables(rng)]
        cls.tables = {table.name: table for table in tables}
        write_model(cls.cluster.source, 'm', 1, tables)
        write_vectors(cls.cluster.source, 'm', 1, tables)
        cls.name_unknown_rows(tables[::3])
        cls.keyed = next(t.name for t in tables if t.keys is not None and t.type == 'f32'
                         and len(t.dims) == 1)
        dense = next(t.name for t in tables if t.keys is None and t.type == 'f32'
                     and len(t.dims) == 1)
        with open(cls.cluster.source + '/m/model.yaml', 'a', encoding='utf-8') as file:
            file.write(FEATURES.replace('KEYED', cls.keyed).replace('DENSE', dense))
        kinds = ['placement: rows', 'placement: everywhere'] + [
            'placement: whole, part: %d' % part for part in range(PARTS)]
        cls.kinds = {name: kinds[0] if rng.random() < 0.6 else kinds[rng.integers(1, len(kinds))]
                     for name in cls.tables}
        cls.cluster.split('m', 1, placement=cls.kinds)
        cls.server = Embagd(cls.cluster.source).wait_ready()
        cls.addClassCleanup(cls.server.stop)
        cls.cluster.start_parts()
        # The second one divides all but the smallest requests.
        cls.routers = [cls.cluster.connect(cls.cluster.start_router(*flags))
                       for flags in ((), ('--route-slab-bytes', '4096'))]
        cls.single = cls.cluster.connect(cls.server)
        cls.checks = 0
        for router in cls.routers:
            wait_served(router, 1)

    @classmethod
    def name_unknown_rows(cls, tables):
        """Has a row replace missing ones in these tables, in place of the default vector. That of a
        keyed table has a key as well."""
        with open(cls.cluster.source + '/m/model.yaml', encoding='utf-8') as file:
            text = file.read()
        for table in tables:
            text = text.replace('{name: %s, unknown_row: default_vector' % table.name,
                                '{name: %s, unknown_row: 1' % table.name)
        with open(cls.cluster.source + '/m/model.yaml', 'w', encoding='utf-8') as file:
            file.write(text)

    def query(self, rng, table):
        """Returns a random query with whole weights. Some name missing rows under any policy."""
        query = random_query(rng, table)
        if query.weights is not None:
            low = 0 if not table.is_float or query.reduction == 'weighted_mean' else -2
            query.weights = encode(rng.integers(low, 4, len(query.indices)), query.weights_type)
        if rng.random() < 0.1:
            query.missing = rng.choice([None, 'error'])
        return to_message(query)

    def request(self, rng, count=4, **fields):
        """Returns a request of random queries on any tables."""
        names = rng.choice(list(self.tables), rng.integers(1, count + 1))
        return pb.LookupRequest(
            queries=[self.query(rng, self.tables[name]) for name in names], **fields)

    def assert_same_values(self, got, want, request):
        """Compares the values of two results."""
        if got.values == want.values:
            return
        kind = TYPE_NAMES[want.type]
        (_, one), (_, other) = (decode_bytes(x.values, kind) for x in (got, want))
        np.testing.assert_array_equal(one, other, err_msg=str(request))

    def assert_same(self, got, want, request):
        """Compares two answers."""
        self.assertEqual(len(got.results), len(want.results))
        for one, other in zip(got.results, want.results):
            self.assert_same_values(one, other, request)
            if one.error_code and request.groups:
                other.error_message = one.error_message
            for field in ('query', 'type', 'shape', 'missing', 'missing_positions', 'lengths',
                          'inverse', 'error_code', 'error_message', 'missing_by_query',
                          'unreached'):
                self.assertEqual(getattr(one, field), getattr(other, field),
                                 '%s of query %d (%s) of %s' % (
                                     field, one.query, self.kinds.get(
                                         request.queries[one.query].table
                                         if one.query < len(request.queries) else ''), request))
        self.assertFalse(got.incomplete)

    def check(self, request):
        """Sends a request to both and compares the answers, or the errors."""
        errors = []
        answers = []
        self.__class__.checks += 1
        for client in (self.routers[self.checks % 2], self.single):
            try:
                answers.append(client.lookup(request))
                errors.append(None)
            except Exception as error:  # pylint: disable=broad-except
                errors.append((error.code(), error.details()))
        # Of several faults in one request, a router may name another one.
        if (len(request.queries) == 1 and not request.groups) or None in errors:
            self.assertEqual(*errors, str(request))
        if errors[0] is None:
            self.assert_same(*answers, request)
        return errors[0] is None


class RandomTest(Pair):
    """Random requests."""

    def rounds(self, number, count=REQUESTS):
        """Yields generators of random numbers."""
        for k in range(scaled(count)):
            yield np.random.default_rng([SEED, number, k])

    def test_lookups(self):
        good = sum(self.check(self.request(rng)) for rng in self.rounds(1))
        self.assertGreater(good, scaled(REQUESTS) // 3)

    def test_missing_positions(self):
        for rng in self.rounds(2):
            self.check(self.request(rng, report_missing=True))

    def test_answers_without_a_part_do_not_depend_on_slices(self):
        rng = np.random.default_rng([SEED, 47])
        requests = [self.request(rng, allow_incomplete=True, timeout_us=2000000,
                                 report_missing=bool(rng.random() < 0.3)) for _ in range(12)]
        server = self.cluster.servers[2, 0]
        server.hold()
        try:
            # Together, because each takes until its deadline.
            futures = [[router.lookup_future(request) for router in self.routers]
                       for request in requests]
            answered = 0
            for request, pair in zip(requests, futures):
                failed = [future.exception(30) for future in pair]
                self.assertEqual(*(error and error.code() for error in failed), request)
                if not any(failed):
                    answered += 1
                    one, other = (future.result() for future in pair)
                    self.assertEqual(one.results, other.results, request)
        finally:
            server.release()
        self.assertGreater(answered, 0)

    def test_errors_per_query(self):
        for rng in self.rounds(3):
            self.check(self.request(rng, errors_per_query=True))

    def test_output_types(self):
        for rng in self.rounds(4):
            self.check(self.request(rng, count=2, output_type=int(rng.integers(1, 5))))

    def check_streams(self, requests):
        """Sends requests on a stream to both and compares the answers."""
        answers = []
        for client in (self.routers[1], self.single):
            merged = {}
            for number, request in enumerate(requests):
                request.request_id = number + 1
            for answer in client.stream(requests):
                if answer.request_id in merged:
                    merged[answer.request_id].results.extend(answer.results)
                    merged[answer.request_id].error_code = answer.error_code
                    merged[answer.request_id].error_message = answer.error_message
                else:
                    merged[answer.request_id] = answer
            answers.append(merged)
        for request in requests:
            got, want = (merged[request.request_id] for merged in answers)
            self.assertEqual(got.error_code, want.error_code)
            if not got.error_code:
                for merged in (got, want):
                    merged.results.sort(key=lambda result: result.query)
                self.assert_same(got, want, request)

    def test_streams_in_several_messages(self):
        self.check_streams(
            [self.request(rng, count=12, partial=True) for rng in self.rounds(5, 600)])

    def set_sequence(self, rng, message, is_weighted):
        """Sets the fields of a sequence lookup in a query or a group."""
        message.reduction = pb.REDUCTION_NONE
        message.max_len = int(rng.integers(0, 6))
        message.keep_first = bool(rng.random() < 0.5 and message.max_len)
        message.pad = bool(rng.random() < 0.4 and message.max_len)
        message.unique = bool(rng.random() < 0.5 and not message.pad and not is_weighted)

    def sequence(self, rng, table):
        """Returns a random sequence lookup. Some of its indices occur several times."""
        query = self.query(rng, table)
        if query.reduction in (0, pb.REDUCTION_SUM) and rng.random() < 0.3:
            self.set_sequence(rng, query, query.weights or query.weights_f32)
            return query
        query.weights, query.weights_type = b'', 0
        del query.weights_f32[:]
        self.set_sequence(rng, query, False)
        return query

    def test_sequences(self):
        tables = list(self.tables.values())
        good = 0
        for rng in self.rounds(6):
            query = self.sequence(rng, tables[rng.integers(0, len(tables))])
            good += self.check(pb.LookupRequest(
                queries=[query], report_missing=bool(rng.random() < 0.5)))
        self.assertGreater(good, scaled(REQUESTS) // 3)

    def test_sequences_with_other_queries(self):
        tables = list(self.tables.values())
        for rng in self.rounds(8, 1000):
            queries = [rng.choice([self.sequence, self.query])(
                rng, tables[rng.integers(0, len(tables))]) for _ in range(rng.integers(2, 6))]
            self.check(pb.LookupRequest(queries=queries, report_missing=bool(rng.random() < 0.5),
                                        errors_per_query=bool(rng.random() < 0.5)))

    def sequence_group(self, rng, rows_of):
        """Returns a group of sequences of tables with rows of one size."""
        tables = list(rng.choice(rows_of[rng.choice(list(rows_of))], rng.integers(1, 6)))
        names = [table.name for table in tables]
        bags = int(rng.integers(0, 5))
        missing = int(rng.choice([0, 1, 2, 3, 4]))
        lengths = rng.integers(0, rng.choice([1, 4, 20]), bags * len(names))
        ids = [np.zeros(0, '<i8')]
        for number, table in enumerate(tables):
            count = int(lengths[number * bags:(number + 1) * bags].sum())
            rows = rng.integers(0, rng.choice([2, table.rows]), count)
            named = rows if table.keys is None else table.keys[rows]
            is_wild = rng.random(count) < (rng.choice([0, 0.3]) if missing > 1 else 0.002)
            ids.append(np.where(is_wild, rng.choice([-1, -7, 1000, 2**40], count), named))
        group = pb.FeatureGroup(features=names, bags=bags, missing=missing,
                                lengths_i32=lengths.astype('<i4').tobytes(),
                                values_i64=np.concatenate(ids).astype('<i8').tobytes())
        is_weighted = rng.random() < 0.2 and len(np.concatenate(ids)) > 0
        if is_weighted:
            group.weights = rng.integers(-2, 4, int(lengths.sum())).astype('<f4').tobytes()
            group.weights_type = TYPE_NUMBERS['f32']
        self.set_sequence(rng, group, is_weighted)
        return group

    def rows_of(self):
        """Returns the floating-point tables that a group may have, by size of their rows."""
        sizes = {}
        for table in self.tables.values():
            if table.is_float and table.type != 'f64':
                sizes.setdefault(table.row_elements, []).append(table)
        return sizes

    def test_groups_of_sequences(self):
        rows_of = self.rows_of()
        good = 0
        for rng in self.rounds(9):
            good += self.check(pb.LookupRequest(
                groups=[self.sequence_group(rng, rows_of) for _ in range(rng.integers(1, 3))],
                queries=[self.sequence(rng, self.tables[self.keyed])
                         for _ in range(rng.integers(0, 2))],
                output_type=int(rng.choice([1, 2, 3])), report_missing=bool(rng.random() < 0.5),
                errors_per_query=bool(rng.random() < 0.3)))
        self.assertGreater(good, scaled(REQUESTS) // 3)

    def test_sequences_on_streams(self):
        rows_of = self.rows_of()
        tables = list(self.tables.values())
        requests = []
        for rng in self.rounds(10, 600):
            requests.append(pb.LookupRequest(
                groups=[self.sequence_group(rng, rows_of) for _ in range(rng.integers(0, 3))],
                queries=[self.sequence(rng, tables[rng.integers(0, len(tables))])
                         for _ in range(rng.integers(1, 12))],
                partial=True, output_type=int(rng.choice([0, 1])), errors_per_query=True))
        self.check_streams(requests)

    def test_groups_and_features(self):
        floats = [t.name for t in self.tables.values()
                  if t.type == 'f32' and t.storage in FLOAT_TYPES] + ['hashed', 'modulo', 'keyed']
        for rng in self.rounds(7, 1500):
            names = [str(name) for name in rng.choice(floats, rng.integers(1, 5), replace=False)]
            bags = int(rng.integers(1, 5))
            lengths = rng.integers(0, 4, bags * len(names))
            group = pb.FeatureGroup(features=names, bags=bags,
                                    lengths_i32=lengths.astype('<i4').tobytes(),
                                    reduction=int(rng.choice([0, 1, 2, 5])),
                                    missing=int(rng.choice([0, 2, 3])))
            ids = rng.integers(-3, 60, int(lengths.sum()))
            group.values_i64 = ids.astype('<i8').tobytes()
            self.check(pb.LookupRequest(groups=[group], output_type=1,
                                        report_missing=bool(rng.random() < 0.5),
                                        errors_per_query=bool(rng.random() < 0.3)))


if __name__ == '__main__':
    unittest.main()
