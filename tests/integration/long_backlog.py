"""Runs the flood of test_abuse_backlog for longer, and prints figures: the latency of other clients
while each of 4 000 connections has more requests than a time slice serves. The server has one
processor to itself, and all peers share another. Both must be otherwise idle."""

import os
import unittest

from attacker import GOOD, GOOD_MESSAGE
from backlog_flood import Caller, Flood, cpu_seconds
from embagd_process import wait_until
from rpc import as_bytes
from served import OwnServerTest
from test_abuse_backlog import LARGE, answers

CONNECTIONS = 4000
LOOKUPS = 1500
FEW_CONNECTIONS = 20
FLOODS = 3
FLOOD_SECONDS_MAX = 120
MEDIAN_S = 0.003
LATE_S = 0.050
LARGE_S = 1.0
COST = 1.5


class LongBacklog(OwnServerTest):
    """A server with one loop on a processor of its own."""

    def setUp(self):
        super().setUp()
        first, *others = sorted(os.sched_getaffinity(0))
        self.server = self.serve('--loops', '1', '--threads', '1', http='127.0.0.1:0')
        for task in os.listdir('/proc/%d/task' % self.server.pid):
            os.sched_setaffinity(int(task), {first})
        if others:
            self.addCleanup(os.sched_setaffinity, 0, {first, *others})
            os.sched_setaffinity(0, others)

    def measure(self, connections, lookups):
        """Returns the CPU seconds per lookup of a flood."""
        count = connections * lookups
        with Flood(self.server.port, connections, as_bytes(GOOD), lookups) as flood:
            taken, answered = cpu_seconds(self.server.pid), answers(self.server)
            flood.start()
            wait_until(lambda: answers(self.server) >= answered + count, FLOOD_SECONDS_MAX,
                       'all lookups of the flood are answered')
            taken = cpu_seconds(self.server.pid) - taken
            self.assertEqual(flood.stop()['closed'], 0)
        return taken / count

    def say(self, name, caller):
        """Prints the latencies that a caller measured."""
        print('%s: %d answers, p50 %.2f ms, p99 %.2f ms, most %.0f ms' % (
            name, len(caller.seconds), 1e3 * caller.percentile(50), 1e3 * caller.percentile(99),
            1e3 * max(caller.seconds)), flush=True)

    def test_others_are_served_in_time(self):
        few = self.measure(FEW_CONNECTIONS, CONNECTIONS * LOOKUPS // FEW_CONNECTIONS // 4)
        for _ in range(FLOODS):
            with Caller(self.server.port, GOOD_MESSAGE, 0.002) as small, \
                    Caller(self.server.port, LARGE, 0.3) as large, \
                    Caller(self.server.port, LARGE, 0.3, reconnects=True) as new:
                many = self.measure(CONNECTIONS, LOOKUPS)
            self.say('small lookups', small)
            self.say('requests of 480 KB', large)
            self.say('requests of 480 KB, each on a new connection', new)
            print('server CPU per lookup: %.2f us, beside 20 connections %.2f us' % (
                1e6 * many, 1e6 * few), flush=True)
            self.assertLess(small.percentile(50), MEDIAN_S)
            self.assertLess(small.percentile(99), LATE_S)
            self.assertLess(max(large.seconds), LARGE_S)
            self.assertLess(max(new.seconds), LARGE_S)
            self.assertLess(many, COST * few)


if __name__ == '__main__':
    unittest.main()
