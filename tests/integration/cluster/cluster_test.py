"""Part servers and routers on hosts of their own, while hosts, packets and names fail.

    cluster_test.py --build DIR [--long] [TEST...]

run.sh runs this in namespaces of its own. There are 4 parts of 2 servers each, and 2 routers.
During each failure embag-load compares all answers of one model with the published values, and a
second load measures the latencies of another. No request may fail and no answer may be wrong. The
latencies are told and not judged, because they depend on the machine. They count from when a
request was due. A second is without a gap if embag-clock-gaps saw the machine late by at most 0.2
ms in it.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import unittest

import numpy as np

import embagd_process
import grpc_proxy
import served
import summary
from cluster import SETTLE, SOME_BAGS, count_bags, version_served, wait_connected, wait_served, \
    wait_used
from embagd_process import wait_until
from failover_load import FailoverLoad
from grpc_proxy import GrpcProxy
from http_peer import Metrics, fetch
from network import Network, run
from remote_cluster import PORT, RemoteCluster
from table_files import Table, write_model
from test_cluster_failures import MODEL, request_of
from verified_load import VerifiedLoad
from version_watch import VersionWatch

PARTS, REPLICAS, ROUTERS = 4, 2, 2
SCALE = 2000
PROXY_PORT = 8700
ROWS, DIM = 20000, 64    # of the table whose latencies are measured
CALM = '--rate', '40'     # of the load that compares answers
MEASURED_RATE = 150
ROUTERS_NAME = 'routers.test:%d' % PORT
SECONDS = 60             # for what is waited for
GAP_US_MAX = 200
FLIP_SECONDS = 0.5
LATE_PART = PARTS - 1    # which gets new versions later than the others
VOLUME_BYTES = 96 << 20  # room for three versions of a part
SPARE_BYTES = 2 << 20    # less than a version of a part
PLACEMENT = {'t%02d' % number: 'placement: everywhere' for number in range(26)}
PLACEMENT.update({name: 'placement: rows' for name in ('t00', 't09', 't19', 't10', 't20')})
PLACEMENT.update({'t21': 'placement: whole, part: 1', 't22': 'placement: whole, part: 2',
                  't11': 'placement: whole, part: 3'})
QUERIES = (('t00', [0, 1, 2, 3]), ('t21', [3]), ('t22', [1, 2]), ('t11', [0]), ('t05', [0]))

options = None
figures = {}    # by test
shared = {}     # the cluster, and the hosts of loads


class ClockGaps:
    """Finds the seconds in which the machine was on time."""

    def __init__(self):
        self.process = subprocess.Popen([os.path.join(served.BUILD, 'embag-clock-gaps')],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def good_seconds(self):
        """Ends the probe. Returns the numbers of the seconds without a gap."""
        out, _ = self.process.communicate()
        if self.process.returncode:
            raise AssertionError('embag-clock-gaps failed')
        lines = [tuple(map(int, line.split())) for line in out.splitlines()]
        return [second for second, gap_us in lines if gap_us <= GAP_US_MAX]


class Measurement:
    """Both loads, from the time when they run until it is finished."""

    def __init__(self, test, name, routers, pace):
        cluster = test.cluster
        self.gaps = ClockGaps()
        test.addCleanup(self.gaps.process.kill)
        self.path = cluster.repository.join('latencies')
        self.verified = VerifiedLoad(['dns:' + name], MODEL, *pace, '--retries', '2',
                                     under=test.clients[0].under)
        test.addCleanup(self.verified.close)
        self.measured = FailoverLoad(served.BUILD, [name], under=test.clients[1].under,
                                     wait=routers, rate=MEASURED_RATE, rows=ROWS, bags=8,
                                     indices=20,
                                     timeout_us=20000000, latencies=self.path)
        test.addCleanup(self.measured.close)
        self.verified.wait_started()
        self.begin = time.monotonic()

    def finish(self):
        """Ends the loads, of which no request has failed. Returns the report of both, and three
        arrays: latencies of the second one, when its requests were due, both in seconds, and which
        of them were due in a second without a gap."""
        verified = self.verified.finish()
        report = self.measured.finish()
        if report['statuses'] != {'OK': report['begun']} or report['unsent']:
            raise AssertionError('%s\n%s' % (report, self.measured.messages[-4000:]))
        times = np.fromfile(self.path, '<i8').reshape(-1, 3) / 1e9
        times = times[times[:, 0] >= self.begin]
        good = np.isin(times[:, 0].astype(int), self.gaps.good_seconds())
        return verified, report, times[:, 1], times[:, 0], good


def describe(calm, disturbed):
    """Returns the figures of latencies in seconds, without and with a disturbance."""
    if not len(calm) or not len(disturbed):
        return None    # No second counts.
    calm, disturbed = calm * 1e6, disturbed * 1e6
    late = disturbed > 2 * np.percentile(calm, 99) + 1000
    return {
        'lookups': len(disturbed),
        'late_percent': round(100 * float(np.mean(late)), 3),
        **{'calm_p%s_us' % share: round(float(np.percentile(calm, share))) for share in (50, 99)},
        **{'p%s_us' % share: round(float(np.percentile(disturbed, share)))
           for share in (50, 99, 99.9, 100)},
    }


def count_accepted(server):
    """Returns how many connections a server has accepted."""
    return Metrics(server).sum('embag_connections_accepted_total')


def setUpModule():
    """Starts the servers of all tests."""
    shared['cluster'] = cluster = RemoteCluster(PARTS, REPLICAS, ROUTERS)
    unittest.addModuleCleanup(cluster.remove)
    shared['clients'] = [cluster.network.add('client-%d' % number) for number in range(2)]
    cluster.make_model(MODEL, 1, SCALE)
    cluster.split(MODEL, 1, placement=PLACEMENT)
    values = np.repeat(np.arange(ROWS), DIM).reshape(ROWS, DIM)
    write_model(cluster.source, 'm', 1, [Table.of_values('t', 'f32', values)])
    cluster.split('m', 1, placement={'t': 'placement: rows'})
    cluster.start_parts()
    cluster.start_routers()
    for router in cluster.routers:
        client = cluster.connect(router)
        for model in MODEL, 'm':
            wait_served(client, 1, model)


class ClusterTest(unittest.TestCase):
    """The servers of all tests. Each test leaves them as they were."""

    @classmethod
    def setUpClass(cls):
        cls.cluster, cls.clients = shared['cluster'], shared['clients']
        cls.network = cls.cluster.network

    def hold(self, short, long):
        """Lets time pass."""
        time.sleep(long if options.long else short)

    def only_long(self):
        """Skips a test in the short form."""
        if not options.long:
            self.skipTest('it is part of the long form')

    def measure(self, disturb, name=ROUTERS_NAME, routers=ROUTERS, pace=CALM):
        """Runs the loads undisturbed for a while, and then disturbs them. Keeps the figures. The
        name has the addresses of that many routers; the pace is that of the first load."""
        measurement = Measurement(self, name, routers, pace)
        self.hold(2, 30)
        begun = time.monotonic()
        disturb()
        verified, report, latency, due, good = measurement.finish()
        calm = due < begun
        found = {
            'lookups': report['begun'], 'resends': report['resends'],
            'verified_per_s': round(verified['requests_per_s']),
            'seconds_without_gap': len(set(due[good].astype(int))),
            'without_gaps': describe(latency[calm & good], latency[~calm & good]),
            'all_seconds': describe(latency[calm], latency[~calm]),
        }
        figures[self.id().rsplit('.', 1)[-1]] = found
        print('\n' + json.dumps(found), flush=True)

    def restart(self, part, replica):
        """Starts a server that has ended, and waits until it is used."""
        wait_used(self.cluster.start_part(part, replica).wait_ready())

    def wait_serving(self, router):
        """Waits until a router that was started serves both models, and both loads use it."""
        client = self.cluster.connect(router)
        for model in MODEL, 'm':
            wait_until(lambda model=model: version_served(client, model), SECONDS, 'a version')
            wait_until(lambda model=model: Metrics(router).sum(
                'embag_table_bags_total', model=model) >= SOME_BAGS, SECONDS, 'lookups')

    def for_each_part(self, disturb, short=1):
        """Disturbs one server of each part in turn; in the short form, of some parts."""
        for part in range(PARTS if options.long else short):
            disturb(part, part % REPLICAS)


class Hosts(ClusterTest):
    """Processes that end, stop and stall."""

    def find_saturation(self):
        """Returns how many lookups of the first load are answered in a second if there are always
        some in flight."""
        load = VerifiedLoad(['dns:' + ROUTERS_NAME], MODEL, '--retries', '2',
                            under=self.clients[0].under)
        self.addCleanup(load.close)
        load.wait_started()
        time.sleep(10)
        return load.finish()['requests_per_s']

    def half_load(self):
        """Returns the pace of half of saturation. In the short form, requests in flight bound it in
        place of a rate, so that a machine that becomes slower is not overloaded."""
        if not options.long:
            return '--in-flight', '8'
        return '--rate', '%g' % (self.find_saturation() / 2)

    def test_killed_replicas(self):
        def disturb():
            end = time.monotonic() + (600 if options.long else 60)
            number = 0
            while time.monotonic() < end:
                part, replica = number % PARTS, number // PARTS % REPLICAS
                self.cluster.servers[part, replica].kill()
                self.hold(1, 10)
                self.restart(part, replica)
                self.hold(1, 10)
                number += 1
        self.measure(disturb, pace=self.half_load())

    def test_drained_replicas(self):
        self.only_long()
        def disturb(part, replica):
            self.cluster.servers[part, replica].stop()
            self.hold(1, 10)
            self.restart(part, replica)
        self.measure(lambda: self.for_each_part(disturb))

    def test_stopped_replicas(self):
        def disturb(part, replica):
            server = self.cluster.servers[part, replica]
            server.hold()
            try:
                self.hold(5, 20)
            finally:
                server.release()
            wait_used(server)
        self.measure(lambda: self.for_each_part(disturb))

    def test_a_replica_that_stalls(self):
        self.only_long()
        def disturb():
            server = self.cluster.servers[0, 0]
            for _ in range(100 if options.long else 10):
                server.hold()
                time.sleep(0.05)
                server.release()
                time.sleep(0.35)
            wait_used(server)
        self.measure(disturb)

    def test_killed_routers(self):
        def disturb():
            for number in range(ROUTERS):
                self.cluster.routers[number].kill()
                self.hold(1, 10)
                router = self.cluster.start_router_again(number)
                self.wait_serving(router)
        self.measure(disturb)


class Packets(ClusterTest):
    """Packets that are dropped, lost, delayed or answered with resets."""

    def with_packets(self, spoil, short, long, check=None):
        """Spoils the packets of one server of each part in turn. `check` is called at the end of
        each time."""
        def disturb(part, replica):
            node = self.cluster.part_node(part, replica)
            spoil(node)
            try:
                self.hold(short, long)
                if check:
                    check(self.cluster.servers[part, replica])
            finally:
                node.heal()
            wait_used(self.cluster.servers[part, replica])
        self.measure(lambda: self.for_each_part(disturb))

    def test_a_black_hole(self):
        def check(server):
            before = count_bags(server)
            self.hold(2, 5)
            self.assertEqual(count_bags(server), before)
        self.with_packets(lambda node: node.drop(PORT), 3, 20, check)

    def test_packets_that_are_lost(self):
        self.with_packets(lambda node: node.lose(PORT, 5), 4, 30)

    def test_resets(self):
        self.with_packets(lambda node: node.reset(PORT), 1, 5)

    def test_packets_that_are_late(self):
        node = self.cluster.part_node(0, 0)
        can_delay = node.delay(20)
        node.heal()
        if not can_delay:
            print('\nlate-packets: skipped, this kernel has no netem')
            self.skipTest('this kernel has no netem')
        self.with_packets(lambda node: node.delay(20), 4, 30)

    def with_router(self, spoil):
        """Spoils the packets of one router."""
        def disturb():
            node = self.network.nodes[self.cluster.router_names[0]]
            spoil(node)
            try:
                self.hold(5, 20)
            finally:
                node.heal()
            wait_used(self.cluster.routers[0])
        self.measure(disturb)

    def test_a_router_behind_a_black_hole(self):
        self.with_router(lambda node: node.drop(PORT))

    def test_a_router_that_is_cut_off_from_the_parts(self):
        self.with_router(lambda node: node.drop_others(PORT))


class Proxies(ClusterTest):
    """Part servers behind proxies, which acknowledge packets and answer PING for them."""

    def setUp(self):
        if not grpc_proxy.is_installed():
            print('\nproxies: skipped, nginx is not installed')
            self.skipTest('nginx is not installed')
        self.proxies = {}
        for key in self.cluster.ports:
            directory = self.cluster.repository.join('proxy-%d-%d' % key)
            self.addCleanup(shutil.rmtree, directory)
            self.proxies[key] = GrpcProxy(self.cluster.part_node(*key), PROXY_PORT, PORT, directory)
            self.addCleanup(self.proxies[key].close)

    def start_router(self):
        """Starts a router that knows only the proxies. Returns it."""
        if 'proxied' not in shared:
            shared['proxied'] = self.network.add('proxied')
        router = self.cluster.serve(
            shared['proxied'], self.cluster.path, '--loops', '1', *SETTLE, '--route',
            ','.join(proxy.address for proxy in self.proxies.values()))
        self.addCleanup(router.stop)
        router.wait_ready()
        client = self.cluster.connect(router)
        for model in MODEL, 'm':
            wait_until(lambda model=model: version_served(client, model), SECONDS, 'a version')
        return router

    def wait_suspects(self, count, part):
        """Waits until the router suspects that many servers of a part."""
        labels = {'part': str(part)}
        wait_until(lambda: Metrics(self.router).get('embag_route_suspects', **labels) == count,
                   SECONDS, '%d suspects of part %d' % (count, part))

    def count_sent(self, key):
        """Returns how many legs were sent to a server, and checks that it is connected."""
        peers = json.loads(fetch(self.router, '/status.json')[2])['route']['peers']
        peer, = (peer for peer in peers if peer['address'] == self.proxies[key].address)
        self.assertNotEqual(peer['state'], 'lost')
        return peer['sent']

    def test_stopped_replicas_behind_proxies(self):
        self.router = self.start_router()

        def disturb(part, replica):
            server = self.cluster.servers[part, replica]
            other = self.cluster.servers[part, 1 - replica]
            server.hold()
            try:
                self.wait_suspects(1, part)
                before = [self.count_sent((part, number)) for number in (replica, 1 - replica)]
                wait_used(other)
                self.hold(1, 20)
                self.wait_suspects(1, part)
                after = [self.count_sent((part, number)) for number in (replica, 1 - replica)]
                # On a busy machine, the other one may be suspect for a while too.
                self.assertLess(20 * (after[0] - before[0]), after[1] - before[1])
            finally:
                server.release()
            self.wait_suspects(0, part)
            wait_used(server)
        self.measure(lambda: self.for_each_part(disturb), self.router.address, 1)


class Names(ClusterTest):
    """The name service fails while servers end and come back."""

    def bounce(self):
        """Has a server leave and come back."""
        self.cluster.servers[1, 0].kill()
        self.hold(2, 10)
        self.restart(1, 0)

    def test_names_that_are_not_found(self):
        self.only_long()
        def disturb():
            self.network.tell_names(parts=[], routers=[])
            self.bounce()
        self.addCleanup(self.bring_names_back)
        self.measure(disturb)

    def test_names_that_have_no_addresses(self):
        self.only_long()
        def disturb():
            self.network.stop_names()
            self.network.tell_names(parts=[], routers=[])
            self.network.start_names('--txt-record=parts.test,none',
                                     '--txt-record=routers.test,none')
            self.bounce()
        self.addCleanup(self.bring_names_back)
        self.measure(disturb)

    def test_a_name_service_that_is_dead(self):
        def disturb():
            self.network.stop_names()
            self.bounce()
        self.addCleanup(self.bring_names_back)
        self.measure(disturb)

    def test_a_name_service_that_is_silent(self):
        self.only_long()
        def disturb():
            self.network.names_process.send_signal(signal.SIGSTOP)
            self.bounce()
        self.addCleanup(self.bring_names_back)
        self.measure(disturb)

    def bring_names_back(self):
        """Makes the name service what it was."""
        self.network.stop_names()
        self.network.tell_names(
            parts=self.cluster.part_addresses(),
            routers=[self.network.nodes[name].address for name in self.cluster.router_names])
        self.network.start_names()

    def test_more_addresses_than_fit_into_a_datagram(self):
        def disturb():
            for number in range(ROUTERS):
                self.cluster.routers[number].stop()
                router = self.cluster.start_router_again(number)
                self.wait_serving(router)
        self.addCleanup(self.bring_names_back)
        self.network.tell_names(
            parts=self.cluster.part_addresses() + Network.empty_addresses(40))
        self.measure(disturb)

    def replicas(self, router, part):
        """Returns the smallest number of servers that a router knows to have a part."""
        metrics = Metrics(router)
        return min(metrics.get('embag_route_replicas', model=model, slot='served', part=str(part))
                   for model in (MODEL, 'm'))

    def wait_replicas(self, count, part):
        """Waits until both routers know that many servers of a part."""
        for router in self.cluster.routers:
            wait_until(lambda router=router: self.replicas(router, part) == count, SECONDS,
                       '%d replicas of part %d' % (count, part))

    def test_two_addresses_of_each_server(self):
        if not self.network.has_ipv6:
            print('\ntwo-addresses: skipped, this kernel has no IPv6')
            self.skipTest('this kernel has no IPv6')
        self.addCleanup(self.bring_names_back)
        node, server = self.cluster.part_node(0, 1), self.cluster.servers[0, 1]

        def disturb():
            accepted = count_accepted(server)
            self.network.tell_names(parts=self.cluster.part_addresses() + [
                self.cluster.part_node(*key).address6 for key in self.cluster.ports])
            # Routers learn over a connection to the new address that they know the process.
            wait_until(lambda: count_accepted(server) >= accepted + ROUTERS, SECONDS,
                       'connections to the new addresses')
            for part in range(PARTS):
                self.wait_replicas(REPLICAS, part)
            self.cluster.servers[1, 0].kill()
            self.wait_replicas(REPLICAS - 1, 1)
            self.restart(1, 0)
            self.wait_replicas(REPLICAS, 1)
            if options.long:
                lose_each_kind()

        def lose_each_kind():
            for drop in node.drop_ipv6, node.drop_ipv4:
                drop(PORT)
                time.sleep(20)
                wait_used(server)
                self.wait_replicas(REPLICAS, 0)
            node.heal()
            wait_used(server)
        self.addCleanup(node.heal)
        self.measure(disturb)


class VersionsTest(ClusterTest):
    """New versions, while lookups at both routers go on."""

    def setUp(self):
        self.watches = []
        for router in self.cluster.routers:
            self.watches.append(VersionWatch(router.address, request_of(*QUERIES)))
            self.addCleanup(self.watches[-1].close)
        self.version = wait_until(lambda: self.watches[0].versions, SECONDS, 'an answer')[0]

    def publish(self):
        """Publishes the next version."""
        self.version += 1
        self.cluster.make_model(MODEL, self.version, SCALE)
        self.cluster.split(MODEL, self.version, placement=PLACEMENT)

    def remove(self, version, *paths):
        """Deletes a version, also from other repositories."""
        for path in self.cluster.source, self.cluster.path, *paths:
            shutil.rmtree(os.path.join(path, MODEL, str(version)))

    def wait_flipped(self):
        """Waits until both routers serve the version that was published. Keeps the time between."""
        first = [wait_until(lambda watch=watch: watch.first(self.version), SECONDS,
                            'version %d' % self.version) for watch in self.watches]
        figures.setdefault('flip_seconds', []).append(round(abs(first[0] - first[1]), 3))
        self.assertLess(abs(first[0] - first[1]), FLIP_SECONDS)

    def check_watches(self):
        """Checks that versions only rose, and that lookups failed only at killed routers."""
        for watch in self.watches:
            watch.close()
            for error in watch.errors:
                self.assertRegex(error, '^UNAVAILABLE: ')
            self.assertEqual(watch.versions, sorted(set(watch.versions)))

    def restart_late(self, path):
        """Starts all servers of the late part again, with the files of another repository."""
        for replica in range(REPLICAS):
            self.cluster.servers[LATE_PART, replica].stop()
            wait_used(self.cluster.start_part(LATE_PART, replica, path=path).wait_ready())


class Flips(VersionsTest):
    """New versions, while servers are killed or late."""

    def restart_router(self, number):
        """Kills a router, and waits until lookups at it succeed again."""
        self.cluster.routers[number].kill()
        router = self.cluster.start_router_again(number)
        begin = time.monotonic()
        watch = self.watches[number]
        wait_until(lambda: watch.seen[-1][2] > begin, SECONDS, 'an answer')
        wait_used(router)

    def arrive(self):
        """Brings the version that was published to the late part."""
        arriving = self.cluster.repository.join('arriving')
        shutil.copytree(os.path.join(self.cluster.path, MODEL, str(self.version)), arriving)
        os.rename(arriving, os.path.join(self.late, MODEL, str(self.version)))

    def flip(self):
        """Publishes a version, and kills a replica and a router while a part is late with it."""
        former = self.version
        self.publish()
        published = time.monotonic()
        part, replica = self.version % PARTS, self.version % REPLICAS
        self.cluster.servers[part, replica].kill()
        path = self.late if part == LATE_PART else None
        self.cluster.start_part(part, replica, path=path).wait_ready()
        self.restart_router(self.version % ROUTERS)
        wait_connected(self.cluster.servers[part, replica], ROUTERS)
        time.sleep(max(published + (60 if options.long else 3) - time.monotonic(), 0))
        self.assertEqual([watch.versions[-1] for watch in self.watches], [former] * ROUTERS)
        self.arrive()
        self.wait_flipped()
        self.remove(former, self.late)

    def test_a_late_part_and_killed_servers_in_each_flip(self):
        self.late = self.cluster.repository.join('late')
        shutil.copytree(self.cluster.path, self.late)
        self.addCleanup(shutil.rmtree, self.late)

        def disturb():
            self.restart_late(self.late)
            for _ in range(30 if options.long else 5):
                self.flip()
            self.restart_late(self.cluster.path)
        self.measure(disturb)
        self.check_watches()


class Disks(VersionsTest):
    """Volumes that are full, and have room again."""

    def setUp(self):
        self.only_long()
        super().setUp()
        self.volume = self.cluster.repository.join('volume')
        self.filler = os.path.join(self.volume, 'filler')
        os.mkdir(self.volume)
        self.addCleanup(os.rmdir, self.volume)
        run('mount', '-t', 'tmpfs', '-o', 'huge=never,mode=0700,size=%d' % VOLUME_BYTES, 'none',
            self.volume)
        self.addCleanup(run, 'umount', '-l', self.volume)

    def fill(self, left=0):
        """Fills the volume, but for some bytes."""
        volume = os.statvfs(self.volume)
        with open(self.filler, 'wb') as file:
            os.posix_fallocate(file.fileno(), 0, volume.f_bavail * volume.f_frsize - left)

    def test_a_resident_directory_without_room(self):
        flags = ('--resident-dir', self.volume, '--resident-small-pages', 'allow')

        def start():
            self.cluster.servers[0, 0].stop()
            server = self.cluster.start_part(0, 0, *flags).wait_ready()
            wait_used(server)
            return server

        def disturb():
            server = start()
            for event in 'resident_full', 'resident_unrecorded':
                self.assertIn(self.volume, wait_until(lambda event=event: server.find(event),
                                                      SECONDS, 'event=' + event))
            for written in False, True:
                self.publish()
                self.wait_flipped()
                wait_until(lambda: 'version=%d ' % self.version in server.log, SECONDS,
                           'the version to be loaded')
                self.assertEqual(self.written(server) > 0, written)
                self.remove(self.version - 1)
                if not written:
                    os.remove(self.filler)
            # The tables that had found no room are loaded again at the next start.
            server = start()
            self.assertRegex(server.log, 'adopted_bytes=[1-9]')
            wait_until(lambda: Metrics(server).get('embag_resident_served_complete') == 1, SECONDS,
                       'a record of all tables')
            self.assertIsNone(server.find('resident_full'))
            self.cluster.servers[0, 0].stop()
            self.restart(0, 0)
        self.fill()
        self.measure(disturb)
        self.check_watches()

    @staticmethod
    def written(server):
        """Returns how many tables a server has written into its resident directory."""
        return Metrics(server).get('embag_resident_tables_total', outcome='written')

    def copy(self, model, version, is_first=False):
        """Copies what the late part needs of a version: its manifest last, as it should be, or
        first."""
        source = os.path.join(self.cluster.path, model, str(version))
        target = os.path.join(self.volume, model, str(version))
        manifest = os.path.join(source, 'manifest.yaml')
        part = 'part-%05d-of-%05d' % (LATE_PART, PARTS)
        if is_first:
            os.makedirs(target)
            shutil.copy(manifest, target)
        shutil.copytree(source, target, dirs_exist_ok=True, ignore=lambda _, names: [
            name for name in names if name == 'manifest.yaml' or
            name.startswith('part-') and name != part])
        shutil.copy(manifest, target)

    def test_a_repository_without_room(self):
        for model, version in (MODEL, self.version), ('m', 1):
            self.copy(model, version)

        def disturb():
            former = self.version
            self.restart_late(self.volume)
            servers = [self.cluster.servers[LATE_PART, replica] for replica in range(REPLICAS)]
            self.fill(left=SPARE_BYTES)
            self.publish()
            target = os.path.join(self.volume, MODEL, str(self.version))
            for is_first in False, True:
                with self.assertRaisesRegex(shutil.Error, 'No space left on device'):
                    self.copy(MODEL, self.version, is_first)
                for server in servers:
                    if is_first:
                        line = wait_until(lambda server=server: server.find('model_failed'),
                                          SECONDS, 'event=model_failed')
                        self.assertIn(target, line)
                    wait_used(server)
                    self.assertEqual(bool(server.find('model_failed')), is_first)
                if not is_first:
                    shutil.rmtree(target)
            self.assertEqual([watch.versions[-1] for watch in self.watches], [former] * ROUTERS)
            os.remove(self.filler)
            self.copy(MODEL, self.version)
            self.wait_flipped()
            self.restart_late(self.cluster.path)
            self.remove(former)
        self.measure(disturb)
        self.check_watches()


def main():
    """Returns the exit status."""
    global options
    parser = argparse.ArgumentParser()
    parser.add_argument('--build', required=True)
    parser.add_argument('--long', action='store_true')
    parser.add_argument('tests', nargs='*')
    options = parser.parse_args()
    # The kernel ends all processes of the namespace with its first one, which this is.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(1))
    served.BUILD = os.path.abspath(options.build)
    embagd_process.EMBAGD = os.path.join(served.BUILD, 'embagd')
    served.EMBAG = os.path.join(served.BUILD, 'embag')
    status = summary.run_tests(*options.tests)
    with open(os.path.join(served.BUILD, 'cluster.json'), 'w', encoding='utf-8') as file:
        json.dump(figures, file, indent=2)
        file.write('\n')
    return status


if __name__ == '__main__':
    sys.exit(main())
