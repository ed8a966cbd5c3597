"""Counts the bytes of a request and its answer on the wire, including frames and headers.

A relay between a client and a server counts them.
"""

import select
import socket
import threading

CHUNK = 1 << 20


class Relay:
    """Relays one connection and counts its bytes."""

    def __init__(self, address):
        host, _, port = address.rpartition(':')
        self.target = (host, int(port))
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.address = '127.0.0.1:%d' % self.listener.getsockname()[1]
        self.request_bytes = 0
        self.answer_bytes = 0
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        client = self.listener.accept()[0]
        server = socket.create_connection(self.target)
        with client, server:
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while self._pass_on(client, server):
                pass

    def _pass_on(self, client, server):
        for end in select.select([client, server], [], [])[0]:
            data = end.recv(CHUNK)
            if not data:
                return False
            if end is client:
                self.request_bytes += len(data)
                server.sendall(data)
            else:
                self.answer_bytes += len(data)
                client.sendall(data)
        return True

    def close(self):
        """Waits until the connection ends."""
        self.thread.join()
        self.listener.close()


def count(bench, server, arguments):
    """Returns the bytes of a request and of its answer, as means over a few hundred of them."""
    relay = Relay(server.address)
    report = bench.load_report(bench.start_load(
        relay.address, [*arguments, '--in-flight', '4', '--warmup', '0', '--duration', '0.7']))
    relay.close()
    # embag-load sends one more lookup first, to find out whether the server has streams.
    asked = report['answers'] + (report['mode'] == 'stream')
    return round(relay.request_bytes / asked), round(relay.answer_bytes / asked)
