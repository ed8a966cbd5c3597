"""Slow, greedy and dishonest peers: each is closed or refused as it should be, the memory that it
can make the server hold is bounded, and others are served meanwhile."""

import os
import resource
import socket
import time
import unittest

import numpy as np
from hyperframe.frame import (ContinuationFrame, DataFrame, GoAwayFrame, HeadersFrame,
                              RstStreamFrame, SettingsFrame, WindowUpdateFrame)

from attacker import GOOD_MESSAGE, MIB, SECONDS_MAX, Attacker, Bystander
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import wait_until
from h2raw import (LOOKUP_STREAM, PING, PREFACE, WINDOW_UPDATE, Connection, call_fields,
                   frame, header_encode, message)
from rpc import Client, as_bytes, error_of
from served import OwnServerTest, spec_table
from table_files import Table

CALM = 'ENHANCE_YOUR_CALM'
# The receive memory of one loop in a server with sixteen loops.
LOOP_MEMORY = 64 * MIB
LARGE_COLUMNS = 4096
PING_BYTES = b'12345678'


class Dawdlers(OwnServerTest):
    """Slowloris attacks at each stage of a connection's life, with short timeouts."""

    def setUp(self):
        super().setUp()
        self.server = self.serve('--header-timeout-ms', '300', '--message-timeout-ms', '300',
                                 '--write-timeout-ms', '500', '--deadline-max-ms', '60000')

    def trickle(self, peer, data):
        """Sends byte by byte, slowly, until the server closes; returns whether it closed."""
        try:
            for byte in data:
                peer.sendall(bytes([byte]))
                peer.settimeout(0.05)  # the pace of the trickle
                try:
                    if not peer.recv(65536):
                        return True
                except socket.timeout:
                    pass
        except ConnectionError:
            return True
        peer.settimeout(SECONDS_MAX)
        return peer.recv(1) == b''

    def test_nothing_or_half_a_preface(self):
        with Bystander(self.server):
            for greeting in (b'', PREFACE[:1], PREFACE[:12], PREFACE[:-1], PREFACE):
                with socket.create_connection(('127.0.0.1', self.server.port), SECONDS_MAX) as peer:
                    peer.sendall(greeting)
                    with self.subTest(greeting):
                        self.assertEqual(self.until_closed(peer), b'')

    def until_closed(self, peer):
        """Reads until the connection ends, whatever arrives."""
        while peer.recv(65536):
            pass
        return b''

    def test_a_preface_byte_by_byte(self):
        with Bystander(self.server):
            with socket.create_connection(('127.0.0.1', self.server.port), SECONDS_MAX) as peer:
                self.assertTrue(self.trickle(peer, PREFACE))

    def test_half_a_header_block(self):
        with Bystander(self.server):
            for end in ([], ['END_STREAM']):
                with Attacker(self.server.port) as attacker:
                    head = attacker.headers()
                    attacker.send(HeadersFrame(1, head.data[:10], flags=end))
                    self.assertEqual(attacker.ending(), '')

    def test_a_header_block_byte_by_byte(self):
        with Bystander(self.server), Attacker(self.server.port) as attacker:
            head = attacker.headers(extra=[('x-long', 'a' * 200)])
            attacker.send(HeadersFrame(1, head.data[:1]))
            data = b''.join(ContinuationFrame(1, bytes([byte])).serialize()
                            for byte in head.data[1:])
            self.assertTrue(self.trickle(attacker.socket, data))

    def test_half_a_frame_head_of_headers_that_never_come(self):
        """No header block has begun, so the connection is idle, and costs no more than any idle
        connection."""
        with Bystander(self.server), Attacker(self.server.port) as attacker:
            attacker.send_bytes(b'\0\0')
            with Attacker(self.server.port) as other:
                self.assertTrue(other.is_served())

    def test_half_a_message(self):
        with Bystander(self.server):
            for size in (1, 5, 6, len(GOOD_MESSAGE) - 1):
                with Attacker(self.server.port) as attacker:
                    attacker.send(*attacker.call(GOOD_MESSAGE[:size], end=False))
                    self.assertEqual(attacker.status(1), 4)
                    self.assertTrue(attacker.is_served())

    def test_a_message_byte_by_byte(self):
        """Each byte is progress, but a message that takes too long does not count as progress."""
        with Bystander(self.server), Attacker(self.server.port) as attacker:
            attacker.send(*attacker.call(b'\0\0\x0f\xff\xff', LOOKUP_STREAM, end=False))
            attacker.socket.settimeout(0.02)  # the pace of the trickle
            deadline = time.monotonic() + SECONDS_MAX
            code = None
            while code is None:
                self.assertLess(time.monotonic(), deadline, 'the connection is still open')
                attacker.send(DataFrame(1, b'x'))
                try:
                    code = attacker.status(1)
                except socket.timeout:
                    pass
            self.assertEqual(code, 4)

    def test_what_is_no_grpc_and_never_ends(self):
        with Bystander(self.server), Attacker(self.server.port) as attacker:
            attacker.send(attacker.headers(content_type='text/plain'))
            head = attacker.wait_for(HeadersFrame, 1)
            self.assertEqual(head.fields[':status'], '415')
            self.assertTrue(attacker.is_served())

    def test_not_reading(self):
        with Bystander(self.server), Attacker(
                self.server.port, {4: (1 << 31) - 1}, receive_buffer=4096) as attacker:
            attacker.send(WindowUpdateFrame(0, 1 << 30))
            large = message(as_bytes(pb.LookupRequest(model='spec', queries=[
                pb.BagQuery(table='emb_table', num_bags=1 << 19)])))
            frames = [part for _ in range(20) for part in attacker.call(large)]
            attacker.send(*frames)
            wait_until(lambda: not attacker.send_bytes(frame(6, 1, 0, PING_BYTES)), SECONDS_MAX,
                       'a closed connection')


class Windows(OwnServerTest):
    """Flow control used against the server."""

    def setUp(self):
        super().setUp()
        self.server = self.serve('--write-timeout-ms', '500', '--outbound-bytes-max', str(4 * MIB),
                                 '--loops', '1')

    def large(self):
        """Returns a request whose answer has 256 KiB."""
        return message(as_bytes(pb.LookupRequest(model='spec', queries=[
            pb.BagQuery(table='emb_table', num_bags=32768)])))

    def test_readers_without_a_window(self):
        """Twenty connections request 1 GiB. Each may hold 4 MiB of it, and one answer more."""
        with Bystander(self.server, grows_bytes=160 * MIB):
            attackers = [Attacker(self.server.port, {4: 0}) for _ in range(20)]
            for attacker in attackers:
                attacker.send(*[part for _ in range(200) for part in attacker.call(self.large())])
            for attacker in attackers:
                # Answers that make no progress are dropped; later ones take their place, and so on.
                self.assertEqual(attacker.status(1), CALM)
                attacker.socket.close()

    def test_a_window_that_opens_by_a_byte(self):
        with Bystander(self.server), Attacker(self.server.port, {4: 0}) as attacker:
            attacker.send(*attacker.call(self.large()))
            attacker.socket.settimeout(0.02)  # the pace of the trickle
            deadline = time.monotonic() + SECONDS_MAX
            code = None
            while code is None:
                self.assertLess(time.monotonic(), deadline, 'the call is still open')
                attacker.send(WindowUpdateFrame(1, 1))
                try:
                    code = attacker.wait_for(RstStreamFrame).error_code
                except socket.timeout:
                    pass
            self.assertEqual(code, 11)

    def test_a_connection_window_that_overflows(self):
        with Bystander(self.server), Attacker(self.server.port) as attacker:
            attacker.send(WindowUpdateFrame(0, (1 << 31) - 1))
            self.assertEqual(attacker.ending(), 'FLOW_CONTROL_ERROR')

    def test_a_stream_window_that_overflows(self):
        with Bystander(self.server), Attacker(self.server.port) as attacker:
            attacker.send(attacker.headers(LOOKUP_STREAM), WindowUpdateFrame(1, (1 << 31) - 1))
            self.assertEqual(attacker.status(1), 'FLOW_CONTROL_ERROR')
            self.assertTrue(attacker.is_served())

    def test_a_window_of_nothing_more(self):
        with Bystander(self.server), Attacker(self.server.port) as attacker:
            attacker.send(WindowUpdateFrame(0, 0))
            self.assertEqual(attacker.ending(), 'PROTOCOL_ERROR')

    def test_settings_that_make_windows_overflow(self):
        with Bystander(self.server), Attacker(self.server.port) as attacker:
            attacker.send(attacker.headers(LOOKUP_STREAM), WindowUpdateFrame(1, 1 << 30),
                          SettingsFrame(0, {4: (1 << 31) - 1}))
            self.assertEqual(attacker.status(1), 'FLOW_CONTROL_ERROR')


class AnswerHoarders(OwnServerTest):
    """Peers that request answers until they are refused, and read none. The loop's answer memory is
    divided among connections, so that others are served."""

    def setUp(self):
        super().setUp()
        self.server = self.serve(
            '--loops', '1', '--answer-memory-bytes', str(128 * MIB), '--deadline-max-ms', '600000',
            '--write-timeout-ms', '600000',
            tables=[spec_table(), Table.of_values('wide', 'f32', np.ones((1, LARGE_COLUMNS)))])

    def wide(self, bags):
        """Returns a call for this many rows of 16 KiB."""
        return pb.LookupRequest(model='spec', queries=[pb.BagQuery(table='wide', num_bags=bags)])

    def hoard(self, bags, count):
        """Opens a connection that requests this many answers and reads none; returns it and its
        calls."""
        peer = Connection(self.server.port, window=0)
        self.addCleanup(peer.close)
        payload = message(as_bytes(self.wide(bags)))
        calls = [peer.call(payload) for _ in range(count)]
        peer.send(frame(PING, 0, 0, PING_BYTES))
        peer.wait_frame(PING)
        return peer, calls

    def check_others(self):
        """Checks lookups of 256 KiB, each on a new connection."""
        with Bystander(self.server, grows_bytes=128 * MIB):
            for _ in range(10):
                with Client(self.server.address) as client:
                    result, = client.lookup(self.wide(15), timeout=SECONDS_MAX).results
                    self.assertEqual(len(result.values), 15 * 4 * LARGE_COLUMNS)

    def test_of_answers_that_together_fill_the_memory(self):
        for _ in range(4):
            self.hoard(15, 250)
        for bags in (15, 7, 3, 1):
            self.hoard(bags, 250)
        self.check_others()

    def test_of_answers_that_fill_it_one_by_one(self):
        for bags in (4000, 1000, 250, 60, 15, 4, 1):
            self.hoard(bags, 20)
        self.check_others()

    def test_one_lookup_may_have_it_all(self):
        server = self.serve('--loops', '2', '--answer-memory-bytes', str(128 * MIB))
        with Client(server.address) as client:
            for _ in range(2):
                result, = client.lookup(self.wide(3900), timeout=SECONDS_MAX).results
                self.assertEqual(len(result.values), 3900 * 4 * LARGE_COLUMNS)

    def test_one_that_reads_at_last_gets_all(self):
        """This peer waits beside others that never read."""
        self.hoard(15, 250)
        late, calls = self.hoard(15, 250)
        self.hoard(15, 250)
        room = (1 << 30).to_bytes(4, 'big')
        late.send(b''.join(frame(WINDOW_UPDATE, 0, stream, room)
                           for stream in [0] + calls))
        self.assertEqual({late.status(call)[1] for call in calls}, {0})


class Resets(OwnServerTest):
    """RST_STREAM and GOAWAY at unexpected times."""

    def setUp(self):
        super().setUp()
        table = Table.of_values('large', 'f32', np.zeros((8, LARGE_COLUMNS)))
        self.server = self.serve('--loops', '1', '--inline-below-us', '0',
                                 tables=[spec_table(), table])
        # A request whose answer has 4 MiB.
        self.large = message(as_bytes(pb.LookupRequest(model='spec', queries=[
            pb.BagQuery(table='large', num_bags=256)])))

    def test_in_the_middle_of_answers(self):
        with Bystander(self.server, grows_bytes=64 * MIB):
            with Attacker(self.server.port, {4: 100000}) as attacker:
                attacker.send(WindowUpdateFrame(0, 1 << 30))
                for _ in range(200):
                    attacker.send(*attacker.call(self.large))
                    attacker.wait_for(DataFrame, attacker.stream)
                    attacker.send(RstStreamFrame(attacker.stream, 8))
                self.assertTrue(attacker.is_served())

    def test_of_an_idle_stream(self):
        with Bystander(self.server), Attacker(self.server.port) as attacker:
            attacker.send(RstStreamFrame(99, 8))
            self.assertEqual(attacker.ending(), 'PROTOCOL_ERROR')

    def test_data_after_a_reset(self):
        with Bystander(self.server), Attacker(self.server.port) as attacker:
            head, data = attacker.call()
            attacker.send(head, RstStreamFrame(1, 8), data)
            self.assertTrue(self.is_served_or_ended(attacker))

    def is_served_or_ended(self, attacker):
        """Returns whether the connection is served, or was closed with STREAM_CLOSED."""
        try:
            return attacker.is_served()
        except (EOFError, ConnectionError):
            return attacker.goaway == 'STREAM_CLOSED'

    def test_connections_that_go_in_the_middle_of_answers(self):
        with Bystander(self.server, grows_bytes=64 * MIB):
            for _ in range(30):
                with Attacker(self.server.port, {4: 1 << 30}) as attacker:
                    attacker.send(WindowUpdateFrame(0, 1 << 30), *attacker.call(self.large),
                                  *attacker.call(self.large))
                    attacker.wait_for(DataFrame)

    def test_a_goaway_lets_what_is_asked_be_answered(self):
        with Bystander(self.server), Attacker(self.server.port) as attacker:
            attacker.send(*attacker.call(), *attacker.call(), GoAwayFrame(0, 0, 0))
            self.assertEqual([attacker.status() for _ in range(2)], [0, 0])
            attacker.socket.shutdown(socket.SHUT_WR)
            attacker.ending()

    def test_a_goaway_and_no_reading(self):
        with Bystander(self.server), Attacker(self.server.port, {4: 0}) as attacker:
            attacker.send(*attacker.call(self.large), GoAwayFrame(0, 0, 11))


class HeaderBombs(OwnServerTest):
    """Header blocks that are small on the wire and large in memory, or simply large."""

    def setUp(self):
        super().setUp()
        self.server = self.serve('--loops', '1')

    def refused(self, attacker, *frames):
        """Returns whether such a call is refused and the connection stays, or the connection is
        closed because of it."""
        try:
            attacker.send(*frames)
            code = attacker.status(frames[0].stream_id)
            return code == 8 and attacker.is_served()
        except (EOFError, ConnectionError):
            return attacker.goaway in (CALM, 'COMPRESSION_ERROR', '')

    def split(self, stream, block):
        """Returns HEADERS and CONTINUATION of a block."""
        pieces = [block[at:at + 16384] for at in range(0, len(block), 16384)]
        frames = [HeadersFrame(stream, pieces[0], flags=['END_STREAM'])]
        frames += [ContinuationFrame(stream, piece) for piece in pieces[1:]]
        frames[-1].flags.add('END_HEADERS')
        return frames

    def test_one_large_entry_many_times(self):
        """An entry of 4 KiB in the dynamic table, and one byte for each of its 16 000 uses: 64
        MiB."""
        with Bystander(self.server):
            for _ in range(50):
                with Attacker(self.server.port) as attacker:
                    first = attacker.headers(extra=[('x-bomb', 'a' * 3900)])
                    attacker.send(first, DataFrame(1, GOOD_MESSAGE, flags=['END_STREAM']))
                    self.assertEqual(attacker.status(1), 0)
                    second = attacker.headers()
                    block = second.data + b'\xbe' * 16000
                    self.assertTrue(self.refused(attacker, *self.split(3, block)))

    def test_many_fields(self):
        with Bystander(self.server), Attacker(self.server.port) as attacker:
            head = attacker.headers(extra=[('x-%d' % n, '') for n in range(3000)])
            self.assertTrue(self.refused(attacker, *self.split(1, head.data)))

    def test_huge_fields(self):
        with Bystander(self.server):
            for size in (20000, 60000, 300000, 3000000):
                with Attacker(self.server.port) as attacker:
                    block = attacker.headers().data + header_encode([('x-huge', 'X' * size)])
                    self.assertTrue(self.refused(attacker, *self.split(1, block)))

    def test_a_table_larger_than_allowed(self):
        with Bystander(self.server), Attacker(self.server.port) as attacker:
            block = b'\x3f\xff\xff\xff\x7f' + attacker.headers().data
            attacker.send(HeadersFrame(1, block, flags=['END_HEADERS']))
            self.assertEqual(attacker.ending(), 'COMPRESSION_ERROR')

    def test_a_peer_that_allows_a_huge_table(self):
        """The server itself decides how large a table it keeps for its own headers."""
        with Bystander(self.server):
            for _ in range(50):
                with Attacker(self.server.port, {1: (1 << 32) - 1}) as attacker:
                    self.assertTrue(attacker.is_served())

    def test_trailers_as_a_bomb(self):
        with Bystander(self.server), Attacker(self.server.port) as attacker:
            attacker.send(*attacker.call(end=False))
            block = attacker.encoder.encode([('x-%d' % n, 'a' * 100) for n in range(500)])
            attacker.send(*self.split(1, block))
            try:
                self.assertIn(attacker.status(1), (0, 8, 'PROTOCOL_ERROR', CALM))
            except (EOFError, ConnectionError):
                self.assertIn(attacker.goaway, (CALM, ''))


class Unended(OwnServerTest):
    """Calls that are begun and never ended."""

    def test_calls_that_never_end(self):
        """The message is complete, but the peer never half-closes. The calls end at their
        deadline."""
        server = self.serve('--deadline-max-ms', '500')
        with Bystander(server), Attacker(server.port) as attacker:
            for _ in range(100):
                attacker.send(*attacker.call(end=False))
            self.assertEqual({attacker.status() for _ in range(100)}, {4})


class Hoarders(OwnServerTest):
    """Connections and memory that are taken and not used."""

    def raise_open_files(self):
        """Raises the limit of open files to the number that the test needs."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))

    def open_sockets(self, server, count):
        """Opens connections that send nothing."""
        peers = []
        for _ in range(count):
            peers.append(socket.create_connection(('127.0.0.1', server.port), SECONDS_MAX))
            self.addCleanup(peers[-1].close)
        return peers

    def test_connections_up_to_the_limit_and_past_it(self):
        self.raise_open_files()
        server = self.serve('--connections-max', '200', '--header-timeout-ms', '1000')
        with Client(server.address) as client:
            client.lookup(pb.LookupRequest(model='spec', queries=[
                pb.BagQuery(table='emb_table', indices=[0], num_bags=1)]))
            peers = self.open_sockets(server, 500)
            # Existing calls are served. Silent connections are closed, those past the limit at
            # once.
            for peer in peers:
                self.assertTrue(client.lookup(pb.LookupRequest(model='spec', queries=[
                    pb.BagQuery(table='emb_table', indices=[0], num_bags=1)])).results)
                self.assertEqual(self.end_of(peer), b'')
        # There is room for new connections.
        with Bystander(server):
            pass

    def end_of(self, peer):
        """Returns what a silent peer reads before its connection ends."""
        try:
            return peer.recv(1)
        except ConnectionError:
            return b''

    def test_connections_that_come_and_go(self):
        self.raise_open_files()
        server = self.serve('--loops', '1')
        with Bystander(server):
            for number in range(2000):
                peer = socket.create_connection(('127.0.0.1', server.port), SECONDS_MAX)
                peer.sendall((b'', PREFACE, PREFACE + frame(4, 0, 0), os.urandom(50))[number % 4])
                peer.close()

    def hoard(self, server):
        """Opens a connection that begins as many large messages as it can."""
        peer = Connection(server.port)
        piece = b'\0\x01\0\0\0' + bytes(1000)
        streams = [peer.open(path) for path in [self.stream_fields()] * 250]
        peer.send(b''.join(frame(0, 0, stream, piece) for stream in streams))
        return peer

    def stream_fields(self):
        """Returns the header fields of a LookupStream."""
        return call_fields(LOOKUP_STREAM)

    def test_one_connection_does_not_fill_the_receive_memory(self):
        """One connection announces 250 messages of 16 MiB. Each announcement would reserve 256 KiB
        at once; together they would reserve all the memory of one of sixteen loops. Announcements
        beyond the connection's share are refused; others send whatever they like."""
        server = self.serve('--loops', '1', '--receive-memory-bytes', str(LOOP_MEMORY))
        large = pb.LookupRequest(model='spec', queries=[pb.BagQuery(
            table='emb_table', indices_i32=bytes(15 * MIB), num_bags=1)])
        with Bystander(server, grows_bytes=LOOP_MEMORY), Client(server.address) as client:
            with self.hoard(server) as peer:
                self.assertEqual(peer.status(499)[1], 8)
                # A lookup of 3.9 million rows.
                self.assertEqual(len(client.lookup(large).results), 1)

    def test_several_connections_do_not_either(self):
        server = self.serve('--loops', '1', '--receive-memory-bytes', str(LOOP_MEMORY))
        medium = pb.LookupRequest(model='spec', queries=[pb.BagQuery(
            table='emb_table', indices_i32=bytes(400000), num_bags=1)])
        with Bystander(server, grows_bytes=2 * LOOP_MEMORY), Client(server.address) as client:
            peers = [self.hoard(server) for _ in range(4)]
            for peer in peers:
                self.assertEqual(peer.status(499)[1], 8)
            self.assertEqual(len(client.lookup(medium).results), 1)
            for peer in peers:
                peer.close()

    def test_what_was_hoarded_is_there_again(self):
        server = self.serve('--loops', '1', '--receive-memory-bytes', str(LOOP_MEMORY))
        large = pb.LookupRequest(model='spec', queries=[pb.BagQuery(
            table='emb_table', indices_i32=bytes(15 * MIB), num_bags=1)])
        with Client(server.address) as client:
            for _ in range(3):
                with self.hoard(server) as peer:
                    peer.status(499)
                wait_until(lambda: self.is_taken(client, large), SECONDS_MAX, 'a large request')

    def is_taken(self, client, request):
        """Returns whether the request is answered. Memory that is still held may prevent it."""
        try:
            return bool(client.lookup(request).results)
        except Exception:  # pylint: disable=broad-except
            return error_of(client.lookup, request)[0].name != 'RESOURCE_EXHAUSTED'


if __name__ == '__main__':
    unittest.main()
