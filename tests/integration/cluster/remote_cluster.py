"""Part servers and routers on hosts of their own."""

import os

from cluster import SETTLE, Cluster
from embagd_process import Embagd
from network import Network

PORT, HTTP_PORT = 8600, 8601
LISTEN = ('0.0.0.0:%d' % PORT,)
LISTEN6 = ('[::]:%d' % PORT,)
HTTP = '0.0.0.0:%d' % HTTP_PORT
COMMON = ('--threads', '1', '--watch-poll-ms', '100')


class RemoteCluster(Cluster):
    """Each process has a host: part-PART-REPLICA, or router-NUMBER."""

    def __init__(self, parts, replicas, routers):
        super().__init__(parts, replicas)
        directory = self.repository.join('network')
        os.makedirs(directory)
        self.network = Network(directory)
        for part, replica in self.ports:
            self.network.add('part-%d-%d' % (part, replica))
        for number in range(routers):
            self.network.add('router-%d' % number)
        self.router_names = ['router-%d' % number for number in range(routers)]
        self.network.tell_names(parts=self.part_addresses(),
                                routers=[self.network.nodes[name].address
                                         for name in self.router_names])

    def part_node(self, part, replica):
        """Returns the host of a part server."""
        return self.network.nodes['part-%d-%d' % (part, replica)]

    def part_addresses(self):
        """Returns the addresses of all part servers."""
        return [self.part_node(part, replica).address for part, replica in self.ports]

    def serve(self, node, path, *flags):
        """Starts a server on a host. Returns it."""
        listen = LISTEN + (LISTEN6 if node.address6 else ())
        server = Embagd(path, *COMMON, *flags, listen=listen, http=HTTP, under=node.under)
        server.host = node.address
        return server

    def start_part(self, part, replica=0, *flags, path=None, parts=None):
        """Starts a part server, which may have run before. Returns it."""
        self.servers[part, replica] = self.serve(
            self.part_node(part, replica), path or self.path, '--part',
            '%d/%d' % (part, parts or self.parts), '--loops', '1', *flags)
        return self.servers[part, replica]

    def start_routers(self, *flags):
        """Starts all routers."""
        self.routers = [None for _ in self.router_names]
        for number in range(len(self.routers)):
            self.start_router_again(number, *flags)

    def start_router_again(self, number, *flags, route='dns:parts.test:%d' % PORT):
        """Starts a router, which may have run before. Returns it."""
        router = self.serve(self.network.nodes[self.router_names[number]], self.path, '--route',
                            route, '--loops', '2', *SETTLE, *flags)
        self.routers[number] = router
        return router.wait_ready()
