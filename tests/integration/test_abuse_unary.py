"""Calls other than lookups that anybody who can connect may make without a token. Whatever they
contain, they hold little memory, and the server ends them if the peer does not."""

import gzip
import re
import socket
import time
import unittest

from hyperframe.frame import DataFrame, HeadersFrame, RstStreamFrame

from attacker import GOOD_MESSAGE, MIB, SECONDS_MAX, Attacker, Bystander
from embagd_process import wait_until
from h2raw import LOOKUP, WINDOW_UPDATE, Connection, call_fields, frame, message
from served import OwnServerTest

REFLECTION = '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo'
CHECK, WATCH = '/grpc.health.v1.Health/Check', '/grpc.health.v1.Health/Watch'
UNARY_BYTES_MAX = 32768
NAME_BYTES_MAX, WATCHES_MAX = 4096, 32
EXHAUSTED, DEADLINE, OK = 8, 4, 0
INITIAL_WINDOW_SIZE = 4
GZIP = [('grpc-encoding', 'gzip')]


def padded(size):
    """Returns an unknown field of this many bytes and its prefix."""
    return b'\xfa\x06' + bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14]) + bytes(size)


def of_size(size):
    """Returns a message of this many bytes that is valid, and empty, for every method."""
    data = padded(size - 5)
    assert len(data) == size
    return data


class Sizes(OwnServerTest):
    """Size limits of requests other than lookups."""

    def setUp(self):
        super().setUp()
        self.server = self.serve('--loops', '1')

    def test_a_request_may_have_so_many_bytes_and_no_more(self):
        with Connection(self.server.port) as peer:
            for path in (CHECK, REFLECTION):
                for size, code in ((UNARY_BYTES_MAX, OK), (UNARY_BYTES_MAX + 1, EXHAUSTED)):
                    with self.subTest(path=path, size=size):
                        stream = peer.call(message(of_size(size)), call_fields(path))
                        self.assertEqual(peer.status(stream)[1], code)

    def test_it_may_not_have_more_where_it_is_compressed(self):
        with Connection(self.server.port) as peer:
            for path in (CHECK, WATCH, REFLECTION):
                data = message(gzip.compress(of_size(UNARY_BYTES_MAX + 1)), 1)
                stream = peer.call(data, call_fields(path), extra=GZIP)
                _, code, text = peer.status(stream)
                self.assertEqual(code, EXHAUSTED)
                self.assertIn(str(UNARY_BYTES_MAX), text)

    def test_a_name_may_have_so_many_bytes_and_no_more(self):
        with Connection(self.server.port) as peer:
            for size, code in ((NAME_BYTES_MAX, OK), (NAME_BYTES_MAX + 1, EXHAUSTED)):
                name = bytes([size & 127 | 128, size >> 7]) + b'x' * size
                stream = peer.call(message(b'\x22' + name), call_fields(REFLECTION))
                self.assertEqual(peer.status(stream)[1], code)

    def test_a_connection_has_so_many_watches_and_no_more(self):
        with Attacker(self.server.port) as attacker:
            for _ in range(WATCHES_MAX):
                attacker.send(*attacker.call(message(b''), WATCH))
                attacker.wait_for(DataFrame, attacker.stream)
            attacker.send(*attacker.call(message(b''), WATCH))
            self.assertEqual(attacker.status(attacker.stream), EXHAUSTED)
            attacker.send(RstStreamFrame(1, 8))
            attacker.send(*attacker.call(message(b''), WATCH))
            attacker.wait_for(DataFrame, attacker.stream)

    def test_a_prefix_says_enough(self):
        with Connection(self.server.port) as peer:
            prefix = (UNARY_BYTES_MAX + 1).to_bytes(5, 'big')
            stream = peer.call(prefix, call_fields(WATCH), end=False)
            self.assertEqual(peer.status(stream)[1], EXHAUSTED)


class Hoarders(OwnServerTest):
    """Peers that do not read answers and do not end requests."""

    def test_answers_that_are_not_taken_hold_little(self):
        server = self.serve('--loops', '1')
        data = message(gzip.compress(of_size(UNARY_BYTES_MAX), 9), 1)
        attackers = []
        with Bystander(server, grows_bytes=24 * MIB):
            for _ in range(4):
                attacker = Attacker(server.port, {INITIAL_WINDOW_SIZE: 0})
                self.addCleanup(attacker.socket.close)
                attackers.append(attacker)
                for _ in range(50):
                    attacker.send(attacker.headers(REFLECTION, extra=GZIP),
                                  *[DataFrame(attacker.stream, data) for _ in range(40)])
            for attacker in attackers:
                attacker.settle()

    def test_answers_that_waited_come_once_they_are_taken(self):
        server = self.serve('--loops', '1')
        data = message(of_size(UNARY_BYTES_MAX)) * 20
        with Connection(server.port, window=0) as peer:
            stream = peer.call(data, call_fields(REFLECTION))
            room = (1 << 30).to_bytes(4, 'big')
            peer.send(frame(WINDOW_UPDATE, 0, stream, room) + frame(WINDOW_UPDATE, 0, 0, room))
            fields, body = peer.finish(stream)
            self.assertEqual(fields['grpc-status'], '0')
            self.assertGreater(len(body), 20 * UNARY_BYTES_MAX)

    def test_requests_that_are_not_ended_hold_little(self):
        server = self.serve('--loops', '1')
        data = message(gzip.compress(of_size(UNARY_BYTES_MAX), 9), 1)
        with Attacker(server.port) as attacker:
            for path in (CHECK, WATCH):
                attacker.send(attacker.headers(path, extra=GZIP), DataFrame(attacker.stream, data))
            attacker.send(attacker.headers(CHECK, extra=GZIP), DataFrame(attacker.stream, data))
            self.assertEqual(attacker.status(attacker.stream), EXHAUSTED)

    def test_a_request_that_is_not_ended_after_its_message_is_ended(self):
        server = self.serve('--loops', '1', '--message-timeout-ms', '300')
        for path, data in ((LOOKUP, GOOD_MESSAGE), (CHECK, message(b'')), (WATCH, message(b''))):
            with Attacker(server.port) as attacker, self.subTest(path):
                started = time.monotonic()
                attacker.send(attacker.headers(path), DataFrame(attacker.stream, data))
                self.assertEqual(attacker.status(attacker.stream), DEADLINE)
                self.assertLess(time.monotonic() - started, SECONDS_MAX / 2)

    def test_a_watch_that_is_ended_goes_on(self):
        server = self.serve('--loops', '1', '--message-timeout-ms', '300')
        with Attacker(server.port) as attacker:
            attacker.send(*attacker.call(message(b''), WATCH))
            attacker.wait_for(HeadersFrame, attacker.stream)
            attacker.wait_for(DataFrame, attacker.stream)
            watch = attacker.stream
            attacker.socket.settimeout(2)
            with self.assertRaises(TimeoutError):
                attacker.wait_for(HeadersFrame, watch)


class Refusals(OwnServerTest):
    """Connections that speak another protocol."""

    def test_are_logged_in_bounds(self):
        server = self.serve('--loops', '1')
        count = 400
        for _ in range(count):
            with socket.create_connection(('127.0.0.1', server.port), SECONDS_MAX) as peer:
                peer.sendall(b'junk')
                while peer.recv(4096):
                    pass

        def told():
            left_out = re.findall(r'event=connections_refused count=(\d+)', server.log)
            return server.log.count('event=connection_refused ') + sum(map(int, left_out))
        wait_until(lambda: told() == count, SECONDS_MAX, 'all refusals to be logged or counted')
        self.assertIn('event=connections_refused', server.log)


class Bombs(OwnServerTest):
    """Compressed lookups that expand too much."""

    def test_a_large_message_may_not_be_compressed_too_well(self):
        server = self.serve('--loops', '1')
        with Connection(server.port) as peer:
            for size, code in ((MIB, OK), (2 * MIB, EXHAUSTED)):
                data = GOOD_MESSAGE[5:] + padded(size - len(GOOD_MESSAGE))
                stream = peer.call(message(gzip.compress(data, 9), 1), extra=GZIP)
                _, got, text = peer.status(stream)
                self.assertEqual(got, code)
                self.assertEqual('send it uncompressed' in text, code != OK)


if __name__ == '__main__':
    unittest.main()
