"""Connections that make a server's life hard, to see what others notice of them.

    disturb.py idle PORT REQUEST COUNT      COUNT connections, each after one lookup of its own
    disturb.py cancels PORT REQUEST RATE    RATE unary lookups per second, all withdrawn at once
    disturb.py slow-reader PORT REQUEST     asks for more and more and never reads an answer

REQUEST is a file with one lookup, framed for gRPC. Each says "ready" when it has begun, and goes on
until its standard input ends. tests/lib must be on PYTHONPATH.
"""

import selectors
import socket
import struct
import sys
import threading
import time

from h2raw import (DATA, END_HEADERS, END_STREAM, LOOKUP_STREAM, RST_STREAM, WINDOW_UPDATE,
                   Connection, call_fields, frame, header_encode)

CANCEL = struct.pack('>I', 8)
WIDE = 1 << 30        # a window that nothing here fills
STEP_SECONDS = 0.01   # calls are withdrawn in steps of so long
GREETING_SECONDS = 0.2
RECEIVE_BYTES = 1 << 20


def read_request(path):
    """The framed lookup."""
    with open(path, 'rb') as file:
        return file.read()


def is_over(seconds):
    """Waits so long, or until the standard input ends. Whether it has ended."""
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin, selectors.EVENT_READ)
        return bool(selector.select(seconds)) and not sys.stdin.readline()


def say_ready():
    """To whoever waits for what has begun."""
    print('ready', flush=True)


def idle(port, request, count):
    """Connections that have worked and do nothing more."""
    connections = []
    for _ in range(count):
        peer = Connection(port)
        peer.finish(peer.call(request))
        connections.append(peer)
    say_ready()
    while not is_over(1):
        pass


def _discard(peer):
    """Takes all that comes; none of it is looked at."""
    try:
        while peer.recv(RECEIVE_BYTES, socket.MSG_TRUNC):
            pass
    except OSError:
        pass


def cancels(port, request, rate):
    """Calls that are withdrawn as soon as they have been made. Those of one step go out in one
    write, so that the server has read them before it learns of it."""
    peer = Connection(port, WIDE)
    peer.send(frame(WINDOW_UPDATE, 0, 0, struct.pack('>I', WIDE)))
    threading.Thread(target=_discard, args=(peer.socket,), daemon=True).start()
    headers = header_encode(call_fields())
    begun, sent, stream = time.monotonic(), 0, 1
    say_ready()
    while not is_over(STEP_SECONDS):
        calls = resets = b''
        for _ in range(int((time.monotonic() - begun) * rate) - sent):
            calls += frame(1, END_HEADERS, stream, headers)
            calls += frame(DATA, END_STREAM, stream, request)
            resets += frame(RST_STREAM, 0, stream, CANCEL)
            stream += 2
            sent += 1
        peer.send(calls)
        peer.send(resets)
    print(sent, flush=True)


def slow_reader(port, request):
    """Asks as much as the server is willing to take."""
    peer = Connection(port, WIDE, timeout=None)
    peer.send(frame(WINDOW_UPDATE, 0, 0, struct.pack('>I', WIDE)))
    stream = peer.open(call_fields(LOOKUP_STREAM))
    peer.socket.settimeout(GREETING_SECONDS)
    try:
        while True:
            peer.read_frame()
    except socket.timeout:
        pass
    piece = frame(DATA, 0, stream, request)
    say_ready()
    while not is_over(0):
        try:
            if peer.send_window > len(request):
                peer.send(piece)
                peer.send_window -= len(request)
            else:
                time.sleep(STEP_SECONDS)
        except socket.timeout:
            break
    while not is_over(1):
        pass


def main():
    kind, port, request, *number = sys.argv[1:]
    kinds = {'idle': idle, 'cancels': cancels, 'slow-reader': slow_reader}
    kinds[kind](int(port), read_request(request), *map(int, number))


if __name__ == '__main__':
    main()
