"""Unusual requests that are valid."""

import unittest

import numpy as np

import bag_model
from bag_query import Query, to_message
from element_types import INTEGER_TYPES
from embag.v1 import embedding_bag_pb2 as pb
from rpc import Client
from served import SEED, ServedTest, shared, spec_table

EMPTY = np.array([], np.int64)


class EdgeRequest(ServedTest):
    """Unusual requests, each of which must be answered correctly."""

    def ask(self, query, model='spec', **fields):
        """Sends one query and compares the answer with the model's; returns the answer."""
        table = self.tables[model][query.table]
        expected = bag_model.expect(query, table)
        answer = self.client.lookup(pb.LookupRequest(
            model=model, queries=[to_message(query, expected.shape[0])], **fields))
        result, = answer.results
        bag_model.check_result(expected, table, result)
        return answer

    def test_no_queries(self):
        answer = self.client.lookup(pb.LookupRequest(model='spec', request_id=7))
        self.assertEqual((answer.request_id, answer.model, answer.version), (7, 'spec', 1))
        self.assertEqual(len(answer.results), 0)

    def test_no_bags_at_all(self):
        for layout in ('offsets', 'lengths', 'segments', 'packed'):
            query = Query('emb_table', EMPTY, layout=layout, bounds=EMPTY, say_layout=True)
            answer = self.ask(query)
            self.assertEqual(list(answer.results[0].shape), [0, 2])
            self.assertEqual(answer.results[0].type, 1)
        self.ask(Query('emb_table', EMPTY))
        self.ask(Query('emb_table', EMPTY, reduction='none'))
        self.ask(Query('emb_table', EMPTY, layout='offsets', bounds=np.array([0]),
                       include_last_offset=True))

    def test_indices_beside_empty_offsets(self):
        """The indices belong to no bag, but are checked all the same."""
        for reduction in ('sum', 'mean', 'max', 'sqrtn'):
            query = Query('emb_table', np.array([4, 0, 1]), layout='offsets', bounds=EMPTY,
                          say_layout=True, reduction=reduction, default_index=2)
            answer = self.ask(query)
            self.assertEqual((list(answer.results[0].shape), answer.results[0].values),
                             ([0, 2], b''))
        query.reduction, query.weights = 'sum', np.array([1, 2, 3], '<f4')
        self.ask(query)
        query.indices = np.array([4, 5, -1])
        for missing in ('skip', 'zero'):
            query.missing = missing
            self.assertEqual(self.ask(query, report_missing=True).results[0].missing, 2)
        concat = self.client.lookup(pb.LookupRequest(
            model='spec', queries=[to_message(query), to_message(query)], concat=True))
        self.assertEqual(list(concat.results[0].shape), [0, 4])
        self.assertEqual(list(concat.results[0].missing_by_query), [2, 2])
        query.reduction, query.missing = 'none', 'zero'
        self.assertEqual(list(self.ask(query).results[0].shape), [3, 2])

    def test_no_indices(self):
        for default in (None, -1, 0, 4):
            for form in ('i32', 'i64', 'repeated'):
                query = Query('emb_table', EMPTY, layout='offsets', bounds=np.zeros(4, np.int64),
                              bounds_form=form, default_index=default)
                self.ask(query)
            self.ask(Query('emb_table', EMPTY, layout='lengths', bounds=np.zeros(3, np.int64),
                           default_index=default))

    def test_only_empty_bags_among_indices(self):
        query = Query('emb_table', np.array([0, 1]), layout='offsets', bounds=np.array([2, 2, 2]),
                      default_index=3)
        self.ask(query)
        self.ask(Query('emb_table', np.array([77, -5]), layout='offsets', default_index=1,
                       bounds=np.array([1, 1, 1]), include_last_offset=True))

    def test_only_empty_bags_without_a_layout(self):
        answer = self.ask(Query('emb_table', EMPTY, num_bags=5, default_index=2))
        self.assertEqual(list(answer.results[0].shape), [5, 2])

    def test_one_bag_without_a_layout(self):
        self.ask(Query('emb_table', np.array([4, 0, 0]), num_bags=1))

    def test_packed_bags_of_no_indices(self):
        answer = self.ask(Query('emb_table', EMPTY, layout='packed', num_bags=3, say_layout=True))
        self.assertEqual(list(answer.results[0].shape), [3, 2])

    def test_no_segments(self):
        self.ask(Query('emb_table', EMPTY, layout='segments', bounds=EMPTY, say_layout=True))
        answer = self.ask(Query('emb_table', EMPTY, layout='segments', bounds=EMPTY,
                                num_segments=6, default_index=1))
        self.assertEqual(list(answer.results[0].shape), [6, 2])

    def test_a_table_of_no_rows(self):
        for storage in ('f32', 'bf16', 'i64', 'f8_e4m3'):
            name = storage + '_0x4'
            self.ask(Query(name, EMPTY, layout='offsets', bounds=np.array([0, 0])), 'every')
            for missing in ('skip', 'zero'):
                self.ask(Query(name, np.array([0, 1, -1]), layout='offsets', missing=missing,
                               bounds=np.array([0, 2])), 'every')

    def test_rows_of_one_value(self):
        answer = self.ask(Query('narrow', np.arange(1000), layout='packed', indices_per_bag=10),
                          'wide')
        self.assertEqual(list(answer.results[0].shape), [100, 1])
        answer = self.ask(Query('f32_40', np.arange(40), layout='packed', indices_per_bag=10),
                          'every')
        self.assertEqual(list(answer.results[0].shape), [4])

    def test_rows_of_4096_values(self):
        answer = self.ask(Query('wide', np.arange(40), layout='packed', indices_per_bag=4), 'wide')
        self.assertEqual(list(answer.results[0].shape), [10, 4096])

    def test_unaligned_arrays(self):
        """Longer and longer names shift the arrays to every alignment in the message."""
        table = self.tables['wide']['narrow']
        for shift in range(17):
            query = Query('narrow', np.arange(9), layout='lengths', bounds=np.array([4, 0, 5]),
                          weights=np.arange(9, dtype='<f4'),
                          index_form='i32' if shift % 2 else 'i64')
            message = pb.LookupRequest(model='wide', queries=[to_message(query)])
            data = b'\xba\x3e' + bytes([shift]) + b'x' * shift + message.SerializeToString()
            result, = self.client.lookup(data).results
            bag_model.check_result(bag_model.expect(query, table), table, result)

    def test_widths_that_differ(self):
        for index_form in ('i32', 'i64', 'repeated'):
            for bounds_form in ('i32', 'i64', 'repeated'):
                self.ask(Query('emb_table', np.array([0, 2, 3, 4]), layout='offsets',
                               bounds=np.array([0, 2, 2]), index_form=index_form,
                               bounds_form=bounds_form))

    def test_unknown_fields_are_skipped(self):
        query = Query('emb_table', np.array([0, 2]), layout='offsets', bounds=np.array([0]))
        message = pb.LookupRequest(model='spec', queries=[to_message(query)]).SerializeToString()
        unknown = [b'\xf8\x06\x01', b'\xf9\x06' + b'\0' * 8, b'\xfa\x06\x03abc',
                   b'\xfd\x06\0\0\0\0', b'\xfa\x06\x02\xff\x00', b'\xf8\xff\xff\xff\x0f\x01']
        want = self.client.lookup(message).results
        for data in unknown:
            self.assertEqual(self.client.lookup(data + message).results, want)
            self.assertEqual(self.client.lookup(message + data).results, want)

    def test_unknown_fields_inside_a_query_are_skipped(self):
        query = to_message(Query('emb_table', np.array([0, 2]), num_bags=1)).SerializeToString()
        query += b'\xfa\x06\x03abc'
        result, = self.client.lookup(b'\x12\x04spec\x22' + bytes([len(query)]) + query).results
        self.assertEqual(list(result.shape), [1, 2])

    def test_unpacked_repeated_integers(self):
        """Both encodings of a repeated number are legal in proto3."""
        query = b'\x0a\x09emb_table' + b'\x30\x00\x30\x02' + b'\x48\x00\x48\x01'
        result, = self.client.lookup(b'\x12\x04spec\x22' + bytes([len(query)]) + query).results
        np.testing.assert_array_equal(np.frombuffer(result.values, '<f4').reshape(2, 2),
                                      spec_table().raw[[0, 2]])

    def test_a_version_by_its_number(self):
        self.ask(Query('emb_table', np.array([0]), num_bags=1), version=1)

    def test_the_same_table_many_times(self):
        rng = np.random.default_rng(SEED)
        queries = [Query('emb_table', rng.integers(0, 5, 3), num_bags=1) for _ in range(500)]
        answer = self.client.lookup(pb.LookupRequest(
            model='spec', queries=[to_message(query) for query in queries]))
        for number, (query, result) in enumerate(zip(queries, answer.results)):
            bag_model.check_result(bag_model.expect(query, spec_table()), spec_table(), result,
                                   number)

    def test_integers_wrap(self):
        for name in INTEGER_TYPES:
            table = self.tables['every'][name + '_23x7']
            query = Query(table.name, np.arange(23), num_bags=1, weights_type=name,
                          weights=table.raw.ravel()[:23])
            self.ask(query, 'every')

    def test_the_second_address(self):
        with Client(shared('unix')) as client:
            self.assertEqual([m.name for m in client.list_models().models],
                             ['every', 'packed', 'spec', 'wide'])


if __name__ == '__main__':
    unittest.main()
