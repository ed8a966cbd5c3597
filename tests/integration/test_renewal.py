"""Certificates, tokens and lists of callers that change while server and clients run, without a
signal and without a restart."""

import contextlib
import hashlib
import json
import os
import threading
import unittest

import grpc

from certificates import HERE
from embagd_process import wait_until
from rpc import SecureClient
from served import scaled
from test_auth import AuthTest
from test_submit import MODES, Probe
from table_files import Table
from test_tls import TlsTest, request_of

SECONDS = 60
PAUSE_S = 0.01
TOKENS = 'renewed-token-of-the-test-%d'
# The probe's table: every value of row n is n.
TABLE = Table.of_values('emb_table', 'f32', [[n, n] for n in range(5)])
CODES = grpc.StatusCode


@contextlib.contextmanager
def kept_up(test, *asks):
    """Calls each function every PAUSE_S on a thread of its own. Any error fails the test."""
    failures, stop = [], threading.Event()

    def keep(ask):
        while not stop.wait(PAUSE_S):
            try:
                ask()
            except Exception as error:  # any error; the test reports it
                failures.append(error)
                return
    threads = [threading.Thread(target=keep, args=(ask,)) for ask in asks]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        test.assertEqual(failures, [])


class Certificates(TlsTest):
    """The server's certificate."""

    def serial(self, server):
        """Returns the serial number of the certificate that new connections are shown."""
        return self.handshake(server, self.context('h2')).getpeercert()['serialNumber']

    def comes(self, server, before):
        """Waits until new connections are shown another certificate; returns its number."""
        wait_until(lambda: self.serial(server) != before, SECONDS, 'the new certificate')
        return self.serial(server)

    def ask_anew(self, server):
        """Checks that a lookup over a new connection succeeds."""
        with SecureClient('localhost:%d' % server.port, self.authority) as client:
            self.answered(client)

    def test_shows_the_new_one_and_loses_no_lookup(self):
        server = self.serve_tls()
        client = self.secure(server)
        serial = self.serial(server)
        with kept_up(self, lambda: self.answered(client), lambda: self.ask_anew(server)):
            for _ in range(2):
                self.authority.issue('server', names=HERE)
                serial = self.comes(server, serial)
        self.assertIsNone(server.find('reload_failed'))

    def test_waits_for_the_other_half_of_a_pair(self):
        server = self.serve_tls()
        serial = self.serial(server)
        self.authority.issue('next', names=HERE)
        with kept_up(self, lambda: self.ask_anew(server)):
            os.replace(self.authority.path('next.pem'), self.authority.path('server.pem'))
            wait_until(lambda: server.find('reload_delayed'), SECONDS, 'half of a pair')
            self.assertEqual(self.serial(server), serial)
            os.replace(self.authority.path('next.key'), self.authority.path('server.key'))
            self.comes(server, serial)
        self.assertIsNone(server.find('reload_failed'))

    def test_follows_a_mounted_secret(self):
        """Kubernetes writes a directory, and makes the link `..data` lead to it."""
        folder = self.authority.path('mount')
        os.mkdir(folder)

        def publish(number):
            self.authority.issue('next', names=HERE)
            version = os.path.join(folder, '..%d' % number)
            os.mkdir(version)
            for name, kind in (('tls.crt', '.pem'), ('tls.key', '.key')):
                os.replace(self.authority.path('next' + kind), os.path.join(version, name))
            os.symlink('..%d' % number, os.path.join(folder, '..new'))
            os.replace(os.path.join(folder, '..new'), os.path.join(folder, '..data'))
        publish(1)
        for name in ('tls.crt', 'tls.key'):
            os.symlink(os.path.join('..data', name), os.path.join(folder, name))
        server = self.serve('--tls-cert', os.path.join(folder, 'tls.crt'),
                            '--tls-key', os.path.join(folder, 'tls.key'))
        serial = self.serial(server)
        with kept_up(self, lambda: self.ask_anew(server)):
            publish(2)
            self.comes(server, serial)
        self.assertIsNone(server.find('reload_failed'))

    def test_trusts_the_new_authority_of_clients(self):
        other = self.other_authority()
        self.authority.write('clients.pem', self.authority.read('ca.pem').decode())
        server = self.serve_tls('--tls-client-ca', self.authority.path('clients.pem'))
        for kind in ('.pem', '.key'):
            self.authority.write('client' + kind, other.read('client' + kind).decode())

        def may_call():
            with SecureClient('localhost:%d' % server.port, self.authority, 'client') as client:
                try:
                    self.answered(client)
                except grpc.RpcError:
                    return False
            return True
        self.assertFalse(may_call())
        self.authority.write('clients.pem', other.read('ca.pem').decode())
        wait_until(may_call, SECONDS, 'the new authority')

    def test_is_polled_for_or_left_alone_as_the_setting_watch_says(self):
        keen = self.serve_tls('--watch', 'poll', '--watch-poll-ms', '100')
        deaf = self.serve_tls('--watch', 'off')
        serial = self.serial(deaf)
        self.authority.issue('server', names=HERE)
        self.comes(keen, serial)
        self.assertEqual(self.serial(deaf), serial)
        self.assertIsNone(deaf.find('reloaded'))


class Callers(AuthTest):
    """The auth_file and the token files that it names."""

    def test_lets_new_callers_in_and_keeps_revoked_ones_out(self):
        server = self.serve_rules()
        old = self.caller(server, TOKENS % 1)
        self.refused(CODES.UNAUTHENTICATED, '', old.list_models)
        self.principals.append({'name': 'first', 'models': ['*'],
                                'token_file': self.authority.write('first', TOKENS % 1)})
        self.write_rules()
        wait_until(lambda: self.may_call(old), SECONDS, 'the new caller')
        self.principals.pop()
        self.write_rules()
        wait_until(lambda: not self.may_call(old), SECONDS, 'the caller to be revoked')
        self.assertIsNone(server.find('reload_failed'))

    def test_take_the_new_content_of_token_files(self):
        self.principals.append({'name': 'first', 'models': ['*'],
                                'token_file': self.authority.write('first', TOKENS % 1)})
        server = self.serve_rules()
        old, new = self.caller(server, TOKENS % 1), self.caller(server, TOKENS % 2)
        self.assertTrue(self.may_call(old))
        self.assertFalse(self.may_call(new))
        self.authority.write('first', TOKENS % 2)
        wait_until(lambda: self.may_call(new), SECONDS, 'the new token')
        self.assertFalse(self.may_call(old))

    def may_call(self, client):
        """Returns whether a client may look something up."""
        try:
            client.lookup(request_of(0))
        except grpc.RpcError as error:
            self.assertEqual(error.code(), CODES.UNAUTHENTICATED)
            return False
        return True


class Clients(AuthTest):
    """C clients that run while their files change."""

    def write_callers(self, *numbers):
        """Replaces the auth_file: these are the callers, each with a token of its own."""
        principals = [{'name': 'caller-%d' % n, 'models': ['*'],
                       'token_sha256': hashlib.sha256((TOKENS % n).encode()).hexdigest()}
                      for n in numbers]
        self.authority.replace('auth.yaml', json.dumps({'principals': principals}))

    def ask(self, probe):
        """Runs some lookups, which must all succeed."""
        count = scaled(20)
        probe.submit(count)
        self.assertEqual(probe.take(count)[1], {'OK': count})

    def test_use_a_renewed_token_and_lose_no_lookup(self):
        for mode in MODES:
            with self.subTest(mode=mode):
                token = self.authority.replace('token', TOKENS % 1)
                self.write_callers(1, 2)
                server = self.serve('--auth-file', self.authority.path('auth.yaml'),
                                    '--access-log', 'all', tables=[TABLE])
                former = self.caller(server, TOKENS % 1)
                probe = Probe(self, server.address, mode, retries_max=-1,
                              files=[token])
                with kept_up(self, lambda p=probe: self.ask(p)):
                    self.await_lookup(server, 'caller-1')
                    self.authority.replace('token', TOKENS % 2)
                    self.await_lookup(server, 'caller-2')
                    self.write_callers(2)
                    wait_until(lambda c=former: self.is_stranger(c), SECONDS, 'the revocation')
                probe.end()
                server.stop()

    def await_lookup(self, server, principal):
        """Waits until a principal has looked something up."""
        def is_there():
            lines = [line.split() for line in server.lines[-200:]]
            return any('principal=' + principal in line and 'model=spec' in line for line in lines)
        wait_until(is_there, SECONDS, 'a lookup of ' + principal)

    def is_stranger(self, client):
        """Returns whether the server does not know the client."""
        try:
            client.list_models()
        except grpc.RpcError as error:
            return error.code() == CODES.UNAUTHENTICATED
        return False

    def test_show_a_renewed_certificate_to_new_connections(self):
        self.authority.issue('server', names=HERE)
        self.authority.issue('client', 'first')
        self.principals = [{'name': 'caller-' + name, 'client_name': name, 'models': ['*']}
                           for name in ('first', 'second')]
        server = self.serve_rules(
            '--tls-cert', self.authority.path('server.pem'),
            '--tls-key', self.authority.path('server.key'),
            '--tls-client-ca', self.authority.path('ca.pem'),
            '--connection-age-max-ms', '500', '--access-log', 'all', tables=[TABLE])
        probe = Probe(self, 'localhost:%d' % server.port,
                      files=['-'] + [self.authority.path(name)
                                     for name in ('ca.pem', 'client.pem', 'client.key')])
        with kept_up(self, lambda: self.ask(probe)):
            self.await_lookup(server, 'caller-first')
            self.authority.issue('client', 'second')
            self.await_lookup(server, 'caller-second')


if __name__ == '__main__':
    unittest.main()
