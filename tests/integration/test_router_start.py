"""Routers that start: those that listen answer lookups."""

import socket
import time
import unittest

import grpc
import numpy as np

from cluster import Cluster, hold_ports, port_of
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import Embagd, wait_until
from http_peer import fetch
from rpc import Client, error_of
from served import scaled
from table_files import Table, write_model
from tcp_proxy import TcpProxy

PARTS = 3
STARTS = 5
LOOKUPS = 200
SECONDS = 60
SLOW_SECONDS = 0.2    # for what a part server says
VALUES = np.arange(60, dtype='<f4').reshape(30, 2)
EVERY_ROW = pb.LookupRequest(queries=[pb.BagQuery(table='t', indices=range(30), num_bags=1)])


class RouterStartTest(unittest.TestCase):
    """A router is started again and again at one address, before part servers that are there."""

    def setUp(self):
        self.cluster = Cluster(PARTS)
        self.addCleanup(self.cluster.remove)
        write_model(self.cluster.source, 'm', 1, [Table.of_values('t', 'f32', VALUES)])
        self.cluster.split('m', 1, placement={'t': 'placement: rows'})
        self.held, = hold_ports(1)
        self.addCleanup(self.held.close)
        self.address = '127.0.0.1:%d' % port_of(self.held)

    def start_router(self, *flags, route=None):
        """Starts a router without waiting for anything."""
        router = Embagd(self.cluster.path, '--route', route or self.cluster.addresses(),
                        '--threads', '1', *flags, listen=(self.address,), http='127.0.0.1:0')
        self.cluster.routers.append(router)
        return router

    def stop(self, router):
        """Stops a router."""
        self.cluster.routers.remove(router)
        router.stop()

    def can_connect(self):
        """Returns whether somebody listens at the router's address."""
        with socket.socket() as peer:
            # A socket whose own port happens to be this one connects to itself.
            return (peer.connect_ex(('127.0.0.1', port_of(self.held))) == 0
                    and peer.getsockname() != peer.getpeername())

    def wait_listening(self):
        """Waits until somebody listens, as soon as possible after that."""
        deadline = time.monotonic() + SECONDS
        while not self.can_connect():
            self.assertLess(time.monotonic(), deadline)

    def check_lookups(self):
        """Expects right answers to lookups that begin now, each over a connection of its own."""
        for _ in range(scaled(LOOKUPS) // 10):
            with Client(self.address) as client:
                for _ in range(10):
                    answer = client.lookup(EVERY_ROW)
                    np.testing.assert_array_equal(
                        np.frombuffer(answer.results[0].values, '<f4'), VALUES.sum(0))

    def test_answers_from_the_first_connection_on(self):
        self.cluster.start_parts()
        for _ in range(STARTS):
            router = self.start_router('--loops', '4')
            self.wait_listening()
            self.check_lookups()
            self.stop(router)

    def test_answers_from_the_first_connection_on_if_part_servers_are_slow(self):
        self.cluster.start_parts()
        proxies = [TcpProxy(port) for port in self.cluster.ports.values()]
        for proxy in proxies:
            self.addCleanup(proxy.close)
            proxy.delay_seconds = SLOW_SECONDS
        router = self.start_router(
            '--loops', '2', route=','.join(proxy.address for proxy in proxies))
        self.wait_listening()
        for _ in range(4):
            with Client(self.address) as client:
                self.assertEqual(client.lookup(EVERY_ROW).version, 1)
        self.stop(router)

    def test_listens_when_its_time_to_settle_is_over(self):
        """One part server is silent. /healthz answers meanwhile, and lookups later fail."""
        for part in range(PARTS - 1):
            self.cluster.start_part(part)
        for server in self.cluster.servers.values():
            server.wait_ready()
        silent = socket.socket()
        self.addCleanup(silent.close)
        silent.bind(('127.0.0.1', 0))
        silent.listen()
        route = ','.join([*(server.address for server in self.cluster.servers.values()),
                          '127.0.0.1:%d' % silent.getsockname()[1]])
        begun = time.monotonic()
        router = self.start_router('--loops', '1', '--route-settle-ms', '2000', route=route)
        wait_until(lambda: router.find('http_listening'), SECONDS, 'the port of operators')
        self.assertEqual(fetch(router, '/healthz')[0], 200)
        self.assertEqual(fetch(router, '/readyz')[0], 503)
        self.assertFalse(self.can_connect())
        self.wait_listening()
        self.assertGreater(time.monotonic() - begun, 1.9)
        self.assertEqual(fetch(router, '/readyz')[0], 503)
        with Client(self.address) as client:
            code, text = error_of(client.lookup, EVERY_ROW)
        self.assertEqual(code, grpc.StatusCode.UNAVAILABLE)
        self.assertIn('no complete version', text)

    def test_listens_at_once_if_no_part_server_is_there(self):
        begun = time.monotonic()
        router = self.start_router('--loops', '1', '--route-settle-ms', '60000')
        self.wait_listening()
        self.assertLess(time.monotonic() - begun, SECONDS / 2)
        self.assertEqual(fetch(router, '/readyz')[0], 503)
        self.assertEqual(fetch(router, '/healthz')[0], 200)
        with Client(self.address) as client:
            self.assertEqual(error_of(client.lookup, EVERY_ROW)[0], grpc.StatusCode.UNAVAILABLE)
        self.cluster.start_parts()
        wait_until(lambda: fetch(router, '/readyz')[0] == 200, SECONDS, 'to be ready')
        self.check_lookups()


if __name__ == '__main__':
    unittest.main()
