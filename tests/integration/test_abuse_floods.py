"""Floods: hundreds of thousands of frames that cost a peer little. Each flood ends with its
connection closed, and others are served meanwhile."""

import time
import unittest

from hyperframe.frame import (ContinuationFrame, DataFrame, GoAwayFrame,
                              HeadersFrame, PingFrame, PriorityFrame, RstStreamFrame,
                              SettingsFrame, WindowUpdateFrame)

from attacker import SECONDS_MAX, Attacker, Bystander, RawFrame
from certificates import HERE, Authority
from h2raw import LOOKUP_STREAM
from rpc import SecureClient
from served import OwnServerTest
from tls_relay import TlsRelay

FRAMES = 200000
CALLS = 60000
CALM = 'ENHANCE_YOUR_CALM'


class Floods(OwnServerTest):
    """Each flood has its own connection and server."""

    may_be_lost = False  # whether the server's GOAWAY may be lost on its way

    def setUp(self):
        super().setUp()
        self.server = self.serve('--loops', '1')
        self.port = self.server.port

    def bystander(self):
        """Returns a client that is served meanwhile."""
        return Bystander(self.server)

    def check(self, make, code=CALM, count=FRAMES):
        """Runs the flood twice; each time the server sends a GOAWAY with this code and closes."""
        with self.bystander():
            for _ in range(2):
                with Attacker(self.port) as attacker:
                    self.check_ending(attacker.flood(make(attacker), count), code)

    def check_ending(self, said, code):
        """Checks that the server closed the connection for this reason."""
        self.assertIn(said, (code, '') if self.may_be_lost else (code,))

    def check_endless(self, frames_of, at_once=100):
        """Like check, but with frames that differ: each call of frames_of returns some more."""
        with self.bystander():
            with Attacker(self.port) as attacker:
                self.check_ending(self.flood_different(attacker, frames_of, at_once), CALM)

    def flood_different(self, attacker, frames_of, at_once):
        """Sends the frames, and waits for the server in between, so that no more calls are in
        flight than it allows."""
        try:
            for _ in range(CALLS // at_once):
                attacker.send(*[frame for _ in range(at_once) for frame in frames_of(attacker)])
                attacker.settle()
        except (EOFError, ConnectionError):
            pass
        return attacker.ending()

    def test_pings(self):
        self.check(lambda attacker: [PingFrame(0, b'12345678')])

    def test_settings(self):
        self.check(lambda attacker: [SettingsFrame(0, {4: 65535})])

    def test_settings_that_change_every_window(self):
        def make(attacker):
            attacker.send(*[attacker.headers(LOOKUP_STREAM) for _ in range(200)])
            return [SettingsFrame(0, {4: 1}), SettingsFrame(0, {4: 1 << 30})]
        self.check(make)

    def test_settings_of_many_entries(self):
        with self.bystander(), Attacker(self.port) as attacker:
            entry = b'\x00\x04\x00\x00\xff\xff'
            entries = entry * 40000
            attacker.send_bytes(len(entries).to_bytes(3, 'big') + b'\x04\x00\0\0\0\0' + entries)
            self.check_ending(attacker.ending(), CALM)

    def test_priorities(self):
        self.check(lambda attacker: [PriorityFrame(1, depends_on=3, stream_weight=7)])

    def test_unknown_frames(self):
        self.check(lambda attacker: [RawFrame(0x77, 0, b'anything'), RawFrame(0xee, 1)])

    def test_goaways(self):
        def make(attacker):
            # Without an open call the first GOAWAY would close the connection normally.
            attacker.send(attacker.headers(LOOKUP_STREAM))
            return [GoAwayFrame(0, 0, 0)]
        self.check(make)

    def test_window_updates(self):
        self.check(lambda attacker: [WindowUpdateFrame(0, 1)])

    def test_empty_data(self):
        def make(attacker):
            attacker.send(attacker.headers(LOOKUP_STREAM))
            return [DataFrame(attacker.stream, b'')]
        self.check(make)

    def test_data_of_padding(self):
        def make(attacker):
            attacker.send(attacker.headers(LOOKUP_STREAM))
            return [DataFrame(attacker.stream, b'', pad_length=20, flags=['PADDED'])]
        self.check(make)

    def test_resets_of_a_call_that_is_over(self):
        def make(attacker):
            attacker.send(*attacker.call())
            attacker.status(attacker.stream)
            return [RstStreamFrame(attacker.stream, 8)]
        self.check(make)

    def test_continuations_without_end(self):
        def make(attacker):
            attacker.send(HeadersFrame(1, attacker.encoder.encode([(':method', 'POST')])))
            return [ContinuationFrame(1, b'')]
        self.check(make, code='')
        self.assertEqual(self.continuations(b'\x00\x01a\x01b'), '')

    def continuations(self, data):
        """Sends a header block that continues with the same piece; returns the server's GOAWAY
        code."""
        with self.bystander(), Attacker(self.port) as attacker:
            attacker.send(HeadersFrame(1, attacker.encoder.encode([(':method', 'POST')])))
            return attacker.flood([ContinuationFrame(1, data)], FRAMES)

    def test_rapid_resets(self):
        self.check_endless(lambda attacker: [
            attacker.headers(), RstStreamFrame(attacker.stream, 8)])

    def test_rapid_resets_of_whole_calls(self):
        self.check_endless(lambda attacker: [
            *attacker.call(), RstStreamFrame(attacker.stream, 8)])

    def test_calls_that_make_the_server_reset_them(self):
        """A window that grows too large is an error of its stream."""
        def whole(attacker):
            frames = attacker.call()
            return [*frames[:1], WindowUpdateFrame(attacker.stream, (1 << 31) - 1), *frames[1:]]
        self.check_endless(whole)

    def test_calls_that_make_the_server_reset_them_among_honest_ones(self):
        def mixed(attacker):
            faulty = []
            for _ in range(9):
                faulty += [attacker.headers(), WindowUpdateFrame(attacker.stream, (1 << 31) - 1)]
            return faulty + attacker.call()
        self.check_endless(mixed, at_once=20)

    def test_more_calls_than_allowed_at_once(self):
        """A peer that has seen the limit is refused; if it continues, it loses its connection."""
        with self.bystander(), Attacker(self.port) as attacker:
            code = self.flood_different(
                attacker, lambda attacker: [attacker.headers(LOOKUP_STREAM)], at_once=100)
            self.assertIn(code, (CALM, 'PROTOCOL_ERROR', '' if self.may_be_lost else CALM))


class FloodsOverTls(Floods):
    """The same floods inside TLS. If the relay still writes when the server has closed, the
    server's last frames are lost."""

    may_be_lost = True

    def setUp(self):
        OwnServerTest.setUp(self)
        authority = Authority()
        self.addCleanup(authority.remove)
        authority.issue('server', names=HERE)
        self.server = self.serve('--loops', '1', '--tls-cert', authority.path('server.pem'),
                                 '--tls-key', authority.path('server.key'))
        relay = TlsRelay(self.server.port, authority.path('ca.pem'))
        self.addCleanup(relay.close)
        self.port = relay.port
        self.authority = authority

    def bystander(self):
        return Bystander(self.server, connect=lambda: SecureClient(
            'localhost:%d' % self.server.port, self.authority))


class UnreadFloods(OwnServerTest):
    """The same floods from a peer that reads nothing: the answers owed to it are bounded."""

    def test_answers_to_frames(self):
        server = self.serve('--loops', '1', '--write-timeout-ms', '1000')
        for frame in (PingFrame(0, b'12345678'), SettingsFrame(0, {4: 65535})):
            with Bystander(server), Attacker(server.port, receive_buffer=4096) as attacker:
                piece = frame.serialize() * 1000
                deadline = time.monotonic() + SECONDS_MAX
                while attacker.send_bytes(piece):
                    self.assertLess(time.monotonic(), deadline, 'the connection was never closed')


if __name__ == '__main__':
    unittest.main()
