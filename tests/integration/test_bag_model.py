"""The model in lib/bag_model.py must accept correct answers and reject wrong ones."""

import unittest

import numpy as np

import bag_model
from bag_query import Query, to_message
from element_types import FLOAT_TYPES, RAW_TYPES, encode
from embag.v1 import embedding_bag_pb2 as pb
from random_query import random_query, random_tables, random_vector_tables
from served import SEED, spec_cases, spec_table
from table_files import Table


def rounded(expected):
    """Returns the expected answer, rounded to the type of the result."""
    values = expected.values
    if expected.bounds is None:
        return values.astype(RAW_TYPES[expected.type]).tobytes()
    if expected.type == 'bf16':
        bits = values.astype('<f4').view('<u4').astype(np.uint64)
        nearest = (bits + 0x7fff + (bits >> 16 & 1)) >> 16
        return np.where(np.isnan(values), 0x7fc0, nearest).astype('<u2').tobytes()
    return np.where(np.isnan(values), np.nan, values.astype(RAW_TYPES[expected.type])).astype(
        RAW_TYPES[expected.type]).tobytes()


class BagModel(unittest.TestCase):
    """Tests without a server."""

    def setUp(self):
        self.rng = np.random.default_rng([SEED, 9])

    def test_accepts_rounded_answers_and_refuses_others(self):
        refused = 0
        tables = [t for t in random_tables(self.rng) + random_vector_tables(self.rng)
                  if 'special' not in t.name and t.storage not in ('f8_e5m2', 'f8_e4m3')]
        for _ in range(400):
            table = tables[self.rng.integers(0, len(tables))]
            query = random_query(self.rng, table)
            expected = bag_model.expect(query, table)
            data = bytearray(rounded(expected))
            with np.errstate(all='ignore'):
                bag_model.check_values(expected, table, expected.type, bytes(data))
            if not data or np.any(expected.unsure):
                continue
            data[-1] ^= 0x60
            with self.assertRaises(AssertionError, msg=query):
                bag_model.check_values(expected, table, expected.type, bytes(data))
            refused += 1
        self.assertGreater(refused, 100)

    def test_fills_and_replaces_with_the_default_vector(self):
        table = Table.of_values('t', 'f32', [[1, 2], [3, 4]])
        table.vector = encode([10, 20], 'f32')
        table.keys = np.array([7, -7])
        cases = (({'reduction': 'mean'}, [-7, 5], [[6.5, 12]]),
                 ({'reduction': 'sum', 'weights': encode([2, 3], 'f32')}, [7, 5], [[32, 64]]),
                 ({'reduction': 'none'}, [5, 7], [[10, 20], [1, 2]]))
        for fields, indices, want in cases:
            query = Query('t', np.array(indices), missing='unknown_row', num_bags=1, **fields)
            self.assertEqual(bag_model.expect(query, table).values.tolist(), want)
        query = Query('t', np.array([5]), missing='skip', num_bags=1)
        self.assertEqual(bag_model.expect(query, table).values.tolist(), [[10, 20]])
        query.default_index = -7
        self.assertEqual(bag_model.expect(query, table).values.tolist(), [[3, 4]])

    def test_knows_the_specification(self):
        for case in spec_cases():
            layout = {'layout': 'packed', 'indices_per_bag': 2}
            if 'offsets' in case:
                layout = {'layout': 'offsets', 'bounds': np.array(case['offsets'])}
            elif 'segment_ids' in case:
                layout = {'layout': 'segments', 'bounds': np.array(case['segment_ids']),
                          'num_segments': case['num_segments']}
            weights = case['weights']
            query = Query('emb_table', np.ravel(case['indices']), reduction=case['reduction'],
                          default_index=case.get('default_index'),
                          weights=None if weights is None else encode(np.ravel(weights), 'f32'),
                          **layout)
            expected = bag_model.expect(query, spec_table())
            want = np.array(case['expected'])
            slack = case['tolerance']['abs'] + case['tolerance']['rel'] * np.abs(want)
            self.assertTrue(np.all(np.abs(expected.values - want) <= slack), case['name'])

    def test_random_queries_cover_what_there_is(self):
        tables = random_tables(self.rng) + random_vector_tables(self.rng)
        seen = set()
        for _ in range(3000):
            query = random_query(self.rng, tables[self.rng.integers(0, len(tables))])
            seen |= {query.layout, query.reduction, query.missing, query.index_form,
                     query.weights is not None}
            self.assertIsInstance(to_message(query), pb.BagQuery)
        self.assertGreaterEqual(seen, {
            'offsets', 'lengths', 'packed', 'segments', None, 'sum', 'mean', 'weighted_mean',
            'sqrtn', 'max', 'min', 'none', 'error', 'skip', 'zero', 'unknown_row',
            'i32', 'i64', 'repeated', True})
        self.assertEqual({t.storage for t in tables} - set(RAW_TYPES), set())
        self.assertGreaterEqual({t.type for t in tables}, set(FLOAT_TYPES))


if __name__ == '__main__':
    unittest.main()
