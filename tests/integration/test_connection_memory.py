"""The memory that a connection's waiting requests may hold, and that others are served beside it.

One thread computes. A "plug", a request for many gigabytes of rows, keeps it busy as long as the
plug's connection is open. If the machine finishes the plug too early, the round checks only what
must hold in any case, and another round is started.
"""

import resource
import unittest

import numpy as np

import embagd_process
from attacker import resident_bytes
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import wait_until
from h2raw import (ACK, DATA, END_STREAM, LOOKUP_STREAM, PING, RST_STREAM, Connection, call_fields,
                   frame, message)
from rpc import as_bytes
from served import SEED, OwnServerTest, scaled
from table_files import Table

OK, EXHAUSTED = 0, 8
ROUNDS = 8
MIB = 1 << 20
PLUG_ROWS = 4000000  # of 16 KiB
# 4 000 bags without an index: some 50 KiB on the wire, megabytes once they are planned.
CHEAP = pb.LookupRequest(model='spec', queries=[pb.BagQuery(table='narrow', num_bags=1)] * 4000)


def row(request_id, **fields):
    """Returns a quick request."""
    return pb.LookupRequest(model='spec', request_id=request_id, queries=[
        pb.BagQuery(table='narrow', indices=[request_id % 100], num_bags=1)], **fields)


def cancel(request_id):
    """Returns a message that cancels a request."""
    return pb.LookupRequest(request_id=request_id, cancel=True)


def settle(peer):
    """Waits until the server has read everything that it accepts of what was sent."""
    peer.send(frame(PING, 0, 0, b'12345678'))
    while True:
        got = peer.read_frame()
        peer.keep(got)
        if got.type == PING and got.flags & ACK:
            return


class Stream:
    """A LookupStream on a new connection, whose answers are read one by one."""

    def __init__(self, port, window=1 << 24):
        self.peer = Connection(port, window=window)
        self.stream = self.peer.open(call_fields(LOOKUP_STREAM))
        self.body = b''

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.peer.close()

    def put(self, *requests, end=False):
        """Sends requests in one piece."""
        self.peer.data(self.stream, b''.join(message(as_bytes(r)) for r in requests), end=end)

    def settle(self):
        """Waits until the server has read everything that it accepts."""
        settle(self.peer)

    def take(self, count):
        """Returns the next answers, in order."""
        answers = []
        while len(answers) < count:
            size = int.from_bytes(self.body[1:5], 'big')
            if len(self.body) < 5 or len(self.body) < 5 + size:
                got = self.peer.next_of(self.stream)
                assert not got.flags & END_STREAM, got
                self.body += got.payload if got.type == DATA else b''
            else:
                answers.append(pb.LookupResponse.FromString(self.body[5:5 + size]))
                self.body = self.body[5 + size:]
        return answers


class OneThread(OwnServerTest):
    """A server whose thread can be kept busy."""

    def serve_one(self, *flags):
        """Starts the server."""
        rng = np.random.default_rng([SEED, 51])
        tables = [Table.of_values('emb_table', 'f32', rng.normal(size=(500, 4096))),
                  Table.of_values('narrow', 'f32', rng.normal(size=(100, 1)))]
        self.plug_bytes = message(as_bytes(pb.LookupRequest(model='spec', queries=[pb.BagQuery(
            table='emb_table', indices_per_bag=10000, indices_i32=rng.integers(
                0, 500, scaled(400) * 10000).astype('<i4').tobytes())])))
        return self.serve('--threads', '1', '--loops', '1', '--queue-bytes-max', '1024GiB',
                          '--deadline-max-ms', '3600000', *flags, tables=tables)

    def plug(self, server):
        """Opens a connection that keeps the thread busy until it is closed, or for seconds."""
        peer = Connection(server.port, window=1 << 24)
        for _ in range(2):
            peer.call(self.plug_bytes)
        # Connections are served in time slices. The plug must start before other requests, and work
        # that one slice has deferred has started by the end of the next.
        for _ in range(2):
            settle(peer)
        return peer

    def rounds(self, attempt):
        """Repeats an attempt until it succeeds once."""
        for _ in range(ROUNDS):
            if attempt():
                return
        self.fail('no success in %d rounds' % ROUNDS)


class WaitingRequests(OneThread):
    """Many cheap requests with large plans."""

    cheap = as_bytes(CHEAP)

    def flood(self, server, count, priority):
        """Opens a connection that requests much more than it may hold."""
        stream = Stream(server.port)
        self.addCleanup(stream.peer.close)
        stream.put(*[self.cheap + as_bytes(pb.LookupRequest(request_id=n + 1, priority=priority))
                     for n in range(count)])
        stream.settle()
        return stream

    def test_others_go_on(self):
        """One loop has 128 MiB for answers and the work on them."""
        server = self.serve_one('--answer-memory-bytes', str(128 * MIB), '--outbound-bytes-max',
                                str(16 * MIB))
        client = self.connect(server)
        plug = self.plug(server)
        floods = [self.flood(server, 100, priority=1) for _ in range(2)]
        for _ in range(5):
            self.assertEqual(len(client.lookup(CHEAP).results), len(CHEAP.queries))
        # Work that nobody awaits is dropped with its connection.
        for stream in floods:
            stream.peer.close()
        plug.close()
        large = pb.LookupRequest(model='spec', queries=[
            pb.BagQuery(table='emb_table', num_bags=4000)])
        wait_until(lambda: self.is_answered(client, large), 60, 'an answer of 64 MiB')

    def is_answered(self, client, request):
        """Returns whether there was memory for the request."""
        future = client.lookup_future(request)
        return future.exception() is None

    def test_all_are_answered_in_the_end(self):
        server = self.serve_one('--outbound-bytes-max', str(16 * MIB))
        count = scaled(40)
        with self.plug(server):
            stream = self.flood(server, count, priority=0)
        answers = stream.take(count)
        self.assertEqual([answer.request_id for answer in answers], list(range(1, count + 1)))
        self.assertEqual({answer.error_code for answer in answers}, {OK})

    def test_the_process_does_not_grow(self):
        """The connections request half a GiB each time; each of the two may hold 64 MiB."""
        if embagd_process.SANITIZE:
            self.skipTest('sanitizers use additional memory')
        server = self.serve_one()
        client = self.connect(server)
        with self.plug(server):
            client.lookup(row(1))
            before = resident_bytes(server.pid)
        for _ in range(4):
            with self.plug(server):
                floods = [self.flood(server, 100, priority) for priority in (0, 1)]
                client.lookup(row(1))
                self.assertLess(resident_bytes(server.pid) - before, 300 * MIB)
                for stream in floods:
                    stream.peer.close()

    def test_small_answers_that_are_not_read(self):
        """Such answers are counted with the memory that they occupy, which is far more than their
        bytes."""
        server = self.serve_one('--answer-memory-bytes', str(128 * MIB))
        with Stream(server.port, window=0) as stream:
            for _ in range(20):
                stream.put(*[row(7)] * 10000)
            stream.settle()
            with self.connect(server) as client:
                self.assertEqual(len(client.lookup(CHEAP).results), len(CHEAP.queries))


class Batch(OneThread):
    """Batch requests that wait do not block other requests of their connection."""

    def serve_few(self):
        """Allows eight requests in flight, of which four may be batch requests."""
        return self.serve_one('--in-flight-max', '8')

    def test_interactive_ones_and_cancels_come_through(self):
        server = self.serve_few()

        def attempt():
            with self.plug(server) as plug, Stream(server.port) as stream:
                stream.put(*[row(n, priority=1) for n in range(1, 21)], cancel(2), row(100))
                first = stream.take(17)
                self.check_refusals(first)
                plug.close()
                stream.put(row(101))
                rest = stream.take(4)
                ids = sorted(answer.request_id for answer in rest)
                if 2 in ids:
                    return False
                self.assertEqual(ids, [1, 3, 4, 101])
                self.assertEqual({answer.error_code for answer in rest}, {OK})
                return first[-1].request_id == 100
        self.rounds(attempt)

    def check_refusals(self, answers):
        """Checks that refusals say when to retry."""
        for answer in answers:
            self.assertIn(answer.error_code, (OK, EXHAUSTED), answer.error_message)
            self.assertEqual(answer.retry_after_ms > 0, answer.error_code == EXHAUSTED)

    def test_unary_calls_are_told_when_to_come_again(self):
        server = self.serve_few()

        def attempt():
            with self.plug(server) as plug, Connection(server.port) as peer:
                calls = [peer.call(message(as_bytes(row(n, priority=1)))) for n in range(5)]
                fields, _ = peer.finish(calls[4])
                plug.close()
                self.assertEqual([peer.status(call)[1] for call in calls[:4]], [OK] * 4)
                return (fields['grpc-status'] == '8'
                        and int(fields['grpc-retry-pushback-ms']) > 0)
        self.rounds(attempt)

    def test_resets_free_the_work(self):
        server = self.serve_one()
        with Connection(server.port) as peer:
            with self.plug(server):
                for number in range(scaled(3000)):
                    call = peer.call(message(as_bytes(row(1, priority=1))))
                    peer.send(frame(RST_STREAM, 0, call, b'\0\0\0\x08'))
                    if number % 100 == 99:
                        self.assertEqual(peer.status(peer.call(message(as_bytes(row(1)))))[1], OK)
            # The connection may again have as many batch requests in flight as before.
            wait_until(lambda: self.takes_batch(peer, 128), 60, 'room for batch requests')

    def takes_batch(self, peer, count):
        """Returns whether this many batch requests are all answered."""
        calls = [peer.call(message(as_bytes(row(n, priority=1)))) for n in range(count)]
        return all([peer.status(call)[1] == OK for call in calls])


class IdleConnections(OwnServerTest):
    """Connections that have been used and are kept open."""

    def test_cost_little(self):
        if embagd_process.SANITIZE:
            self.skipTest('sanitizers use additional memory')
        count = 1000
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
        server = self.serve()
        request = message(as_bytes(pb.LookupRequest(model='spec', queries=[
            pb.BagQuery(table='emb_table', indices=[0, 2], num_bags=1)])))
        with Connection(server.port) as peer:
            peer.status(peer.call(request))
        before = resident_bytes(server.pid)
        for _ in range(count):
            peer = Connection(server.port)
            self.addCleanup(peer.close)
            self.assertEqual(peer.status(peer.call(request))[1], OK)
        self.assertLess((resident_bytes(server.pid) - before) / count, 40 << 10)


if __name__ == '__main__':
    unittest.main()
