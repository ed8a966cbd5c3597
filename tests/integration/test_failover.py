"""One client with several servers while servers, connections, packets and names fail.

No lookup may fail, and no answer may be wrong. Nothing here depends on how fast the machine is: a
lookup has much time, and each step waits until the client has noticed the one before.
"""

import re
import shutil
import socket
import subprocess
import time
import unittest

import numpy as np

import name_server
import served
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import Embagd, wait_until
from failover_load import FailoverLoad, server_of
from h2raw import Connection, message
from http_peer import Metrics
from name_server import NameServer, loopback_address
from rpc import as_bytes
from served import OwnServerTest
from table_files import Table, write_model
from tcp_proxy import TcpProxy

SECONDS = 120           # for what the client has to notice
ROWS, DIM = 1000, 8
STOP_SECONDS = 5
SOME = 30               # lookups that show that a server is used
NAME = 'group.failover.test'
CLOSE_SECONDS = 10
MAC = '02:00:00:00:07:01'
MIB = 1 << 20
LARGE_DIM, LARGE_BAGS = 16384, 640    # an answer of 40 MiB
SAVED_HEDGES = 64       # tokens that a client may save


class FailoverTest(OwnServerTest):
    """Starts servers with one table, in which every value of row n is n, and loads on them."""

    def setUp(self):
        super().setUp()
        values = np.repeat(np.arange(ROWS), DIM).reshape(ROWS, DIM)
        write_model(self.repository.path, 'm', 1, [Table.of_values('t', 'f32', values)])

    def start(self, *flags, **keywords):
        """Starts a server. It is not waited for, so that several can start at the same time."""
        server = Embagd(self.repository.path, '--watch', 'off', *flags, **keywords)
        self.addCleanup(server.stop)
        return server

    def start_three(self, *flags, **keywords):
        """Returns three servers that are ready."""
        servers = [self.start(*flags, **keywords) for _ in range(3)]
        return [server.wait_ready() for server in servers]

    def restart(self, server, *flags):
        """Starts a server on the address of another one that has ended."""
        return self.start(*flags, listen=(server.address,)).wait_ready()

    def load(self, addresses, **options):
        """Starts a load on these addresses."""
        load = FailoverLoad(served.BUILD, addresses, **{'rate': 300, 'rows': ROWS, **options})
        self.addCleanup(load.close)
        return load

    def load_servers(self, servers, **options):
        """Starts a load on servers, and waits until each is used."""
        load = self.load([server.address for server in servers], wait=len(servers), **options)
        for server in servers:
            self.wait_used(load, server.address)
        return load

    def wait_for(self, load, condition, what):
        """Waits until a report of the load meets the condition. Returns that report."""
        def look():
            report = load.report()
            return condition(report) and report
        return wait_until(look, SECONDS, what)

    def wait_used(self, load, address):
        """Waits until the server at an address gets lookups, from now on."""
        before = server_of(load.report(), address)
        sent = before['sent'] if before else 0
        self.wait_for(load, lambda report: (server_of(report, address) or {'sent': 0})['sent'] >=
                      sent + SOME, address + ' to get lookups')

    def wait_state(self, load, address, **state):
        """Waits until the client sees a server like this."""
        self.wait_for(load, lambda report: state.items() <=
                      (server_of(report, address) or {}).items(), '%s: %s' % (address, state))

    def wait_more(self, load, count=SOME):
        """Waits until that many more lookups are answered."""
        answered = load.report()['statuses'].get('OK', 0)
        self.wait_for(load, lambda report: report['statuses'].get('OK', 0) >= answered + count,
                      'more answers')

    def check_counts(self, report):
        """Checks that a report's figures agree with each other."""
        self.assertEqual(report['unsent'], 0)
        self.assertEqual(report['done'], report['begun'])
        self.assertEqual(report['lookups'], report['begun'])
        self.assertEqual(sum(server['sent'] for server in report['servers']),
                         report['lookups'] + report['resends'] + report['hedges'])

    def finish(self, load, are_all_known=True):
        """Ends a load of which no lookup has failed. Returns its last report."""
        report = load.finish()
        self.assertEqual(report['statuses'], {'OK': report['begun']}, load.messages[-4000:])
        if are_all_known:
            self.check_counts(report)
        return report


class Servers(FailoverTest):
    """Servers that end, stop and come back."""

    def test_a_killed_server_costs_no_lookup_and_is_used_again(self):
        servers = self.start_three()
        load = self.load_servers(servers)
        killed = servers[2]
        address = killed.address
        killed.kill()
        self.wait_state(load, address, connected=False)
        self.wait_more(load)
        self.restart(killed)
        self.wait_used(load, address)
        report = self.finish(load)
        self.assertEqual(report['hedges'], 0)
        self.assertGreaterEqual(report['resends'], server_of(report, address)['failed'])

    def test_each_server_may_be_killed_in_turn(self):
        servers = self.start_three()
        load = self.load_servers(servers)
        for server in servers:
            server.kill()
            self.wait_state(load, server.address, connected=False)
            self.restart(server)
            self.wait_used(load, server.address)
        self.finish(load)

    def test_a_drained_server_costs_no_lookup_and_is_used_again(self):
        servers = self.start_three()
        load = self.load_servers(servers)
        address = servers[0].address
        servers[0].terminate()
        self.wait_state(load, address, connected=False)
        self.assertEqual(servers[0].wait(), 0)
        self.wait_more(load)
        self.restart(servers[0])
        self.wait_used(load, address)
        self.finish(load)

    def stop_for_a_while(self, load, server):
        """Stops a server for some seconds, and waits until it is used again."""
        server.hold()
        try:
            over = time.monotonic() + STOP_SECONDS
            self.wait_state(load, server.address, left_out=True)
            sent = load.server(server.address)['sent']
            self.wait_more(load)
            self.assertLessEqual(load.server(server.address)['sent'], sent)
            wait_until(lambda: time.monotonic() > over, 2 * STOP_SECONDS, 'the time to be over')
        finally:
            server.release()
        self.wait_state(load, server.address, left_out=False, connected=True)
        self.wait_used(load, server.address)

    def test_a_stopped_server_is_left_out_until_it_goes_on(self):
        servers = self.start_three()
        load = self.load_servers(servers)
        self.stop_for_a_while(load, servers[1])
        report = self.finish(load)
        self.assertEqual(report['hedges'], 0)
        self.assertGreaterEqual(report['resends'], 1)

    def test_hedges_do_not_hide_that_a_server_is_stopped(self):
        servers = self.start_three()
        load = self.load_servers(servers, hedge=5)
        self.stop_for_a_while(load, servers[1])
        report = self.finish(load)
        self.assertGreaterEqual(report['resends'] + report['hedges_won'], 1)
        self.check_hedges(report)

    def check_hedges(self, report):
        """Checks that there were not too many hedges."""
        self.assertLessEqual(report['hedges'], 0.05 * report['lookups'] + SAVED_HEDGES)
        self.assertLessEqual(report['hedges_won'], report['hedges'])

    def test_short_stalls_are_hedged_within_the_budget(self):
        servers = self.start_three()
        load = self.load_servers(servers, hedge=5)
        for _ in range(6):
            servers[0].hold()
            time.sleep(0.05)
            servers[0].release()
            time.sleep(0.95)
        self.wait_used(load, servers[0].address)
        self.check_hedges(self.finish(load))

    def test_a_process_behind_two_addresses_is_one_server(self):
        both = self.start(listen=('127.0.0.1:0', loopback_address() + ':0')).wait_ready()
        other = self.start().wait_ready()
        pair = re.findall(r'event=listening\b.* address="?([0-9.:]+)', both.log)
        load = self.load([*pair, other.address])

        def is_found(report):
            connected = {server['address'] for server in report['servers'] if server['connected']}
            return len(connected) == 2 and other.address in connected

        found = self.wait_for(load, is_found, 'one connection to each process')
        twin = next(address for address in pair
                    if not server_of(found, address)['connected'])
        self.wait_used(load, other.address)
        self.wait_more(load, 10 * SOME)
        self.assertTrue(is_found(load.report()))
        report = self.finish(load)
        self.assertEqual(server_of(report, twin)['sent'], server_of(found, twin)['sent'])


class Connections(FailoverTest):
    """Connections that break, and addresses behind which nobody answers."""

    def test_connections_that_are_reset_cost_no_lookup(self):
        servers = self.start_three()
        proxies = [TcpProxy(server.port) for server in servers]
        for proxy in proxies:
            self.addCleanup(proxy.close)
        load = self.load_servers(proxies)
        for proxy in proxies * 2:
            count = proxy.count
            proxy.reset()
            wait_until(lambda proxy=proxy, count=count: proxy.count > count, SECONDS,
                       'a new connection')
            self.wait_used(load, proxy.address)
        self.finish(load)

    def test_a_listener_that_never_answers_is_left_out(self):
        servers = self.start_three()[:2]
        silent = socket.create_server(('127.0.0.1', 0))
        self.addCleanup(silent.close)
        address = '127.0.0.1:%d' % silent.getsockname()[1]
        load = self.load([address, *(server.address for server in servers)], wait=3)
        self.wait_state(load, address, left_out=True)
        for server in servers:
            self.wait_used(load, server.address)
        sent = load.server(address)['sent']
        self.wait_more(load, 10 * SOME)
        report = self.finish(load)
        self.assertEqual(server_of(report, address)['sent'], sent)
        self.assertTrue(server_of(report, address)['left_out'])

    def test_an_address_without_a_listener_gets_nothing(self):
        servers = self.start_three()[:2]
        with socket.create_server(('127.0.0.1', 0)) as closed:
            address = '127.0.0.1:%d' % closed.getsockname()[1]
        load = self.load([address, *(server.address for server in servers)], wait=2)
        self.wait_more(load, 10 * SOME)
        self.assertEqual(server_of(self.finish(load), address)['sent'], 0)


class Refusals(FailoverTest):
    """Servers that answer errors."""

    def test_lookups_are_hardly_sent_again_if_all_servers_refuse(self):
        values = np.zeros((1, LARGE_DIM))
        write_model(self.repository.path, 'm', 2, [Table.of_values('t', 'f32', values)])
        servers = self.start_three('--loops', '1', '--answer-memory-bytes', str(128 * MIB),
                                   '--write-timeout-ms', '600000', http='127.0.0.1:0')
        large = message(as_bytes(pb.LookupRequest(model='m', queries=[
            pb.BagQuery(table='t', num_bags=LARGE_BAGS)])))
        # Answers that nobody takes leave no memory for others.
        for server in servers * 2:
            slow = Connection(server.port, window=0)
            self.addCleanup(slow.close)
            slow.call(large)
        for server in servers:
            wait_until(lambda server=server: Metrics(server).get(
                'embag_pool_bytes', pool='answer') >= 80 * MIB, SECONDS, 'the memory is in use')
        load = self.load([server.address for server in servers], wait=3, bags=LARGE_BAGS,
                         indices=1, rows=1, lookups=500, timeout_us=60000000)
        report = load.wait()
        self.assertEqual(report['statuses'], {'RESOURCE_EXHAUSTED': report['begun']})
        self.check_counts(report)
        sent = sum(server['sent'] for server in report['servers'])
        self.assertGreater(sent, report['begun'])
        self.assertLessEqual(sent, 1.2 * report['begun'])
        for server in servers:
            metrics = Metrics(server)
            count = server_of(report, server.address)['sent']
            self.assertEqual(metrics.sum('embag_requests_total', code='RESOURCE_EXHAUSTED'), count)
            self.assertEqual(metrics.get('embag_refused_total', reason='memory'), count)

    def test_a_server_that_answers_errors_at_once_gets_little(self):
        servers = self.start_three()[:2]
        bad = self.start('--indices-max', '1').wait_ready()
        load = self.load([*(server.address for server in servers), bad.address], wait=3,
                         bags=1, indices=2)
        # From the first errors on.
        before = self.wait_for(load, lambda report: server_of(report, bad.address)['failed'] > 0,
                               'errors')
        self.wait_for(load, lambda report: report['begun'] >= before['begun'] + 2500, 'more')
        report = load.finish()
        found = server_of(report, bad.address)
        failed = report['begun'] - report['statuses']['OK']
        self.check_counts(report)
        # Others may have answered before it could refuse, if it was silent because it was slow.
        self.assertLessEqual(failed, found['sent'])
        self.assertLessEqual(failed, found['failed'])
        # A fair share were a third. On an idle machine it is less than 2 %
        # (tests/bench/failover.py). On a busy one lookups pile up at the others, so that this one
        # seems better now and then, until it has failed 20 more.
        self.assertLess(found['sent'] - server_of(before, bad.address)['sent'],
                        0.1 * (report['begun'] - before['begun']))


@unittest.skipUnless(name_server.is_available(),
                     'a test cannot have a name service of its own: that needs CAP_SYS_ADMIN')
class Names(FailoverTest):
    """Names whose addresses come, go and cannot be found."""

    def setUp(self):
        super().setUp()
        self.names = NameServer(self.repository.path, NAME)
        self.addCleanup(self.names.close)
        self.hosts = [loopback_address() for _ in range(3)]
        self.servers = [self.start(listen=(self.hosts[0] + ':0',)).wait_ready()]
        self.port = self.servers[0].port
        self.servers += [self.start(listen=('%s:%d' % (host, self.port),)) for host in
                         self.hosts[1:]]
        for server in self.servers:
            server.wait_ready()
        self.addresses = ['%s:%d' % (host, self.port) for host in self.hosts]

    def load_names(self, *addresses, **options):
        """Starts a load on the name, after these addresses, with the name service of the test."""
        return self.load([*addresses, '%s:%d' % (NAME, self.port)], under=self.names.under(),
                         **options)

    def start_again(self, number, load=None):
        """Starts a server anew on its address. The client looks the name up when it loses it."""
        self.servers[number].kill()
        if load:
            self.wait_state(load, self.addresses[number], connected=False)
        self.servers[number] = self.start(listen=(self.addresses[number],)).wait_ready()

    def wait_asked(self, questions):
        """Waits until the client has asked again."""
        wait_until(lambda: self.names.questions > questions, SECONDS, 'another question')

    def test_a_name_that_is_not_found_is_told(self):
        load = FailoverLoad(served.BUILD, ['%s:%d' % (NAME, self.port)], under=self.names.under())
        self.addCleanup(load.close)
        self.assertIn('UNAVAILABLE: cannot find the host "%s"' % NAME, load.fails())

    def test_a_name_that_is_found_later_is_used(self):
        proxy = TcpProxy(self.port, self.hosts[0])
        self.addCleanup(proxy.close)
        load = self.load_names(proxy.address)
        self.wait_used(load, proxy.address)
        self.names.addresses = self.hosts[1:2]
        proxy.reset()
        self.wait_used(load, self.addresses[1])
        self.finish(load)

    def test_addresses_come_and_go(self):
        self.names.addresses = self.hosts[:2]
        load = self.load_names(wait=2)
        for address in self.addresses[:2]:
            self.wait_used(load, address)
        # One more.
        self.names.addresses = self.hosts
        self.start_again(1, load)
        self.wait_used(load, self.addresses[2])
        # One is gone. It is used until its connection is lost.
        self.names.addresses = self.hosts[1:]
        questions = self.names.questions
        self.start_again(1, load)
        self.wait_asked(questions)
        self.wait_used(load, self.addresses[0])
        self.start_again(0)
        self.wait_for(load, lambda report: report['known'] == 2, 'an address to be forgotten')
        self.wait_more(load)
        self.assertIsNone(load.server(self.addresses[0]))
        # The name service fails, or has forgotten the name: nothing changes.
        for fails in True, False:
            self.names.addresses, self.names.fails = (), fails
            questions = self.names.questions
            self.start_again(2, load)
            self.wait_asked(questions)
            self.wait_used(load, self.addresses[2])
            self.wait_used(load, self.addresses[1])
            self.assertEqual(load.report()['known'], 2)
        self.finish(load, are_all_known=False)

    def test_closing_does_not_wait_for_the_name_service(self):
        self.names.is_silent = True
        load = self.load_names(self.addresses[0])
        self.wait_asked(0)
        self.wait_used(load, self.addresses[0])
        # The client would wait for an answer for a minute.
        self.assertLess(self.finish(load)['close_ms'], CLOSE_SECONDS * 1000)


class Network:
    """A namespace with a client, and one with addresses of servers, whose packets it can drop."""

    client, hosts = '10.231.7.1', ('10.231.7.11', '10.231.7.12', '10.231.7.13')

    def __init__(self, test):
        self.holders = []
        for _ in range(2):
            holder = subprocess.Popen(['unshare', '--net', 'sh', '-c', 'echo; exec sleep infinity'],
                                      stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            test.addCleanup(holder.communicate)
            test.addCleanup(holder.kill)
            if not holder.stdout.readline():
                test.skipTest('network namespaces are not available')
            self.holders.append(holder)
        if not self.connect():
            test.skipTest('pairs of virtual network devices are not available')

    def under(self, side):
        """Returns the start of a command line that runs a program on a side: 0 or 1."""
        return ('nsenter', '--net', '--target', str(self.holders[side].pid), '--')

    def ip(self, side, *arguments):
        """Runs ip on a side. Returns whether it has succeeded."""
        return subprocess.run([*self.under(side), 'ip', *arguments], stderr=subprocess.DEVNULL,
                              check=False).returncode == 0

    def connect(self):
        """Joins the namespaces. Returns False if that is not possible here."""
        if not self.ip(0, 'link', 'add', 'near0', 'type', 'veth', 'peer', 'name', 'far0', 'netns',
                       str(self.holders[1].pid)):
            return False
        # A fixed entry: packets to an address that is gone are sent, and nobody says that it is.
        self.ip(1, 'link', 'set', 'far0', 'address', MAC)
        for side, device in (0, 'near0'), (1, 'far0'):
            self.ip(side, 'link', 'set', device, 'up')
        self.ip(0, 'address', 'add', self.client + '/24', 'dev', 'near0')
        for host in self.hosts:
            self.ip(0, 'neighbour', 'replace', host, 'lladdr', MAC, 'dev', 'near0', 'nud',
                    'permanent')
            self.keep(host)
        return True

    def keep(self, host):
        """Lets packets of an address through."""
        self.ip(1, 'address', 'replace', host + '/32', 'dev', 'far0')
        self.ip(1, 'route', 'replace', self.client, 'dev', 'far0')

    def drop(self, host):
        """Drops all packets of an address."""
        self.ip(1, 'address', 'delete', host + '/32', 'dev', 'far0')


@unittest.skipUnless(shutil.which('ip') and shutil.which('nsenter'), 'iproute2 is not installed')
class Packets(FailoverTest):
    """An address whose packets are dropped."""

    def start_apart(self, network):
        """Starts a server on each of the network's addresses."""
        servers = [self.start(listen=(host + ':8600',), under=network.under(1))
                   for host in network.hosts]
        return [server.wait_ready() for server in servers]

    def test_an_address_that_drops_packets_costs_no_lookup(self):
        network = Network(self)
        self.start_apart(network)
        addresses = [host + ':8600' for host in network.hosts]
        load = self.load(addresses, wait=3, under=network.under(0))
        for address in addresses:
            self.wait_used(load, address)
        network.drop(network.hosts[0])
        self.wait_state(load, addresses[0], left_out=True)
        self.wait_more(load)
        # The connection is closed as well, because nobody acknowledges what is sent.
        self.wait_state(load, addresses[0], connected=False)
        self.wait_more(load)
        network.keep(network.hosts[0])
        self.wait_used(load, addresses[0])
        self.finish(load)
