"""report_missing: the positions of the indices that name no row."""

import unittest

import numpy as np

import bag_model
from bag_query import FORMS, Query, to_message
from embag.v1 import embedding_bag_pb2 as pb
from jagged import FORMS as GROUP_FORMS
from jagged import VALUE_FIELDS, random_jagged
from random_query import FAR_INDICES
from rpc import error_of
from served import SEED, ServedTest, scaled


class MissingPositions(ServedTest):
    """Lookups in a table of 50 rows."""

    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng([SEED, 45])
        self.table = self.tables['wide']['t00']

    def indices(self, count, form='i64'):
        """Returns indices, about a third of which are far outside the table."""
        indices = self.rng.integers(0, 50, count)
        away = self.rng.random(count) < 0.3
        indices[away] = self.rng.choice(FAR_INDICES[form] + [50], away.sum())
        return indices

    def query(self, layout, count, bags, **fields):
        """Returns a random query with that layout."""
        form = str(self.rng.choice(FORMS))
        query = Query('t00', self.indices(count, form), layout=layout, index_form=form,
                      bounds_form=str(self.rng.choice(FORMS)), missing='skip', **fields)
        if layout == 'packed':
            query.indices_per_bag = count // bags
        elif layout == 'segments':
            query.num_segments = bags
            query.bounds = self.rng.integers(0, bags, count)
        elif layout == 'lengths':
            query.bounds_form = 'i64' if query.bounds_form == 'repeated' else query.bounds_form
            query.bounds = self.rng.multinomial(count, np.full(bags, 1 / bags))
        else:
            entries = bags + query.include_last_offset
            query.bounds = np.sort(self.rng.integers(0, count + 1, entries))
        return query

    def expected(self, query):
        """Returns the positions that are checked and name no row, in ascending order."""
        inside = np.zeros(len(query.indices), bool)
        inside[bag_model.checked_positions(query)] = True
        away = (query.indices < 0) | (query.indices >= self.table.rows)
        return np.flatnonzero(inside & away).tolist()

    def positions(self, result):
        """Returns the positions as a list."""
        return np.frombuffer(result.missing_positions, '<u4').tolist()

    def ask(self, *queries, **fields):
        """Returns the results of a request."""
        return self.client.lookup(pb.LookupRequest(
            **{'model': 'wide', 'queries': [to_message(query) for query in queries],
               'report_missing': True, **fields})).results

    def check(self, query):
        """Checks a query under both policies."""
        for missing in ('skip', 'zero'):
            query.missing = missing
            result, = self.ask(query)
            self.assertEqual(self.positions(result), self.expected(query))
            bag_model.check_result(bag_model.expect(query, self.table), self.table, result)

    def test_every_layout(self):
        for layout in ('offsets', 'lengths', 'packed', 'segments'):
            for _ in range(scaled(30)):
                bags = int(self.rng.integers(1, 9))
                with self.subTest(layout=layout):
                    self.check(self.query(layout, bags * int(self.rng.integers(1, 20)), bags))

    def test_what_lies_outside_all_bags_is_not_missing(self):
        far = np.array([-1, 3, 99, -5, 2, 77, -2])
        for include_last, bounds, positions in ((False, [2, 4], [2, 3, 5, 6]),
                                                (True, [1, 3, 5], [2, 3]), (True, [7, 7], []),
                                                (False, [7], []), (True, [0, 1], [0])):
            query = Query('t00', far, layout='offsets', bounds=np.array(bounds),
                          include_last_offset=include_last)
            self.assertEqual(self.expected(query), positions)
            self.check(query)

    def test_offsets_that_begin_above_0_and_end_early(self):
        for _ in range(scaled(30)):
            self.check(self.query('offsets', 60, 5, include_last_offset=True))

    def test_no_bag_at_all(self):
        for layout, fields, positions in (
                ('offsets', {'bounds': np.array([], int), 'say_layout': True}, [0, 2, 3]),
                ('offsets', {'bounds': np.array([1]), 'include_last_offset': True}, [])):
            query = Query('t00', np.array([-1, 3, 99, -5]), layout=layout, **fields)
            self.assertEqual(self.expected(query), positions)
            self.check(query)

    def test_no_pooling(self):
        query = Query('t00', self.indices(40), reduction='none')
        for missing in ('skip', 'zero'):
            query.missing = missing
            result, = self.ask(query)
            self.assertEqual(self.positions(result), np.flatnonzero(
                (query.indices < 0) | (query.indices >= 50)).tolist())

    def test_one_bag_without_a_layout(self):
        self.check(Query('t00', self.indices(40), num_bags=1))

    def test_many(self):
        for rows in (0, 50):
            indices = np.arange(100000) % 100
            query = Query('t00', indices - rows, layout='packed', indices_per_bag=50)
            self.check(query)

    def test_nothing_is_said_where_nothing_is_missing_or_wanted(self):
        query = Query('t00', np.array([1, 2, 3]), num_bags=1, missing='skip')
        self.assertEqual(self.ask(query)[0].missing_positions, b'')
        query.indices[1] = -1
        result, = self.ask(query, report_missing=False)
        self.assertEqual((result.missing, result.missing_positions), (1, b''))

    def test_an_error_is_an_error_all_the_same(self):
        query = to_message(Query('t00', np.array([1, 99]), num_bags=1, missing='error'))
        request = pb.LookupRequest(model='wide', queries=[query], report_missing=True)
        code, text = error_of(self.client.lookup, request)
        self.assertEqual(code.name, 'OUT_OF_RANGE', text)

    def test_a_table_without_a_row_for_unknown_ids(self):
        query = to_message(Query('t00', np.array([1, 99]), num_bags=1, missing='unknown_row'))
        request = pb.LookupRequest(model='wide', queries=[query], report_missing=True)
        code, text = error_of(self.client.lookup, request)
        self.assertEqual(code.name, 'INVALID_ARGUMENT', text)
        self.assertRegex(text, 'UNKNOWN_ROW')

    def test_several_queries(self):
        queries = [self.query('offsets', 30, 4) for _ in range(10)]
        for query, result in zip(queries, self.ask(*queries)):
            self.assertEqual(self.positions(result), self.expected(query))

    def test_concat_has_those_of_each_query_in_turn(self):
        queries = [self.query('offsets', 30, 4) for _ in range(10)]
        result, = self.ask(*queries, concat=True)
        wanted = [self.expected(query) for query in queries]
        self.assertEqual(list(result.missing_by_query), [len(want) for want in wanted])
        self.assertEqual(self.positions(result), sum(wanted, []))

    def test_groups_count_through_all_their_values(self):
        wide = self.tables['wide']
        for missing in ('skip', 'zero'):
            jagged = random_jagged(self.rng, wide, bags=7, missing=missing)
            away = self.rng.random(len(jagged.values)) < 0.3
            jagged.values[away] = self.rng.choice(FAR_INDICES['i32'] + [10**6], away.sum())
            for form in GROUP_FORMS:
                for values in VALUE_FIELDS:
                    result, = self.ask(groups=[jagged.group(form, values)])
                    self.assertEqual(self.positions(result), np.flatnonzero(away).tolist())
                    self.assertEqual(result.missing, sum(result.missing_by_query))

    def test_on_a_stream(self):
        queries = [self.query('segments', 30, 4) for _ in range(20)]
        requests = [pb.LookupRequest(model='wide', request_id=number, report_missing=True,
                                     queries=[to_message(query)])
                    for number, query in enumerate(queries)]
        for answer in self.client.stream(requests):
            self.assertEqual(self.positions(answer.results[0]),
                             self.expected(queries[answer.request_id]))


if __name__ == '__main__':
    unittest.main()
