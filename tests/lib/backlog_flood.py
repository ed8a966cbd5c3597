"""A flood of small lookups, and a caller that is served meanwhile.

The flood is many connections that each send more lookups than a server answers at once. Run as a
program, this file is the client of these connections. Flood starts it as a process, so that it has
a processor of its own.

    backlog_flood.py PORT CONNECTIONS LOOKUPS SECONDS_MAX REQUEST

REQUEST is a LookupRequest's bytes in hexadecimal digits, to which each lookup adds its number. The
program connects, prints "ready", sends all lookups once for each line of its input, and reads the
answers until its input ends or the time is over. Its last line is a JSON object.
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
SECONDS_MAX = 60  # for events that must happen at once, with room for a slow machine


def allow_files(count):
    """Raises the limit on open files to `count`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, max(hard, count)))


def cpu_seconds(pid):
    """Returns the CPU time that a process has used, in seconds."""
    with open('/proc/%d/stat' % pid, encoding='ascii') as file:
        fields = file.read().rsplit(')', 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


class Peer:
    """One connection: the bytes it has yet to send, and the number of bytes it has received."""

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
        """Sends as much as the socket takes. Returns whether everything is sent."""
        try:
            while self.unsent:
                self.unsent = self.unsent[self.socket.send(self.unsent):]
        except BlockingIOError:
            pass
        return not self.unsent

    def receive_some(self):
        """Reads once. Returns False if the server has closed the connection."""
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
        """Starts to send the payload over each connection."""
        for number, peer in self.by_number.items():
            peer.unsent = memoryview(bytes(peer.unsent) + payload)
            if not peer.send_some():
                self.poll.modify(number, select.EPOLLIN | select.EPOLLOUT)

    def move(self, number, events):
        """Sends and receives over one connection. Returns 1 if the server has closed it, else 0."""
        peer = self.by_number[number]
        if events & select.EPOLLOUT and peer.send_some():
            self.poll.modify(number, select.EPOLLIN)
        if not events & ~select.EPOLLOUT or peer.receive_some():
            return 0
        self.poll.unregister(number)
        return 1

    def count_received(self):
        """Returns the number of bytes received over all connections."""
        return sum(peer.received for peer in self.by_number.values())


def run(port, count, payload, seconds_max):
    """Runs the program. Returns the object that its last line prints."""
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
    """Runs the program as a process, as a context manager. Each `start` makes it send once."""

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
        """Makes the program send all lookups once. Returns at once."""
        self.process.stdin.write(b'\n')
        self.process.stdin.flush()

    def stop(self):
        """Ends the program.

        Returns its result: seconds, bytes received, connections that the server closed.
        """
        output, _ = self.process.communicate()
        return json.loads(output)

    def __exit__(self, *exception):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Caller:
    """Repeats one call from a thread, `pause` seconds apart, and keeps the latencies in `seconds`.

    It uses a connection of its own, or with `reconnects` a new connection for each call. A call
    that fails ends the thread, and makes the context manager raise an AssertionError.
    """

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
            raise AssertionError('the caller was not served: %s' % self.errors)

    def percentile(self, part):
        """Returns the latency, in seconds, at percentile `part` (0 to 100)."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) * part // 100, len(ordered) - 1)]


def numbered(request, number):
    """Returns a DATA frame with the request and its request_id (field 1, always four bytes)."""
    digits = [number >> shift & 127 | 128 for shift in (0, 7, 14)] + [number >> 21]
    return frame(DATA, 0, 1, message(b'\x08' + bytes(digits) + request))


def main():
    """Runs the program with the arguments of the command line."""
    port, connections, lookups, seconds_max = (int(word) for word in sys.argv[1:5])
    request = bytes.fromhex(sys.argv[5])
    payload = b''.join(numbered(request, number) for number in range(1, lookups + 1))
    print(json.dumps(run(port, connections, payload, seconds_max)), flush=True)


if __name__ == '__main__':
    main()
