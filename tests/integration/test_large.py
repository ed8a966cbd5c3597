"""Large and wide requests."""

import unittest

import numpy as np

import bag_model
from bag_query import Query, to_message
from embag.v1 import embedding_bag_pb2 as pb
from h2raw import Connection, message
from rpc import Client, as_bytes, error_of
from served import SEED, ServedTest, scaled

DLRM_SIZES = (3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1)


class Large(ServedTest):
    """Tests on the shared server."""

    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng([SEED, 20])
        self.wide = self.tables['wide']

    def check(self, answer, queries):
        """Compares all results with the model."""
        for number, query in enumerate(queries):
            table = self.wide[query.table]
            bag_model.check_result(bag_model.expect(query, table), table, answer.results[number],
                                   number)

    def test_26_tables_are_one_call(self):
        queries = [Query('t%02d' % n, self.rng.integers(0, 50 + 7 * n, size), num_bags=1)
                   for n, size in enumerate(DLRM_SIZES)]
        request = pb.LookupRequest(model='wide', queries=[to_message(q) for q in queries])
        self.check(self.client.lookup(request), queries)
        request.concat = True
        result, = self.client.lookup(request).results
        self.assertEqual(list(result.shape), [1, 26 * 128])

    def rows_of_64_kib(self, rows):
        """Returns a query for this many unpooled rows of 4096 values."""
        indices = self.rng.integers(0, 40, rows)
        request = pb.LookupRequest(model='wide', queries=[
            to_message(Query('wide', indices, reduction='none'))])
        return indices, request

    def test_answers_far_above_4_mib(self):
        for rows in (255, 257, 1000):
            indices, request = self.rows_of_64_kib(rows)
            result, = self.client.lookup(request).results
            got = np.frombuffer(result.values, '<f4').reshape(rows, 4096)
            np.testing.assert_array_equal(got, self.wide['wide'].raw[indices])

    def test_a_stock_client_refuses_them_unless_told_otherwise(self):
        with Client(self.server.address, ()) as client:
            _, request = self.rows_of_64_kib(257)
            code, text = error_of(client.lookup, request)
            self.assertEqual(code.name, 'RESOURCE_EXHAUSTED')
            self.assertRegex(text, r'(?i)larger than max')

    def test_small_windows(self):
        """A peer that opens its window by 100 bytes at a time."""
        indices, request = self.rows_of_64_kib(2)
        with Connection(self.server.port, window=100) as peer:
            _, body = peer.finish(peer.call(message(as_bytes(request))))
        result, = pb.LookupResponse.FromString(body[5:]).results
        got = np.frombuffer(result.values, '<f4').reshape(2, 4096)
        np.testing.assert_array_equal(got, self.wide['wide'].raw[indices])

    def test_many_large_answers_at_once(self):
        _, request = self.rows_of_64_kib(600)
        futures = [self.client.lookup_future(request) for _ in range(scaled(20))]
        for future in futures:
            self.assertEqual(len(future.result().results[0].values), 600 * 16384)

    def test_many_rows_of_a_large_table(self):
        table = self.wide['large']
        indices = self.rng.integers(0, table.rows, 250000)
        rows = table.raw[indices].astype(np.float64).reshape(250, 1000, 64)
        exact, size = rows.sum(1), np.abs(rows).sum(1)
        for form in ('i32', 'i64'):
            query = Query('large', indices, layout='packed', indices_per_bag=1000, index_form=form)
            result, = self.client.lookup(pb.LookupRequest(
                model='wide', queries=[to_message(query)])).results
            got = np.frombuffer(result.values, '<f4').reshape(250, 64)
            self.assertTrue(np.all(np.abs(got - exact) <= 1005 * 2.0**-23 * size))

    def test_one_bag_of_a_million_rows(self):
        table = self.wide['large']
        indices = self.rng.integers(0, table.rows, 1000000)
        query = Query('large', indices, num_bags=1, index_form='i32', reduction='max')
        result, = self.client.lookup(pb.LookupRequest(
            model='wide', queries=[to_message(query)])).results
        np.testing.assert_array_equal(np.frombuffer(result.values, '<f4'),
                                      table.raw[indices].max(0))

    def test_the_same_bits_however_requests_are_batched(self):
        """Requests in flight together give the same bits as one after the other."""
        queries = [Query('large', self.rng.integers(0, 50000, 3000), layout='packed',
                         indices_per_bag=30, reduction='mean') for _ in range(10)]
        requests = [pb.LookupRequest(model='wide', request_id=n + 1, queries=[to_message(q)])
                    for n, q in enumerate(queries)]
        together = {a.request_id: a for a in self.client.stream(requests * 1)}
        for request in requests:
            alone = self.client.lookup(request)
            self.assertEqual(alone.results, together[request.request_id].results)


if __name__ == '__main__':
    unittest.main()
