"""More connections than the kernel tells of at once, each with more small lookups than are answered
in a time slice: others are served meanwhile, nobody is blamed for waiting, and serving them costs
what serving few does."""

import unittest

import numpy as np

from attacker import GOOD, GOOD_MESSAGE
from backlog_flood import SECONDS_MAX, Caller, Flood, cpu_seconds
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import wait_until
from h2raw import message
from http_peer import Metrics
from rpc import as_bytes
from served import OwnServerTest, scaled

CONNECTIONS = 2500  # epoll_wait tells libuv of 1 024 at once
LOOKUPS = 500
FEW_CONNECTIONS = 20
LARGE = message(as_bytes(pb.LookupRequest(model='spec', queries=[pb.BagQuery(
    table='emb_table', indices_i64=np.zeros(60000, '<i8').tobytes(), num_bags=1)])))


def answers(server):
    """How many lookups of streams have been answered."""
    return Metrics(server).sum('embag_requests_total', method='LookupStream', code='OK')


class Backlog(OwnServerTest):
    """One loop, so that all of them meet there."""

    def setUp(self):
        super().setUp()
        self.server = self.serve('--loops', '1', '--message-timeout-ms', '5000', http='127.0.0.1:0')
        self.port = self.server.port

    def measure(self, connections, lookups):
        """CPU seconds that the server takes for these lookups; those of others come on top."""
        with Flood(self.port, connections, as_bytes(GOOD), lookups) as flood:
            before = cpu_seconds(self.server.pid)
            answered = answers(self.server)
            flood.start()
            wait_until(lambda: answers(self.server) >= answered + connections * lookups,
                       SECONDS_MAX, 'all lookups of the flood are answered')
            taken = cpu_seconds(self.server.pid) - before
            self.assertEqual(flood.stop()['closed'], 0)
        return taken

    def test_others_are_served_meanwhile(self):
        lookups = scaled(LOOKUPS)
        with Caller(self.port, GOOD_MESSAGE, 0.002) as small, \
                Caller(self.port, LARGE, 0.1) as large, \
                Caller(self.port, LARGE, 0.1, reconnects=True) as new:
            few = self.measure(FEW_CONNECTIONS, CONNECTIONS * lookups // FEW_CONNECTIONS)
            served = len(small.seconds)
            many = self.measure(CONNECTIONS, lookups)
            self.assertGreater(len(small.seconds) - served, 20)
            self.assertTrue(large.seconds and new.seconds)
        self.assertLess(many, 2.5 * few + 0.5)

    def test_who_leaves_amid_it_is_noticed_at_once(self):
        with Flood(self.port, CONNECTIONS, as_bytes(GOOD), scaled(LOOKUPS)) as flood:
            flood.start()
            wait_until(lambda: answers(self.server) > 0, SECONDS_MAX, 'the flood is being answered')
        wait_until(lambda: Metrics(self.server).sum('embag_connections') < 5, SECONDS_MAX,
                   'the connections are closed')


if __name__ == '__main__':
    unittest.main()
