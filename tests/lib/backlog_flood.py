"""Many connections that each have sent a server more small lookups than it answers at once, and
those who are served meanwhile. Run as a program it is the peer of these connections; Flood starts
it, so that it has a processor of its own.

    backlog_flood.py PORT CONNECTIONS LOOKUPS SECONDS_MAX REQUEST

REQUEST is a LookupRequest's bytes in hexadecimal digits, to which each lookup adds its number. The
program connects, says "ready", sends everything once for each line of its input, and reads what
comes until its input ends or the time is over. Its last line is a JSON object.
"""

import errno
import json
import os
import resource
import select
import socket
import struct
import subprocess
import sys
import threading
import time

from h2raw import (DATA, END_HEADERS, HEADERS, LOOKUP_STREAM, PREFACE, SETTINGS, WINDOW_UPDATE,
                   Connection, call_fields, frame, header_encode, message)

WINDOW = (1 << 31) - 1
SPARE_FILES = 64
BYTES_AT_ONCE = 1 << 18
SECONDS_MAX = 60  # for what must happen at once, on a slow machine


def allow_files(count):
    """Raises the limit of open files to `count`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, max(hard, count)))


def cpu_seconds(pid):
    """CPU time that a process has used."""
    with open('/proc/%d/stat' % pid, encoding='ascii') as file:
        fields = file.read().rsplit(')', 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


class Peer:
    """One connection: what it has yet to send, and how many bytes of answers it has."""

    def __init__(self, port):
        self.socket = socket.create_connection(('127.0.0.1', port), SECONDS_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        settings = struct.pack('>HIHI', 1, 0, 4, WINDOW)
        self.socket.sendall(
            PREFACE + frame(SETTINGS, 0, 0, settings) +
            frame(WINDOW_UPDATE, 0, 0, struct.pack('>I', WINDOW - 65535)) +
            frame(HEADERS, END_HEADERS, 1, header_encode(call_fields(LOOKUP_STREAM))))
        self.socket.recv(65536)  # the server's SETTINGS
        self.socket.sendall(frame(SETTINGS, 1, 0))
        self.socket.setblocking(False)
        self.unsent = memoryview(b'')
        self.received = 0

    def send_some(self):
        """Sends what the socket takes; whether all is sent."""
        try:
            while self.unsent:
                self.unsent = self.unsent[self.socket.send(self.unsent):]
        except BlockingIOError:
            pass
        return not self.unsent

    def receive_some(self):
        """Reads once. False: the server has closed."""
        try:
            count = len(self.socket.recv(BYTES_AT_ONCE))
        except BlockingIOError:
            return True
        except OSError as error:
            if error.errno not in (errno.ECONNRESET, errno.EPIPE):
                raise
            count = 0
        self.received += count
        return count > 0


class Peers:
    """All connections."""

    def __init__(self, port, count):
        allow_files(count + SPARE_FILES)
        self.poll = select.epoll()
        self.by_number = {}
        for _ in range(count):
            peer = Peer(port)
            self.by_number[peer.socket.fileno()] = peer
            self.poll.register(peer.socket.fileno(), select.EPOLLIN)

    def send(self, payload):
        """Begins to send it over each."""
        for number, peer in self.by_number.items():
            peer.unsent = memoryview(bytes(peer.unsent) + payload)
            if not peer.send_some():
                self.poll.modify(number, select.EPOLLIN | select.EPOLLOUT)

    def move(self, number, events):
        """Sends and receives over one; 1: the server has closed it."""
        peer = self.by_number[number]
        if events & select.EPOLLOUT and peer.send_some():
            self.poll.modify(number, select.EPOLLIN)
        if not events & ~select.EPOLLOUT or peer.receive_some():
            return 0
        self.poll.unregister(number)
        return 1

    def count_received(self):
        """Bytes that have come over all of them."""
        return sum(peer.received for peer in self.by_number.values())


def run(port, count, payload, seconds_max):
    """The program; returns what its last line says."""
    peers = Peers(port, count)
    print('ready', flush=True)
    begun = time.monotonic()
    order = sys.stdin.fileno()
    closed = 0
    peers.poll.register(order, select.EPOLLIN)
    is_over = False
    while not is_over and time.monotonic() - begun < seconds_max:
        for number, events in peers.poll.poll(1):
            if number != order:
                closed += peers.move(number, events)
                continue
            lines = os.read(order, 1000)
            is_over = not lines
            for _ in lines:
                peers.send(payload)
    return {'closed': closed, 'received': peers.count_received(),
            'seconds': time.monotonic() - begun}


class Flood:
    """The program above, as a context: ended with it. Each `start` lets it send once."""

    def __init__(self, port, connections, request, lookups, seconds_max=SECONDS_MAX):
        self.process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), str(port), str(connections), str(lookups),
             str(seconds_max), request.hex()], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)})

    def __enter__(self):
        line = self.process.stdout.readline()
        if line != b'ready\n':
            self.__exit__()
            raise AssertionError('the flood could not connect: %r' % line)
        return self

    def start(self):
        """Returns at once."""
        self.process.stdin.write(b'\n')
        self.process.stdin.flush()

    def stop(self):
        """Ends it; returns what it says: seconds, bytes received, connections that the server has
        closed."""
        output, _ = self.process.communicate()
        return json.loads(output)

    def __exit__(self, *exception):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Caller:
    """Asks the same all the time from a thread, over a connection of its own, or, with
    `reconnects`, a new one each time; keeps each answer's time in `seconds`. A call that fails ends
    it, and the context with an error."""

    def __init__(self, port, payload, pause, reconnects=False):
        self.port = port
        self.payload = payload
        self.pause = pause
        self.reconnects = reconnects
        self.seconds = []
        self.errors = []
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _ask(self, connection):
        fields, body = connection.finish(connection.call(self.payload))
        if fields.get('grpc-status') != '0' or not body:
            raise AssertionError('a call failed: %s' % fields)

    def _ask_anew(self):
        with Connection(self.port, timeout=SECONDS_MAX) as connection:
            self._ask(connection)

    def _run(self):
        try:
            with Connection(self.port, timeout=SECONDS_MAX) as connection:
                while not self.is_over.wait(self.pause):
                    begun = time.monotonic()
                    if self.reconnects:
                        self._ask_anew()
                    else:
                        self._ask(connection)
                    self.seconds.append(time.monotonic() - begun)
        except Exception as error:  # pylint: disable=broad-except
            self.errors.append(error)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, kind, *exception):
        self.is_over.set()
        self.thread.join()
        if not kind and (self.errors or not self.seconds):
            raise AssertionError('not served: %s' % self.errors)

    def percentile(self, part):
        """So many of a hundred answers came within this time, in seconds."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) * part // 100, len(ordered) - 1)]


def numbered(request, number):
    """A frame with the request and its request_id, which is field 1, of four bytes always."""
    digits = [number >> shift & 127 | 128 for shift in (0, 7, 14)] + [number >> 21]
    return frame(DATA, 0, 1, message(b'\x08' + bytes(digits) + request))


def main():
    """The command line."""
    port, connections, lookups, seconds_max = (int(word) for word in sys.argv[1:5])
    request = bytes.fromhex(sys.argv[5])
    payload = b''.join(numbered(request, number) for number in range(1, lookups + 1))
    print(json.dumps(run(port, connections, payload, seconds_max)), flush=True)


if __name__ == '__main__':
    main()
