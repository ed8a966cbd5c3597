"""Forty connections send header blocks that expand, as fast as the server accepts them, and
reconnect whenever they are closed. Measures the latency of other clients meanwhile; needs two idle
cores."""

import json
import os
import subprocess
import unittest

from hpack_attack import HpackAttack, attacks
import served
from served import OwnServerTest

CONNECTIONS = 40
RATE = 300           # lookups per second of other clients
SECONDS = 10         # of each kind of attack
WARMUP_SECONDS = 1
P50_US_MAX = 3000
P99_US_MAX = 50000


class Others(OwnServerTest):
    """The lookups of other clients, by embag-load, which counts latency from the time at which a
    lookup was due."""

    def measure(self, server, data):
        """Returns embag-load's figures while the connections attack."""
        load = subprocess.Popen(
            [os.path.join(served.BUILD, 'embag-load'), '--server', server.address, '--tables',
             'emb_table', '--mode', 'unary', '--connections', '4', '--rate', str(RATE),
             '--duration', str(SECONDS), '--warmup', str(WARMUP_SECONDS), '--timeout-us',
             '5000000', '--json'], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        attack = HpackAttack(server.port, data, CONNECTIONS)
        self.addCleanup(attack.close)
        attack.run(SECONDS + WARMUP_SECONDS)
        figures = json.loads(load.communicate()[0])
        self.assertEqual(load.returncode, 0)
        return figures, attack.ended

    def test_wait_little(self):
        server = self.serve('--loops', '1')
        for name, data in attacks().items():
            with self.subTest(name):
                figures, ended = self.measure(server, data)
                print('%s: %d connections ended, others p50 %.2f ms, p99 %.2f ms' % (
                    name, ended, figures['p50_us'] / 1000, figures['p99_us'] / 1000), flush=True)
                self.assertGreater(ended, CONNECTIONS)
                self.assertLessEqual(figures['p50_us'], P50_US_MAX)
                self.assertLessEqual(figures['p99_us'], P99_US_MAX)


if __name__ == '__main__':
    unittest.main()
