"""drain_delay_ms: after SIGTERM a server reports NOT_SERVING but still accepts calls, so that load
balancers that rely on health checks lose no call."""

import hashlib
import itertools
import json
import signal
import socket
import ssl
import time
import unittest

import grpc

import dynamic
from balancer import CHECK, SERVING, Balancer
from certificates import HERE, Authority
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import wait_until
from h2raw import GOAWAY, Connection, message
from http_peer import fetch
from rpc import Admin, Client, SecureClient, as_bytes
from served import OwnServerTest
from service_manager import NotifySocket

NOT_SERVING = 2
FOREVER = ('--drain-delay-ms', '600000')
CHECK_EACH_SECONDS = 0.5
LOOPBACK = '127.0.0.1'
OLD_TOKEN, NEW_TOKEN = 'old-token-0123456789', 'new-token-0123456789'
ROUNDS_MAX = 3
GOOD = pb.LookupRequest(model='spec', queries=[
    pb.BagQuery(table='emb_table', indices=[0, 4], num_bags=1)])
WATCH = dynamic.Method(dynamic.load('grpc/health/v1/health.proto'), 'grpc.health.v1.Health',
                       'Watch')
READY = dynamic.Method(dynamic.load('inference/open_inference.proto'),
                       'inference.GRPCInferenceService', 'ServerReady')


class DrainDelay(OwnServerTest):
    """Tests each of which has its own servers."""

    def health(self, client):
        """Returns the health that Check reports for the server."""
        return CHECK.unary(client.channel).status

    def leave(self, server):
        """Sends SIGTERM and waits for the delay to begin."""
        server.terminate()
        wait_until(lambda: server.find('drain_delayed'), 20, 'event=drain_delayed')

    def cut(self, server):
        """Stops a server without a delay by SIGTERM, twice."""
        server.terminate()
        wait_until(lambda: server.find('draining'), 20, 'event=draining')
        server.terminate()
        server.wait(20)

    def end(self, server):
        """Sends SIGTERM again; the server must exit with 0."""
        server.terminate()
        self.assertEqual(server.wait(20), 0, server.log[-4000:])
        server.check_log()
        self.assertIsNone(server.find('cutting'))

    def test_says_no_and_serves_old_and_new_connections(self):
        server = self.serve('--loops', '2', *FOREVER, http='127.0.0.1:0')
        old = self.connect(server)
        before = old.list_models()
        feed = WATCH.feed(old.channel)
        self.assertEqual(next(feed).status, SERVING)
        self.assertTrue(READY.unary(old.channel).ready)
        self.leave(server)
        self.assertEqual(next(feed).status, NOT_SERVING)
        clients = [old] + [self.connect(server) for _ in range(8)]
        for client in clients:
            wait_until(lambda of=client: self.health(of) == NOT_SERVING, 20, 'NOT_SERVING')
            self.assertEqual(len(client.lookup(GOOD).results), 1)
            self.assertEqual(client.list_models(), before)
            self.assertFalse(READY.unary(client.channel).ready)
        self.assertEqual(fetch(server, '/readyz')[::2], (503, 'draining\n'))
        self.assertEqual(fetch(server, '/healthz')[0], 200)
        stream = old.stream(iter([GOOD]))
        self.assertEqual([answer.error_code for answer in stream], [0])
        for client in clients:
            client.close()  # an idle grpcio client does not read a GOAWAY
        self.end(server)

    def test_commands_are_taken(self):
        address = 'unix:' + self.repository.join('admin')
        server = self.serve('--admin-listen', address, *FOREVER)
        self.leave(server)
        with Admin(address) as admin:
            self.assertEqual(len(admin.list_versions().models), 1)
        self.end(server)

    def test_the_drain_follows_by_itself(self):
        server = self.serve('--drain-delay-ms', '300')
        with Connection(server.port) as peer:
            self.assertEqual(peer.status(peer.call(message(as_bytes(GOOD)))), ('200', 0, ''))
            started = time.monotonic()
            server.terminate()
            peer.wait_frame(GOAWAY)
            self.assertGreaterEqual(time.monotonic() - started, 0.3)
            self.assertTrue(peer.is_closed())
        self.assertEqual(server.wait(20), 0)
        server.check_log()
        self.assertRegex(server.find('drain_delayed'), r'signal=SIGTERM drain_delay_ms=300$')
        self.assertTrue(server.find('draining'))

    def test_a_second_signal_drains_and_a_third_cuts(self):
        server = self.serve(*FOREVER)
        with Connection(server.port) as peer:
            half = peer.open()
            peer.data(half, message(as_bytes(GOOD))[:10], end=False)
            self.assertEqual(peer.status(peer.call(message(as_bytes(GOOD)))), ('200', 0, ''))
            self.leave(server)
            server.terminate()
            peer.wait_frame(GOAWAY)
            self.assertFalse(server.has_ended())
            self.assertIsNone(server.find('cutting'))
            server.terminate()
            self.assertTrue(peer.is_closed())
        self.assertEqual(server.wait(20), 0)
        server.check_log()
        self.assertTrue(server.find('cutting'))

    def test_the_service_manager_is_told_and_the_watchdog_hears_of_it(self):
        manager = NotifySocket(self.repository.path)
        self.addCleanup(manager.close)
        server = self.serve('--drain-timeout-ms', '45000', *FOREVER, environment={
            **manager.environment, 'WATCHDOG_USEC': '400000'})
        manager.wait('READY')
        self.leave(server)
        self.assertEqual(manager.wait('STOPPING'), '1')
        manager.wait('WATCHDOG', manager.count('WATCHDOG') + 3)
        self.end(server)
        allowed = [m['EXTEND_TIMEOUT_USEC'] for m in manager.look() if 'STOPPING' in m]
        self.assertEqual(allowed, ['660000000', '60000000'])

    def reload(self, server):
        """Sends SIGHUP and waits until the files have been read again."""
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: server.find('reloaded'), 20, 'event=reloaded')

    def test_files_are_read_again(self):
        """A token that was removed is refused, and a new certificate is shown."""
        authority = Authority()
        self.addCleanup(authority.remove)
        authority.issue('server', names=HERE)

        def write_rules(name, token):
            return authority.write('auth.yaml', json.dumps({'principals': [{
                'name': name, 'models': ['*'],
                'token_sha256': hashlib.sha256(token.encode()).hexdigest()}]}))

        server = self.serve('--tls-cert', authority.path('server.pem'), '--tls-key',
                            authority.path('server.key'), '--auth-file',
                            write_rules('old', OLD_TOKEN), *FOREVER)
        client = SecureClient(server.address, authority)
        self.addCleanup(client.close)
        call = client.channel.unary_unary(
            '/embag.v1.EmbeddingBag/Lookup', request_serializer=as_bytes,
            response_deserializer=pb.LookupResponse.FromString)

        def is_known(token):
            metadata = [('authorization', 'Bearer ' + token)]
            try:
                return len(call(GOOD, timeout=20, metadata=metadata).results) == 1
            except grpc.RpcError as error:
                self.assertEqual(error.code(), grpc.StatusCode.UNAUTHENTICATED)
                return False

        context = ssl.create_default_context(cafile=authority.path('ca.pem'))
        context.set_alpn_protocols(['h2'])

        def shown():
            with socket.create_connection((LOOPBACK, server.port), timeout=20) as plain, \
                    context.wrap_socket(plain, server_hostname=LOOPBACK) as peer:
                return peer.getpeercert()['serialNumber']

        self.leave(server)
        before = shown()
        self.assertTrue(is_known(OLD_TOKEN))
        authority.issue('server', names=HERE)
        write_rules('new', NEW_TOKEN)
        self.reload(server)
        wait_until(lambda: not is_known(OLD_TOKEN), 20, 'new rules')
        self.assertTrue(is_known(NEW_TOKEN))
        wait_until(lambda: shown() != before, 20, 'the new certificate')
        client.close()
        self.end(server)

    def test_the_service_manager_hears_of_no_reading_again(self):
        """The service manager would take READY for a shutdown that was cancelled."""
        manager = NotifySocket(self.repository.path)
        self.addCleanup(manager.close)
        server = self.serve(*FOREVER, environment=manager.environment)
        manager.wait('READY')
        self.leave(server)
        self.reload(server)
        self.end(server)
        self.assertEqual(manager.count('RELOADING'), 0)
        self.assertEqual(manager.count('READY'), 1)

    def test_checks_in_time_lose_no_call_and_late_ones_do(self):
        """Runs the health checks one by one, so that the machine's speed does not matter."""
        for flags, lost in (FOREVER, []), ((), ['UNAVAILABLE']):
            leaving, staying = self.serve(*flags), self.serve()
            with Balancer([leaving, staying], GOOD) as balancer:
                if flags:
                    self.leave(leaving)
                else:
                    self.cut(leaving)
                for _ in range(2):
                    balancer.call()
                self.assertEqual(balancer.lost, lost)
                wait_until(lambda of=balancer: of.check() or len(of.serving()) == 1, 20, 'a check')
                self.assertEqual(balancer.serving(), [staying])
                balancer.backends[0].client.close()  # an idle client does not read a GOAWAY
                if flags:
                    self.end(leaving)
                for _ in range(10):
                    balancer.call()
                self.assertEqual(balancer.lost, lost)

    def test_two_seconds_are_enough_for_checks_each_half_second(self):
        for _ in range(ROUNDS_MAX):
            leaving, staying = self.serve('--drain-delay-ms', '2000'), self.serve()
            with Balancer([leaving, staying], GOOD) as balancer:
                calls = itertools.count()
                balancer.call_while(lambda it=calls: next(it) < 20, CHECK_EACH_SECONDS)
                leaving.terminate()
                balancer.call_while(lambda of=leaving: not of.has_ended(), CHECK_EACH_SECONDS)
                if balancer.longest_gap() < 1.5:
                    self.assertEqual(balancer.lost, [])
                    self.assertGreater(balancer.answered, 20)
                    return
        self.skipTest('this machine is too slow for a check each half second')


if __name__ == '__main__':
    unittest.main()
