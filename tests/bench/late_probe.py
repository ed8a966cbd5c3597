"""Measures whether answers leave a server after their deadline.

    late_probe.py PORT REQUEST TIMEOUT_US RATE SECONDS

It sends lookups on a LookupStream, each with the timeout, and prints one JSON object: the numbers
of lookups sent, answered and refused, the number of late answers, the longest time of an answer,
and the longest time in the server as it reports it. The kernel records
arrival times when the server's write reaches the socket, so a slow probe does not change them.
REQUEST is a file with one lookup, framed for gRPC. tests/lib must be on PYTHONPATH.
"""

import json
import select
import socket
import struct
import sys
import time

from h2raw import (DATA, LOOKUP_STREAM, WINDOW_UPDATE, Connection, call_fields, frame)

SO_TIMESTAMPNS = 35        # not defined by Python's socket module
WIDE = 1 << 30
RECEIVE_BYTES = 1 << 16
PREFIX_BYTES = 5
DRAIN_SECONDS = 1
REQUEST_ID, ERROR_CODE, TIMEOUT_US = 1, 6, 9
QUEUE_US, COMPUTE_US = 13, 14


def now_ns():
    """Returns the time of the clock that the kernel uses for arrival times."""
    return time.clock_gettime_ns(time.CLOCK_REALTIME)


def varint(value):
    """Returns the protobuf encoding of an integer."""
    out = b''
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def read_varint(data, at):
    """Returns an integer and the position after it."""
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at


def read_fields(message):
    """Returns the integer fields of a message by number; other fields are None."""
    fields, at = {}, 0
    while at < len(message):
        key, at = read_varint(message, at)
        value = None
        if key & 7 == 0:
            value, at = read_varint(message, at)
        elif key & 7 == 2:
            size, at = read_varint(message, at)
            at += size
        else:
            at += 8 if key & 7 == 1 else 4
        fields[key >> 3] = value
    return fields


class Probe:
    """One stream with the send times of its requests and the measured delays."""

    def __init__(self, port, request, timeout_us):
        self.peer = Connection(port, WIDE)
        self.peer.send(frame(WINDOW_UPDATE, 0, 0, struct.pack('>I', WIDE)))
        self.peer.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.stream = self.peer.open(call_fields(LOOKUP_STREAM))
        self.message = request[PREFIX_BYTES:] + bytes([TIMEOUT_US << 3]) + varint(timeout_us)
        self.timeout_us = timeout_us
        self.sent_ns = {}
        self.received = b''   # bytes of an incomplete frame
        self.data = b''       # bytes of an incomplete message
        self.answered = self.refused = 0
        self.delays_us = []
        self.served_us = []   # as reported by the server

    def send(self):
        """Sends one request."""
        number = len(self.sent_ns) + 1
        message = self.message + bytes([REQUEST_ID << 3]) + varint(number)
        payload = struct.pack('>BI', 0, len(message)) + message
        self.sent_ns[number] = now_ns()
        self.peer.send(frame(DATA, 0, self.stream, payload))

    def receive(self, seconds):
        """Receives answers for `seconds`. Raises EOFError if the server closes the connection."""
        end = time.monotonic() + seconds
        while select.select([self.peer.socket], [], [], max(end - time.monotonic(), 0))[0]:
            data, extra, _, _ = self.peer.socket.recvmsg(RECEIVE_BYTES, 64)
            if not data:
                raise EOFError('the server closed the connection')
            # Data without a time arrived before the kernel started to record times.
            whole, ns = struct.unpack('qq', extra[0][2][:16]) if extra else (0, now_ns())
            self._take(data, whole * 10**9 + ns)

    def _take(self, data, arrived_ns):
        self.received += data
        while len(self.received) >= 9:
            size = int.from_bytes(self.received[:3], 'big') + 9
            if len(self.received) < size:
                return
            if self.received[3] == DATA:
                self.data += self.received[9:size]
                self._take_messages(arrived_ns)
            self.received = self.received[size:]

    def _take_messages(self, arrived_ns):
        while len(self.data) >= PREFIX_BYTES:
            size = int.from_bytes(self.data[1:PREFIX_BYTES], 'big') + PREFIX_BYTES
            if len(self.data) < size:
                return
            fields = read_fields(self.data[PREFIX_BYTES:size])
            self.data = self.data[size:]
            if fields.get(ERROR_CODE):
                self.refused += 1
                continue
            self.answered += 1
            sent_ns = self.sent_ns[fields[REQUEST_ID]]
            self.delays_us.append((arrived_ns - sent_ns) / 1e3)
            self.served_us.append(fields.get(QUEUE_US, 0) + fields.get(COMPUTE_US, 0))


def main():
    port, path, timeout_us, rate, seconds = sys.argv[1:]
    with open(path, 'rb') as file:
        probe = Probe(int(port), file.read(), int(timeout_us))
    begun = time.monotonic()
    end = begun + float(seconds)
    due = begun
    while due < end:
        probe.receive(max(due - time.monotonic(), 0))
        probe.send()
        due += 1 / float(rate)
    probe.receive(DRAIN_SECONDS)
    late = [delay for delay in probe.delays_us if delay > probe.timeout_us]
    print(json.dumps({
        'sent': len(probe.sent_ns), 'answered': probe.answered, 'refused': probe.refused,
        'late': len(late), 'longest_us': max(probe.delays_us, default=0),
        'longest_served_us': max(probe.served_us, default=0)}))


if __name__ == '__main__':
    main()
