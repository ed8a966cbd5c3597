"""Limits, set to small values: a request at the limit is answered, one past it is refused. Where
each limit is tested:

    request_bytes_max                 here, test_compression (decompressed)
    response_bytes_max                here
    queries_max, features with them   here, test_groups
    indices_max, bags_max             here, test_groups, test_sequences
    row_bytes_max, name_bytes_max     here
    header_fields_max, _bytes_max     here, unit/grpc/test_grpc_peer
    streams_max, connections_max      test_connections
    in_flight_max                     here, unit/server/test_service_flow
    receive_, answer_memory_bytes     here, unit/server/test_service_flow
    queue_bytes_max                   here, unit/work/test_queue_admission
    outbound_bytes_max                test_held_memory, test_connection_memory
    header_, message_, write_timeout  test_connections, test_held_memory
    deadline_max_ms                   here, test_held_memory
    drain_timeout_ms, drain_delay_ms  test_drain, test_drain_delay
    ping_..., keepalive_, connection_ test_keepalive, unit/server/test_conn_age
    arena of a request                unit/proto/test_codec_request
    two requests' bytes kept          test_held_memory
    resets, frames without content    test_connections, unit/grpc/test_grpc_budget
    watches, commands                 test_health, test_admin
    names in reflection requests      unit/proto/test_codec_reflection
"""

import gzip
import random
import time
import unittest

import numpy as np

import bag_model
from bag_query import Query, to_message
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import Embagd
from h2raw import (DATA, HEADERS, Connection, call_fields, frame, header_decode, header_encode,
                   message)
from rpc import as_bytes, error_of
from served import OwnServerTest
from table_files import Table, write_model


def request(*queries):
    """Returns a request to the specification's model."""
    return pb.LookupRequest(model='spec', queries=[to_message(query) for query in queries])


def pooled(indices, bags):
    """Returns a query of this many indices in this many bags."""
    bounds = np.zeros(bags, np.int64)
    return Query('emb_table', np.zeros(indices, np.int64), layout='offsets', bounds=bounds)


class Limits(OwnServerTest):
    """Tests each of which has its own server."""

    def check(self, client, good, bad, pattern):
        """Checks that `good` is answered before and after `bad` is refused, also on a stream."""
        self.assertTrue(client.lookup(good).results)
        code, text = error_of(client.lookup, bad)
        self.assertEqual(code.name, 'RESOURCE_EXHAUSTED', text)
        self.assertRegex(text, pattern)
        self.assertTrue(client.lookup(good).results)
        refused, answered = client.stream([bad, good])
        self.assertEqual((refused.error_code, answered.error_code), (8, 0))
        self.assertRegex(refused.error_message, pattern)

    def test_queries(self):
        client = self.connect(self.serve('--queries-max', '3'))
        one = pooled(1, 1)
        self.check(client, request(one, one, one), request(one, one, one, one), r'queries')

    def test_indices_of_all_queries(self):
        client = self.connect(self.serve('--indices-max', '10'))
        self.check(client, request(pooled(10, 1)), request(pooled(11, 1)), r'\b10\b')
        self.check(client, request(pooled(5, 1), pooled(5, 1)),
                   request(pooled(5, 1), pooled(6, 1)), r'\b10\b')

    def test_bags_of_all_queries(self):
        client = self.connect(self.serve('--bags-max', '10'))
        self.check(client, request(pooled(0, 10)), request(pooled(0, 11)), r'\b10\b')
        self.check(client, request(pooled(0, 5), pooled(0, 5)),
                   request(pooled(0, 5), pooled(0, 6)), r'\b10\b')
        segments = Query('emb_table', np.array([], np.int64), layout='segments',
                         bounds=np.array([], np.int64), num_segments=2**63)
        self.check(client, request(pooled(0, 1)), request(segments), r'bags')

    def test_rows_of_reduction_none_count_as_bags_or_indices(self):
        client = self.connect(self.serve('--indices-max', '10', '--bags-max', '10'))
        none = [Query('emb_table', np.zeros(n, np.int64), reduction='none') for n in (10, 11)]
        self.check(client, request(none[0]), request(none[1]), r'\b10\b')

    def test_bytes_of_a_request(self):
        limit = 4096
        client = self.connect(self.serve('--request-bytes-max', str(limit)))
        sized = [self.of_size(limit + more) for more in (0, 1)]
        self.assertTrue(client.lookup(sized[0]).results)
        code, text = error_of(client.lookup, sized[1])
        self.assertEqual(code.name, 'RESOURCE_EXHAUSTED', text)
        self.assertRegex(text, r'\b4096\b')
        self.assertTrue(client.lookup(sized[0]).results)

    def of_size(self, size):
        """Returns a request of exactly this many bytes, filled with an unknown field."""
        data = as_bytes(request(pooled(1, 1)))
        room = size - len(data) - 4
        return data + b'\xfa\x06' + bytes([room & 127 | 128, room >> 7]) + bytes(room)

    def test_bytes_of_an_answer(self):
        """Rows of 4096 values: one row is 16 KiB."""
        table = Table.of_values('emb_table', 'f32', np.zeros((3, 4096)))
        client = self.connect(self.serve('--response-bytes-max', '70000', tables=[table]))
        self.check(client, request(pooled(1, 4)), request(pooled(1, 5)), r'\b70000\b')
        self.check(client, request(pooled(1, 2), pooled(1, 2)),
                   request(pooled(1, 3), pooled(1, 2)), r'\b70000\b')

    def test_bytes_of_an_answer_to_the_byte(self):
        server = self.serve(tables=[Table.of_values('emb_table', 'f32', np.zeros((3, 1000)))])
        fields, body = self.ask(server)
        self.assertEqual(fields['grpc-status'], '0')
        size = len(body) - 5
        for limit, status in ((size, '0'), (size - 1, '8')):
            server = Embagd(self.repository.path, '--response-bytes-max', str(limit))
            self.addCleanup(server.stop)
            fields, _ = self.ask(server.wait_ready())
            self.assertEqual(fields['grpc-status'], status)

    def ask(self, server):
        """Makes a small lookup; returns the raw answer."""
        with Connection(server.port) as peer:
            return peer.finish(peer.call(message(as_bytes(request(pooled(1, 1))))))

    def test_an_answer_far_over_the_limit(self):
        client = self.connect(self.serve(tables=[
            Table.of_values('emb_table', 'f32', np.zeros((3, 4096)))]))
        segments = Query('emb_table', np.array([], np.int64), layout='segments',
                         bounds=np.array([], np.int64), num_segments=4000000)
        self.check(client, request(pooled(1, 1)), request(segments), r'\b67108864\b')

    def test_a_row_too_wide_to_load(self):
        write_model(self.repository.path, 'spec', 1, [
            Table.of_values('emb_table', 'f32', np.zeros((3, 1025)))])
        server = Embagd(self.repository.path, '--row-bytes-max', '4096')
        self.assertRegex(server.start_fails(), r'emb_table\.npy.*4100.*4096')

    def test_the_widest_row_that_is_loaded(self):
        client = self.connect(self.serve('--row-bytes-max', '4096', tables=[
            Table.of_values('emb_table', 'f32', np.zeros((3, 1024)))]))
        self.assertTrue(client.lookup(request(pooled(1, 1))).results)

    def test_bytes_of_a_name(self):
        client = self.connect(self.serve('--name-bytes-max', '20'))
        self.assertTrue(client.lookup(request(pooled(1, 1))).results)
        for size, expected in ((20, 'NOT_FOUND'), (21, 'RESOURCE_EXHAUSTED')):
            named = pb.LookupRequest(model='m' * size)
            table = request(Query('t' * size, np.zeros(1, np.int64), num_bags=1))
            for call, asked in ((client.lookup, named), (client.lookup, table),
                                (client.get_model, 'm' * size)):
                code, text = error_of(call, asked)
                self.assertEqual(code.name, expected, text)

    def test_header_fields_of_a_call(self):
        server = self.serve('--header-fields-max', '20', '--header-bytes-max', '1024')
        with Connection(server.port) as peer:
            usual = call_fields()
            room = 1024 - sum(len(key) + len(value) for key, value in usual)
            fields = [('f%02d' % n, 'v') for n in range(21 - len(usual))]
            bytes_ = [('large', 'v' * (room - 5)), ('large', 'v' * (room - 4))]
            for extra, status in ((fields[1:], 0), (fields, 8), (bytes_[:1], 0), (bytes_[1:], 8)):
                stream = peer.call(message(as_bytes(request(pooled(1, 1)))), extra=extra)
                self.assertEqual(peer.status(stream)[1], status, len(extra))

    def test_shown_as_set(self):
        client = self.connect(self.serve('--queries-max', '77', '--bags-max', '1234', '--loops',
                                         '2', '--threads', '1',
                                         environment={'EMBAG_INDICES_MAX': '4321'}))
        server = client.get_server()
        limits = {limit.name: limit.value for limit in server.limits}
        self.assertEqual([limits[name] for name in ('queries_max', 'bags_max', 'indices_max')],
                         [77, 1234, 4321])
        self.assertEqual((server.loops, server.threads), (2, 1))

    def test_the_longest_deadline(self):
        """A client's deadline that is longer than allowed is shortened, not refused: a call with a
        timeout of 100 000 s that is not ended ends when the longest deadline passes."""
        server = self.serve('--deadline-max-ms', '500')
        fields = call_fields(grpc_timeout='100000S')
        with Connection(server.port) as peer:
            started = time.monotonic()
            silent = peer.open(fields)
            http, status, text = peer.status(silent)
            self.assertEqual((http, status, text), ('200', 4, "the call's deadline passed"))
            self.assertGreater(time.monotonic() - started, 0.4)
            whole = peer.call(message(as_bytes(request(pooled(1, 1)))), fields)
            self.assertEqual(peer.status(whole), ('200', 0, ''))


class Memory(OwnServerTest):
    """The memory that all connections of a loop hold together."""

    def hold(self, server, payload, end):
        """Starts a call on a new connection, which stays open and is not read."""
        peer = Connection(server.port)
        self.addCleanup(peer.close)
        return peer, peer.call(payload, end=end)

    def test_bytes_of_all_requests(self):
        """Each request is complete, but its call is not ended. Some fit into the memory, further
        ones do not."""
        server = self.serve('--receive-memory-bytes', str(32 << 20), '--loops', '1',
                            '--request-bytes-max', str(8 << 20))
        large = message(b'\xfa\x06' + bytes([0xf0, 0xff, 0xff, 3]) + bytes((8 << 20) - 16))
        held = [self.hold(server, large, end=False) for _ in range(2)]
        for _ in range(2):
            self.hold(server, large, end=False)
        peer, stream = self.hold(server, large, end=False)
        _, code, text = peer.status(stream)
        self.assertEqual(code, 8, text)
        for other, half in held:
            other.data(half, b'')
            self.assertEqual(other.status(half), ('200', 0, ''))
        self.assertEqual(peer.status(peer.call(large))[1], 0)

    def largest_request(self, size):
        """Returns a request of this many bytes that gzip can hardly shrink, in an unknown field."""
        asked = as_bytes(request(pooled(1, 1)))
        room = size - len(asked) - 6
        length = bytes([room >> 7 * n & 127 | (128 if n < 3 else 0) for n in range(4)])
        junk = random.Random(size).randbytes(room - 20000) + bytes(20000)
        return asked + b'\xfa\x06' + length + junk

    def test_the_largest_request_comes_in_where_the_server_starts(self):
        """The request is sent on the only connection, with the least memory that the start accepts.
        Compressed it is as large as decompressed, and both are held at once."""
        for size, memory, loops in ((20 << 20, 80 << 20, 1), (9 << 20, 64 << 20, 1),
                                    ((4 << 20) + 1, 32 << 20, 1), (100000, 32 << 20, 32)):
            server = self.serve('--receive-memory-bytes', str(memory), '--loops', str(loops),
                                '--request-bytes-max', str(size))
            data = self.largest_request(size)
            self.assertEqual(len(data), size)
            for payload, encoding in ((message(data), None),
                                      (message(gzip.compress(data, 1), 1), 'gzip')):
                with self.subTest(size=size, encoding=encoding), Connection(server.port) as peer:
                    fields = call_fields(grpc_encoding=encoding)
                    self.assertEqual(peer.status(peer.call(payload, fields)), ('200', 0, ''))

    def test_bytes_of_all_answers(self):
        """The answers wait for their readers: two fit into the memory, a third does not."""
        table = Table.of_values('emb_table', 'f32', np.zeros((3, 4096)))
        server = self.serve('--answer-memory-bytes', str(128 << 20), '--loops', '1',
                            tables=[table])
        asked = message(as_bytes(request(pooled(3000, 3000))))
        ends = []
        for _ in range(3):
            peer, stream = self.hold(server, asked, end=True)
            got = peer.wait_frame(HEADERS)
            fields = header_decode(got.payload)
            ends.append((peer, stream, fields.get('grpc-status')))
        self.assertEqual([end for _, _, end in ends], [None, None, '8'])
        for peer, stream, _ in ends[:2]:
            peer.close()
        small = message(as_bytes(request(pooled(1, 1))))
        self.assertEqual(ends[2][0].status(ends[2][0].call(small))[1], 0)


class Overload(OwnServerTest):
    """More work than the limits admit: the excess requests are refused, and the admitted ones are
    answered."""

    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(1)
        self.table = Table.of_values('emb_table', 'f32', rng.normal(size=(500, 4096)))
        self.query = Query('emb_table', rng.integers(0, 500, 100), num_bags=1, index_form='i32')

    def bytes_with(self, request_id):
        """Returns a small request for much work: 1.6 MB of rows."""
        return as_bytes(pb.LookupRequest(model='spec', request_id=request_id,
                                         queries=[to_message(self.query)]))

    def flood(self, server, count):
        """Makes this many calls in one write; returns how each ends."""
        with Connection(server.port, window=1 << 24) as peer:
            calls = []
            for number in range(count):
                peer.stream += 2
                calls.append(frame(HEADERS, 4, peer.stream, header_encode(call_fields())))
                calls.append(frame(DATA, 1, peer.stream, message(self.bytes_with(number))))
            peer.send(b''.join(calls))
            return [peer.finish(2 * number + 1) for number in range(count)]

    def check_ends(self, ends):
        """Checks that answers are right and that all other calls end with RESOURCE_EXHAUSTED;
        returns those other calls."""
        expected = bag_model.expect(self.query, self.table)
        refused = []
        for fields, body in ends:
            if fields['grpc-status'] == '0':
                result, = pb.LookupResponse.FromString(body[5:]).results
                bag_model.check_result(expected, self.table, result)
            else:
                self.assertEqual(fields['grpc-status'], '8', fields)
                refused.append(fields)
        self.assertLess(len(refused), len(ends))
        return refused

    def test_work_in_flight_of_a_connection(self):
        server = self.serve('--in-flight-max', '3', '--inline-below-us', '0', tables=[self.table])
        self.assertTrue(self.check_ends(self.flood(server, 60)))
        self.assertFalse(self.check_ends(self.flood(server, 3)))

    def test_a_stream_waits_where_unary_calls_are_refused(self):
        server = self.serve('--in-flight-max', '3', '--inline-below-us', '0', tables=[self.table])
        answers = list(self.connect(server).stream([self.bytes_with(n + 1) for n in range(60)]))
        self.assertEqual(sorted(a.request_id for a in answers), list(range(1, 61)))
        self.assertEqual({a.error_code for a in answers}, {0})

    def test_the_queue(self):
        server = self.serve('--queue-bytes-max', '4MiB', '--inline-below-us', '0',
                            tables=[self.table])
        refused = self.check_ends(self.flood(server, 100))
        self.assertTrue(refused)
        for fields in refused:
            self.assertGreater(int(fields['grpc-retry-pushback-ms']), 0)
        self.assertFalse(self.check_ends(self.flood(server, 1)))

    def test_the_queue_of_a_stream(self):
        server = self.serve('--queue-bytes-max', '4MiB', '--inline-below-us', '0',
                            tables=[self.table])
        answers = list(self.connect(server).stream([self.bytes_with(n + 1) for n in range(100)]))
        self.assertEqual(len({a.request_id for a in answers}), 100)
        self.assertLessEqual({a.error_code for a in answers}, {0, 8})
        for answer in answers:
            self.assertEqual(answer.retry_after_ms > 0, answer.error_code == 8)


if __name__ == '__main__':
    unittest.main()
