"""Partial answers: every query is answered exactly once, and together the parts equal the whole
answer."""

import unittest

import grpc
import numpy as np

from bag_query import Query, to_message
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import wait_until
from h2raw import (DATA, END_STREAM, HEADERS, LOOKUP_STREAM, WINDOW_UPDATE, Connection,
                   call_fields, frame, header_decode, message)
from jagged import random_jagged
from rpc import Requests, as_bytes
from served import SEED, OwnServerTest, scaled
from table_files import Table

EXHAUSTED, DEADLINE = 8, 4


def tables_of(rng):
    """Returns 26 tables and one of long rows."""
    tables = [Table.of_values('t%02d' % n, 'f32', rng.normal(size=(50 + 7 * n, 128)))
              for n in range(26)]
    return tables + [Table.of_values('long', 'f32', rng.normal(size=(500, 4096)))]


class PartialTest(OwnServerTest):
    """A server whose loops compute nothing themselves, so that every request could be divided."""

    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng([SEED, 42])
        tables = tables_of(self.rng)
        self.tables = {table.name: table for table in tables}
        self.server = self.serve('--inline-below-us', '0', *self.flags(), tables=tables)
        self.client = self.connect(self.server)

    def flags(self):
        """Returns more settings."""
        return ()

    def request(self, request_id, bags=3, groups=1, **fields):
        """Returns a request with a query for each table, of unequal work, and some groups of two
        features."""
        queries = random_jagged(self.rng, self.tables, bags=bags).messages()
        queries.append(to_message(self.heavy(int(self.rng.integers(1, 300)))))
        return pb.LookupRequest(
            **{'model': 'spec', 'request_id': request_id, 'partial': True, 'queries': queries,
               'groups': [random_jagged(self.rng, self.tables, ['t01', 't05'], bags).group()
                          for _ in range(groups)], **fields})

    def heavy(self, count):
        """Returns a query that sums this many rows of 16 KiB."""
        return Query('long', self.rng.integers(0, 500, count), num_bags=1, index_form='i32')

    def whole(self, request):
        """Returns the answer to a request in one piece."""
        asked = pb.LookupRequest()
        asked.CopyFrom(request)
        asked.partial = False
        return self.client.lookup(asked)

    def check_parts(self, parts, request):
        """Checks all parts of one answer, in the order in which they arrived."""
        want = self.whole(request)
        self.assertEqual([part.more for part in parts], [True] * (len(parts) - 1) + [False])
        for part in parts:
            self.assertEqual((part.request_id, part.model, part.version, part.error_code),
                             (request.request_id, 'spec', 1, 0), part.error_message)
        for part in parts if want.results else []:
            self.assertTrue(part.results, 'a part without results')
        results = sorted((r for part in parts for r in part.results), key=lambda r: r.query)
        self.assertEqual(results, list(want.results))

    def by_id(self, answers):
        """Returns the answers of a stream by request id, as lists."""
        parts = {}
        for answer in answers:
            parts.setdefault(answer.request_id, []).append(answer)
        return parts

    def check_all(self, requests, answers):
        """Checks the answers to exactly these requests, whether they are partial or not."""
        parts = self.by_id(answers)
        self.assertEqual(sorted(parts), sorted(request.request_id for request in requests))
        for request in requests:
            self.check_parts(parts[request.request_id], request)
        return parts


class Partial(PartialTest):
    """Which answers are divided, and which are not."""

    def test_every_query_is_answered_once(self):
        requests = [self.request(n + 1, bags=n % 4 + 1, groups=n % 3) for n in range(scaled(40))]
        parts = self.check_all(requests, self.client.stream(requests))
        self.assertGreater(max(map(len, parts.values())), 1)

    def test_others_are_answered_beside_it(self):
        """Whole answers on the same stream, partial answers on another, and unary calls."""
        requests = [self.request(n + 1, partial=n % 2 == 0) for n in range(scaled(20))]
        others = [self.request(n + 1) for n in range(scaled(20))]
        streams = [self.client.stream(requests), self.connect(self.server).stream(others)]
        for _ in range(5):
            self.assertEqual(len(self.client.lookup(self.request(0)).results), 28)
        for number, part in self.check_all(requests, streams[0]).items():
            if number % 2 == 0:
                self.assertEqual(len(part), 1)
        self.check_all(others, streams[1])

    def test_unary_calls_are_answered_whole(self):
        for _ in range(10):
            request = self.request(3)
            answer = self.client.lookup(request)
            self.assertFalse(answer.more)
            self.check_parts([answer], request)

    def test_concat_is_answered_whole(self):
        queries = random_jagged(self.rng, self.tables).messages()
        request = pb.LookupRequest(model='spec', request_id=1, queries=queries, partial=True,
                                   concat=True)
        answer, = self.client.stream([request])
        self.check_parts([answer], request)

    def test_one_result_or_none(self):
        requests = [pb.LookupRequest(model='spec', request_id=1, partial=True),
                    pb.LookupRequest(model='spec', request_id=2, partial=True,
                                     queries=[to_message(self.heavy(2000))]),
                    pb.LookupRequest(model='spec', request_id=3, partial=True,
                                     groups=[random_jagged(self.rng, self.tables).group()]),
                    pb.LookupRequest(model='spec', request_id=4, partial=True,
                                     queries=[pb.BagQuery(table='t00')] * 3),
                    self.request(5)]
        parts = self.check_all(requests, self.client.stream(requests))
        self.assertEqual([len(parts[n]) for n in (1, 2, 3)], [1, 1, 1])

    def test_many_queries(self):
        queries = [to_message(Query('t00', np.array([n % 50]), num_bags=1)) for n in range(4096)]
        request = pb.LookupRequest(model='spec', request_id=1, partial=True, queries=queries)
        self.check_all([request], self.client.stream([request]))

    def test_large_parts(self):
        """12 MiB of answers, more than a stream's window."""
        rows = Query('long', self.rng.integers(0, 500, 64), reduction='none')
        request = pb.LookupRequest(model='spec', request_id=1, partial=True,
                                   queries=[to_message(rows)] * 12)
        self.check_all([request], self.client.stream([request]))

    def test_an_id_may_be_used_again_after_the_last_part(self):
        requests = Requests()
        answers = self.client.stream(requests)
        for _ in range(20):
            request = self.request(7)
            requests.put(request)
            parts = [next(answers)]
            while parts[-1].more:
                parts.append(next(answers))
            self.check_parts(parts, request)
        requests.end()
        self.assertEqual(list(answers), [])
        self.assertEqual(answers.code().name, 'OK')

    def test_a_faulty_request_is_answered_once(self):
        faulty = self.request(1)
        faulty.queries[25].table = 'nowhere'
        good = self.request(2)
        parts = self.by_id(self.client.stream([faulty, good]))
        error, = parts[1]
        self.assertEqual((error.error_code, error.more, len(error.results)), (5, False, 0))
        self.check_parts(parts[2], good)

    def test_errors_of_single_queries_come_as_parts_too(self):
        requests = [self.request(n + 1, errors_per_query=True) for n in range(scaled(20))]
        for request in requests:
            for number in self.rng.choice(len(request.queries), 5, replace=False):
                request.queries[number].table = 'nowhere'
            request.groups[0].bags += 1
        all_faulty = pb.LookupRequest(model='spec', request_id=1000, partial=True,
                                      errors_per_query=True,
                                      queries=[pb.BagQuery(table='nowhere')] * 3)
        requests.append(all_faulty)
        self.check_all(requests, self.client.stream(requests))

    def test_missing_positions_come_with_their_part(self):
        requests = [self.request(n + 1, report_missing=True) for n in range(scaled(20))]
        for request in requests:
            for query in request.queries[:26]:
                query.missing = 2
                indices = np.frombuffer(query.indices_i64, '<i8').copy()
                indices[::3] = -1
                query.indices_i64 = indices.tobytes()
        self.check_all(requests, self.client.stream(requests))

    def test_a_deadline_ends_it_once(self):
        """Whatever was sent before, the last message reports the deadline."""
        for timeout_us in (1, 500, 2000, 8000, 20000, 40000):
            queries = [to_message(self.heavy(1000)) for _ in range(30)]
            request = pb.LookupRequest(model='spec', request_id=1, partial=True, queries=queries,
                                       timeout_us=timeout_us)
            good = self.request(2)
            parts = self.by_id(self.client.stream([request, good]))
            self.check_parts(parts[2], good)
            last = parts[1].pop()
            self.assertFalse(last.more)
            self.assertIn(last.error_code, (0, DEADLINE))
            self.assertTrue(all(part.more and not part.error_code for part in parts[1]))
            numbers = [r.query for part in parts[1] + [last] for r in part.results]
            self.assertEqual(len(set(numbers)), len(numbers))
            if last.error_code == 0:
                self.assertEqual(len(numbers), len(queries))

    def test_a_cancelled_stream_leaves_the_connection_usable(self):
        for _ in range(10):
            answers = self.client.stream([self.request(n + 1) for n in range(5)])
            next(answers)
            answers.cancel()
            self.assertEqual(len(self.client.lookup(self.request(6)).results), 28)


class PartialUnderLoad(PartialTest):
    """A server with a small queue and little memory for unread answers."""

    def flags(self):
        return ('--queue-bytes-max', '4MiB', '--outbound-bytes-max', '1MiB',
                '--answer-memory-bytes', '134217728')

    def test_a_request_is_answered_or_refused(self):
        requests = [self.request(n + 1) for n in range(scaled(100))]
        parts = self.by_id(self.client.stream(requests))
        self.assertEqual(sorted(parts), list(range(1, len(requests) + 1)))
        for request in requests:
            own = parts[request.request_id]
            self.assertEqual([part.more for part in own], [True] * (len(own) - 1) + [False])
            self.assertIn(own[-1].error_code, (0, EXHAUSTED))
            self.assertEqual(own[-1].retry_after_ms > 0, own[-1].error_code == EXHAUSTED)
            if own[-1].error_code == 0:
                self.assertEqual(sorted(r.query for part in own for r in part.results),
                                 list(range(28)))

    def test_a_peer_that_does_not_read_holds_little(self):
        """150 MiB of partial answers, more than the memory that is allowed for them."""
        row = pb.BagQuery(table='long', num_bags=4)
        request = pb.LookupRequest(model='spec', partial=True, queries=[row] * 8)
        count = 300
        with Connection(self.server.port, window=0, timeout=60) as peer:
            stream = peer.open(call_fields(LOOKUP_STREAM))
            for number in range(count):
                request.request_id = number + 1
                peer.data(stream, message(as_bytes(request)), end=False)
            peer.data(stream, b'')
            self.assertEqual(len(self.lookup_until_admitted(self.request(1)).results), 28)
            peer.send(b''.join(frame(WINDOW_UPDATE, 0, at, (1 << 30).to_bytes(4, 'big'))
                               for at in (0, stream)))
            answers = self.read_all(peer)
        self.assertGreater(len(answers), count)
        ends = [number for number, more in answers if not more]
        self.assertEqual(sorted(ends), list(range(1, count + 1)))

    def lookup_until_admitted(self, request):
        """Returns the answer to a lookup that is retried while the queue is full."""
        answers = []

        def is_admitted():
            try:
                answers.append(self.client.lookup(request))
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.RESOURCE_EXHAUSTED:
                    raise
            return answers
        wait_until(is_admitted, 60, 'room in the queue')
        return answers[0]

    def read_all(self, peer):
        """Returns ids and `more` of all answers until the call ends, which must be with status
        OK."""
        answers, data = [], bytearray()
        while True:
            got = peer.read_frame()
            data += got.payload if got.type == DATA else b''
            while len(data) >= 5 and len(data) >= 5 + int.from_bytes(data[1:5], 'big'):
                end = 5 + int.from_bytes(data[1:5], 'big')
                answer = pb.LookupResponse.FromString(bytes(data[5:end]))
                answers.append((answer.request_id, answer.more))
                del data[:end]
            if got.type == HEADERS and got.flags & END_STREAM:
                self.assertEqual(header_decode(got.payload)['grpc-status'], '0')
                return answers


if __name__ == '__main__':
    unittest.main()
