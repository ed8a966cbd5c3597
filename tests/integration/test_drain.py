"""SIGTERM: a server answers requests in flight, refuses new connections, and exits with 0."""

import socket
import time
import unittest

import numpy as np

from bag_query import Query, to_message
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import wait_until
from h2raw import (DATA, GOAWAY, HEADERS, LOOKUP_STREAM, PING, WINDOW_UPDATE, Connection,
                   call_fields, frame, message)
from rpc import Requests, as_bytes, error_of
from served import OwnServerTest, scaled, spec_table
from table_files import Table

OK = ('200', 0, '')
GOOD = pb.LookupRequest(model='spec', queries=[
    pb.BagQuery(table='emb_table', indices=[0, 4], num_bags=1)])
GOOD_BYTES = as_bytes(GOOD)


class Drain(OwnServerTest):
    """Tests each of which has its own server."""

    def serve_large(self, *flags):
        """Starts a server whose answers take a while."""
        rng = np.random.default_rng(5)
        large = Table.of_values('large', 'f32', rng.normal(size=(100000, 64)))
        return self.serve(*flags, tables=[spec_table(), large])

    def slow_bytes(self, request_id=0):
        """Returns a request of many rows, serialised."""
        indices = np.random.default_rng(6).integers(0, 100000, 80000)
        query = Query('large', indices, layout='packed', indices_per_bag=1000, index_form='i32')
        return as_bytes(pb.LookupRequest(model='spec', request_id=request_id,
                                         queries=[to_message(query)]))

    def ends_well(self, server, seconds=20):
        """Checks that the exit status is 0 and that the log reports nothing bad."""
        self.assertEqual(server.wait(seconds), 0, server.log[-4000:])
        server.check_log()

    def test_an_idle_server_ends_at_once(self):
        server = self.serve()
        started = time.monotonic()
        server.terminate()
        self.ends_well(server)
        self.assertLess(time.monotonic() - started, 10)

    def test_idle_connections_do_not_hold_it(self):
        server = self.serve()
        client = self.connect(server)
        client.lookup(GOOD)
        with Connection(server.port) as peer:
            self.assertEqual(peer.status(peer.call(message(GOOD_BYTES))), OK)
            silent = socket.create_connection(('127.0.0.1', server.port))
            self.addCleanup(silent.close)
            started = time.monotonic()
            server.terminate()
            peer.wait_frame(GOAWAY)
            self.assertTrue(peer.is_closed())
        self.ends_well(server)
        self.assertLess(time.monotonic() - started, 15)

    def test_calls_that_were_sent_are_answered(self):
        server = self.serve_large()
        with Connection(server.port, window=1 << 24) as peer:
            streams = [peer.call(message(self.slow_bytes())) for _ in range(scaled(40))]
            self.assertEqual(peer.status(streams[0]), OK)
            server.terminate()
            for stream in streams[1:]:
                self.assertEqual(peer.status(stream), OK)
        self.ends_well(server)

    def last_call(self, peer):
        """Reads up to the final GOAWAY; returns the last stream that is served."""
        last = (1 << 31) - 1
        while last == (1 << 31) - 1:
            last = int.from_bytes(peer.wait_frame(GOAWAY).payload[:4], 'big')
        return last

    def test_answers_reach_a_peer_that_reads_late(self):
        """Frames that a peer sends after the last answer must not reset the connection while
        answers are still on their way."""
        server = self.serve_large()
        with Connection(server.port, window=1 << 24) as peer:
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            peer.send(frame(WINDOW_UPDATE, 0, 0, (1 << 24).to_bytes(4, 'big')))
            streams = [peer.call(message(self.slow_bytes())) for _ in range(20)]
            server.terminate()
            self.last_call(peer)
            late = time.monotonic() + 1
            wait_until(lambda: server.has_ended() or time.monotonic() > late, 20, 'the exit')
            peer.send(frame(PING, 0, 0, b'12345678'))
            for stream in streams:
                self.assertEqual(peer.status(stream), OK)
        self.ends_well(server)

    def test_stock_clients_see_answers_or_unavailable(self):
        server = self.serve_large()
        client = self.connect(server)
        futures = [client.lookup_future(self.slow_bytes()) for _ in range(scaled(40))]
        futures[0].result()
        server.terminate()
        codes = {(future.exception() is None) or future.code().name for future in futures}
        self.assertLessEqual(codes, {True, 'UNAVAILABLE'})
        self.ends_well(server)

    def test_streams_are_answered_and_end_unavailable(self):
        server = self.serve_large()
        with Connection(server.port, window=1 << 24) as peer:
            stream = peer.open(call_fields(LOOKUP_STREAM))
            count = scaled(10)
            for number in range(count):
                peer.data(stream, message(self.slow_bytes(number + 1)), end=False)
            peer.wait_frame(DATA)  # the request is being computed
            server.terminate()
            fields, body = peer.finish(stream)
            self.assertEqual(fields['grpc-status'], '14')
            answers = self.messages(body)
            self.assertEqual([a.error_code for a in answers], [0] * len(answers))
            self.assertEqual(sorted(a.request_id for a in answers),
                             list(range(1, len(answers) + 1)))
        self.ends_well(server)

    def messages(self, data):
        """Returns the answers in the DATA of a stream."""
        answers = []
        while data:
            size = int.from_bytes(data[1:5], 'big')
            answers.append(pb.LookupResponse.FromString(data[5:5 + size]))
            data = data[5 + size:]
        return answers

    def test_a_stock_stream_ends_unavailable(self):
        server = self.serve()
        client = self.connect(server)
        requests = Requests()
        answers = client.stream(requests)
        requests.put(GOOD)
        self.assertEqual(next(answers).error_code, 0)
        server.terminate()
        code, _ = error_of(next, answers)
        requests.end()
        self.assertEqual(code.name, 'UNAVAILABLE')
        self.ends_well(server)

    def held(self, server):
        """Opens a connection with half a message, which keeps a draining server waiting."""
        peer = Connection(server.port)
        self.addCleanup(peer.close)
        self.assertEqual(peer.status(peer.call(message(GOOD_BYTES))), OK)
        half = peer.open()
        peer.data(half, message(GOOD_BYTES)[:10], end=False)
        self.assertEqual(peer.status(peer.call(message(GOOD_BYTES))), OK)
        return peer, half

    def is_refused(self, server):
        """Returns whether the port is closed. A connection may be reset just before that."""
        try:
            socket.create_connection(('127.0.0.1', server.port), 5).close()
            return False
        except ConnectionError as error:
            return isinstance(error, ConnectionRefusedError)

    def test_refuses_new_connections_while_it_drains(self):
        server = self.serve()
        peer, half = self.held(server)
        server.terminate()
        wait_until(lambda: self.is_refused(server), 20, 'a closed port')
        self.assertFalse(server.has_ended())
        peer.data(half, message(GOOD_BYTES)[10:])
        self.assertEqual(peer.status(half), OK)
        self.ends_well(server)

    def test_ends_while_others_connect(self):
        server = self.serve()
        accepted = []
        for _ in range(20):
            accepted.append(socket.create_connection(('127.0.0.1', server.port), 5))
        server.terminate()
        while not self.is_refused(server):
            pass
        self.ends_well(server)
        for peer in accepted:
            peer.close()

    def test_the_drain_timeout_cuts_what_is_left(self):
        server = self.serve('--drain-timeout-ms', '500')
        peer, _ = self.held(server)
        started = time.monotonic()
        server.terminate()
        self.assertTrue(peer.is_closed())
        self.ends_well(server)
        self.assertLess(time.monotonic() - started, 10)
        self.assertGreater(time.monotonic() - started, 0.4)

    def test_a_second_signal_cuts_at_once(self):
        server = self.serve()
        peer, _ = self.held(server)
        server.terminate()
        wait_until(lambda: self.is_refused(server), 20, 'a closed port')
        started = time.monotonic()
        server.terminate()
        self.assertTrue(peer.is_closed())
        server.wait(20)
        server.check_log()
        self.assertLess(time.monotonic() - started, 10)

    def test_calls_after_the_last_goaway_are_left_alone(self):
        server = self.serve()
        peer, half = self.held(server)
        server.terminate()
        last = self.last_call(peer)
        wait_until(lambda: self.is_refused(server), 20, 'a closed port')
        self.assertGreaterEqual(last, half)
        late = peer.call(message(GOOD_BYTES))
        self.assertGreater(late, last)
        peer.data(half, message(GOOD_BYTES)[10:])
        self.assertEqual(peer.status(half), OK)
        answered = [f for f in peer.waiting if f.stream == late and f.type in (DATA, HEADERS)]
        self.assertFalse(answered)
        self.ends_well(server)


if __name__ == '__main__':
    unittest.main()
