"""A load balancer of gRPC calls, which behaves like a proxy without retries.

It checks the health of each server periodically, and sends calls in turn to the servers whose last
check returned SERVING. It learns that a server is gone only from these checks.
"""

import threading
import time

import grpc

import dynamic
from rpc import Client

SERVING = 1
CHECK_SECONDS = 5
CHECK = dynamic.Method(dynamic.load('grpc/health/v1/health.proto'), 'grpc.health.v1.Health',
                       'Check')


class Backend:
    """One server as the balancer knows it."""

    def __init__(self, server):
        self.server = server
        self.client = Client(server.address)
        self.is_serving = False
        self.checked = None        # time of the last check
        self.longest_gap = 0       # seconds between two checks

    def check(self):
        """Checks the health of the server."""
        now = time.monotonic()
        if self.checked is not None:
            self.longest_gap = max(self.longest_gap, now - self.checked)
        try:
            status = CHECK.unary(self.client.channel, timeout=CHECK_SECONDS).status
            self.is_serving = status == SERVING
        except grpc.RpcError:
            self.is_serving = False
        self.checked = time.monotonic()


class Balancer:
    """The load balancer. It closes its connections at the end of `with`."""

    def __init__(self, servers, request):
        self.backends = [Backend(server) for server in servers]
        self.request = request
        self.next = 0
        self.answered = 0
        self.lost = []

    def __enter__(self):
        self.check()
        return self

    def __exit__(self, *exception):
        for backend in self.backends:
            backend.client.close()

    def check(self):
        """Checks all servers."""
        for backend in self.backends:
            backend.check()

    def serving(self):
        """Returns the servers that returned SERVING at their last check."""
        return [backend.server for backend in self.backends if backend.is_serving]

    def call(self):
        """Sends one call to the next server that is serving."""
        backends = [backend for backend in self.backends if backend.is_serving]
        self.next += 1
        try:
            backends[self.next % len(backends)].client.lookup(self.request)
            self.answered += 1
        except grpc.RpcError as error:
            self.lost.append(error.code().name)

    def call_while(self, condition, interval):
        """Sends calls without a pause while the condition holds.

        Meanwhile a thread checks all servers every `interval` seconds.
        """
        over = threading.Event()

        def check_in_turn():
            while not over.wait(interval):
                self.check()

        checker = threading.Thread(target=check_in_turn)
        checker.start()
        try:
            while condition():
                self.call()
        finally:
            over.set()
            checker.join()

    def longest_gap(self):
        """Returns the longest time between two checks of one server, in seconds."""
        return max(backend.longest_gap for backend in self.backends)
