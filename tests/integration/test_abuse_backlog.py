"""More connections than epoll_wait returns at once, each with more small lookups than a time slice
serves. Other clients are served meanwhile, no connection is closed for waiting, and the CPU cost of
a lookup is the same as with few connections."""

import unittest

import numpy as np

import embagd_process
from attacker import GOOD, GOOD_MESSAGE
from backlog_flood import SECONDS_MAX, Caller, Flood, cpu_seconds
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import wait_until
from h2raw import message
from http_peer import Metrics
from rpc import as_bytes
from served import OwnServerTest, scaled
from table_files import Table

CONNECTIONS = 2500  # libuv's epoll_wait returns 1 024 at once
LOOKUPS = 500
FEW_CONNECTIONS = 20
HEAVY_CONNECTIONS = 1300
HEAVY_LOOKUPS = 40
LATE_S = 10          # for calls that take some milliseconds on an idle server
LARGE = message(as_bytes(pb.LookupRequest(model='spec', queries=[pb.BagQuery(
    table='emb_table', indices_i64=np.zeros(60000, '<i8').tobytes(), num_bags=1)])))


def answers(server):
    """Returns how many lookups of streams have been answered."""
    return Metrics(server).sum('embag_requests_total', method='LookupStream', code='OK')


class Backlog(OwnServerTest):
    """One loop, so that all connections share it."""

    def setUp(self):
        super().setUp()
        # A sanitizer makes the server so slow that peers wait for seconds.
        timeout_ms = '60000' if embagd_process.SANITIZE else '5000'
        self.server = self.serve('--loops', '1', '--message-timeout-ms', timeout_ms,
                                 '--header-timeout-ms', timeout_ms, http='127.0.0.1:0')
        self.port = self.server.port

    def measure(self, connections, lookups):
        """Returns the CPU seconds that the server takes for these lookups, and for the lookups that
        other clients make meanwhile."""
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
            for caller in (small, large, new):
                caller.seconds.clear()
            many = self.measure(CONNECTIONS, lookups)
            wait_until(lambda: large.seconds and new.seconds, SECONDS_MAX, 'others are served')
            self.assertGreater(len(small.seconds), 20)
            self.assertLess(max(large.seconds + new.seconds), LATE_S)
        self.assertLess(many, 2.5 * few + 0.5)


class HeavyBacklog(OwnServerTest):
    """Lookups each of which takes most of a time slice."""

    def test_who_leaves_amid_it_is_noticed_at_once(self):
        wide = Table.of_values('wide', 'f32', np.ones((4, 4096)))
        server = self.serve('--loops', '1', '--threads', '1', '--inline-below-us', '1000',
                            http='127.0.0.1:0', tables=[wide])
        heavy = pb.LookupRequest(queries=[pb.BagQuery(
            table='wide', num_bags=1, indices_i32=np.zeros(400, '<i4').tobytes())])
        with Flood(server.port, HEAVY_CONNECTIONS, as_bytes(heavy), HEAVY_LOOKUPS) as flood:
            flood.start()
            wait_until(lambda: answers(server) > 0, SECONDS_MAX, 'the flood is being answered')
        wait_until(lambda: Metrics(server).sum('embag_connections') < 5, SECONDS_MAX,
                   'the connections are closed')
        self.assertLess(answers(server), HEAVY_CONNECTIONS * HEAVY_LOOKUPS // 2)


if __name__ == '__main__':
    unittest.main()
