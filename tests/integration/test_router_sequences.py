"""Sequence lookups on a router one of whose parts is lost."""

import unittest

import numpy as np

from cluster import Cluster, wait_served
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import wait_until
from rpc import error_of
from served import SEED, scaled
from table_files import Table, write_model
from test_split import part_of_key

PARTS = 3
LOST = 1
ROWS = 40
ABSENT = 10**6


class LostPartTest(unittest.TestCase):
    """Part 1 has been stopped."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(PARTS)
        cls.addClassCleanup(cls.cluster.remove)
        rng = np.random.default_rng([SEED, 41])
        values = rng.integers(-99, 99, (ROWS, 3))
        keys = rng.choice(10**4, ROWS, replace=False)
        cls.tables = {name: Table.of_values(name, 'f32', values) for name in ('keyed', 'dense')}
        wide = rng.integers(-99, 99, (ROWS, 1024))
        cls.tables['wide'] = Table.of_values('wide', 'f32', wide)
        directory = write_model(cls.cluster.source, 'm', 1, list(cls.tables.values()))
        for name in 'keyed', 'wide':
            cls.tables[name].keys = keys
            np.save(directory + '/%s.keys.npy' % name, keys.astype('i8'))
        cls.cluster.split('m', 1, placement={name: 'placement: rows' for name in cls.tables})
        cls.cluster.start_parts()
        router = cls.cluster.start_router()
        cls.client = cls.cluster.connect(router)
        wait_served(cls.client, 1)
        cls.cluster.servers[LOST, 0].stop()
        request = cls.request([cls.lost_key()], errors_per_query=True)
        wait_until(lambda: cls.client.lookup(request).results[0].error_code, 30,
                   'the router to notice that the part is lost')

    @classmethod
    def lost_key(cls):
        """A key of the part that is lost."""
        return next(int(k) for k in cls.tables['keyed'].keys if part_of_key(k, PARTS) == LOST)

    @staticmethod
    def request(keys, **fields):
        """A sequence lookup with one bag."""
        query = pb.BagQuery(table='keyed', num_bags=1, max_len=3, reduction=pb.REDUCTION_NONE,
                            indices_i64=np.array(keys, '<i8').tobytes())
        return pb.LookupRequest(queries=[query], **fields)

    def is_lost(self, name, index):
        """Whether an index belongs to the lost part."""
        if name == 'keyed':
            return part_of_key(index, PARTS) == LOST
        return index < ROWS and index % PARTS == LOST

    def kept(self, name, bag, fields):
        """Returns the rows that a bag keeps; -1 stands for zeros."""
        rows = [self.tables[name].row_of(index) for index in bag if not self.is_lost(name, index)]
        rows = [row for row in rows if row >= 0 or fields.missing == pb.MISSING_ZERO]
        if not fields.max_len:
            return rows
        return rows[:fields.max_len] if fields.keep_first else rows[-fields.max_len:]

    def check(self, result, fields, bags):
        """Compares a result with the rows of lists of (table, bag), all bags of a table in turn."""
        lists = [self.kept(name, bag, fields) for name, bag in bags]
        lengths = np.frombuffer(result.lengths, '<i4')
        values = np.frombuffer(result.values, '<f4').reshape(-1, 3)
        np.testing.assert_array_equal(lengths, [len(rows) for rows in lists])
        if fields.unique:
            values = values[np.frombuffer(result.inverse, '<u4')]
        want = [self.tables[name].values[row] if row >= 0 else np.zeros(3)
                for (name, _), rows in zip(bags, lists) for row in rows]
        if fields.pad:
            values = values.reshape(len(bags), fields.max_len, 3)
            values = [row for rows, length in zip(values, lengths) for row in rows[:length]]
        np.testing.assert_array_equal(np.reshape(values, (-1, 3)), np.reshape(want, (-1, 3)))
        lost = sum(self.is_lost(name, index) for name, bag in bags for index in bag)
        self.assertEqual(result.unreached, lost)
        missing = sum(index == ABSENT and not self.is_lost(name, index)
                      for name, bag in bags for index in bag)
        self.assertEqual(result.missing, missing)
        return lost

    def draw(self, rng, name):
        """Returns a bag."""
        rows = rng.integers(0, ROWS, rng.integers(0, 9))
        indices = self.tables['keyed'].keys[rows] if name == 'keyed' else rows
        return [ABSENT if rng.random() < 0.1 else int(index) for index in indices]

    @staticmethod
    def set_fields(rng, message):
        """Draws the fields of a sequence lookup."""
        message.reduction = pb.REDUCTION_NONE
        message.missing = (pb.MISSING_SKIP, pb.MISSING_ZERO)[rng.integers(2)]
        message.max_len = int(rng.integers(0, 4))
        message.keep_first = bool(message.max_len and rng.random() < 0.5)
        message.pad = bool(message.max_len and rng.random() < 0.3)
        message.unique = bool(not message.max_len or (not message.pad and rng.random() < 0.5))

    def test_skips_what_the_lost_part_has(self):
        for k in range(scaled(120)):
            rng = np.random.default_rng([SEED, 42, k])
            name = ('keyed', 'dense')[k % 2]
            bags = [self.draw(rng, name) for _ in range(rng.integers(1, 4))]
            query = pb.BagQuery(table=name, layout=pb.BAG_LAYOUT_LENGTHS,
                                lengths_i32=np.array([len(b) for b in bags], '<i4').tobytes(),
                                indices_i64=np.array(sum(bags, []), '<i8').tobytes())
            self.set_fields(rng, query)
            answer = self.client.lookup(pb.LookupRequest(queries=[query], allow_incomplete=True))
            lost = self.check(answer.results[0], query, [(name, bag) for bag in bags])
            self.assertEqual(answer.incomplete, lost > 0)

    def test_skips_them_in_groups(self):
        for k in range(scaled(60)):
            rng = np.random.default_rng([SEED, 43, k])
            names = ['dense', 'keyed', 'dense'][:rng.integers(1, 4)]
            count = int(rng.integers(1, 4))
            bags = [(name, self.draw(rng, name)) for name in names for _ in range(count)]
            group = pb.FeatureGroup(
                features=names, bags=count,
                lengths_i32=np.array([len(bag) for _, bag in bags], '<i4').tobytes(),
                values_i64=np.array(sum((bag for _, bag in bags), []), '<i8').tobytes())
            self.set_fields(rng, group)
            answer = self.client.lookup(pb.LookupRequest(groups=[group], allow_incomplete=True))
            self.check(answer.results[0], group, bags)

    def test_they_are_no_errors(self):
        answer = self.client.lookup(self.request([self.lost_key()] * 4, allow_incomplete=True))
        result = answer.results[0]
        self.assertEqual((result.unreached, result.missing, list(result.shape)), (4, 0, [0, 3]))

    def test_no_more_rows_are_fetched_than_an_answer_may_have(self):
        router = self.cluster.start_router('--response-bytes-max', '65536')
        client = self.cluster.connect(router)
        wait_served(client, 1)
        there = [int(k) for k in self.tables['wide'].keys if part_of_key(k, PARTS) != LOST]
        request = self.request(there[:3] * 20)
        query = request.queries[0]
        query.table, query.max_len = 'wide', 1
        self.assertEqual(list(client.lookup(request).results[0].shape), [1, 1024])
        query.indices_i64 = np.array(there[:17], '<i8').tobytes()
        code, text = error_of(lambda: client.lookup(request))
        self.assertEqual(code.name, 'RESOURCE_EXHAUSTED')
        self.assertIn('queries[0] "wide": including this one, the request has more than 65536 '
                      'bytes of rows to fetch from part servers (response_bytes_max)', text)

    def test_without_leave_only_what_needs_the_part_fails(self):
        code, text = error_of(lambda: self.client.lookup(self.request([self.lost_key()])))
        self.assertEqual(code.name, 'UNAVAILABLE')
        self.assertIn('part 1 of 3', text)
        good = next(int(k) for k in self.tables['keyed'].keys if part_of_key(k, PARTS) != LOST)
        request = self.request([self.lost_key()], errors_per_query=True)
        request.queries.add().CopyFrom(self.request([good]).queries[0])
        bad, fine = self.client.lookup(request).results
        self.assertEqual(bad.error_code, 14)
        self.assertEqual((fine.error_code, list(fine.shape)), (0, [1, 3]))


if __name__ == '__main__':
    unittest.main()
