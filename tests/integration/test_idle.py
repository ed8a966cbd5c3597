"""A server with nothing to do, and the CPUs that a server uses."""

import os
import time
import unittest

import embagd_process
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import wait_until
from h2raw import Connection, message
from http_peer import fetch
from rpc import as_bytes
from served import OwnServerTest

GOOD = pb.LookupRequest(model='spec', queries=[
    pb.BagQuery(table='emb_table', indices=[0, 2], num_bags=1)])


def count_wakeups(pid):
    """Returns how often threads of the process have given up the CPU to wait."""
    count = 0
    for thread in os.listdir('/proc/%d/task' % pid):
        with open('/proc/%d/task/%s/status' % (pid, thread), encoding='ascii') as file:
            count += sum(int(line.split()[1]) for line in file
                         if line.startswith('voluntary_ctxt_switches'))
    return count


class Idle(OwnServerTest):
    """No thread wakes up if there is nothing to do."""

    def setUp(self):
        super().setUp()
        if embagd_process.SANITIZE:
            self.skipTest('sanitizers run threads of their own')

    def sleeps(self, server):
        """Returns whether no thread wakes for two seconds, long enough for any periodic timer."""
        before = count_wakeups(server.pid)
        time.sleep(2)
        return count_wakeups(server.pid) == before

    def test_before_and_after_its_connections(self):
        server = self.serve('--loops', '2', '--inline-below-us', '0', http='127.0.0.1:0')
        wait_until(lambda: self.sleeps(server), 60, 'two seconds of sleep')
        with Connection(server.port) as peer:
            self.assertEqual(peer.status(peer.call(message(as_bytes(GOOD))))[1], 0)
        self.assertEqual(fetch(server, '/metrics')[0], 200)
        wait_until(lambda: self.sleeps(server), 60, 'two seconds of sleep')
        with Connection(server.port) as peer:
            self.assertEqual(peer.status(peer.call(message(as_bytes(GOOD))))[1], 0)

    def test_while_connections_are_idle(self):
        """Each loop wakes once a second to scan its connections, and not for each of them."""
        server = self.serve('--loops', '1')
        peers = [Connection(server.port) for _ in range(50)]
        for peer in peers:
            self.addCleanup(peer.close)
            self.assertEqual(peer.status(peer.call(message(as_bytes(GOOD))))[1], 0)

        def is_calm():
            before, begun = count_wakeups(server.pid), time.monotonic()
            time.sleep(2)
            return count_wakeups(server.pid) - before <= 2 * (time.monotonic() - begun)
        wait_until(is_calm, 60, 'two seconds with few wake-ups')


class OneCpu(OwnServerTest):
    """A server bound to one CPU."""

    def test_has_one_loop_and_one_thread_and_serves(self):
        cpu = min(os.sched_getaffinity(0))
        server = self.serve('--inline-below-us', '0', under=('taskset', '-c', str(cpu)))
        client = self.connect(server)
        facts = client.get_server()
        self.assertEqual((facts.loops, facts.threads), (1, 1))
        futures = [client.lookup_future(GOOD) for _ in range(50)]
        for future in futures:
            self.assertEqual(len(future.result().results), 1)


class BoundThreads(OwnServerTest):
    """An environment that binds OpenMP's threads, as machine learning images set it."""

    def setUp(self):
        super().setUp()
        if embagd_process.SANITIZE:
            self.skipTest('with sanitizers the tests set the number of threads')

    def expect_all_cpus(self, **environment):
        """Checks that the server has as many loops and threads as without this environment. Only
        the threads that compute stay bound."""
        cpus = len(os.sched_getaffinity(0))
        server = self.serve(environment=environment)
        facts = self.connect(server).get_server()
        self.assertEqual((facts.loops, facts.threads), (max(1, -(-cpus // 4)), cpus))
        free = [thread for thread in os.listdir('/proc/%d/task' % server.pid)
                if len(os.sched_getaffinity(int(thread))) == cpus]
        self.assertGreaterEqual(len(free), facts.loops)

    def test_leaves_the_server_all_cpus(self):
        self.expect_all_cpus(OMP_PROC_BIND='true')
        self.expect_all_cpus(OMP_PLACES='cores')

    def test_does_not_widen_what_places_leave_out(self):
        cpu = min(os.sched_getaffinity(0))
        server = self.serve(environment={'OMP_PLACES': '{%d}' % cpu})
        self.assertEqual(os.sched_getaffinity(server.pid), {cpu})


if __name__ == '__main__':
    unittest.main()
