"""Peers that speak another protocol, send half a message or nothing; and the limits of a
connection."""

import os
import resource
import selectors
import socket
import time
import unittest

import grpc

from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import wait_until
from h2raw import (ACK, CONTINUATION, DATA, END_STREAM, GOAWAY, HEADERS, LOOKUP_STREAM, PING,
                   PREFACE, RST_STREAM, SETTINGS, Connection, call_fields, frame, header_decode,
                   header_encode, message)
from rpc import Client, Requests, as_bytes
from served import OwnServerTest, ServedTest, scaled

GOOD = pb.LookupRequest(model='spec', queries=[
    pb.BagQuery(table='emb_table', indices=[0, 2, 3, 4], offsets=[0, 2, 2])])
GOOD_BYTES = as_bytes(GOOD)
OK = ('200', 0, '')
SILENT_CONNECTIONS = 1000


class ForeignBytes(ServedTest):
    """Runs on the shared server; a normal call works before and after each test."""

    def tearDown(self):
        self.assertEqual(len(self.client.lookup(GOOD).results), 1)
        super().tearDown()

    def send_alone(self, data):
        """Sends these bytes on a new connection; returns everything that the server sends until it
        closes, or None if it does not close."""
        with socket.create_connection(('127.0.0.1', self.server.port), 20) as peer:
            answer = b''
            try:
                peer.sendall(data)
                while True:
                    more = peer.recv(65536)
                    if not more:
                        return answer
                    answer += more
            except ConnectionError:
                return answer
            except socket.timeout:
                return None

    def test_answers_http_1_in_its_own_words(self):
        for request in (b'GET / HTTP/1.1\r\nHost: x\r\n\r\n', b'POST /a HTTP/1.0\r\n\r\n',
                        b'GET /' + b'a' * 100000 + b' HTTP/1.1\r\n\r\n'):
            answer = self.send_alone(request)
            self.assertIsNotNone(answer)
            if len(request) < 1000:
                self.assertRegex(answer, rb'^HTTP/1\.1 400 ')
                self.assertIn(b'gRPC', answer)

    def test_closes_on_random_bytes(self):
        for size in (24, 100, 1000, 100000):
            self.assertIsNotNone(self.send_alone(os.urandom(size)))
        self.assertIsNotNone(self.send_alone(b'\x16\x03\x01' + bytes(500)))

    def test_closes_on_garbage_behind_the_preface(self):
        for garbage in (os.urandom(5000), b'\xff' * 100, frame(DATA, 0, 1, b'x' * 100),
                        frame(SETTINGS, 0, 0, b'x' * 5), frame(HEADERS, 4, 2, b''),
                        frame(HEADERS, 4, 1, b'\xff' * 50), frame(CONTINUATION, 4, 1, b'\x00')):
            data = PREFACE + frame(SETTINGS, 0, 0) + garbage
            self.assertIsNotNone(self.send_alone(data), garbage[:20])

    def test_answers_a_preface_in_pieces(self):
        class SlowGreeting(Connection):
            """Sends byte by byte."""

            def greet(self, greeting):
                for byte in greeting[:-1]:
                    self.send(bytes([byte]))
                super().greet(greeting[-1:])

        with SlowGreeting(self.server.port) as peer:
            self.assertEqual(peer.status(peer.call(message(GOOD_BYTES))), OK)


class RawCalls(ServedTest):
    """Calls that are written frame by frame."""

    def setUp(self):
        super().setUp()
        self.raw = Connection(self.server.port)
        self.addCleanup(self.raw.close)

    def tearDown(self):
        self.assertEqual(self.raw.status(self.raw.call(message(GOOD_BYTES))), OK)
        self.assertEqual(len(self.client.lookup(GOOD).results), 1)
        super().tearDown()

    def code(self, payload, end=True, **changes):
        """Returns the gRPC status of a Lookup."""
        return self.raw.status(self.raw.call(payload, call_fields(**changes), end=end))[1]

    def test_answers_a_call(self):
        fields, body = self.raw.finish(self.raw.call(message(GOOD_BYTES)))
        self.assertEqual(fields['grpc-status'], '0')
        self.assertRegex(fields['content-type'], r'^application/grpc')
        answer = pb.LookupResponse.FromString(body[5:])
        self.assertEqual(list(answer.results[0].shape), [3, 2])

    def test_takes_every_content_type_of_grpc(self):
        for good in ('application/grpc', 'application/grpc+proto', 'application/grpc+anything'):
            self.assertEqual(self.code(message(GOOD_BYTES), content_type=good), 0)

    def test_refuses_other_content_types_with_415(self):
        for bad in ('text/plain', 'application/json', 'application/grpcx', 'application/grp', '',
                    'application/grpc-web', None):
            stream = self.raw.call(message(GOOD_BYTES), call_fields(content_type=bad))
            self.assertEqual(self.raw.finish(stream)[0][':status'], '415', bad)

    def test_refuses_other_methods(self):
        for method in ('GET', 'PUT'):
            fields = [(key, method if key == ':method' else value) for key, value in call_fields()]
            stream = self.raw.call(message(GOOD_BYTES), fields)
            self.assertRegex(self.raw.finish(stream)[0].get(':status', 'reset'), '405|reset')

    def test_refuses_a_truncated_message(self):
        whole = message(GOOD_BYTES)
        for cut in (1, 4, 5, 6, len(whole) - 1):
            self.assertEqual(self.code(whole[:cut]), 13, cut)

    def test_refuses_bytes_behind_the_message(self):
        self.assertIn(self.code(message(GOOD_BYTES) + b'\0'), (12, 13))
        self.assertEqual(self.code(message(GOOD_BYTES) * 2), 12)

    def test_refuses_a_call_without_a_message(self):
        self.assertEqual(self.code(b''), 12)
        stream = self.raw.open(flags=5)
        self.assertEqual(self.raw.status(stream)[1], 12)

    def test_refuses_bad_compression_flags(self):
        self.assertEqual(self.code(message(GOOD_BYTES, 2)), 13)
        self.assertEqual(self.code(message(GOOD_BYTES, 255)), 13)
        self.assertEqual(self.code(message(GOOD_BYTES, 1)), 13)
        self.assertEqual(self.code(message(GOOD_BYTES, 1), grpc_encoding='snappy'), 12)
        self.assertEqual(self.code(message(GOOD_BYTES), grpc_encoding='identity'), 0)

    def test_refuses_a_size_past_the_limit_from_its_prefix_on(self):
        self.assertEqual(self.code(b'\0\xff\xff\xff\xff' + b'x' * 100, end=False), 8)
        self.assertEqual(self.code(b'\0\x01\x00\x00\x01', end=False), 8)

    def test_refuses_too_many_header_fields(self):
        stream = self.raw.call(message(GOOD_BYTES), extra=[('x-%d' % n, 'v') for n in range(100)])
        self.assertEqual(self.raw.status(stream)[1], 8)

    def test_refuses_header_fields_that_are_too_large(self):
        for size in (20000, 60000):
            stream = self.large_header(size)
            fields, _ = self.raw.finish(stream)
            self.assertTrue(fields.get('grpc-status') == '8' or fields.get(':status') == '431'
                            or 'reset' in fields, fields)

    def large_header(self, size):
        """Returns the frames of a call whose header block needs CONTINUATION frames."""
        self.raw.stream += 2
        block = header_encode(call_fields() + [('x-large', 'v' * size)])
        pieces = [block[at:at + 16384] for at in range(0, len(block), 16384)]
        out = frame(HEADERS, END_STREAM, self.raw.stream, pieces[0])
        for number, piece in enumerate(pieces[1:], 2):
            flags = 4 if number == len(pieces) else 0
            out += frame(CONTINUATION, flags, self.raw.stream, piece)
        self.raw.send(out)
        return self.raw.stream

    def test_takes_header_fields_below_the_limits(self):
        extra = [('x-%d' % n, 'v' * 100) for n in range(50)] + [('x-large', 'v' * 4000)]
        self.assertEqual(self.raw.status(self.raw.call(message(GOOD_BYTES), extra=extra)), OK)

    def test_refuses_a_bad_timeout(self):
        for bad in ('x', '1', '123456789S', '-1S', '1s', ''):
            self.assertIn(self.code(message(GOOD_BYTES), grpc_timeout=bad), (3, 13), bad)
        self.assertEqual(self.code(message(GOOD_BYTES), grpc_timeout='99999999H'), 0)

    def test_refuses_a_deadline_that_has_passed(self):
        slow = message(as_bytes(pb.LookupRequest(model='wide', queries=[
            pb.BagQuery(table='large', indices_i32=bytes(400000), num_bags=1)])))
        for timeout in ('1n', '1u', '0S', '0m'):
            self.assertEqual(self.code(slow, grpc_timeout=timeout), 4, timeout)

    def test_answers_pings(self):
        for _ in range(3):
            self.raw.send(frame(PING, 0, 0, b'12345678'))
        for _ in range(3):
            while True:
                got = self.raw.read_frame()
                if got.type == PING and got.flags & ACK:
                    break
            self.assertEqual(got.payload, b'12345678')

    def test_ignores_unknown_frames(self):
        self.raw.send(frame(0x77, 0xff, 0, b'anything'))

    def test_survives_resets(self):
        for _ in range(100):
            stream = self.raw.call(message(GOOD_BYTES), end=False)
            self.raw.send(frame(RST_STREAM, 0, stream, b'\0\0\0\x08'))
            self.assertEqual(self.raw.status(self.raw.call(message(GOOD_BYTES))), OK)

    def test_a_message_in_frames_of_one_byte(self):
        stream = self.raw.open()
        for byte in message(GOOD_BYTES):
            self.raw.send(frame(DATA, 0, stream, bytes([byte])))
        self.raw.send(frame(DATA, END_STREAM, stream))
        self.assertEqual(self.raw.status(stream), OK)

    def test_padded_frames(self):
        stream = self.raw.open()
        self.raw.send(frame(DATA, 9, stream, b'\x20' + message(GOOD_BYTES) + bytes(32)))
        self.assertEqual(self.raw.status(stream), OK)



class PatientPeers(OwnServerTest):
    """Silent and slow peers, with timeouts short enough to see them pass."""

    def test_ends_half_a_message_and_silence(self):
        server = self.serve('--message-timeout-ms', '300')
        client = self.connect(server)
        with Connection(server.port) as peer:
            half = peer.open()
            peer.data(half, message(GOOD_BYTES)[:20], end=False)
            started = time.monotonic()
            code = peer.status(half)[1]
            self.assertIn(code, (1, 4, 8, 13, 14))
            self.assertLess(time.monotonic() - started, 10)
            self.assertEqual(peer.status(peer.call(message(GOOD_BYTES))), OK)
        self.assertEqual(len(client.lookup(GOOD).results), 1)

    def test_a_slow_message_that_makes_progress_is_answered(self):
        server = self.serve('--message-timeout-ms', '1000')
        with Connection(server.port) as peer:
            stream = peer.open()
            whole = message(GOOD_BYTES)
            for number, byte in enumerate(whole):
                peer.send(frame(DATA, 0, stream, bytes([byte])))
                if number < 12:
                    time.sleep(0.1)  # the peer's slowness is under test
            peer.send(frame(DATA, END_STREAM, stream))
            self.assertEqual(peer.status(stream), OK)

    def test_closes_silent_connections_while_others_work(self):
        server = self.serve('--header-timeout-ms', '1000')
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
        client = self.connect(server)
        selector = selectors.DefaultSelector()
        self.addCleanup(selector.close)
        started = time.monotonic()
        for _ in range(SILENT_CONNECTIONS):
            peer = socket.create_connection(('127.0.0.1', server.port), 20)
            self.addCleanup(peer.close)
            selector.register(peer, selectors.EVENT_READ)
        closed = 0
        while closed < SILENT_CONNECTIONS and time.monotonic() < started + 30:
            self.assertEqual(len(client.lookup(GOOD, timeout=5).results), 1)
            for key, _ in selector.select(0.05):
                if not key.fileobj.recv(4096):
                    selector.unregister(key.fileobj)
                    closed += 1
        self.assertEqual(closed, SILENT_CONNECTIONS)
        self.assertGreaterEqual(time.monotonic() - started, 0.9)

    def test_closes_half_a_preface_and_half_a_header_block(self):
        server = self.serve('--header-timeout-ms', '300')
        with socket.create_connection(('127.0.0.1', server.port), 20) as peer:
            peer.sendall(PREFACE[:20])
            self.assertEqual(peer.recv(1), b'')
        with Connection(server.port, timeout=20) as peer:
            peer.send(frame(HEADERS, 0, 1, header_encode(call_fields())))
            self.assertTrue(peer.is_closed())
        self.assertEqual(len(self.connect(server).lookup(GOOD).results), 1)

    def test_keeps_idle_connections(self):
        server = self.serve('--header-timeout-ms', '200')
        with Connection(server.port) as peer, self.connect(server) as client:
            self.assertEqual(peer.status(peer.call(message(GOOD_BYTES))), OK)
            client.lookup(GOOD)
            time.sleep(1)  # five times the timeout of a silent connection
            self.assertEqual(peer.status(peer.call(message(GOOD_BYTES))), OK)
            client.lookup(GOOD)

    def test_closes_a_peer_that_does_not_read(self):
        server = self.serve('--write-timeout-ms', '500', '--ping-interval-min-ms', '0',
                            '--ping-idle-interval-min-ms', '0')
        big = pb.LookupRequest(model='spec', queries=[pb.BagQuery(
            table='emb_table', reduction=7, indices_i32=bytes(4 << 20))])
        with Connection(server.port, window=(1 << 31) - 1) as peer:
            peer.send(frame(8, 0, 0, b'\x7f\xff\x00\x00'))  # enlarges the connection's window
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            try:
                for _ in range(6):
                    peer.call(message(as_bytes(big)))
            except (ConnectionError, socket.timeout):
                pass
            ended = 'connection_closed|closed|stalled|timeout'
            wait_until(lambda: self.peer_is_gone(peer), 20, ended)
        self.assertEqual(len(self.connect(server).lookup(GOOD).results), 1)

    def peer_is_gone(self, peer):
        """Returns whether the server has closed the connection, without reading what it sent."""
        try:
            peer.send(frame(PING, 0, 0, b'12345678'))
            return False
        except OSError:
            return True


class ConnectionCaps(OwnServerTest):
    """Limits of a connection, set to a small value: at the limit and one past it."""

    def test_open_calls_of_a_connection(self):
        server = self.serve('--streams-max', '4')
        with Connection(server.port) as peer, Connection(server.port) as other:
            held = [peer.open(call_fields(LOOKUP_STREAM)) for _ in range(4)]
            for stream in held:
                peer.data(stream, message(GOOD_BYTES))
                self.assertEqual(peer.status(stream), OK)
            held = [peer.open(call_fields(LOOKUP_STREAM)) for _ in range(5)]
            self.assertTrue(self.is_refused(peer, held[4]))
            self.assertEqual(other.status(other.call(message(GOOD_BYTES))), OK)

    def is_refused(self, peer, stream):
        """Returns whether a call is reset. The connection may also be closed, because the peer had
        seen the limit."""
        try:
            return 'reset' in peer.finish(stream)[0]
        except EOFError:
            return True

    def test_half_messages_do_not_starve_the_connection(self):
        """Several unfinished messages together fill the connection's window. The youngest must give
        way so that others get through."""
        server = self.serve('--request-bytes-max', '65536')
        with Connection(server.port, timeout=10) as peer:
            for _ in range(6):
                peer.data(peer.open(), message(bytes(65000))[:60000], end=False)
            stream = peer.call(message(GOOD_BYTES))
            self.assertEqual(peer.status(stream), OK)
            refused = [got for got in peer.waiting if got.type == HEADERS]
            self.assertTrue(refused)
            for got in refused:
                self.assertEqual(header_decode(got.payload)['grpc-status'], '8')

    def test_connections(self):
        server = self.serve('--connections-max', '3')
        peers = [Connection(server.port) for _ in range(3)]
        for peer in peers:
            self.addCleanup(peer.close)
            self.assertEqual(peer.status(peer.call(message(GOOD_BYTES))), OK)
        with socket.create_connection(('127.0.0.1', server.port), 20) as fourth:
            self.assertEqual(fourth.recv(1), b'')
        peers[0].close()
        wait_until(lambda: self.is_answered(server), 20, 'a connection in place of the closed one')

    def is_answered(self, server):
        """Returns whether a new connection works."""
        try:
            with Connection(server.port) as peer:
                return peer.status(peer.call(message(GOOD_BYTES))) == OK
        except (EOFError, ConnectionError):
            return False

    def test_floods_end_the_connection_only(self):
        server = self.serve('--header-timeout-ms', '1000')
        floods = {
            'pings': frame(PING, 0, 0, b'12345678'),
            'settings': frame(SETTINGS, 0, 0, b'\0\x04\0\0\xff\xff'),
            'empty data': frame(DATA, 0, 1),
            'continuation': frame(CONTINUATION, 0, 1),
        }
        for what, flood in floods.items():
            with Connection(server.port, timeout=20) as peer:
                if what == 'continuation':
                    peer.send(frame(HEADERS, 0, 1, header_encode(call_fields())))
                else:
                    peer.open(call_fields(LOOKUP_STREAM))
                self.flood(peer, flood, what)
            self.assertEqual(len(self.connect(server).lookup(GOOD).results), 1)

    def flood(self, peer, piece, what):
        """Sends the piece many times. The server may close the connection or not, but must not
        accept an endless header block."""
        peer.socket.settimeout(1)
        try:
            for _ in range(scaled(300)):
                peer.send(piece * 1000)
        except (ConnectionError, socket.timeout):
            return
        if what == 'continuation':
            peer.socket.settimeout(20)
            self.assertTrue(peer.is_closed(), 'an endless header block was accepted')

    def test_rapid_resets_end_the_connection_only(self):
        server = self.serve()
        with Connection(server.port, timeout=20) as peer:
            block = header_encode(call_fields())
            try:
                for number in range(20000):
                    stream = 2 * number + 1
                    peer.send(frame(HEADERS, 4, stream, block)
                              + frame(RST_STREAM, 0, stream, b'\0\0\0\x08'))
                peer.wait_frame(GOAWAY)
            except (ConnectionError, EOFError, socket.timeout):
                pass
            self.assertTrue(peer.is_closed())
        self.assertEqual(len(self.connect(server).lookup(GOOD).results), 1)

    def test_cancelling_clients_keep_their_connection(self):
        server = self.serve()
        with Client(server.address) as client:
            for _ in range(scaled(1200)):
                try:
                    self.cancel_one(client)
                    client.lookup(GOOD)
                except grpc.RpcError as error:
                    self.fail('%s: %s' % (error.details(), server.find('connection_refused')))

    def cancel_one(self, client):
        """Cancels a call that has begun. Otherwise grpcio might reset the call before it opens it,
        which HTTP/2 forbids."""
        requests = Requests()
        requests.put(GOOD)
        answers = client.stream(requests)
        next(answers)
        answers.cancel()
        requests.end()


if __name__ == '__main__':
    unittest.main()
