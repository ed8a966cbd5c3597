"""The operators' port: what it answers, when, and to whom; what its metrics count. Nobody who can
reach the port can crash the server or slow it down."""

import http.client
import json
import os
import re
import select
import shutil
import subprocess
import threading
import time
import unittest

import grpc
import numpy as np

from attacker import Bystander, resident_bytes
from bag_query import Query, to_message
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import Embagd, wait_until
from h2raw import Connection, message
from http_peer import Metrics, connect, exchange, fetch
from rpc import as_bytes
from served import OwnServerTest, scaled, spec_table
from table_files import Table, write_sparse_npy

HTTP = '127.0.0.1:0'
MIB = 1 << 20
CONNECTIONS = 64     # the port's limit
SLOW_SECONDS = 60    # for steps that take ten, on a slow machine
GOOD = pb.LookupRequest(model='spec', queries=[
    pb.BagQuery(table='emb_table', indices=[0, 4, 2, 1], indices_per_bag=2)])
BAD = pb.LookupRequest(model='spec', queries=[
    pb.BagQuery(table='emb_table', indices=[0, 77], indices_per_bag=2)])
OK = ('200', 0, '')
SERVICE = 'embag.v1.EmbeddingBag'
STARTS = 10          # attempts to see a server that is still loading
SPARSE_BYTES = 512 * MIB
READY = b'GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n'


def sockets_of(pid):
    """Returns how many sockets the process has open."""
    count = 0
    for number in os.listdir('/proc/%d/fd' % pid):
        try:
            count += os.readlink('/proc/%d/fd/%s' % (pid, number)).startswith('socket:')
        except FileNotFoundError:
            pass  # it has just been closed
    return count


class Http(OwnServerTest):
    """Tests each of which has its own server."""

    def serve(self, *flags, **keywords):
        return super().serve(*flags, **{'http': HTTP, **keywords})

    def alive(self, server):
        """Checks that the server lives and answers."""
        self.assertFalse(server.has_ended(), server.log[-4000:])
        self.assertEqual(fetch(server, '/healthz')[0], 200)


class Paths(Http):
    """The paths of the port."""

    def test_answers_at_every_path(self):
        server = self.serve()
        self.assertEqual(fetch(server, '/healthz')[::2], (200, 'ok\n'))
        self.assertEqual(fetch(server, '/readyz')[::2], (200, 'ready\n'))
        status, headers, text = fetch(server, '/version')
        self.assertEqual((status, headers['Content-Type']), (200, 'application/json'))
        self.assertEqual(set(json.loads(text)), {'version', 'build', 'isa'})
        status, headers, text = fetch(server, '/status.json')
        self.assertEqual((status, headers['Content-Type']), (200, 'application/json'))
        self.assertEqual(json.loads(text)['phase'], 'serving')
        status, headers, text = fetch(server, '/')
        self.assertEqual((status, headers['Content-Type']), (200, 'text/html; charset=utf-8'))
        self.assertIn("default-src 'none'", headers['Content-Security-Policy'])
        self.assertTrue(text.startswith('<!DOCTYPE html>'), text[:100])
        status, headers, text = fetch(server, '/metrics')
        self.assertEqual((status, headers['Content-Type']),
                         (200, 'text/plain; version=0.0.4; charset=utf-8'))
        for path in ('/', '/metrics', '/healthz', '/nothing'):
            headers = fetch(server, path)[1]
            self.assertEqual(headers['X-Content-Type-Options'], 'nosniff')
            self.assertEqual(headers['Cache-Control'], 'no-store')

    def test_knows_two_methods_and_no_other_path(self):
        server = self.serve()
        status, headers, text = fetch(server, '/metrics', 'HEAD')
        self.assertEqual((status, text), (200, ''))
        self.assertGreater(int(headers['Content-Length']), 1000)
        for method in ('POST', 'PUT', 'DELETE', 'OPTIONS', 'PATCH', 'BREW'):
            status, headers, _ = fetch(server, '/metrics', method)
            self.assertEqual((status, headers['Allow']), (405, 'GET, HEAD'))
        for path in ('/metric', '/metrics/x', '/%2e%2e/', '//', '/index.html'):
            status, _, text = fetch(server, path)
            self.assertEqual(status, 404)
            self.assertIn('/metrics\n', text)

    def test_is_not_for_sites_of_strangers(self):
        server = self.serve()
        self.assertEqual(fetch(server, '/status.json', Host='evil.example:8601')[0], 421)
        for host in ('127.0.0.1', 'localhost:8601', '[::1]', 'a-machine'):
            self.assertEqual(fetch(server, '/status.json', Host=host)[0], 200)

    def test_refuses_a_second_host(self):
        server = self.serve()
        answer = exchange(server, b'GET /status.json HTTP/1.1\r\nConnection: close\r\n'
                                  b'Host: localhost\r\nHost: evil.example\r\n\r\n')
        self.assertTrue(answer.startswith(b'HTTP/1.1 400 '), answer)

    def test_is_not_there_where_nobody_wants_it(self):
        server = self.serve(http='none')
        self.assertIsNone(server.find('http_listening'))

    def test_two_servers_do_not_share_it(self):
        server = self.serve()
        address = '127.0.0.1:%d' % server.http_port
        log = Embagd(self.repository.path, http=address).start_fails()
        self.assertRegex(log, r'event=start_failed what=http_listen address=%s ' % address)
        self.alive(server)

    def test_listens_on_other_addresses_too(self):
        server = self.serve(http='[::1]:0')
        self.assertRegex(server.find('http_listening'), r'address="?\[::1\]:\d+')


class Phases(Http):
    """The server's life, from start to end."""

    def test_tells_that_it_loads_and_answers_meanwhile(self):
        # A table that takes a while to load.
        write_sparse_npy(self.repository.join('large', '1'), SPARSE_BYTES)
        seen = None
        for _ in range(STARTS):
            server = Embagd(self.repository.path, http=HTTP)
            self.addCleanup(server.stop)
            self.assertTrue(server.http_port)
            seen = fetch(server, '/readyz')[::2]
            metrics = Metrics(server)
            self.assertEqual(fetch(server, '/healthz')[0], 200)
            if seen[0] == 503 and metrics.get('embag_phase', phase='loading') == 1:
                break
            server.wait_ready()
            server.stop()
        self.assertEqual(seen, (503, 'loading\n'))
        self.assertIsNone(metrics.get('embag_start_seconds', phase='load'))
        server.wait_ready()
        wait_until(lambda: fetch(server, '/readyz')[::2] == (200, 'ready\n'), 60, 'readiness')
        self.assertEqual(Metrics(server).get('embag_model_serving_version', model='large'), 1)

    def test_tells_how_long_each_phase_of_the_start_took(self):
        server = self.serve()
        metrics = Metrics(server)
        phases = {dict(key[1:])['phase']: seconds for key, seconds in metrics.samples.items()
                  if key[0] == 'embag_start_seconds'}
        self.assertEqual(list(phases), ['scan', 'adopt', 'load', 'tune'])
        whole_ms = int(re.search(r'start_ms=(\d+)', server.find('ready'))[1])
        self.assertLess(sum(phases.values()), (whole_ms + 1) / 1000)
        self.assertEqual(phases.pop('adopt'), 0)
        self.assertGreater(min(phases.values()), 0)

    def test_tells_that_it_drains_and_answers_meanwhile(self):
        server = self.serve('--drain-timeout-ms', '60000', '--message-timeout-ms', '60000')
        with Connection(server.port) as peer:
            half = peer.open()
            self.assertEqual(peer.status(peer.call(message(as_bytes(GOOD)))), OK)
            server.terminate()
            wait_until(lambda: fetch(server, '/readyz')[::2] == (503, 'draining\n'), 50, 'draining')
            self.assertEqual(fetch(server, '/healthz')[0], 200)
            metrics = Metrics(server)
            self.assertEqual(metrics.get('embag_phase', phase='draining'), 1)
            self.assertEqual(metrics.get('embag_phase', phase='serving'), 0)
            peer.data(half, message(as_bytes(GOOD)))
            self.assertEqual(peer.status(half), OK)
        self.assertEqual(server.wait(60), 0)
        server.check_log()

    def test_its_connections_do_not_hold_the_end(self):
        server = self.serve()
        with connect(server) as silent, connect(server) as half, connect(server) as kept:
            half.sendall(b'GET /hea')
            kept.sendall(READY)
            self.assertTrue(kept.recv(65536).startswith(b'HTTP/1.1 200 '))
            started = time.monotonic()
            server.stop()
            self.assertLess(time.monotonic() - started, 30)
            self.assertEqual(silent.recv(1), b'')


class Counts(Http):
    """The metrics after known events."""

    def test_requests_add_up(self):
        server = self.serve('--loops', '2')
        client = self.connect(server)
        before = Metrics(server)
        good, bad, streamed, unknown = scaled(200), 7, scaled(100), 5
        for _ in range(good):
            client.lookup(GOOD)
        for _ in range(bad):
            self.assertRaises(grpc.RpcError, client.lookup, BAD)
        self.assertEqual(len(list(client.stream([GOOD] * streamed))), streamed)
        for _ in range(unknown):
            call = client.unary('Nothing', pb.LookupResponse)
            self.assertRaises(grpc.RpcError, call, GOOD, timeout=60)
        after = Metrics(server)

        def grown(name, **labels):
            return (after.get(name, **labels) or 0) - (before.get(name, **labels) or 0)

        name = 'embag_requests_total'
        self.assertEqual(grown(name, service=SERVICE, method='Lookup', code='OK'), good)
        self.assertEqual(
            after.sum(name, service=SERVICE, method='Lookup') -
            before.sum(name, service=SERVICE, method='Lookup'), good + bad)
        self.assertEqual(grown(name, service=SERVICE, method='LookupStream', code='OK'), streamed)
        self.assertEqual(grown(name, service='', method='', code='UNIMPLEMENTED'), unknown)
        self.assertEqual(grown('embag_calls_started_total'), good + bad + 1 + unknown)
        self.assertEqual(grown('embag_queries_total'), good + streamed)
        self.assertEqual(grown('embag_bags_total'), 2 * (good + streamed))
        self.assertEqual(grown('embag_rows_touched_total'), 4 * (good + streamed))
        self.assertEqual(grown('embag_row_bytes_touched_total'), 4 * 8 * (good + streamed))
        self.assertEqual(grown('embag_value_bytes_total'), 2 * 8 * (good + streamed))
        for stage in ('queue', 'compute', 'send', 'total'):
            self.assertEqual(grown('embag_stage_seconds_count', stage=stage), good + streamed)
        self.assertGreater(grown('embag_received_bytes_total'),
                           (good + streamed) * len(as_bytes(GOOD)))
        self.assertGreater(grown('embag_sent_bytes_total'), (good + streamed) * 2 * 8)
        self.assertEqual(after.sum('embag_connections'), 1)

    def test_models_and_memory_are_what_they_are(self):
        server = self.serve()
        metrics = Metrics(server)
        self.assertEqual(metrics.get('embag_model_serving_version', model='spec'), 1)
        self.assertEqual(metrics.get('embag_model_versions', model='spec', state='serving'), 1)
        self.assertEqual(metrics.get('embag_model_version_rows', model='spec', version='1'), 5)
        self.assertEqual(metrics.get('embag_model_faulty', model='spec'), 0)
        self.assertEqual(metrics.get('embag_model_loads_total', result='done'), 1)
        self.assertEqual(metrics.get('embag_phase', phase='serving'), 1)
        self.assertGreater(metrics.sum('embag_table_memory_bytes'), 0)
        self.assertEqual(metrics.sum('embag_table_memory_bytes', backing='anonymous'),
                         metrics.sum('embag_table_memory_bytes'))
        self.assertLess(
            abs(metrics.get('process_resident_memory_bytes') - resident_bytes(server.pid)),
            64 * MIB)
        self.assertLess(abs(metrics.get('process_start_time_seconds') - time.time()), 600)

    @unittest.skipUnless(shutil.which('promtool'), 'promtool is not installed')
    def test_promtool_finds_nothing(self):
        server = self.serve()
        self.connect(server).lookup(GOOD)
        done = subprocess.run(['promtool', 'check', 'metrics'], input=Metrics(server).text,
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ''))


class Strangers(Http):
    """Hostile or broken clients of the port, while lookups continue."""

    def test_garbage_ends_its_connection_alone(self):
        server = self.serve()
        rng = np.random.default_rng(7)
        with Bystander(server):
            for size in (1, 10, 1000, 100000):
                for _ in range(scaled(20)):
                    with connect(server) as peer:
                        try:
                            peer.sendall(rng.bytes(size) + b'\r\n\r\n')
                        except (BrokenPipeError, ConnectionResetError):
                            pass
        self.alive(server)

    def test_endless_headers_and_addresses_are_refused(self):
        server = self.serve()
        mib = b'a' * MIB
        with Bystander(server):
            for begin, code in ((b'GET /', b' 414 '), (b'GET / HTTP/1.0\r\nA: ', b' 431 '),
                                (b'GET / HTTP/1.0\r\n' + b'A: b\r\n' * 1000, b' 431 ')):
                for _ in range(scaled(20)):
                    # The server closes with unread input, so the system may discard its answer.
                    answer = exchange(server, begin, mib)
                    self.assertIn(code, answer or code)
        self.alive(server)

    def test_pipelined_requests_are_answered_in_order(self):
        server = self.serve()
        count = scaled(200)
        requests = b''.join(
            b'GET /%s HTTP/1.1\r\nHost: x\r\n%s\r\n' % (
                (b'version', b'readyz', b'nothing')[n % 3],
                b'Connection: close\r\n' if n == count - 1 else b'') for n in range(count))
        for pieces in ([requests], [requests[n:n + 7] for n in range(0, len(requests), 7)]):
            answers = exchange(server, *pieces).split(b'HTTP/1.1 ')[1:]
            self.assertEqual([answer[:3] for answer in answers],
                             [(b'200', b'200', b'404')[n % 3] for n in range(count)])

    def test_many_connections_cost_little(self):
        server = self.serve()
        count = scaled(1000)
        with Bystander(server):
            for _ in range(count // 50):
                peers = [connect(server) for _ in range(50)]
                for peer in peers:
                    peer.close()
        self.wait_for_room(server)
        self.assertLess(Metrics(server).get('process_open_fds'), 100)

    def wait_for_room(self, server):
        """Waits until the port has room for one more connection."""
        def has_room():
            try:
                return fetch(server, '/readyz')[0] == 200
            except (OSError, http.client.HTTPException):
                return False
        wait_until(has_room, SLOW_SECONDS, 'room for another connection')

    def test_who_does_not_go_on_is_closed(self):
        """Clients that send nothing, send half a request, or do not read the answer that they
        requested."""
        server = self.serve()
        before = sockets_of(server.pid)
        held = [connect(server, receive_buffer=4096) for _ in range(CONNECTIONS // 2)]
        for number, peer in enumerate(held):
            self.addCleanup(peer.close)
            if number % 3 == 1:
                peer.sendall(READY[:-3])
            elif number % 3 == 2:
                peer.sendall(b'GET / HTTP/1.1\r\nHost: x\r\n\r\n' * 200)
        wait_until(lambda: sockets_of(server.pid) >= before + len(held), SLOW_SECONDS,
                   'all of them are accepted')
        with Bystander(server):
            # The bystander has one socket. Threads that start late open files that are not sockets.
            wait_until(lambda: sockets_of(server.pid) <= before + 1,
                       SLOW_SECONDS, 'all of them are closed')
        self.alive(server)

    def test_who_holds_connections_gives_way(self):
        """As many connections as the port allows are held, half of them in the middle of a request.
        A newcomer is still answered."""
        server = self.serve()
        for number in range(2 * CONNECTIONS):
            peer = connect(server)
            self.addCleanup(peer.close)
            peer.sendall(READY[:-3] if number % 2 else READY)
        for _ in range(5):
            self.alive(server)

    def test_who_asks_without_a_pause_stops_nobody(self):
        server = self.serve()
        is_over = threading.Event()
        asked = threading.Event()

        def ask():
            requests, sent = READY * 200, 0
            with connect(server) as peer:
                peer.setblocking(False)
                while not is_over.is_set():
                    readable, writable, _ = select.select([peer], [peer], [], 1)
                    try:
                        if readable and not peer.recv(MIB):
                            return
                        if writable:
                            sent = (sent + peer.send(requests[sent:])) % len(requests)
                    except ConnectionError:
                        return
                    asked.set()

        thread = threading.Thread(target=ask)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(is_over.set)
        self.assertTrue(asked.wait(SLOW_SECONDS))
        for _ in range(10):
            self.alive(server)
        server.terminate()
        self.assertEqual(server.wait(), 0)

    def test_lookups_go_on_under_a_flood_of_scrapes(self):
        server = self.serve('--loops', '1')
        ends = time.monotonic() + 3
        scraped = []

        def scrape():
            while time.monotonic() < ends:
                scraped.append(fetch(server, '/metrics')[0])

        with Bystander(server) as bystander:
            threads = [threading.Thread(target=scrape) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertGreater(bystander.answers, 0)
        self.assertEqual(set(scraped), {200})

    def test_answers_while_the_server_is_overloaded(self):
        rng = np.random.default_rng(5)
        large = Table.of_values('large', 'f32', rng.normal(size=(100000, 64)))
        server = self.serve('--queue-bytes-max', str(64 * MIB), tables=[spec_table(), large])
        query = Query('large', rng.integers(0, 100000, 80000), layout='packed',
                      indices_per_bag=1000, index_form='i32')
        request = as_bytes(pb.LookupRequest(model='spec', queries=[to_message(query)]))
        client = self.connect(server)
        calls = [client.lookup_future(request) for _ in range(scaled(200))]
        codes = [fetch(server, path)[0] for path in ('/healthz', '/readyz', '/metrics') * 3]
        self.assertEqual(codes, [200] * len(codes))
        refused = sum(call.code() == grpc.StatusCode.RESOURCE_EXHAUSTED for call in calls)
        metrics = Metrics(server)
        self.assertEqual(metrics.get('embag_requests_total', service=SERVICE, method='Lookup',
                                     code='RESOURCE_EXHAUSTED') or 0, refused)
        self.assertGreaterEqual(metrics.sum('embag_refused_total'), refused)


if __name__ == '__main__':
    unittest.main()
