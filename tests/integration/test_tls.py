"""TLS and mutual TLS on the data port, with stock grpcio, Python's ssl, and our own tool."""

import os
import re
import signal
import socket
import ssl
import subprocess
import threading
import time
import unittest

import grpc

import served
from certificates import HERE, Authority
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import wait_until
from rpc import Client, Requests, SecureClient, error_of
from served import OwnServerTest

SECONDS = 30
SHORT_MS = 300  # handshake timeout that a test waits for
PREFACE = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


def request_of(*indices):
    """Returns a lookup of one bag of the specification's table."""
    return pb.LookupRequest(model='spec', queries=[pb.BagQuery(
        table='emb_table', indices=indices, num_bags=1)])


class TlsTest(OwnServerTest):
    """A server with a certificate of the test's authority."""

    def setUp(self):
        super().setUp()
        self.authority = Authority()
        self.addCleanup(self.authority.remove)
        self.authority.issue('server', names=HERE)

    def serve_tls(self, *flags, **keywords):
        """Starts a server with TLS."""
        return self.serve('--tls-cert', self.authority.path('server.pem'),
                          '--tls-key', self.authority.path('server.key'), *flags, **keywords)

    def secure(self, server, authority=None, certificate=None):
        """Opens a connection that is closed at the end of the test."""
        client = SecureClient('localhost:%d' % server.port, authority or self.authority,
                              certificate)
        self.addCleanup(client.close)
        return client

    def other_authority(self):
        """Creates an authority that nobody trusts."""
        other = Authority()
        self.addCleanup(other.remove)
        other.issue('client', 'intruder')
        return other

    def context(self, *protocols, verify=True):
        """Returns a context for Python's own TLS."""
        context = ssl.create_default_context(cafile=self.authority.path('ca.pem'))
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        context.set_ciphers('ALL:@SECLEVEL=0')
        if protocols:
            context.set_alpn_protocols(protocols)
        if not verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def handshake(self, server, context):
        """Returns a socket after its handshake; it is closed at the end of the test."""
        plain = socket.create_connection(('127.0.0.1', server.port), SECONDS)
        self.addCleanup(plain.close)
        wrapped = context.wrap_socket(plain, server_hostname='localhost')
        self.addCleanup(wrapped.close)
        return wrapped

    def shake_hands(self, peer, plain, incoming, outgoing):
        """Completes a handshake with an SSLObject between two buffers; the test itself sends the
        bytes."""
        while True:
            try:
                peer.do_handshake()
                break
            except ssl.SSLWantReadError:
                plain.sendall(outgoing.read())
                incoming.write(plain.recv(65536))
        plain.sendall(outgoing.read())

    def refused(self, server, reason):
        """Waits for the log line of a refused connection with this reason."""
        wait_until(lambda: any(re.search(reason, line) for line in list(server.lines)
                               if 'event=connection_refused' in line), SECONDS, reason)

    def answered(self, client):
        """Checks that a lookup succeeds."""
        answer = client.lookup(request_of(0, 2))
        self.assertEqual(answer.version, 1)
        self.assertEqual(list(answer.results[0].shape), [1, 2])


class Handshakes(TlsTest):
    def test_answers_stock_clients_in_all_its_calls(self):
        server = self.serve_tls()
        client = self.secure(server)
        self.answered(client)
        answers = list(client.stream(request_of(n % 5) for n in range(100)))
        self.assertEqual(len(answers), 100)
        self.assertEqual(client.list_models().models[0].name, 'spec')

    def test_carries_large_messages_and_many_at_once(self):
        server = self.serve_tls()
        client = self.secure(server)
        large = pb.LookupRequest(model='spec', queries=[pb.BagQuery(
            table='emb_table', indices_i32=bytes(4 * 500000), num_bags=500000,
            indices_per_bag=1)])
        futures = [client.lookup_future(large) for _ in range(8)]
        for future in futures:
            answer = future.result(SECONDS)
            self.assertEqual(len(answer.results[0].values), 500000 * 8)

    def test_speaks_only_what_it_must(self):
        server = self.serve_tls()
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = self.context('h2')
            context.minimum_version = context.maximum_version = version
            self.assertEqual(self.handshake(server, context).selected_alpn_protocol(), 'h2')
        context = self.context('h2')
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
        with self.assertRaises(OSError):
            self.handshake(server, context)
        self.refused(server, 'unsupported protocol')

    def test_can_be_told_to_speak_1_3_alone(self):
        server = self.serve_tls('--tls-min-version', '1.3')
        context = self.context('h2')
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with self.assertRaises(OSError):
            self.handshake(server, context)
        self.answered(self.secure(server))

    def test_refuses_who_does_not_ask_for_http2(self):
        server = self.serve_tls()
        for protocols in ((), ('http/1.1',)):
            with self.assertRaises(OSError) as caught:
                self.handshake(server, self.context(*protocols)).recv(1)
            self.assertIn('no application protocol', str(caught.exception).lower()
                          .replace('_', ' '))
        self.refused(server, 'no application protocol')

    def test_is_refused_where_it_is_not_trusted(self):
        server = self.serve_tls()
        client = self.secure(server, self.other_authority())
        code, _ = error_of(client.list_models)
        self.assertEqual(code, grpc.StatusCode.UNAVAILABLE)
        self.refused(server, 'TLS handshake')

    def test_says_who_speaks_plain_on_its_port_and_the_reverse(self):
        server = self.serve_tls()
        with socket.create_connection(('127.0.0.1', server.port), SECONDS) as plain:
            plain.sendall(PREFACE)
            while plain.recv(4096):
                pass
        self.refused(server, 'the peer sent plain text to a TLS port')
        plain_server = self.serve()
        with self.assertRaises(OSError):
            self.handshake(plain_server, self.context('h2'))
        self.refused(plain_server, 'the peer speaks TLS, but this port does not')

    def test_closes_handshakes_that_do_not_end(self):
        server = self.serve_tls('--header-timeout-ms', str(SHORT_MS), '--log-level', 'debug')
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        hello = self.context('h2').wrap_bio(incoming, outgoing, server_hostname='localhost')
        with self.assertRaises(ssl.SSLWantReadError):
            hello.do_handshake()
        first = outgoing.read()
        for part in (b'', first[:1], first[:-1], first):
            with self.subTest(bytes=len(part)), \
                    socket.create_connection(('127.0.0.1', server.port), SECONDS) as slow:
                begin = time.monotonic()
                slow.sendall(part)
                while slow.recv(4096):
                    pass
                self.assertGreater(time.monotonic() - begin, SHORT_MS / 2000)
        self.assertIn('no TLS handshake in time', server.log)

    def test_survives_junk_at_every_stage(self):
        server = self.serve_tls()
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        hello = self.context('h2').wrap_bio(incoming, outgoing, server_hostname='localhost')
        with self.assertRaises(ssl.SSLWantReadError):
            hello.do_handshake()
        first = outgoing.read()
        for at in range(0, len(first), 7):
            with socket.create_connection(('127.0.0.1', server.port), SECONDS) as plain:
                turned = bytes([first[at] ^ 0x55])
                plain.sendall(first[:at] + turned + first[at + 1:] + bytes(64))
                plain.shutdown(socket.SHUT_WR)
                try:
                    while plain.recv(4096):
                        pass
                except ConnectionResetError:
                    pass
        self.answered(self.secure(server))

    def test_outlives_peers_that_end_while_it_has_something_to_say(self):
        server = self.serve_tls()
        settings = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
        ping = bytes([0, 0, 8, 6, 0, 0, 0, 0, 0]) + bytes(8)
        wrong = bytes([0, 0, 8, 7, 0, 0, 0, 0, 0]) + bytes([0, 0, 0, 3]) + bytes(4)
        for last_words in (b'', settings, ping, wrong):
            with self.subTest(last_words=last_words):
                incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
                peer = self.context('h2').wrap_bio(incoming, outgoing, server_hostname='localhost')
                plain = socket.create_connection(('127.0.0.1', server.port), SECONDS)
                self.addCleanup(plain.close)
                self.shake_hands(peer, plain, incoming, outgoing)
                peer.write(PREFACE + last_words)
                with self.assertRaises(ssl.SSLWantReadError):
                    peer.unwrap()
                plain.sendall(outgoing.read())  # in one piece, for one read of the server
                while plain.recv(4096):
                    pass
        self.answered(self.secure(server))

    def test_serves_unix_sockets_as_before(self):
        path = self.authority.path('socket')
        server = self.serve_tls(listen=('127.0.0.1:0', 'unix:' + path))
        with Client('unix:' + path) as client:
            self.answered(client)
        self.answered(self.secure(server))

    def test_keeps_up_with_readers_that_are_slow(self):
        server = self.serve_tls()
        wrapped = self.handshake(server, self.context('h2'))
        wrapped.sendall(PREFACE)
        settings = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
        acknowledged = bytes([0, 0, 0, 4, 1, 0, 0, 0, 0])
        wrapped.sendall(settings * 20)
        got = b''
        while got.count(acknowledged) < 21:  # the preface's settings are acknowledged too
            part = wrapped.recv(7)
            self.assertTrue(part)
            got += part


class MutualTls(TlsTest):
    def setUp(self):
        super().setUp()
        self.authority.issue('client', 'ranking', 'DNS:ranking.example,URI:spiffe://x/ranking')
        self.flags = ('--tls-client-ca', self.authority.path('ca.pem'))

    def test_serves_who_is_vouched_for_and_nobody_else(self):
        server = self.serve_tls(*self.flags)
        self.answered(self.secure(server, certificate='client'))
        code, _ = error_of(self.secure(server).list_models)
        self.assertEqual(code, grpc.StatusCode.UNAVAILABLE)
        self.refused(server, 'peer did not return a certificate')
        other = self.other_authority()
        context = self.context('h2')
        context.load_cert_chain(other.path('client.pem'), other.path('client.key'))
        with self.assertRaises(OSError):
            self.handshake(server, context).recv(1)
        self.refused(server, 'TLS handshake: (self.signed|unable to get|certificate signature)')

    def test_can_leave_it_to_the_client(self):
        server = self.serve_tls(*self.flags, '--tls-client-verify', 'optional')
        self.answered(self.secure(server, certificate='client'))
        self.answered(self.secure(server))
        other = self.other_authority()
        context = self.context('h2')
        context.load_cert_chain(other.path('client.pem'), other.path('client.key'))
        with self.assertRaises(OSError):
            self.handshake(server, context).recv(1)


class Reload(TlsTest):
    def serial(self, server):
        """Returns the serial number of the certificate that new connections are shown."""
        shown = self.handshake(server, self.context('h2')).getpeercert()
        return shown['serialNumber']

    def reload(self, server, event='reloaded'):
        """Sends SIGHUP and waits for the log line that reports the result."""
        def count():
            return server.log.count(' event=%s ' % event)
        before = count()
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: count() > before, SECONDS, event)

    def test_shows_the_new_certificate_and_keeps_connections(self):
        server = self.serve_tls()
        requests = Requests()
        client = self.secure(server)
        answers = client.stream(requests, timeout=None)
        failures, stop = [], threading.Event()

        def ask_anew():
            with SecureClient('localhost:%d' % server.port, self.authority) as other:
                self.answered(other)

        def keep(ask):
            while not stop.is_set():
                try:
                    ask()
                except Exception as error:  # any error; the test reports it
                    failures.append(error)
                    return
        asking = [threading.Thread(target=keep, args=(ask,))
                  for ask in (lambda: self.answered(client), ask_anew) for _ in range(2)]
        for thread in asking:
            thread.start()
        try:
            before = self.serial(server)
            for _ in range(3):
                requests.put(request_of(1))
                next(answers)
                self.authority.issue('server', names=HERE)
                self.reload(server)
                # A loop uses the new certificate from its next iteration on.
                wait_until(lambda: self.serial(server) != before, SECONDS, 'the new certificate')
                before = self.serial(server)
                requests.put(request_of(2))
                next(answers)
        finally:
            stop.set()
            for thread in asking:
                thread.join()
            requests.end()
        self.assertEqual(failures, [])
        self.answered(self.secure(server))

    def test_keeps_the_old_one_where_the_new_one_is_faulty(self):
        server = self.serve_tls()
        before = self.serial(server)
        key = self.authority.read('server.key')
        self.authority.issue('other', names=HERE)
        broken = {'server.key': (b'junk', self.authority.read('other.key'), b''),
                  'server.pem': (b'-----BEGIN CERTIFICATE-----\nAAAA\n', b'')}
        for name, contents in broken.items():
            good = self.authority.read(name)
            for content in contents:
                with open(self.authority.path(name), 'wb') as file:
                    file.write(content)
                self.reload(server, 'reload_failed')
                self.assertEqual(self.serial(server), before)
            with open(self.authority.path(name), 'wb') as file:
                file.write(good)
        self.assertIn(self.authority.path('server.key'), server.log)
        self.assertNotIn(key.decode().split('\n')[1], server.log)
        self.reload(server)
        self.answered(self.secure(server))

    def test_keeps_the_old_one_where_the_new_one_has_expired(self):
        server = self.serve_tls()
        before = self.serial(server)
        self.authority.issue('server', names=HERE, days=-1)
        self.reload(server, 'reload_failed')
        self.assertIn('has expired', server.find('reload_failed'))
        self.assertEqual(self.serial(server), before)
        self.answered(self.secure(server))

    def test_does_not_wait_for_what_is_no_file(self):
        server = self.serve_tls()
        for name in ('server.pem', 'server.key'):
            good = self.authority.read(name)
            os.remove(self.authority.path(name))
            os.mkfifo(self.authority.path(name))
            self.reload(server, 'reload_failed')
            refusals = [line for line in server.log.splitlines() if ' event=reload_failed ' in line]
            self.assertIn('is not a regular file', refusals[-1])
            os.remove(self.authority.path(name))
            self.authority.write(name, good.decode())
        self.answered(self.secure(server))

    def test_takes_the_signal_without_tls_too(self):
        server = self.serve()
        self.reload(server)
        with Client(server.address) as client:
            self.answered(client)


class Starts(TlsTest):
    def fails(self, reason, *flags):
        """Checks that the start fails with this reason."""
        from embagd_process import Embagd
        log = Embagd(self.repository.path, *flags).start_fails()
        self.assertRegex(log, reason)

    def test_fails_with_what_it_cannot_use(self):
        self.authority.issue('other')
        certificate, key = self.authority.path('server.pem'), self.authority.path('server.key')
        self.fails('what=tls_cert reason="/none: .*No such file', '--tls-cert', '/none',
                   '--tls-key', key)
        self.fails('cannot be used as the certificate', '--tls-cert', certificate,
                   '--tls-key', self.authority.path('other.key'))
        self.fails('cannot be read as certificates', '--tls-cert', key, '--tls-key', key)
        self.fails('cannot be read as certificates', '--tls-cert', certificate, '--tls-key', key,
                   '--tls-client-ca', key)
        locked = self.authority.path('locked.key')
        subprocess.run(['openssl', 'ec', '-in', key, '-aes128', '-passout', 'pass:secret',
                        '-out', locked], check=True, stderr=subprocess.DEVNULL, timeout=60)
        self.fails('without a password', '--tls-cert', certificate, '--tls-key', locked)
        self.authority.issue('late', days=-1)
        self.fails('what=tls_cert .*has expired', '--tls-cert', self.authority.path('late.pem'),
                   '--tls-key', self.authority.path('late.key'))
        self.fails('is not a regular file', '--tls-cert', certificate, '--tls-key', key,
                   '--tls-client-ca', '/dev/zero')

    def test_warns_of_a_key_that_others_can_read(self):
        server = self.serve_tls()
        self.assertIsNone(server.find('secret_exposed'))
        os.chmod(self.authority.path('server.key'), 0o644)
        self.assertIn(self.authority.path('server.key'),
                      self.serve_tls().find('secret_exposed') or '')


class Tool(TlsTest):
    """The tool, as a client with TLS."""

    def run_tool(self, server, *flags, host='localhost'):
        """Lists models; returns the exit status and the output."""
        ran = subprocess.run(
            [served.EMBAG, 'models', '--server', '%s:%d' % (host, server.port), *flags],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS,
            check=False)
        return ran.returncode, ran.stdout

    def test_reaches_the_server_that_is_meant(self):
        server = self.serve_tls()
        trusted = ('--tls-ca', self.authority.path('ca.pem'))
        for host in ('localhost', '127.0.0.1'):
            status, said = self.run_tool(server, *trusted, host=host)
            self.assertEqual(status, 0, said)
            self.assertIn('spec', said)
        status, said = self.run_tool(server, *trusted, '--tls-server-name', 'other.example')
        self.assertEqual(status, 1)
        self.assertIn('hostname mismatch', said.lower())
        status, said = self.run_tool(server, '--tls-ca', self.other_authority().path('ca.pem'))
        self.assertEqual(status, 1)
        self.assertIn('certificate', said)
        status, said = self.run_tool(server, '--tls')
        self.assertEqual(status, 1)
        self.assertIn('certificate', said)
        status, said = self.run_tool(server)
        self.assertEqual(status, 1)
        status, said = self.run_tool(self.serve(), *trusted)
        self.assertEqual(status, 1)
        self.assertIn('TLS handshake', said)

    def test_shows_its_certificate(self):
        self.authority.issue('client', 'ranking')
        server = self.serve_tls('--tls-client-ca', self.authority.path('ca.pem'))
        trusted = ('--tls-ca', self.authority.path('ca.pem'))
        status, said = self.run_tool(server, *trusted)
        self.assertEqual(status, 1, said)
        status, said = self.run_tool(
            server, *trusted, '--tls-cert', self.authority.path('client.pem'),
            '--tls-key', self.authority.path('client.key'))
        self.assertEqual(status, 0, said)
        status, said = self.run_tool(
            server, *trusted, '--tls-cert', self.authority.path('client.pem'))
        self.assertEqual(status, 1)
        self.assertIn('give both or neither', said)
