"""HTTP/2 by hand, for frames that no client library would send.

A connection is a plain socket, and a test writes its frames itself. Header fields are sent as
literals. Answers are decoded with HPACK's static table only, because our SETTINGS allow the server
no dynamic table.
"""

import socket
import struct
from collections import namedtuple

PREFACE = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = \
    range(10)
END_STREAM = ACK = 1
END_HEADERS = 4
LOOKUP = '/embag.v1.EmbeddingBag/Lookup'
LOOKUP_STREAM = '/embag.v1.EmbeddingBag/LookupStream'

# Entries of HPACK's static table to which an answer may refer.
STATIC = {8: (':status', '200'), 9: (':status', '204'), 10: (':status', '206'),
          11: (':status', '304'), 12: (':status', '400'), 13: (':status', '404'),
          14: (':status', '500'), 28: ('content-length', ''), 31: ('content-type', ''),
          33: ('date', ''), 54: ('server', '')}

# Printable characters by the length of their Huffman code. HPACK uses the canonical code.
HUFFMAN_LENGTHS = {
    5: '012aceiost', 6: ' %-./3456789=A_bdfghlmnpru', 7: ':BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz',
    8: '&*,;XZ', 10: '!"()?', 11: "'+|", 12: '#>', 13: '\0$@[]~', 14: '^}', 15: '<`{',
}

Frame = namedtuple('Frame', 'type flags stream payload')


def _huffman_codes():
    codes, code, last = {}, 0, 0
    for length, characters in HUFFMAN_LENGTHS.items():
        code <<= length - last
        for character in characters:
            codes[length, code] = character
            code += 1
        last = length
    return codes


HUFFMAN = _huffman_codes()


def huffman_decode(data):
    """Returns the text of a Huffman-coded string."""
    text, code, length = '', 0, 0
    for byte in data:
        for bit in range(7, -1, -1):
            code, length = code << 1 | byte >> bit & 1, length + 1
            if (length, code) in HUFFMAN:
                text += HUFFMAN[length, code]
                code = length = 0
    return text


def _integer(data, at, bits):
    value, at = data[at] & (1 << bits) - 1, at + 1
    if value < (1 << bits) - 1:
        return value, at
    shift = 0
    while True:
        value += (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at


def _string(data, at):
    coded = data[at] & 128
    size, at = _integer(data, at, 7)
    body = data[at:at + size]
    return huffman_decode(body) if coded else body.decode('latin-1'), at + size


def header_decode(block):
    """Returns the fields of a header block as a dict."""
    fields, at = {}, 0
    while at < len(block):
        first = block[at]
        if first & 0xe0 == 0x20:  # a change of the dynamic table's size
            _, at = _integer(block, at, 5)
            continue
        index, at = _integer(block, at, 7 if first & 128 else 6 if first & 64 else 4)
        name, value = STATIC.get(index, (None, None))
        if not first & 128:
            if index == 0:
                name, at = _string(block, at)
            value, at = _string(block, at)
        fields[name] = value
    return fields


def header_encode(fields):
    """Returns a header block of literals without indexing. `fields` are pairs of text or bytes."""
    block = b''
    for pair in fields:
        block += b'\0'
        for text in pair:
            text = text.encode() if isinstance(text, str) else text
            size = len(text)
            if size < 127:
                block += bytes([size])
            else:
                size -= 127
                block += b'\x7f'
                while size > 127:
                    block += bytes([size & 127 | 128])
                    size >>= 7
                block += bytes([size])
            block += text
    return block


def frame(kind, flags, stream, payload=b''):
    """Returns the bytes of one frame."""
    return struct.pack('>I', len(payload))[1:] + struct.pack('>BBI', kind, flags, stream) + payload


def message(data, flag=0):
    """Returns a gRPC message with its prefix."""
    return struct.pack('>BI', flag, len(data)) + data


def call_fields(path=LOOKUP, **changes):
    """Returns the header fields of a call.

    `changes` replaces fields by name, with '_' for '-'; None leaves a field out.
    """
    fields = {':method': 'POST', ':scheme': 'http', ':path': path, ':authority': 'test',
              'te': 'trailers', 'content-type': 'application/grpc'}
    fields.update({key.replace('_', '-'): value for key, value in changes.items()})
    return [(key, value) for key, value in fields.items() if value is not None]


class Connection:
    """A connection on which preface and SETTINGS have been exchanged.

    `data` respects the connection's window. It ignores the windows of streams, which have room for
    a whole message.
    """

    def __init__(self, port, window=1 << 20, timeout=30):
        self.socket = socket.create_connection(('127.0.0.1', port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = -1
        self.waiting = []
        self.send_window = 65535
        settings = struct.pack('>HI', 1, 0) + struct.pack('>HI', 4, window)
        self.greet(PREFACE + frame(SETTINGS, 0, 0, settings))

    def greet(self, greeting):
        """Sends preface and SETTINGS, and waits for the server's SETTINGS."""
        self.send(greeting)
        while self.read_frame().type != SETTINGS:
            pass

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        """Closes the socket."""
        self.socket.close()

    def send(self, data):
        """Sends bytes unchanged."""
        self.socket.sendall(data)

    def open(self, fields=None, flags=END_HEADERS, extra=()):
        """Begins a call. Returns the id of its stream."""
        self.stream += 2
        block = header_encode(list(fields or call_fields()) + list(extra))
        self.send(frame(HEADERS, flags, self.stream, block))
        return self.stream

    def data(self, stream, payload, end=True):
        """Sends DATA in frames of at most 16 KiB."""
        at = 0
        while True:
            while at < len(payload) and not self.send_window:
                self.keep(self.read_frame())
            piece = payload[at:at + min(16384, self.send_window)]
            self.send_window -= len(piece)
            at += len(piece)
            last = at == len(payload)
            self.send(frame(DATA, END_STREAM if end and last else 0, stream, piece))
            if last:
                return

    def call(self, payload, fields=None, extra=(), end=True):
        """Sends a call with its DATA. Returns the id of its stream."""
        stream = self.open(fields, extra=extra)
        self.data(stream, payload, end)
        return stream

    def receive(self, count):
        """Returns exactly `count` bytes. Raises EOFError if the server closes the connection."""
        data = b''
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise EOFError('connection closed')
            data += more
        return data

    def read_frame(self):
        """Returns the next frame. Acknowledges SETTINGS and PING, and keeps windows open."""
        head = self.receive(9)
        kind, flags, stream = struct.unpack('>BBI', head[3:])
        got = Frame(kind, flags, stream, self.receive(int.from_bytes(head[:3], 'big')))
        if kind in (SETTINGS, PING) and not flags & ACK:
            self.send(frame(kind, ACK, 0, got.payload if kind == PING else b''))
        if kind == WINDOW_UPDATE and not stream:
            self.send_window += int.from_bytes(got.payload, 'big')
        if kind == DATA and got.payload:
            credit = struct.pack('>I', len(got.payload))
            self.send(frame(WINDOW_UPDATE, 0, 0, credit)
                      + (b'' if flags & END_STREAM else frame(WINDOW_UPDATE, 0, stream, credit)))
        return got

    def keep(self, got):
        """Stores a frame of a stream for a later read of that stream."""
        if got.stream:
            self.waiting.append(got)

    def wait_frame(self, kind):
        """Returns the next unread frame of a kind. Frames of streams stay stored."""
        kept = [got for got in self.waiting if got.type == kind]
        while not kept:
            got = self.read_frame()
            self.keep(got)
            kept = [got] if got.type == kind else []
        return kept[0]

    def finish(self, stream):
        """Reads a call to its end.

        Returns its header fields and trailers in one dict, and its DATA. After a reset, the dict
        has the error code as 'reset'.
        """
        fields, body = {}, b''
        while True:
            got = self.next_of(stream)
            if got.type == HEADERS:
                fields.update(header_decode(got.payload))
            if got.type == DATA:
                body += got.payload
            if got.type == RST_STREAM:
                fields['reset'] = int.from_bytes(got.payload, 'big')
                return fields, body
            if got.flags & END_STREAM and got.type in (HEADERS, DATA):
                return fields, body

    def next_of(self, stream):
        """Returns the next frame of a stream, and stores the frames of others."""
        for number, got in enumerate(self.waiting):
            if got.stream == stream:
                return self.waiting.pop(number)
        while True:
            got = self.read_frame()
            if got.stream == stream:
                return got
            self.keep(got)

    def status(self, stream):
        """Reads a call to its end.

        Returns HTTP status, gRPC status and text; or 'reset', None and the code after a reset.
        """
        fields, _ = self.finish(stream)
        if 'grpc-status' not in fields and 'reset' in fields:
            return 'reset', None, fields['reset']
        code = fields.get('grpc-status')
        return fields.get(':status'), code and int(code), fields.get('grpc-message', '')

    def is_closed(self):
        """Reads until the server closes the connection. Returns False after a timeout."""
        try:
            while True:
                self.read_frame()
        except (EOFError, ConnectionError):
            return True
        except socket.timeout:
            return False
