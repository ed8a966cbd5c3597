"""Carries plain bytes of a test to a TLS server, inside a TLS connection."""

import selectors
import socket
import ssl
import threading

CHUNK_BYTES = 65536
LINGER_SECONDS = 60  # for a side that stops reading what the other has sent


class TlsRelay:
    """Listens on `port` and relays each connection to the server over TLS.

    Each connection has a single thread. A plain socket may have its reader and its writer in two
    threads, but threads must not share the state of a TLS connection.
    """

    def __init__(self, server_port, authority_file):
        self.server_port = server_port
        self.context = ssl.create_default_context(cafile=authority_file)
        self.context.set_alpn_protocols(['h2'])
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        """Stops listening. Open connections end when their peers close them."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near):
        with near, socket.create_connection(('127.0.0.1', self.server_port)) as raw:
            near.settimeout(LINGER_SECONDS)
            raw.settimeout(LINGER_SECONDS)
            try:
                with self.context.wrap_socket(raw, server_hostname='localhost') as far:
                    carry_both_ways(near, far)
            except OSError:
                pass  # One side has gone. The other learns that when its connection ends.


def carry_both_ways(near, far):
    """Relays bytes until the server ends the connection.

    The server's bytes are relayed even after the server has stopped reading.
    """
    with selectors.DefaultSelector() as selector:
        selector.register(near, selectors.EVENT_READ)
        selector.register(far, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is far and not carry_back(near, far):
                    return
                if key.fileobj is near and not carry_there(near, far):
                    selector.unregister(near)


def carry_there(near, far):
    """Relays the client's bytes. Returns False if the client ended or the server reads no more."""
    data = near.recv(CHUNK_BYTES)
    if not data:
        far.shutdown(socket.SHUT_WR)
        return False
    try:
        far.sendall(data)
    except OSError:
        return False
    return True


def carry_back(near, far):
    """Relays everything that TLS has decrypted, which may be nothing.

    Returns False if the server has ended the connection.
    """
    while True:
        far.settimeout(0)
        try:
            data = far.recv(CHUNK_BYTES)
        except ssl.SSLWantReadError:
            return True
        finally:
            far.settimeout(LINGER_SECONDS)
        if not data:
            return False
        near.sendall(data)
