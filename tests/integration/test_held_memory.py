"""The memory that one peer can make the server hold, with messages that it does not end and answers
that it does not read."""

import socket
import struct
import time
import unittest

from embag.v1 import embedding_bag_pb2 as pb
from h2raw import (DATA, END_STREAM, HEADERS, LOOKUP_STREAM, RST_STREAM, WINDOW_UPDATE, Connection,
                   call_fields, frame, header_decode, message)
from rpc import as_bytes
from served import OwnServerTest

ROWS = 32768
GOOD = pb.LookupRequest(model='spec', queries=[
    pb.BagQuery(table='emb_table', indices=[0, 2], num_bags=1)])
# A request whose answer has 256 KiB.
LARGE = pb.LookupRequest(model='spec', queries=[
    pb.BagQuery(table='emb_table', num_bags=ROWS)])
MIB = 1 << 20


class UnendedCalls(OwnServerTest):
    """Unary calls with a whole message whose peer does not half-close the stream."""

    def test_a_call_that_is_not_ended_has_a_deadline(self):
        server = self.serve('--deadline-max-ms', '500')
        with Connection(server.port) as peer:
            silent = peer.open()
            waiting = peer.call(message(as_bytes(GOOD)), end=False)
            started = time.monotonic()
            self.assertEqual(peer.status(silent)[1], 4)
            self.assertEqual(peer.status(waiting)[1], 4)
            self.assertGreater(time.monotonic() - started, 0.4)
            self.assertEqual(peer.status(peer.call(message(as_bytes(GOOD))))[1], 0)

    def test_messages_that_are_not_ended_are_bounded(self):
        server = self.serve('--request-bytes-max', '65536')
        request = pb.LookupRequest(model='spec', queries=[pb.BagQuery(
            table='emb_table', indices_i32=bytes(60000), num_bags=1)])
        with Connection(server.port) as peer:
            held = [peer.call(message(as_bytes(request)), end=False) for _ in range(3)]
            self.assertEqual(peer.status(held[2])[1], 8)
            # The other calls are answered once the peer ends them.
            for stream in held[:2]:
                peer.data(stream, b'')
                self.assertEqual(peer.status(stream)[1], 0)


class UnreadAnswers(OwnServerTest):
    """Answers for a peer whose windows are closed."""

    def open_windows(self, peer, streams):
        """Opens the windows of the connection and of these streams."""
        room = struct.pack('>I', (1 << 30))
        peer.send(b''.join(frame(WINDOW_UPDATE, 0, stream, room) for stream in [0] + streams))

    def test_unary_calls_wait_beyond_the_cap(self):
        server = self.serve('--outbound-bytes-max', str(MIB), '--answer-memory-bytes', '134217728',
                            '--response-bytes-max', str(4 * MIB))
        large = pb.LookupRequest(model='spec', queries=[
            pb.BagQuery(table='emb_table', num_bags=8 * ROWS)])
        with Connection(server.port, window=0) as peer:
            # 200 MiB of answers, more than the memory that is allowed for them.
            calls = [peer.call(message(as_bytes(large))) for _ in range(100)]
            with self.connect(server) as client:
                self.assertEqual(len(client.lookup(GOOD).results), 1)
            self.open_windows(peer, calls)
            self.assertEqual([peer.status(call)[1] for call in calls], [0] * 100)

    def test_a_call_that_waits_has_a_deadline(self):
        server = self.serve('--outbound-bytes-max', str(MIB), '--deadline-max-ms', '1000')
        with Connection(server.port, window=0) as peer:
            calls = [peer.call(message(as_bytes(LARGE))) for _ in range(12)]
            self.assertEqual([peer.status(call)[1] for call in calls[5:]], [4] * 7)

    def test_a_stream_is_not_read_further_and_goes_on_later(self):
        server = self.serve('--outbound-bytes-max', str(MIB), '--answer-memory-bytes', '134217728')
        count = 600  # 150 MiB of answers, more than the memory that is allowed for them
        with Connection(server.port, window=0, timeout=60) as peer:
            stream = peer.open(call_fields(LOOKUP_STREAM))
            for number in range(count):
                LARGE.request_id = number + 1
                peer.data(stream, message(as_bytes(LARGE)), end=False)
            peer.data(stream, b'')
            with self.connect(server) as client:
                self.assertEqual(len(client.lookup(GOOD).results), 1)
            self.open_windows(peer, [stream])
            self.assertGreater(self.read_all(peer), count * ROWS * 8)

    def read_all(self, peer):
        """Reads DATA until the call ends, which must be with status OK; returns the number of
        bytes."""
        total = 0
        while True:
            got = peer.read_frame()
            total += len(got.payload) if got.type == DATA else 0
            if got.type == HEADERS and got.flags & END_STREAM:
                self.assertEqual(header_decode(got.payload)['grpc-status'], '0')
                return total

    def test_streams_take_turns(self):
        server = self.serve('--in-flight-max', '2', '--inline-below-us', '0')
        requests = [pb.LookupRequest(request_id=number, model='spec', queries=[
            pb.BagQuery(table='emb_table', num_bags=4096)]) for number in range(200)]
        with Connection(server.port, window=1 << 30) as peer:
            self.open_windows(peer, [])
            streams = [peer.open(call_fields(LOOKUP_STREAM)) for _ in range(2)]
            # The streams send some requests in turn, so that none has a head start on a slow
            # machine.
            for first in range(0, len(requests), 20):
                piece = b''.join(message(as_bytes(each)) for each in requests[first:first + 20])
                for stream in streams:
                    peer.data(stream, piece, end=False)
            for stream in streams:
                peer.data(stream, b'')
            got = dict.fromkeys(streams, 0)
            ended = None
            while not ended:
                read = peer.read_frame()
                got[read.stream] = got.get(read.stream, 0) + len(read.payload)
                ended = read.type == HEADERS and read.flags & END_STREAM and read.stream
            # On a slow machine one stream may have a head start of half the answers. Without
            # fairness it would get all of them.
            self.assertGreater(min(got[stream] for stream in streams), got[ended] // 3)

    def test_a_trickle_from_the_socket_is_no_progress(self):
        server = self.serve('--write-timeout-ms', '1000')
        with Connection(server.port, window=1 << 30, timeout=1) as peer:
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2304)
            self.open_windows(peer, [])
            for _ in range(40):
                peer.call(message(as_bytes(LARGE)))
            deadline = time.monotonic() + 20
            while self.takes_a_little(peer):
                self.assertLess(time.monotonic(), deadline, 'the connection is still open')
                time.sleep(0.1)  # the pace of the trickle

    def takes_a_little(self, peer):
        """Reads some bytes; returns False if the server closed the connection."""
        try:
            return peer.socket.recv(600) != b''
        except socket.timeout:
            return True  # the system sends at its own pace with so small a buffer
        except ConnectionError:
            return False

    def test_a_trickle_is_no_progress(self):
        server = self.serve('--write-timeout-ms', '1000')
        with Connection(server.port, window=0) as peer:
            stream = peer.call(message(as_bytes(LARGE)))
            deadline = time.monotonic() + 20
            while not any(got.type == RST_STREAM and got.stream == stream for got in peer.waiting):
                self.assertLess(time.monotonic(), deadline, 'the call is still open')
                peer.send(frame(WINDOW_UPDATE, 0, stream, b'\x00\x00\x00\x01'))
                peer.keep(peer.read_frame())
                time.sleep(0.05)  # the pace of the trickle
            self.assertEqual(peer.status(stream)[0], 'reset')


if __name__ == '__main__':
    unittest.main()
