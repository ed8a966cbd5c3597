"""A hostile HTTP/2 peer, and a bystander that checks that others are served meanwhile.

It uses Python's h2 libraries: hyperframe builds the frames, because h2's own state machine would
refuse them, and hpack the headers.
"""

import os
import socket
import threading

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.settings import SettingCodes, Settings
from hpack import Decoder, Encoder
from hyperframe.exceptions import HyperframeError
from hyperframe.frame import (DataFrame, Frame, GoAwayFrame, HeadersFrame, PingFrame,
                              RstStreamFrame, SettingsFrame)

import embagd_process
from embag.v1 import embedding_bag_pb2 as pb
from h2raw import LOOKUP, call_fields, message
from h2raw import frame as raw_frame
from rpc import Client, as_bytes
from served import SPEC_TABLE

# A lookup in the specification's table, and its answer: the sum of rows 0 and 2.
GOOD = pb.LookupRequest(model='spec', queries=[
    pb.BagQuery(table='emb_table', indices=[0, 2], num_bags=1)])
GOOD_MESSAGE = message(as_bytes(GOOD))
GOOD_VALUES = [a + b for a, b in zip(SPEC_TABLE[0], SPEC_TABLE[2])]
MIB = 1 << 20
SECONDS_MAX = 60  # for events that must happen at once, with room for a slow machine


def resident_bytes(pid):
    """Returns the resident memory of the process."""
    with open('/proc/%d/statm' % pid, encoding='ascii') as file:
        return int(file.read().split()[1]) * os.sysconf('SC_PAGE_SIZE')


class Bystander:
    """Sends lookups all the time, on connections of its own, and checks every answer.

    At the end, once the server has seen the attackers' connections end, its process must not have
    grown by more than `grows_bytes`. `connect` returns a new connection.
    """

    def __init__(self, server, grows_bytes=32 * MIB, connect=None):
        self.server = server
        self.connect = connect or (lambda: Client(server.address))
        self.grows_bytes = grows_bytes
        self.answers = 0
        self.errors = []
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        try:
            with self.connect() as client:
                while not self.is_over.is_set():
                    self._ask(client)
            with self.connect() as client:
                self._ask(client)
        except Exception as error:  # pylint: disable=broad-except
            self.errors.append(error)

    def _ask(self, client):
        result, = client.lookup(GOOD, timeout=SECONDS_MAX).results
        values = memoryview(result.values).cast('f')
        if any(abs(a - b) > 1e-5 for a, b in zip(values, GOOD_VALUES)) or len(values) != 2:
            raise AssertionError('wrong answer: %s' % list(values))
        self.answers += 1

    def __enter__(self):
        with self.connect() as client:
            self._ask(client)
        self.before_bytes = resident_bytes(self.server.pid)
        self.answers = 0
        self.thread.start()
        return self

    def __exit__(self, kind, *exception):
        self.is_over.set()
        self.thread.join()
        if kind:
            return
        if self.server.has_ended():
            raise AssertionError('embagd ended:\n' + self.server.log[-4000:])
        if self.errors or not self.answers:
            raise AssertionError('the bystander was not served: %s' % self.errors)
        if not embagd_process.SANITIZE:
            most = self.before_bytes + self.grows_bytes
            embagd_process.wait_until(lambda: resident_bytes(self.server.pid) <= most, SECONDS_MAX,
                                      'embagd to use at most %d bytes' % most)


class RawFrame:
    """A frame of any type and payload."""

    def __init__(self, kind, stream, data=b''):
        self.parts = kind, 0, stream, data

    def serialize(self):
        """Returns the bytes of the frame."""
        return raw_frame(*self.parts)


class Attacker:
    """One hostile connection. It sends `settings` with the preface."""

    def __init__(self, port, settings=None, receive_buffer=None):
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(SECONDS_MAX)
        self.socket.connect(('127.0.0.1', port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.encoder = Encoder()
        self.decoder = Decoder()
        self.stream = -1
        self.goaway = ''
        self.received = b''
        greeting = H2Connection(H2Configuration(client_side=True))
        greeting.local_settings = Settings(
            client=True, initial_values={SettingCodes.ENABLE_PUSH: 0, **(settings or {})})
        greeting.initiate_connection()
        self.send_bytes(greeting.data_to_send())
        self.wait_for(SettingsFrame)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.socket.close()

    def send_bytes(self, data):
        """Sends bytes unchanged. Returns False if the server has closed the connection."""
        try:
            self.socket.sendall(data)
            return True
        except (BrokenPipeError, ConnectionResetError):
            return False

    def send(self, *frames):
        """Sends frames in one piece. Returns False if the server has closed the connection."""
        return self.send_bytes(b''.join(frame.serialize() for frame in frames))

    def headers(self, path=LOOKUP, end=False, extra=(), **changes):
        """Returns a HEADERS frame that begins the next call."""
        self.stream += 2
        fields = list(call_fields(path, **changes)) + list(extra)
        flags = ['END_HEADERS', 'END_STREAM'] if end else ['END_HEADERS']
        return HeadersFrame(self.stream, self.encoder.encode(fields), flags=flags)

    def call(self, data=GOOD_MESSAGE, path=LOOKUP, end=True):
        """Returns the frames of a whole call."""
        head = self.headers(path)
        return [head, DataFrame(self.stream, data, flags=['END_STREAM'] if end else [])]

    def read_frame(self):
        """Returns the next frame as a hyperframe object.

        Answers SETTINGS and PING. Raises EOFError if the server closes the connection.
        """
        head = self._receive(9)
        try:
            frame, size = Frame.parse_frame_header(memoryview(head))
            frame.parse_body(memoryview(self._receive(size)))
        except HyperframeError as error:
            raise AssertionError('the server sent a faulty frame: %r' % error) from error
        if isinstance(frame, SettingsFrame) and 'ACK' not in frame.flags:
            self.send(SettingsFrame(0, flags=['ACK']))
        if isinstance(frame, PingFrame) and 'ACK' not in frame.flags:
            self.send(PingFrame(0, frame.opaque_data, flags=['ACK']))
        if isinstance(frame, GoAwayFrame):
            self.goaway = ErrorCodes(frame.error_code).name
        return frame

    def _receive(self, count):
        while len(self.received) < count:
            more = self.socket.recv(65536)
            if not more:
                raise EOFError('closed')
            self.received += more
        data, self.received = self.received[:count], self.received[count:]
        return data

    def wait_for(self, kind, stream=None):
        """Returns the next frame of a class, on any stream or on `stream`, and skips others."""
        while True:
            frame = self.read_frame()
            if isinstance(frame, HeadersFrame):
                frame.fields = dict(self.decoder.decode(frame.data))
            if isinstance(frame, kind) and stream in (None, frame.stream_id):
                return frame

    def status(self, stream=None):
        """Waits for the end of a call on `stream`, or of any call if it is None.

        Returns its gRPC status, or the name of the reset's error code. Frames of other streams that
        arrive meanwhile are lost.
        """
        while True:
            frame = self.wait_for((HeadersFrame, RstStreamFrame), stream)
            if isinstance(frame, RstStreamFrame):
                return ErrorCodes(frame.error_code).name
            if 'grpc-status' in frame.fields:
                return int(frame.fields['grpc-status'])

    def settle(self):
        """Waits until the server has processed everything that was sent."""
        self.send(PingFrame(0, b'settled!'))
        while 'ACK' not in self.wait_for(PingFrame).flags:
            pass

    def is_served(self):
        """Returns whether the server still answers a call on this connection."""
        self.send(*self.call())
        return self.status(self.stream) == 0

    def ending(self):
        """Reads until the server closes the connection.

        Returns the name of the GOAWAY's error code, or '' without a GOAWAY. Raises socket.timeout
        if the server does not close.
        """
        try:
            while True:
                self.read_frame()
        except (EOFError, ConnectionError):
            return self.goaway

    def flood(self, frames, count):
        """Sends the frames `count` times, and reads, until the server closes the connection.

        Returns the name of the GOAWAY's error code, '' if the server closed without a GOAWAY, or
        None if it did not close.
        """
        piece = b''.join(frame.serialize() for frame in frames)
        at_once = max(1, 65536 // len(piece))
        codes = []
        reader = threading.Thread(target=lambda: codes.append(self.ending()), daemon=True)
        reader.start()
        for _ in range(0, count, at_once):
            if not reader.is_alive() or not self.send_bytes(piece * at_once):
                break
        reader.join()
        return codes[0] if codes else None
