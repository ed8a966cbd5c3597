"""Connections that disturb a server, to measure their effect on others.

    disturb.py idle PORT REQUEST COUNT      COUNT connections that are idle after one lookup each
    disturb.py cancels PORT REQUEST RATE    RATE unary lookups per second, all cancelled at once
    disturb.py slow-reader PORT REQUEST     sends more and more lookups and never reads an answer

REQUEST is a file with one lookup, framed for gRPC. Each prints "ready" when it has started, and
continues until its standard input ends. tests/lib must be on PYTHONPATH.
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
WIDE = 1 << 30        # a window that is never filled here
STEP_SECONDS = 0.01   # interval at which calls are made and cancelled
GREETING_SECONDS = 0.2
RECEIVE_BYTES = 1 << 20


def read_request(path):
    """Returns the framed lookup."""
    with open(path, 'rb') as file:
        return file.read()


def is_over(seconds):
    """Waits for `seconds` or until standard input ends. Returns whether it has ended."""
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin, selectors.EVENT_READ)
        return bool(selector.select(seconds)) and not sys.stdin.readline()


def say_ready():
    """Tells the parent process that the disturbance has started."""
    print('ready', flush=True)


def idle(port, request, count):
    """Keeps `count` connections open after one lookup on each."""
    connections = []
    for _ in range(count):
        peer = Connection(port)
        peer.finish(peer.call(request))
        connections.append(peer)
    say_ready()
    while not is_over(1):
        pass


def _discard(peer):
    """Receives and discards everything."""
    try:
        while peer.recv(RECEIVE_BYTES, socket.MSG_TRUNC):
            pass
    except OSError:
        pass


def cancels(port, request, rate):
    """Makes calls and cancels them at once.

    The calls of a step are sent in one write and their resets in another, so that the server reads
    the calls before it learns that they are cancelled.
    """
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
    """Sends as many lookups as the server accepts, without reading answers."""
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
