"""Settings that change while a server runs: each is changed once, and has its effect. The names of
the tests end with the settings; the last test checks that every setting has one."""

import hashlib
import os
import re
import socket
import ssl
import unittest

import numpy as np

from certificates import HERE, Authority
from cluster import Cluster, wait_served
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import wait_until
from h2raw import (DATA, GOAWAY, HEADERS, LOOKUP_STREAM, PING, Connection, call_fields, frame,
                   header_encode, message)
from http_peer import Metrics
from rpc import Admin, as_bytes, error_of
from served import spec_table
from table_files import Table, write_model
from test_auth import ALL
from test_keepalive import CALM, Raw
from test_settings import SECONDS, SettingsTest, asked
from test_watch_models import Watch, claim

GOOD = message(as_bytes(asked()))
OK = ('200', 0, '')
LONG = 600000
SHORT = 100
HELLOS = 50  # TLS clients that connect at once
TESTED = re.compile(r'test_(?:\w+__)?(\w+)$')


def wide_table(rows=4000):
    """Returns a table with rows of 16 KiB."""
    return Table.of_values('emb_table', 'f32', np.zeros((rows, 4096)))


def busy_request():
    """Returns a request that reads 16 MB of wide rows."""
    return pb.LookupRequest(model='spec', queries=[
        pb.BagQuery(table='emb_table', indices=range(1000), num_bags=1)])


def client_hello(authority):
    """Returns the first message of a TLS client."""
    context = ssl.create_default_context(cafile=authority.path('ca.pem'))
    context.set_alpn_protocols(['h2'])
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        context.wrap_bio(incoming, outgoing, server_hostname='localhost').do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def is_closed(peer):
    """Returns whether the server closes a socket."""
    try:
        return peer.recv(1) == b''
    except ConnectionError:
        return True


class Refusals(SettingsTest):
    """Limits at which requests are refused: refused before, answered after, refused again."""

    def check(self, name, low, high, request, tables=None):
        """Checks a limit that refuses the request if it is `low`, but not if it is `high`."""
        self.serve_with({name: low}, tables=tables)
        client = self.connect(self.server)
        for limit in (low, high, low):
            self.reload({name: limit})
            if limit == high:
                self.assertTrue(client.lookup(request).results)
            else:
                code, text = error_of(client.lookup, request)
                self.assertEqual(code.name, 'RESOURCE_EXHAUSTED')
                self.assertIn(name, text)

    def test_queries_max(self):
        self.serve_with({'queries_max': 1})
        client = self.connect(self.server)
        for limit in (1, 2, 1):
            self.reload({'queries_max': limit})
            if limit == 2:
                self.assertEqual(len(client.lookup(asked(2)).results), 2)
            else:
                self.assertEqual(error_of(client.lookup, asked(2))[0].name, 'RESOURCE_EXHAUSTED')

    def test_indices_max(self):
        self.check('indices_max', 1, 2, asked())

    def test_bags_max(self):
        self.check('bags_max', 1, 2, asked(2))

    def test_response_bytes_max(self):
        self.check('response_bytes_max', 1024, 1 << 16, pb.LookupRequest(
            model='spec', queries=[pb.BagQuery(table='emb_table', num_bags=1000)]))

    def flood(self, count):
        """Makes this many calls in one write; returns how many are refused."""
        with Connection(self.server.port, window=1 << 24) as peer:
            calls = []
            for _ in range(count):
                peer.stream += 2
                calls.append(frame(HEADERS, 4, peer.stream, header_encode(call_fields())))
                calls.append(frame(DATA, 1, peer.stream, message(as_bytes(busy_request()))))
            peer.send(b''.join(calls))
            codes = [peer.status(2 * number + 1)[1] for number in range(count)]
        self.assertEqual(set(codes) - {0, 8}, set())
        return codes.count(8)

    def check_flood(self, name, low, high, count):
        """Checks a limit that refuses some of this many calls if it is `low`."""
        fixed = {'inline_below_us': 0, 'queue_bytes_max': 1 << 34}
        self.serve_with({**fixed, name: high}, tables=[wide_table(1000)])
        self.assertEqual(self.flood(count), 0)
        self.reload({**fixed, name: low})
        self.assertGreater(self.flood(count), 0)
        self.reload({**fixed, name: high})
        self.assertEqual(self.flood(count), 0)

    def test_in_flight_max(self):
        self.check_flood('in_flight_max', 2, 200, 60)

    def test_queue_bytes_max(self):
        self.check_flood('queue_bytes_max', 1 << 20, 1 << 34, 60)

    def test_connections_max(self):
        """The connection for commands counts too."""
        self.serve_with({'connections_max': 2})
        self.reload()
        first = Connection(self.server.port)
        self.addCleanup(first.close)
        with socket.create_connection(('127.0.0.1', self.server.port), SECONDS) as beyond:
            self.assertTrue(is_closed(beyond))
        self.reload({'connections_max': 100000})
        with Connection(self.server.port) as second:
            self.assertEqual(second.status(second.call(GOOD)), OK)
            self.reload({'connections_max': 3})
            with socket.create_connection(('127.0.0.1', self.server.port), SECONDS) as beyond:
                self.assertTrue(is_closed(beyond))
            self.assertEqual(second.status(second.call(GOOD)), OK)


class Logs(SettingsTest):
    """What is logged, and how."""

    def lines_after(self, settings, calls, wanted):
        """Reloads and makes some calls; returns the lines event=request of the data port, once
        there are at least `wanted`."""
        self.reload(settings)
        client = self.connect(self.server)
        before = len(self.requests())
        for _ in range(calls):
            client.lookup(asked())
        wait_until(lambda: len(self.requests()) >= before + wanted, SECONDS, 'the lines')
        return self.requests()[before:]

    def requests(self):
        """Returns the lines of lookups."""
        return [line for line in self.lines_of('request') if 'EmbeddingBag/Lookup' in line]

    def test_log_level(self):
        self.serve_with({})
        self.reload({'log_level': 'debug'})
        self.connect(self.server).lookup(asked())
        with Connection(self.server.port):
            pass
        wait_until(lambda: 'level=debug' in self.server.log, SECONDS, 'a debug line')
        self.reload({'log_level': 'error'})
        self.reload({'log_level': 'error', 'queries_max': 7})
        self.assertEqual(self.list()['queries_max'].value, '7')
        self.reload({'log_level': 'info'})
        self.wait_lines('settings_reloaded', 3)  # not four: one had no line

    def test_log_format(self):
        self.serve_with({})
        self.reload({'log_format': 'json'})
        self.reload({'log_format': 'json', 'queries_max': 7})
        wait_until(lambda: '"event":"setting_changed"' in self.server.log, SECONDS, 'a JSON line')

    def test_access_log(self):
        self.serve_with({'access_log': '"off"', 'access_log_per_s_max': 1000})
        lines = self.lines_after({'access_log': 'all', 'access_log_per_s_max': 1000}, 3, 3)
        self.assertEqual(len(lines), 3)
        code = error_of(self.connect(self.server).lookup, pb.LookupRequest(model='none'))[0]
        self.assertEqual(code.name, 'NOT_FOUND')
        wait_until(lambda: 'code=NOT_FOUND' in self.server.log, SECONDS, 'the line')
        self.lines_after({'access_log': 'errors'}, 3, 0)
        error_of(self.connect(self.server).lookup, pb.LookupRequest(model='none'))
        wait_until(lambda: self.server.log.count('code=NOT_FOUND') == 2, SECONDS, 'the line')
        self.assertEqual(len([line for line in self.requests() if 'code=OK' in line]), 3)

    def test_access_log_sample(self):
        fixed = {'access_log': 'sampled', 'access_log_per_s_max': 1000}
        self.serve_with({**fixed, 'access_log_sample': 1000000}, '--loops', '1')
        self.connect(self.server).lookup(asked())
        wait_until(lambda: self.requests(), SECONDS, 'the first of the sample')
        lines = self.lines_after({**fixed, 'access_log_sample': 1}, 5, 5)
        self.assertEqual(len(lines), 5)

    def test_access_log_per_s_max(self):
        self.serve_with({'access_log': 'all', 'access_log_per_s_max': 1000000}, '--loops', '1')
        self.lines_after({'access_log': 'all', 'access_log_per_s_max': 1}, 300, 0)
        wait_until(lambda: self.lines_of('requests_not_logged'), SECONDS, 'requests_not_logged')


class Times(SettingsTest):
    """Time limits of connections and calls: too long to be seen, then short."""

    def serve_long(self, *names, **keywords):
        """Starts a server whose time limits of these names are too long to be seen."""
        self.serve_with({name: LONG for name in names}, **keywords)

    def open(self):
        """Opens a connection that is closed at the end of the test."""
        peer = Raw(self.server.port)
        self.addCleanup(peer.close)
        return peer

    def test_header_timeout_ms(self):
        self.serve_long('header_timeout_ms')
        with socket.create_connection(('127.0.0.1', self.server.port), SECONDS) as silent:
            self.reload({'header_timeout_ms': SHORT})
            self.assertTrue(is_closed(silent))

    def test_handshakes_per_s_max(self):
        """Handshakes that wait for a low rate are completed once there is no limit."""
        authority = Authority()
        self.addCleanup(authority.remove)
        authority.issue('server', names=HERE)
        self.write({'handshakes_per_s_max': 1, 'header_timeout_ms': LONG})
        self.serve('--loops', '1', '--tls-cert', authority.path('server.pem'),
                   '--tls-key', authority.path('server.key'), http='127.0.0.1:0')
        hello = client_hello(authority)
        peers = [socket.create_connection(('127.0.0.1', self.server.port), SECONDS)
                 for _ in range(HELLOS)]
        for peer in peers:
            self.addCleanup(peer.close)
            peer.sendall(hello)
        wait_until(lambda: Metrics(self.server).get('embag_tls_handshakes_waiting') > 1, SECONDS,
                   'handshakes to wait')
        self.reload({'handshakes_per_s_max': 0, 'header_timeout_ms': LONG})
        self.assertTrue(all(peer.recv(1) for peer in peers))

    def test_message_timeout_ms(self):
        """The call that has begun keeps the limit that it began with."""
        self.serve_long('message_timeout_ms')
        peer = self.open()
        former = peer.open()
        peer.data(former, GOOD[:9], end=False)
        self.assertTrue(peer.is_answered())
        self.reload({'message_timeout_ms': SHORT})
        stream = peer.open()
        peer.data(stream, GOOD[:9], end=False)
        self.assertEqual(peer.status(stream)[1], 4)
        peer.data(former, GOOD[9:])
        self.assertEqual(peer.status(former), OK)

    def test_write_timeout_ms(self):
        """The peer does not read a large answer."""
        self.serve_with({'write_timeout_ms': LONG}, tables=[wide_table()])
        large = pb.LookupRequest(model='spec', queries=[
            pb.BagQuery(table='emb_table', reduction=7, indices=range(3000))])
        with Connection(self.server.port, window=(1 << 31) - 1) as peer:
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            peer.send(frame(8, 0, 0, b'\x7f\xff\x00\x00'))  # enlarges the connection's window
            peer.call(message(as_bytes(large)))
            self.reload({'write_timeout_ms': SHORT, 'log_level': 'debug'})
            wait_until(lambda: 'peer does not read' in self.server.log, SECONDS, 'the end')

    def test_deadline_max_ms(self):
        self.serve_long('deadline_max_ms')
        peer = self.open()
        former = peer.open()
        self.assertTrue(peer.is_answered())
        self.reload({'deadline_max_ms': SHORT})
        self.assertEqual(peer.status(peer.open())[1], 4)
        peer.data(former, GOOD)
        self.assertEqual(peer.status(former), OK)

    def pings_end(self, peer):
        """Sends pings until the server has enough of them."""
        for _ in range(10):
            got = peer.ping()
            if got.type == GOAWAY:
                self.assertEqual(int.from_bytes(got.payload[4:8], 'big'), CALM)
                return
        self.fail('the server answers all pings')

    def test_ping_idle_interval_min_ms(self):
        self.serve_with({'ping_idle_interval_min_ms': 0})
        peer = self.open()
        self.assertTrue(all(peer.is_answered() for _ in range(10)))
        self.reload({'ping_idle_interval_min_ms': LONG})
        self.pings_end(peer)

    def test_ping_interval_min_ms(self):
        self.serve_with({'ping_interval_min_ms': 0})
        peer = self.open()
        peer.open(call_fields(LOOKUP_STREAM))
        self.assertTrue(all(peer.is_answered() for _ in range(10)))
        self.reload({'ping_interval_min_ms': LONG})
        self.pings_end(peer)

    def test_keepalive_ms(self):
        self.serve_long('keepalive_ms', 'keepalive_timeout_ms')
        peer = self.open()
        self.reload({'keepalive_ms': SHORT, 'keepalive_timeout_ms': LONG})
        self.assertEqual(len(peer.until(PING).payload), 8)

    def test_keepalive_timeout_ms(self):
        self.serve_with({'keepalive_ms': SHORT, 'keepalive_timeout_ms': LONG})
        peer = self.open()
        peer.send = lambda data: None
        peer.until(PING)
        self.reload({'keepalive_ms': SHORT, 'keepalive_timeout_ms': SHORT})
        self.assertTrue(peer.is_closed())

    def test_connection_idle_max_ms(self):
        self.serve_long('connection_idle_max_ms')
        peer = self.open()
        self.reload({'connection_idle_max_ms': SHORT})
        peer.until(GOAWAY)
        self.assertTrue(peer.is_closed())

    def test_connection_age_max_ms(self):
        """It holds for connections that open from then on."""
        self.serve_long('connection_age_max_ms')
        former = self.open()
        self.reload({'connection_age_max_ms': SHORT})
        peer = self.open()
        peer.until(GOAWAY)
        self.assertTrue(peer.is_closed())
        self.assertEqual(former.status(former.call(GOOD)), OK)

    def test_connection_grace_ms(self):
        old = {'connection_age_max_ms': SHORT}
        self.serve_with({**old, 'connection_grace_ms': LONG})
        peer = self.open()
        stream = peer.open(call_fields(LOOKUP_STREAM))
        peer.until(GOAWAY)
        self.reload({**old, 'connection_grace_ms': SHORT})
        self.assertEqual(peer.status(stream)[1], 14)

    def test_auth_timeout_ms(self):
        rules = os.path.join(self.folder, 'auth.yaml')
        with open(rules, 'w', encoding='utf-8') as file:
            file.write('principals: [{name: all, models: ["*"], token_sha256: %s}]\n'
                       % hashlib.sha256(ALL.encode()).hexdigest())
        self.write({'auth_timeout_ms': LONG})
        self.serve('--auth-file', rules)
        peer = self.open()
        self.reload({'auth_timeout_ms': SHORT})
        peer.until(GOAWAY)

    def test_drain_delay_ms(self):
        self.serve_with({})
        self.reload({'drain_delay_ms': LONG})
        self.server.terminate()
        wait_until(lambda: self.server.find('drain_delayed'), SECONDS, 'event=drain_delayed')
        self.server.terminate()

    def test_drain_timeout_ms(self):
        """The peer's call does not end by itself."""
        self.serve_long('drain_timeout_ms')
        peer = self.open()
        stream = peer.open()
        peer.data(stream, GOOD[:9], end=False)
        self.assertTrue(peer.is_answered())
        self.reload({'drain_timeout_ms': SHORT})
        self.server.terminate()
        self.assertEqual(self.server.wait(SECONDS), 0)


class Models(SettingsTest):
    """How models are watched, loaded and kept."""

    def publish(self, version, tables=None):
        """Publishes a version under its final name at once."""
        write_model(self.repository.path, 'spec', '.new', tables or [spec_table()])
        os.rename(self.repository.join('spec', '.new'), self.repository.join('spec', str(version)))

    def states(self):
        """Returns the states of the versions that the server knows."""
        states = pb.ModelVersion.State
        listed = self.admin.list_versions('spec')
        return {v.version: states.Name(v.state)[6:] for v in listed.models[0].versions}

    def wait_state(self, version, state):
        """Waits until a version has a state."""
        wait_until(lambda: self.states().get(version) == state, SECONDS,
                   'version %d %s' % (version, state))

    def test_watch(self):
        self.serve_with({'watch': '"off"'}, http='127.0.0.1:0')
        self.publish(2)
        self.assertIsNone(Metrics(self.server).get('embag_repository_readable'))
        self.reload({'watch': 'auto', 'watch_poll_ms': 3600000})
        self.wait_state(2, 'SERVING')
        self.publish(3)
        self.wait_state(3, 'SERVING')
        wait_until(lambda: Metrics(self.server).get('embag_repository_readable') == 1, SECONDS,
                   'the metric')

    def test_watch_poll_ms(self):
        self.serve_with({'watch': 'poll', 'watch_poll_ms': 3600000})
        self.publish(2)
        self.reload({'watch': 'poll', 'watch_poll_ms': SHORT})
        self.wait_state(2, 'SERVING')

    def test_row_bytes_max(self):
        self.serve_with({})
        self.reload({'row_bytes_max': 7})
        self.publish(2)
        self.wait_state(2, 'FAILED')
        self.reload({'row_bytes_max': 8})
        self.publish(3)
        self.wait_state(3, 'SERVING')

    def test_a_group_may_have_as_many_features_as__queries_max(self):
        """A version with a larger group is not loaded."""
        self.serve_with({})
        self.reload({'queries_max': 1})
        self.describe_group()
        self.publish(2)
        self.wait_state(2, 'FAILED')
        self.reload({'queries_max': 2})
        self.publish(3)
        self.wait_state(3, 'SERVING')

    def describe_group(self):
        """Writes a model.yaml with a group of two features."""
        with open(self.repository.join('spec', 'model.yaml'), 'w', encoding='utf-8') as file:
            file.write('features: [{name: a, table: emb_table}, {name: b, table: emb_table}]\n'
                       'groups: [{name: both, features: [a, b]}]\n')

    def test_load_jitter_s(self):
        self.serve_with({})
        self.reload({'load_jitter_s': 3600})
        self.publish(2)
        wait_until(lambda: self.lines_of('load_postponed'), SECONDS, 'event=load_postponed')
        self.reload({'load_jitter_s': 0})
        self.publish(3)
        self.wait_state(3, 'SERVING')

    def load_ms(self, version):
        """Publishes a version of 2 MiB and returns how long it took to load."""
        self.publish(version, [wide_table(128)])
        self.wait_state(version, 'SERVING')
        pattern = re.compile(r'event=model_loaded .* version=%d .*elapsed_ms=(\d+)' % version)
        wait_until(lambda: pattern.search(self.server.log), SECONDS, 'event=model_loaded')
        return int(pattern.search(self.server.log).group(1))

    def test_load_bytes_per_s(self):
        self.serve_with({})
        self.reload({'load_bytes_per_s': 1 << 20})
        self.assertGreater(self.load_ms(2), 1000)
        self.publish(3, [wide_table(64 * 128)])
        wait_until(lambda: self.states().get(3) == 'LOADING', SECONDS, 'the load')
        self.reload({'load_bytes_per_s': 1 << 40})
        self.wait_state(3, 'SERVING')  # it would take two minutes otherwise

    def test_load_threads(self):
        self.serve_with({'load_threads': 1}, http='127.0.0.1:0')
        before = self.thread_count()
        self.assertEqual(self.load_threads(), 0)
        self.reload({'load_threads': 4, 'load_bytes_per_s': 1 << 20})
        self.publish(2, [wide_table(16 * 128)])
        wait_until(lambda: self.thread_count() >= before + 4, SECONDS, 'four threads')
        wait_until(lambda: self.load_threads() == 4, SECONDS, 'the metric of the threads')
        self.reload({'load_bytes_per_s': 1 << 40})
        self.wait_state(2, 'SERVING')
        wait_until(lambda: self.load_threads() == 0, SECONDS, 'the end of the threads')

    def load_threads(self):
        """Returns how many threads load, by the server's metrics."""
        return Metrics(self.server).get('embag_load_threads')

    def thread_count(self):
        """Returns how many threads the server has."""
        return len(os.listdir('/proc/%d/task' % self.server.pid))

    def keep_three(self):
        """Publishes versions so that three are kept beside the one that is served."""
        with open(self.repository.join('spec', 'model.yaml'), 'w', encoding='utf-8') as file:
            file.write('versions: {keep: 1, keep_s: 3600}\n')
        for version in (2, 3, 4):
            self.publish(version)
            self.wait_state(version, 'SERVING')
        self.assertEqual(self.states(), {4: 'SERVING', 3: 'READY', 2: 'READY', 1: 'READY'})

    def test_kept_versions_max(self):
        self.serve_with({})
        self.keep_three()
        self.reload({'kept_versions_max': 1})
        wait_until(lambda: 1 not in self.states() and self.states().get(3) == 'READY', SECONDS,
                   'the eviction')

    def test_kept_bytes_max(self):
        self.serve_with({})
        self.keep_three()
        self.reload({'kept_bytes_max': 1})
        wait_until(lambda: 1 not in self.states(), SECONDS, 'the eviction')

    def test_claim_grace_s(self):
        with open(self.repository.join('model.yaml'), 'w', encoding='utf-8') as file:
            file.write('versions: {keep: 1, keep_s: 0}\n')
        self.serve_with({'claim_grace_s': 3600})
        os.rename(self.repository.join('model.yaml'), self.repository.join('spec', 'model.yaml'))
        self.publish(2)
        self.wait_state(2, 'SERVING')
        wait_until(lambda: 1 not in self.states(), SECONDS, 'the end of version 1')
        client = self.connect(self.server)
        router = Watch(client, claims=[claim(1, model='spec')])
        self.wait_state(1, 'READY')
        router.end()
        Watch(client).until(lambda message: not any(h.claimed for h in message.holdings))
        self.assertEqual(self.states(), {2: 'SERVING', 1: 'READY'})
        self.reload({'claim_grace_s': 0})
        wait_until(lambda: 1 not in self.states(), SECONDS, 'the end of version 1')

    def test_pin_ttl_s(self):
        with open(self.repository.join('model.yaml'), 'w', encoding='utf-8') as file:
            file.write('versions: {keep: 1, keep_s: 0}\n')
        self.serve_with({'pin_ttl_s': 3600})
        os.rename(self.repository.join('model.yaml'), self.repository.join('spec', 'model.yaml'))
        pinned = asked()
        pinned.version = 1
        client = self.connect(self.server)
        self.assertEqual(client.lookup(pinned).version, 1)
        self.publish(2)
        self.wait_state(2, 'SERVING')
        self.assertEqual(client.lookup(pinned).version, 1)
        self.reload({'pin_ttl_s': 0})
        wait_until(lambda: 1 not in self.states(), SECONDS, 'the end of version 1')

    def test_inline_below_us(self):
        self.serve_with({'inline_below_us': 0}, http='127.0.0.1:0')
        client = self.connect(self.server)
        client.lookup(asked())
        self.assertEqual(Metrics(self.server).sum('embag_lookups_inline_total'), 0)
        self.reload({'inline_below_us': 1000})
        client.lookup(asked())
        wait_until(lambda: Metrics(self.server).sum('embag_lookups_inline_total') == 1, SECONDS,
                   'the count')

    def test_route_slab_bytes(self):
        cluster = Cluster(1)
        self.addCleanup(cluster.remove)
        write_model(cluster.source, 'm', 1, [
            Table.of_values('t', 'f32', np.ones((64, 256), '<f4'))])
        cluster.split('m', 1, placement={'t': 'placement: rows'})
        cluster.start_parts()
        address = 'unix:' + os.path.join(self.folder, 'admin.sock')
        self.write({'route_slab_bytes': 4096})
        router = cluster.start_router('--config', self.file, '--admin-listen', address)
        self.admin = Admin(address)
        self.addCleanup(self.admin.close)
        client = cluster.connect(router)
        wait_served(client, 1)
        legs = [Metrics(router).sum('embag_route_legs_total')]
        for slab_bytes in (4096, 65536, 4096):
            self.reload({'route_slab_bytes': slab_bytes})
            client.lookup(pb.LookupRequest(queries=[pb.BagQuery(
                table='t', indices=range(64), reduction=pb.REDUCTION_NONE)]))
            legs.append(Metrics(router).sum('embag_route_legs_total'))
        # 64 rows of 1 KiB, at most four in a leg.
        self.assertEqual([int(n) for n in np.diff(legs)], [16, 1, 16])


class Whole(SettingsTest):
    """The list of tests."""

    def test_all_settings_that_change_at_once_have_a_test(self):
        self.serve_with({})
        tested = {TESTED.match(name).group(1) for kind in (Refusals, Logs, Times, Models)
                  for name in dir(kind) if name.startswith('test_')}
        self.assertEqual({name for name, setting in self.list().items() if setting.live}, tested)


if __name__ == '__main__':
    unittest.main()
