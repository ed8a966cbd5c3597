"""Sends requests, well-formed or not, to the operators' port of a server, and reads its metrics."""

import http.client
import re
import socket

TIMEOUT_SECONDS = 60
SAMPLE = re.compile(r'([a-z_]\w*)(?:\{(.*)\})? (\S+)')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def connect(server, receive_buffer=None):
    """Returns a socket connected to the operators' port."""
    peer = socket.socket()
    if receive_buffer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    peer.settimeout(TIMEOUT_SECONDS)
    peer.connect((server.host, server.http_port))
    return peer


def fetch(server, path, method='GET', **headers):
    """Sends one request on its own connection. Returns status, headers and body of the answer."""
    peer = http.client.HTTPConnection(server.host, server.http_port, timeout=TIMEOUT_SECONDS)
    try:
        peer.request(method, path, headers={'Connection': 'close', **headers})
        answer = peer.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        peer.close()


def exchange(server, *pieces):
    """Sends bytes. Returns everything that the server sends until it closes the connection."""
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
    """Returns samples by name and labels: {("embag_phase", ("phase", "serving")): 1.0}."""
    samples = {}
    for line in text.splitlines():
        if line.startswith('#'):
            continue
        name, labels, value = SAMPLE.fullmatch(line).groups()
        key = (name, *sorted(LABEL.findall(labels or '')))
        if key in samples:
            raise AssertionError('duplicate sample: ' + line)
        samples[key] = float(value)
    return samples


class Metrics:
    """The metrics of a server when the object was created."""

    def __init__(self, server):
        status, _, self.text = fetch(server, '/metrics')
        if status != 200:
            raise AssertionError('%d for /metrics: %s' % (status, self.text))
        self.samples = parse(self.text)

    def get(self, name, **labels):
        """Returns the value of a sample with exactly these labels, or None."""
        return self.samples.get((name, *sorted(labels.items())))

    def sum(self, name, **labels):
        """Returns the sum of all samples of a name that have at least these labels."""
        return sum(value for key, value in self.samples.items()
                   if key[0] == name and set(labels.items()) <= set(key[1:]))
