"""Answers of a router that cannot reach a part, to requests with allow_incomplete."""

import unittest

import numpy as np

from cluster import Cluster, wait_served
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import wait_until
from table_files import Table, write_model

ROWS = 20
ELEMENTS = 128    # A bag's sum has 512 B.
ABSENT = 10**6
VECTOR = 7.0
DIVIDED = ('t', 'v')    # Row r is in part r % 2.
WHOLE = ('whole', 'whole_v')    # In part 1.
MODEL = '''tables:
- {name: t, unknown_row: 1}
- {name: v, unknown_row: default_vector, default_vector: [%(vector)s]}
- {name: whole_v, unknown_row: default_vector, default_vector: [%(vector)s]}
''' % {'vector': ', '.join([str(VECTOR)] * ELEMENTS)}


class LostPartTest(unittest.TestCase):
    """Part 1 of 2 has been stopped."""

    @classmethod
    def setUpClass(cls):
        cls.values = np.arange(ROWS * ELEMENTS, dtype='f4').reshape(ROWS, ELEMENTS)
        cls.cluster = Cluster(2)
        cls.addClassCleanup(cls.cluster.remove)
        write_model(cls.cluster.source, 'm', 1, [
            Table.of_values(name, 'f32', cls.values) for name in DIVIDED + WHOLE])
        with open(cls.cluster.source + '/m/model.yaml', 'w', encoding='utf-8') as file:
            file.write(MODEL)
        placement = {name: 'placement: rows' for name in DIVIDED}
        placement.update((name, 'placement: whole, part: 1') for name in WHOLE)
        cls.cluster.split('m', 1, placement=placement)
        cls.cluster.start_parts()
        # The second one cuts all but the smallest queries into slices.
        cls.clients = [cls.cluster.connect(cls.cluster.start_router(*flags))
                       for flags in ((), ('--route-slab-bytes', '4096'))]
        for client in cls.clients:
            wait_served(client, 1)
        cls.cluster.servers[1, 0].stop()
        lost = pb.LookupRequest(errors_per_query=True,
                                queries=[pb.BagQuery(table='t', indices=[1])])
        for client in cls.clients:
            wait_until(lambda: client.lookup(lost).results[0].error_code, 30,
                       'the router to notice that the part is lost')

    def look_up(self, *queries, **fields):
        """Yields the answer of each router."""
        for client in self.clients:
            yield client.lookup(pb.LookupRequest(
                allow_incomplete=True, queries=queries, **fields), 20)

    @staticmethod
    def bags(table, bags, **fields):
        """A query with these lists of indices."""
        return pb.BagQuery(table=table, layout=pb.BAG_LAYOUT_LENGTHS, indices=sum(bags, []),
                           lengths_i32=np.array([len(bag) for bag in bags], '<i4').tobytes(),
                           **fields)

    def rows_of(self, result):
        """The rows of a result."""
        return np.frombuffer(result.values, '<f4').reshape(-1, ELEMENTS)

    def expect(self, answer, rows, unreached=0, missing=0, incomplete=True):
        """Checks the first result of an answer."""
        result = answer.results[0]
        np.testing.assert_array_equal(self.rows_of(result), rows)
        self.assertEqual((result.unreached, result.missing), (unreached, missing))
        self.assertEqual(answer.incomplete, incomplete)

    def test_an_empty_bag_lacks_its_default_row(self):
        bags = [[2 * (i % 9), 0] for i in range(40)]
        bags[17] = []
        rows = self.values[np.array([[0, 0] if not bag else bag for bag in bags])].sum(1)
        rows[17] = 0
        for answer in self.look_up(self.bags('t', bags, default_index=1)):
            self.expect(answer, rows)
        rows[17] = self.values[2]
        for answer in self.look_up(self.bags('t', bags, default_index=2)):
            self.expect(answer, rows, incomplete=False)
        bags[17] = [4, 0]
        rows[17] = self.values[4] + self.values[0]
        for answer in self.look_up(self.bags('t', bags, default_index=1)):
            self.expect(answer, rows, incomplete=False)

    def test_a_bag_that_skip_has_emptied_lacks_its_default_row(self):
        query = self.bags('t', [[ABSENT], [2]], default_index=1, missing=pb.MISSING_SKIP)
        for answer in self.look_up(query):
            self.expect(answer, [self.values[0] * 0, self.values[2]], missing=1)

    def test_each_result_tells_if_it_lacks_a_default_row(self):
        queries = [self.bags('t', bags, default_index=1) for bags in ([[2]], [[]], [[4]])]
        for answer in self.look_up(*queries):
            self.assertTrue(answer.incomplete)
            self.assertEqual([result.unreached for result in answer.results], [0, 0, 0])
        for answer in self.look_up(*queries, concat=True):
            self.assertTrue(answer.incomplete)
        for answer in self.look_up(queries[0], queries[2]):
            self.assertFalse(answer.incomplete)

    def test_empty_bags_of_a_lost_table_lack_their_default_row(self):
        zeros = np.zeros((2, ELEMENTS), 'f4')
        for answer in self.look_up(self.bags('whole', [[], []], default_index=0)):
            self.expect(answer, zeros)
        for answer in self.look_up(self.bags('whole', [[], []], default_index=-1)):
            self.expect(answer, zeros, incomplete=False)
        for answer in self.look_up(self.bags('whole', [[], []])):
            self.expect(answer, zeros, incomplete=False)
        for answer in self.look_up(self.bags('whole', [[], [3]], default_index=0)):
            self.expect(answer, zeros, unreached=1)

    def test_padding_is_not_unreached(self):
        for table in 't', 'whole':
            query = pb.BagQuery(table=table, indices=[1], num_bags=1, max_len=50, pad=True,
                                reduction=pb.REDUCTION_NONE)
            for answer in self.look_up(query):
                self.expect(answer, np.zeros((50, ELEMENTS)), unreached=1)

    def test_zeros_in_place_of_missing_rows_are_not_unreached(self):
        for table in 't', 'whole':
            query = self.bags(table, [[ABSENT, 3], [ABSENT]], missing=pb.MISSING_ZERO)
            for answer in self.look_up(query):
                self.expect(answer, np.zeros((2, ELEMENTS)), unreached=1, missing=2)

    def test_a_default_vector_needs_no_part(self):
        for table in 'v', 'whole_v':
            query = self.bags(table, [[], [3], [1, ABSENT]], missing=pb.MISSING_UNKNOWN_ROW)
            for answer in self.look_up(query):
                self.expect(answer, np.full((3, ELEMENTS), VECTOR), unreached=2, missing=1)
            query = pb.BagQuery(table=table, indices=[3, ABSENT], reduction=pb.REDUCTION_NONE,
                                missing=pb.MISSING_UNKNOWN_ROW)
            for answer in self.look_up(query):
                self.expect(answer, np.full((2, ELEMENTS), [[0], [VECTOR]]), unreached=1, missing=1)
            for answer in self.look_up(self.bags(table, [[], []])):
                self.expect(answer, np.full((2, ELEMENTS), VECTOR), incomplete=False)

    def test_no_index_is_both_missing_and_unreached(self):
        query = self.bags('t', [[ABSENT, 3, 2]] * 20, missing=pb.MISSING_UNKNOWN_ROW)
        for answer in self.look_up(query):
            self.expect(answer, [self.values[2]] * 20, unreached=20, missing=20)
        query = self.bags('t', [[ABSENT]], missing=pb.MISSING_UNKNOWN_ROW)
        for answer in self.look_up(query):
            self.expect(answer, np.zeros((1, ELEMENTS)), missing=1)


if __name__ == '__main__':
    unittest.main()
