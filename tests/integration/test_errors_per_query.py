"""errors_per_query: invalid queries and groups beside good ones."""

import unittest

import numpy as np

from bag_query import Query, to_message
from embag.v1 import embedding_bag_pb2 as pb
from jagged import random_jagged
from rpc import error_of
from served import SEED, ServedTest, scaled

INVALID, NOT_FOUND, EXHAUSTED, OUT_OF_RANGE = 3, 5, 8, 11


class ErrorsPerQuery(ServedTest):
    """Tests on the shared server's wide model."""

    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng([SEED, 44])

    def good(self):
        """Returns a query that is answered without an error."""
        name = 't%02d' % self.rng.integers(26)
        return to_message(Query(name, self.rng.integers(0, 50, 12), layout='packed',
                                indices_per_bag=3, index_form='i32'))

    def faulty(self):
        """Returns invalid queries with their errors."""
        away = self.good()
        away.indices_i32 = np.array([0, 1, 999], '<i4').tobytes()
        lost, unnamed, ragged, late, heavy, twice, odd = (self.good() for _ in range(7))
        lost.table = 'nowhere'
        unnamed.table = ''
        ragged.indices_per_bag = 5
        late.indices_per_bag = 0
        late.offsets_i32 = np.array([0, 5, 4], '<i4').tobytes()
        heavy.weights_f32.extend([1.0])
        twice.indices_i64 = bytes(8)
        odd.reduction = 77
        return [(away, OUT_OF_RANGE, '999'), (lost, NOT_FOUND, 'nowhere'),
                (unnamed, INVALID, 'table'), (ragged, INVALID, 'indices_per_bag'),
                (late, INVALID, 'offsets'), (heavy, INVALID, 'weight'), (twice, INVALID, 'indices'),
                (odd, INVALID, 'reduction')]

    def group(self):
        """Returns a good group."""
        return random_jagged(self.rng, self.tables['wide'], ['t00', 't01', 't02']).group()

    def faulty_groups(self):
        """Returns invalid groups with their errors."""
        away = random_jagged(self.rng, self.tables['wide'], ['t00', 't01'])
        away.lengths[1, 0] += 1
        away.values = np.append(away.values, 10**6)
        short, lost, named, twice = (self.group() for _ in range(4))
        short.bags += 1
        lost.features[2] = 'nowhere'
        named.name = 'none'
        twice.offsets_i32 = bytes(4)
        return [(away.group(), OUT_OF_RANGE, r'features\[1\] "t01"'), (short, INVALID, 'lengths'),
                (lost, NOT_FOUND, r'features\[2\] "nowhere"'), (twice, INVALID, 'offsets|lengths'),
                (named, None, 'none|name|features')]

    def mixture(self):
        """Returns a request of good and invalid queries and groups, and the expected errors by
        number."""
        queries = [(self.good(), 0, '') for _ in range(8)] + self.faulty()
        groups = [(self.group(), 0, '') for _ in range(3)] + self.faulty_groups()
        queries = [queries[n] for n in self.rng.permutation(len(queries))]
        groups = [groups[n] for n in self.rng.permutation(len(groups))]
        request = pb.LookupRequest(model='wide', errors_per_query=True,
                                   queries=[q[0] for q in queries], groups=[g[0] for g in groups])
        return request, [(code, text) for _, code, text in queries + groups]

    def alone(self, request, number):
        """Returns the result of one query or group that is requested alone."""
        queries, groups = request.queries, request.groups
        asked = pb.LookupRequest(model='wide')
        if number < len(queries):
            asked.queries.append(queries[number])
        else:
            asked.groups.append(groups[number - len(queries)])
        result, = self.client.lookup(asked).results
        result.query = number
        return result

    def check(self, answer, request, wrongs):
        """Checks that every result is the same as if requested alone, or reports the error."""
        self.assertEqual((answer.error_code, answer.error_message), (0, ''))
        self.assertEqual([r.query for r in answer.results], list(range(len(wrongs))))
        for number, (result, (code, text)) in enumerate(zip(answer.results, wrongs)):
            if code == 0:
                self.assertEqual(result, self.alone(request, number))
            else:
                self.check_error(result, code, text, number, len(request.queries))

    def check_error(self, result, code, text, number, query_count):
        """Checks that the error names the query or group, and that the result has nothing else."""
        self.assertNotEqual(result.error_code, 0, result)
        self.assertEqual(result.error_code, code or result.error_code, result.error_message)
        where = 'queries' if number < query_count else 'groups'
        at = number if number < query_count else number - query_count
        self.assertRegex(result.error_message, r'^%s\[%d\].*(%s)' % (where, at, text))
        bare = pb.BagResult(query=number, error_code=result.error_code,
                            error_message=result.error_message)
        self.assertEqual(result, bare)

    def test_unary(self):
        for _ in range(scaled(20)):
            request, wrongs = self.mixture()
            self.check(self.client.lookup(request), request, wrongs)

    def test_on_a_stream(self):
        mixtures = [self.mixture() for _ in range(scaled(20))]
        for number, (request, _) in enumerate(mixtures):
            request.request_id = number
        answers = {a.request_id: a for a in self.client.stream([m[0] for m in mixtures])}
        for number, (request, wrongs) in enumerate(mixtures):
            self.check(answers[number], request, wrongs)

    def test_in_parts(self):
        """The request takes so much work that its answer is divided into parts."""
        request, wrongs = self.mixture()
        heavy = to_message(Query('large', self.rng.integers(0, 50000, 60000), num_bags=1,
                                 index_form='i32'))
        request.queries.insert(0, heavy)
        wrongs.insert(0, (0, ''))
        request.partial = True
        parts = list(self.client.stream([request]))
        self.assertEqual([part.more for part in parts], [True] * (len(parts) - 1) + [False])
        whole = pb.LookupResponse(results=sorted(
            (result for part in parts for result in part.results), key=lambda r: r.query))
        self.check(whole, request, wrongs)

    def test_without_it_the_first_error_is_the_requests(self):
        request, _ = self.mixture()
        request.errors_per_query = False
        code, text = error_of(self.client.lookup, request)
        self.assertNotEqual(code.name, 'OK')
        self.assertRegex(text, r'^queries\[\d+\]')

    def test_nothing_but_errors(self):
        wrong = self.faulty()
        request = pb.LookupRequest(model='wide', errors_per_query=True,
                                   queries=[query for query, _, _ in wrong])
        self.check(self.client.lookup(request), request, [w[1:] for w in wrong])

    def test_what_concerns_the_whole_request(self):
        request, _ = self.mixture()
        for change, want in (({'model': 'nowhere'}, 'NOT_FOUND'), ({'version': 9}, 'NOT_FOUND'),
                             ({'priority': 2}, 'INVALID_ARGUMENT'),
                             ({'unnormalized': True}, 'UNIMPLEMENTED')):
            changed = pb.LookupRequest()
            changed.CopyFrom(request)
            changed.MergeFrom(pb.LookupRequest(**change))
            code, text = error_of(self.client.lookup, changed)
            self.assertEqual(code.name, want, text)

    def test_limits_of_the_whole_request(self):
        """The limits are 4 096 queries and 4 000 000 bags."""
        bags = pb.BagQuery(table='narrow', num_bags=3000000)
        for queries in ([self.good()] * 4097, [bags, bags, self.good()]):
            request = pb.LookupRequest(model='wide', errors_per_query=True, queries=queries)
            code, text = error_of(self.client.lookup, request)
            self.assertEqual(code.name, 'RESOURCE_EXHAUSTED', text)

    def test_concat_fails_whole(self):
        lost = self.good()
        lost.table = 'nowhere'
        request = pb.LookupRequest(model='wide', errors_per_query=True, concat=True,
                                   queries=[self.good(), lost])
        code, text = error_of(self.client.lookup, request)
        self.assertEqual(code.name, 'NOT_FOUND', text)


if __name__ == '__main__':
    unittest.main()
