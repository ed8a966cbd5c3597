"""New versions, other numbers of parts and restarts, while lookups through two routers go on.

Every answer must be of one version, and right for it: the values of each version are others.
"""

import os
import shutil
import subprocess
import time
import unittest

import grpc

import served
from cluster import Cluster, wait_connected, wait_served, wait_used
from embagd_process import wait_until
from http_peer import Metrics
from published import published_sums
from rpc import Client, error_of
from test_cluster_failures import MODEL, PARTS, PLACEMENT, request_of
from verified_load import VerifiedLoad
from version_watch import VersionWatch

SCALE = 20000
SLOW_SCALE = 10000    # a part has 4 MiB, and loads for some 4 s at the lowest pace
SLOW = ('--load-bytes-per-s', '1MiB')
# Time in which routers learn that a server leaves, before it closes its connections.
LEAVING = ('--drain-delay-ms', '500')
RATE = 100
SECONDS = 60
FLIP_SECONDS = 0.5    # between the flips of two routers
STEADY_SECONDS = 2    # for which a version is complete before it is served
HELD_SECONDS = 3
# What the watches look up: all parts, whole tables in each part, and a table placed everywhere.
QUERIES = (('t00', [0, 1, 2, 7]), ('t20', [5, 6]), ('t21', [3]), ('t22', [1, 2]), ('t05', [0]))


class FlipsTest(unittest.TestCase):
    """A cluster for each test."""

    parts, replicas, scale = PARTS, 1, SCALE

    def setUp(self):
        self.cluster = Cluster(self.parts, self.replicas)
        self.addCleanup(self.cluster.remove)
        self.watches = []

    def publish(self, version, *flags, **keywords):
        """Writes a version and divides it into parts."""
        self.cluster.make_model(MODEL, version, self.scale)
        self.cluster.split(MODEL, version, *flags, placement=PLACEMENT, **keywords)

    def start_routers(self, *flags, version=1, **keywords):
        """Starts two routers and waits until they serve."""
        for number in range(2):
            router = self.cluster.start_router(
                '--admin-listen', 'unix:' + self.cluster.repository.join('admin%d' % number),
                *flags, **keywords)
            wait_served(self.cluster.connect(router), version, MODEL)

    def watch(self, *flags):
        """Starts a load through both routers, and a watch of each."""
        load = VerifiedLoad([router.address for router in self.cluster.routers], MODEL, '--rate',
                            str(RATE), '--verify-ahead', '2', *flags)
        self.addCleanup(load.close)
        load.wait_started()
        self.watch_routers()
        return load

    def watch_routers(self):
        """Starts a watch of each router."""
        for router in self.cluster.routers:
            self.watch_router(router)

    def watch_router(self, router):
        """Starts a watch of a router. Returns it."""
        watch = VersionWatch(router.address, request_of(*QUERIES))
        self.watches.append(watch)
        self.addCleanup(watch.close)
        return watch

    def wait_flipped(self, version):
        """Waits until both routers answer from a version. Returns how many seconds lie between."""
        first = [wait_until(lambda watch=watch: watch.first(version), SECONDS,
                            'version %d' % version) for watch in self.watches]
        return abs(first[0] - first[1])

    def check_watches(self):
        """Ends the watches. Checks that no lookup has failed and no router has gone back."""
        for watch in self.watches:
            watch.close()
            self.assertEqual(watch.errors, [])
            self.assertEqual(watch.versions, sorted(set(watch.versions)))

    @staticmethod
    def hold(seconds):
        """Lets time pass."""
        over = time.monotonic() + seconds
        wait_until(lambda: time.monotonic() > over, 2 * seconds + 5, 'the time to be over')


class Versions(FlipsTest):
    """New versions with as many parts."""

    replicas = 2

    def test_both_routers_flip_at_about_the_same_time(self):
        self.publish(1)
        self.cluster.start_parts()
        self.start_routers()
        load = self.watch()
        for version in (2, 3, 4):
            self.publish(version)
            self.assertLess(self.wait_flipped(version), FLIP_SECONDS)
        load.finish()
        self.check_watches()

    def test_all_servers_may_restart_one_after_the_other(self):
        self.publish(1)
        self.cluster.start_parts()
        self.start_routers()
        load = self.watch('--retries', '2')
        for part, replica in list(self.cluster.servers):
            self.cluster.servers[part, replica].stop()
            wait_used(self.cluster.start_part(part, replica).wait_ready())
        self.check_watches()
        for router in list(self.cluster.routers):
            router.stop()
            router = self.cluster.start_router(listen=(router.address,))
            wait_served(self.cluster.connect(router), 1, MODEL)
            wait_used(router)
        load.finish()


class SlowParts(FlipsTest):
    """A part that has a version later than the others."""

    scale = SLOW_SCALE

    def start(self, slow_flags, path=None):
        """Starts the servers, that of part 2 with flags or files of its own, and the routers."""
        self.publish(1)
        if path:
            shutil.copytree(self.cluster.path, path)
        for part in range(PARTS):
            slow = part == PARTS - 1
            self.cluster.start_part(part, 0, *(slow_flags if slow else ()),
                                    path=path if slow else None)
        for server in self.cluster.servers.values():
            server.wait_ready()
        self.start_routers()

    def test_routers_wait_for_the_files_of_the_last_part(self):
        late = self.cluster.repository.join('late')
        self.start((), late)
        load = self.watch()
        self.publish(2)
        self.hold(STEADY_SECONDS + HELD_SECONDS)
        self.assertEqual([watch.versions for watch in self.watches], [[1], [1]])
        arriving = self.cluster.repository.join('arriving')
        shutil.copytree(os.path.join(self.cluster.path, MODEL, '2'), arriving)
        os.rename(arriving, os.path.join(late, MODEL, '2'))
        self.assertLess(self.wait_flipped(2), FLIP_SECONDS)
        load.finish()
        self.check_watches()

    def test_versions_that_come_faster_than_a_part_loads_are_served_nevertheless(self):
        self.start(SLOW)
        load = self.watch()
        began = time.monotonic()
        last = 6
        for version in range(2, last + 1):
            self.publish(version)
            self.hold(3)
        self.wait_flipped(last)
        took = time.monotonic() - began
        load.finish()
        self.check_watches()
        for watch in self.watches:
            # Some are skipped, and no version is older than two loads and the time before a flip.
            self.assertGreaterEqual(len(watch.versions), 3, watch.versions)
            self.assertEqual((watch.versions[0], watch.versions[-1]), (1, last))
            for (_, begin, _), (_, end, _) in zip(watch.seen, watch.seen[1:]):
                self.assertLess(end - begin, took / 2 + 5)

    def test_a_router_that_starts_while_a_part_loads_serves_what_is_complete(self):
        self.start(SLOW)
        load = self.watch()
        self.publish(2)
        router = self.cluster.start_router()
        wait_served(self.cluster.connect(router), 1, MODEL)
        watch = self.watch_router(router)
        self.wait_flipped(2)
        wait_until(lambda: watch.first(2), SECONDS, 'version 2')
        load.finish()
        self.check_watches()


class Repartition(FlipsTest):
    """A version with another number of parts."""

    def test_a_version_with_more_parts_takes_over(self):
        self.publish(1)
        self.cluster.start_parts()
        self.cluster.add_ports((part, 'new') for part in range(4))
        self.start_routers()
        load = self.watch()
        # A part server does not start without a version in as many parts.
        self.publish(2, parts=4)
        for part in range(4):
            self.cluster.start_part(part, 'new', parts=4).wait_ready()
        self.wait_flipped(2)
        for part in range(PARTS):
            self.cluster.servers[part, 0].stop()
        for part in range(4):
            wait_used(self.cluster.servers[part, 'new'])
        load.finish()
        self.check_watches()


class BackOut(FlipsTest):
    """The served version is lost at a part that still has the one before."""

    replicas = 2

    def lose(self, *flags):
        """Publishes version 2, and then starts the servers of part 1 again without it."""
        self.publish(1, *flags)
        former = self.cluster.repository.join('former')
        shutil.copytree(self.cluster.path, former)
        self.cluster.start_parts(*LEAVING)
        self.start_routers()
        self.watch_routers()
        self.publish(2, *flags)
        self.wait_flipped(2)
        for replica in range(self.replicas):
            self.cluster.servers[1, replica].stop()
            server = self.cluster.start_part(1, replica, *LEAVING, path=former)
            wait_connected(server, 2)
            server.wait_ready()
            for router in self.cluster.routers:
                wait_until(lambda router=router: self.replicas in [
                    Metrics(router).sum('embag_route_replicas', slot=slot, part='1')
                    for slot in ('previous', 'served')], SECONDS, 'routers to know of version 1')

    def bring_back(self, is_used):
        """Starts the servers of part 1 again with version 2. Waits until each is used, which it can
        be before both are back if version 1 is served."""
        for replica in range(self.replicas):
            self.cluster.servers[1, replica].stop()
            server = self.cluster.start_part(1, replica, *LEAVING).wait_ready()
            wait_connected(server, 2)
            if is_used:
                wait_used(server)

    def test_routers_go_back_within_a_lineage_and_no_lookup_fails(self):
        self.lose('--lineage', 'l')
        for watch in self.watches:
            wait_until(lambda watch=watch: watch.versions == [1, 2, 1], SECONDS, 'version 1')
        self.bring_back(True)
        # Version 2 must now be complete for 30 s.
        self.hold(STEADY_SECONDS + HELD_SECONDS)
        for watch in self.watches:
            self.assertEqual((watch.versions, watch.errors), ([1, 2, 1], []))

    def test_without_a_lineage_only_what_touches_the_part_fails(self):
        self.lose()
        self.hold(STEADY_SECONDS)
        for watch, router in zip(self.watches, self.cluster.routers):
            self.assertEqual(watch.versions, [1, 2])
            with Client(router.address) as client:
                code, text = error_of(client.lookup, request_of(('t21', [0])))
                self.assertEqual(code, grpc.StatusCode.UNAVAILABLE)
                self.assertIn('part 1 of 3 of model "dlrm-v2" version 2', text)
                answer = client.lookup(request_of(('t20', [0]), ('t22', [1]), ('t00', [0, 2])))
                self.assertEqual(answer.version, 2)
        self.bring_back(False)
        for watch in self.watches:
            now = time.monotonic()
            wait_until(lambda watch=watch, now=now: watch.seen[-1][2] > now, SECONDS, 'version 2')
            self.assertEqual(watch.versions, [1, 2])
            self.assertTrue(watch.errors)
            for error in watch.errors:
                self.assertRegex(error, '^UNAVAILABLE: part 1 of 3 of model "dlrm-v2" version 2: ')


class Named(FlipsTest):
    """Versions that requests name, and commands."""

    def setUp(self):
        super().setUp()
        self.publish(1)
        with open(os.path.join(self.cluster.path, MODEL, 'model.yaml'), 'w',
                  encoding='utf-8') as file:
            file.write('versions: {labels: [{name: stable, version: 1}]}\n')
        self.cluster.start_parts()
        self.start_routers()
        self.watch_routers()
        self.clients = self.cluster.clients[-2:]

    def lookup(self, client, **named):
        """Looks up. Returns the version of the answer, which must be right."""
        request = request_of(*QUERIES, **named)
        answer = client.lookup(request)
        self.assertEqual([result.values for result in answer.results],
                         published_sums(request, answer.version))
        return answer.version

    def embag(self, number, *arguments):
        """Runs a command of `embag models` at a router. Returns status and messages."""
        done = subprocess.run(
            [served.EMBAG, 'models', *arguments, '--server',
             'unix:' + self.cluster.repository.join('admin%d' % number)],
            capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stderr

    def test_requests_name_versions_and_labels(self):
        self.publish(2)
        self.wait_flipped(2)
        for client in self.clients:
            self.assertEqual(self.lookup(client), 2)
            self.assertEqual(self.lookup(client, version=2), 2)
            self.assertEqual(self.lookup(client, version=1), 1)
            self.assertEqual(self.lookup(client, version_label='stable'), 1)
            code, text = error_of(self.lookup, client, version=7)
            self.assertEqual((code, '7' in text), (grpc.StatusCode.NOT_FOUND, True))
        self.check_watches()

    def test_a_named_version_that_is_not_complete_is_unavailable(self):
        former = self.cluster.repository.join('former')
        shutil.copytree(self.cluster.path, former)
        self.cluster.servers[1, 0].stop()
        self.cluster.start_part(1, 0, path=former).wait_ready()
        for watch in self.watches:    # Both routers know that the part is back.
            begun = time.monotonic()
            wait_until(lambda watch=watch, begun=begun: watch.seen[-1][2] > begun, SECONDS,
                       'an answer')
        self.publish(2)
        for client in self.clients:
            def has_seen(client=client):
                return error_of(self.lookup, client, version=2)[0] == grpc.StatusCode.UNAVAILABLE
            wait_until(has_seen, SECONDS, 'version 2 to be seen')
            self.assertEqual(self.lookup(client), 1)

    def test_commands_choose_the_version_of_one_router(self):
        self.publish(2)
        self.wait_flipped(2)
        self.assertEqual(self.embag(0, 'serve', MODEL, '1'), (0, ''))
        wait_until(lambda: self.watches[0].versions == [1, 2, 1], SECONDS, 'version 1')
        self.assertEqual(self.watches[1].versions, [1, 2])
        self.publish(3)
        wait_until(lambda: self.watches[1].versions == [1, 2, 3], SECONDS, 'version 3')
        self.assertEqual(self.lookup(self.clients[0]), 1)
        self.assertEqual(self.embag(0, 'serve', MODEL, '0'), (0, ''))
        wait_until(lambda: self.watches[0].versions == [1, 2, 1, 3], SECONDS, 'version 3')
        for watch in self.watches:
            self.assertEqual(watch.errors, [])

    def test_what_routers_claim_is_not_unloaded(self):
        self.publish(2)
        self.wait_flipped(2)
        status, text = self.embag(0, 'unload', MODEL, '2')
        self.assertEqual(status, 1)
        self.assertIn('2', text)
        for client in self.clients:
            self.assertEqual(self.lookup(client), 2)
        self.check_watches()


class Pins(FlipsTest):
    """A version that requests name after the routers have flipped to another one."""

    PIN_SECONDS = 3

    def test_parts_keep_a_version_while_requests_name_it(self):
        self.publish(1)
        with open(os.path.join(self.cluster.path, MODEL, 'model.yaml'), 'w',
                  encoding='utf-8') as file:
            file.write('versions: {keep: 1, keep_s: 0}\n')
        self.cluster.start_parts('--claim-grace-s', '0')
        self.start_routers('--pin-ttl-s', str(self.PIN_SECONDS))
        self.watch_routers()
        client = self.cluster.clients[-1]
        request = request_of(*QUERIES, version=1)
        sums = published_sums(request, 1)

        def states(server):
            model, = self.cluster.connect(server).list_models().models
            return [version.version for version in model.versions]

        self.assertEqual(client.lookup(request).version, 1)
        self.publish(2)
        self.wait_flipped(2)
        over = time.monotonic() + 3 * self.PIN_SECONDS
        while time.monotonic() < over:
            answer = client.lookup(request)
            self.assertEqual([result.values for result in answer.results], sums)
        for server in self.cluster.servers.values():
            self.assertEqual(states(server), [2, 1])
        for server in (*self.cluster.servers.values(), self.cluster.routers[1]):
            wait_until(lambda server=server: states(server) == [2], SECONDS, 'version 1 to go')
        self.assertEqual(error_of(client.lookup, request)[0], grpc.StatusCode.NOT_FOUND)
        self.check_watches()


if __name__ == '__main__':
    unittest.main()
