"""Header blocks that are small on the wire and large once they are decompressed. Their connections
are closed, and they cost the server little CPU. A call with too large headers fails alone."""

import os
import unittest

from attacker import Bystander
from embagd_process import wait_until
from h2raw import Connection, message
from hpack_attack import HpackAttack, attacks, ending, plain
from rpc import as_bytes
from served import OwnServerTest
from test_idle import GOOD

CALM = 11
CONNECTIONS = 100
AT_ONCE = 8
SECONDS_MAX = 60
# CPU cost of an attacking connection, as a multiple of the cost of a connection that sends plain
# header blocks. At most 0.2 was measured, and up to 6 for refused streams; it was 4 000 before
# connections were charged for the expanded size of their blocks. Clocks have a resolution of 10 ms.
COST_MAX = 5
REFUSED_COST_MAX = 20
SLACK_SECONDS = 0.1


def cpu_seconds(pid):
    """Returns the CPU time that the process has used on all processors."""
    with open('/proc/%d/stat' % pid, encoding='ascii') as file:
        fields = file.read().rsplit(')', 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


class Expansion(OwnServerTest):
    """Each kind of attack once, and by many connections that reconnect."""

    def setUp(self):
        super().setUp()
        self.server = self.serve('--loops', '1')

    def test_each_ends_its_connection(self):
        for name, data in attacks().items():
            with self.subTest(name), Bystander(self.server):
                self.assertEqual(ending(self.server.port, data, SECONDS_MAX), CALM)

    def cost(self, data):
        """Returns the CPU seconds that the server spends on CONNECTIONS such connections."""
        attack = HpackAttack(self.server.port, data, AT_ONCE)
        self.addCleanup(attack.close)
        before = cpu_seconds(self.server.pid)
        attack.run(SECONDS_MAX, CONNECTIONS)
        self.assertGreaterEqual(attack.ended + attack.whole, CONNECTIONS, 'out of time')
        return cpu_seconds(self.server.pid) - before

    def test_costs_little_more_than_plain_header_blocks(self):
        plain_cost = self.cost(plain())
        for name, data in attacks().items():
            factor = REFUSED_COST_MAX if name == 'refused streams' else COST_MAX
            with self.subTest(name), Bystander(self.server):
                self.assertLess(self.cost(data), factor * plain_cost + SLACK_SECONDS)

    def call(self, peer, extra):
        """Returns the status of a call with more header fields."""
        return peer.status(peer.call(message(as_bytes(GOOD)), extra=extra))

    def test_one_call_that_is_too_large_costs_only_itself(self):
        with Bystander(self.server), Connection(self.server.port) as peer:
            _, code, text = self.call(peer, [('x-large', 'a' * 20000)])
            self.assertEqual(code, 8)
            self.assertRegex(text, r'20\d\d\d bytes of header fields, more than header_bytes_max '
                                   r'\(16384\)')
            _, code, text = self.call(peer, [('x-%d' % n, 'a') for n in range(70)])
            self.assertEqual(code, 8)
            self.assertIn('the call has 76 header fields, more than header_fields_max (64)', text)
            self.assertEqual(self.call(peer, [])[1], 0)

    def test_calls_that_are_too_large_again_and_again_cost_only_themselves(self):
        with Bystander(self.server), Connection(self.server.port) as peer:
            for _ in range(100):
                self.assertEqual(self.call(peer, [('x-large', 'a' * 40000)])[1], 8)
            for _ in range(100):
                fields = [('x-%d' % n, 'a' * 30) for n in range(200)]
                self.assertEqual(self.call(peer, fields)[1], 8)
            self.assertEqual(self.call(peer, [])[1], 0)

    def test_a_block_of_more_than_four_limits_ends_its_connection(self):
        with Bystander(self.server), Connection(self.server.port) as peer:
            with self.assertRaises((EOFError, ConnectionError)):
                self.call(peer, [('x-large', 'a' * 70000)])
            wait_until(lambda: "the peer's header blocks expand to more bytes than are allowed" in
                       self.server.log or 'a header block that is far too long' in self.server.log,
                       SECONDS_MAX, 'a reason')


if __name__ == '__main__':
    unittest.main()
