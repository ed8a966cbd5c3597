"""The operators' port of a server: requests to it, well-formed or not, and its metrics."""

import http.client
import re
import socket

TIMEOUT_SECONDS = 60
SAMPLE = re.compile(r'([a-z_]\w*)(?:\{(.*)\})? (\S+)')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def connect(server, receive_buffer=None):
    """A connected socket."""
    peer = socket.socket()
    if receive_buffer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    peer.settimeout(TIMEOUT_SECONDS)
    peer.connect(('127.0.0.1', server.http_port))
    return peer


def fetch(server, path, method='GET', **headers):
    """Status, headers and body of one request on a connection of its own."""
    peer = http.client.HTTPConnection('127.0.0.1', server.http_port, timeout=TIMEOUT_SECONDS)
    try:
        peer.request(method, path, headers={'Connection': 'close', **headers})
        answer = peer.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        peer.close()


def exchange(server, *pieces):
    """All that comes back for these bytes, until the server closes."""
    with connect(server) as peer:
        received = b''
        try:
            for piece in pieces:
                peer.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass
        try:
            while True:
                piece = peer.recv(65536)
                if not piece:
                    return received
                received += piece
        except ConnectionResetError:
            return received


def parse(text):
    """Samples by name and labels: {("embag_phase", ("phase", "serving")): 1.0}."""
    samples = {}
    for line in text.splitlines():
        if line.startswith('#'):
            continue
        name, labels, value = SAMPLE.fullmatch(line).groups()
        key = (name, *sorted(LABEL.findall(labels or '')))
        if key in samples:
            raise AssertionError('twice: ' + line)
        samples[key] = float(value)
    return samples


class Metrics:
    """What the metrics of a server say now."""

    def __init__(self, server):
        status, _, self.text = fetch(server, '/metrics')
        if status != 200:
            raise AssertionError('%d for /metrics: %s' % (status, self.text))
        self.samples = parse(self.text)

    def get(self, name, **labels):
        """One sample; None where there is none."""
        return self.samples.get((name, *sorted(labels.items())))

    def sum(self, name, **labels):
        """All samples of a name that have these labels, among others."""
        return sum(value for key, value in self.samples.items()
                   if key[0] == name and set(labels.items()) <= set(key[1:]))
