"""Who may call which methods: bearer tokens and certificate names, according to an auth_file."""

import hashlib
import json
import os
import signal
import socket
import ssl
import subprocess

import grpc
from hyperframe.frame import DataFrame

import dynamic
import served
from attacker import GOOD_MESSAGE, Attacker
from certificates import HERE, Authority
from embag.v1 import embedding_bag_pb2 as pb
from embag.v1 import model_admin_pb2 as admin_pb
from embagd_process import Embagd, wait_until
from h2raw import (ACK, END_HEADERS, HEADERS, PING, PREFACE, SETTINGS, call_fields, frame,
                   header_encode, message)
from rpc import ADMIN, Admin, Client, Requests, SecureClient, as_bytes, error_of
from served import OwnServerTest, spec_table
from table_files import write_model

SECONDS = 60
CODES = grpc.StatusCode
HEALTH = 'grpc.health.v1.Health'
POOL = dynamic.load('grpc/health/v1/health.proto')
CHECK, LIST, WATCH = (dynamic.Method(POOL, HEALTH, name) for name in ('Check', 'List', 'Watch'))
SERVING, SERVICE_UNKNOWN = 1, 3
PRINCIPALS_MAX, MODELS_MAX = 4096, 4096
RANKING, ALL, CHIEF = 'ranking-token-0123456789', 'all-token-0123456789', 'chief-token-0123456789'


def request_of(model, **fields):
    """Returns a lookup of one bag of a model."""
    return pb.LookupRequest(model=model, **fields, queries=[pb.BagQuery(
        table='emb_table', indices=[0, 2], num_bags=1)])


class AuthTest(OwnServerTest):
    """A server with two models and three principals."""

    def setUp(self):
        super().setUp()
        self.authority = Authority()
        self.addCleanup(self.authority.remove)
        write_model(self.repository.path, 'other', 1, [spec_table()])
        self.principals = [
            {'name': 'ranking', 'models': ['spec'],
             'token_file': self.authority.write('ranking.token', RANKING + '\n')},
            {'name': 'all', 'models': ['*'],
             'token_sha256': hashlib.sha256(ALL.encode()).hexdigest()},
            {'name': 'chief', 'admin': True,
             'token_file': self.authority.write('chief.token', CHIEF)},
        ]

    def write_rules(self):
        """Writes the auth_file, as JSON, which is valid YAML; returns its path."""
        return self.authority.write('auth.yaml', json.dumps({'principals': self.principals}))

    def serve_rules(self, *flags, **keywords):
        """Starts a server with the auth_file."""
        return self.serve('--auth-file', self.write_rules(), *flags, **keywords)

    def caller(self, server, token=None, scheme='Bearer', kind=Client):
        """Returns a connection whose calls carry a token."""
        client = kind(server.address)
        self.addCleanup(client.close)
        if token is not None:
            metadata = [('authorization', '%s %s' % (scheme, token))]
            client.channel = grpc.intercept_channel(client.channel, Shown(metadata))
        return client

    def refused(self, code, text, call, *arguments):
        """Checks that a call fails with this code and text."""
        got_code, got_text = error_of(call, *arguments)
        self.assertEqual(got_code, code, got_text)
        self.assertIn(text, got_text)

    def reload(self, server, event='reloaded'):
        """Sends SIGHUP and waits for the log line that reports the result."""
        def count():
            return server.log.count(' event=%s ' % event)
        before = count()
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: count() > before, SECONDS, event)


class Shown(grpc.UnaryUnaryClientInterceptor, grpc.StreamStreamClientInterceptor,
            grpc.UnaryStreamClientInterceptor):
    """Adds metadata to every call, also on connections without TLS."""

    def __init__(self, metadata):
        self.metadata = metadata

    def _go_on(self, proceed, details, request):
        metadata = list(details.metadata or []) + self.metadata
        return proceed(details._replace(metadata=metadata), request)

    intercept_unary_unary = intercept_stream_stream = intercept_unary_stream = _go_on


class Tokens(AuthTest):
    def test_lets_those_in_who_are_known(self):
        server = self.serve_rules()
        self.assertEqual(self.caller(server, RANKING).lookup(request_of('spec')).model, 'spec')
        self.assertEqual(self.caller(server, RANKING, 'bEaReR').lookup(
            request_of('spec')).model, 'spec')
        for model in ('spec', 'other'):
            self.assertEqual(self.caller(server, ALL).lookup(request_of(model)).model, model)
        self.assertIsNotNone(server.find('tokens_in_clear'))

    def test_refuses_all_others_in_every_call(self):
        server = self.serve_rules()
        for token, scheme, text in (
                (None, '', 'authorization: Bearer'), ('x', 'Bearer', 'does not know'),
                (RANKING[:-1], 'Bearer', 'does not know'), (RANKING + 'x', 'Bearer', 'know'),
                (RANKING, 'Basic', 'know'), ('x' * 300, 'Bearer', 'know')):
            client = self.caller(server, token, scheme)
            with self.subTest(token=token, scheme=scheme):
                self.refused(CODES.UNAUTHENTICATED, text, client.lookup, request_of('spec'))
                self.refused(CODES.UNAUTHENTICATED, text, client.list_models)
                self.refused(CODES.UNAUTHENTICATED, text, client.get_model, 'spec')
                self.refused(CODES.UNAUTHENTICATED, text, client.get_server)
                self.refused(CODES.UNAUTHENTICATED, text,
                             lambda c=client: list(c.stream([request_of('spec')])))

    def test_takes_no_invalid_token_for_an_empty_one(self):
        self.principals[1]['token_sha256'] = hashlib.sha256(b'').hexdigest()
        server = self.serve_rules()
        for token, scheme in (('x', 'y'), ('x' * 300, 'Bearer'), ('Bearer', 'Basic')):
            self.refused(CODES.UNAUTHENTICATED, 'know',
                         self.caller(server, token, scheme).list_models)

    def test_refuses_two_tokens(self):
        server = self.serve_rules()
        client = self.caller(server, RANKING)
        client.channel = grpc.intercept_channel(
            client.channel, Shown([('authorization', 'Bearer ' + ALL)]))
        self.refused(CODES.UNAUTHENTICATED, 'know', client.lookup, request_of('spec'))

    def test_keeps_models_to_those_who_may(self):
        server = self.serve_rules()
        client = self.caller(server, RANKING)
        for model in ('other', 'none'):
            self.refused(CODES.PERMISSION_DENIED, '"ranking" may not look up model "%s"' % model,
                         client.lookup, request_of(model))
            self.refused(CODES.PERMISSION_DENIED, 'model "%s"' % model, client.get_model, model)
        answers = list(client.stream([request_of('other'), request_of('spec')]))
        self.assertEqual(sorted((a.error_code, a.model) for a in answers), [(0, 'spec'), (7, '')])
        self.assertEqual([m.name for m in client.list_models().models], ['spec'])
        self.assertEqual([m.name for m in self.caller(server, ALL).list_models().models],
                         ['other', 'spec'])
        self.refused(CODES.NOT_FOUND, 'none', self.caller(server, ALL).lookup, request_of('none'))

    def test_says_the_same_of_an_empty_name_everywhere(self):
        """Every caller gets the same answer, whichever of the two models it may see."""
        server = self.serve_rules()
        for token in (RANKING, ALL):
            channel = self.caller(server, token).channel
            for method, data in (
                    ('embag.v1.EmbeddingBag/Lookup', as_bytes(request_of(''))),
                    ('embag.v1.EmbeddingBag/GetModel', b''),
                    ('inference.GRPCInferenceService/ModelMetadata', b''),
                    ('inference.GRPCInferenceService/ModelConfig', b'')):
                with self.subTest(token=token, method=method):
                    self.refused(CODES.NOT_FOUND, 'exactly one model',
                                 channel.unary_unary('/' + method), data, SECONDS)
            ready = channel.unary_unary('/inference.GRPCInferenceService/ModelReady')
            self.assertEqual(ready(b'', SECONDS), b'')

    def test_tells_nobody_the_secrets(self):
        server = self.serve_rules('--log-level', 'debug')
        self.caller(server, RANKING).lookup(request_of('spec'))
        error_of(self.caller(server, 'wrong-token-0123456789').list_models)
        server.stop()
        for secret in (RANKING, ALL, CHIEF, 'wrong-token', self.principals[1]['token_sha256']):
            self.assertNotIn(secret, server.log)

    def test_requires_no_token_on_unix_sockets(self):
        path = self.authority.path('socket')
        self.serve_rules(listen=('127.0.0.1:0', 'unix:' + path))
        with Client('unix:' + path) as client:
            self.assertEqual(len(client.list_models().models), 2)
            self.assertEqual(client.lookup(request_of('other')).model, 'other')

    def test_requires_no_token_for_health_and_reflection(self):
        server = self.serve_rules()
        for token in (None, 'wrong-token-0123456789'):
            channel = self.caller(server, token).channel
            check = channel.unary_unary('/grpc.health.v1.Health/Check')
            self.assertEqual(check(b'', timeout=SECONDS), bytes([8, 1]))
            info = channel.stream_stream(
                '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo')
            services = list(info(iter([b'\x3a\x00']), timeout=SECONDS))
            self.assertIn(b'embag.v1.EmbeddingBag', services[0])

    def health(self, server, token):
        """Returns the models whose health Check, List and Watch report to a caller."""
        channel = self.caller(server, token).channel
        listed = set(LIST.unary(channel).statuses)
        told = {}
        for name in ('spec', 'other', 'none', '', HEALTH):
            feed = WATCH.feed(channel, service=name)
            watched = next(feed).status
            feed.cancel()
            self.assertEqual(name in listed, watched == SERVING)
            try:
                self.assertEqual(CHECK.unary(channel, service=name).status, watched)
            except grpc.RpcError as error:
                self.assertEqual((error.code(), watched), (CODES.NOT_FOUND, SERVICE_UNKNOWN))
            told[name] = watched == SERVING
        self.assertTrue(told.pop('') and told.pop(HEALTH))
        return [name for name, is_told in told.items() if is_told]

    def test_tells_of_health_of_models_those_who_may_see_them(self):
        server = self.serve_rules()
        for token, told in ((None, []), ('wrong-token-0123456789', []), (RANKING, ['spec']),
                            (ALL, ['spec', 'other']), (CHIEF, ['spec', 'other'])):
            with self.subTest(token=token):
                self.assertEqual(self.health(server, token), told)
        open_server = self.serve()
        self.assertEqual(self.health(open_server, None), ['spec', 'other'])

    def test_requires_no_token_without_an_auth_file(self):
        server = self.serve()
        for token in (None, 'x' * 300):
            self.assertEqual(len(self.caller(server, token).list_models().models), 2)


class Admins(AuthTest):
    def test_lets_admins_alone_command_over_the_network(self):
        server = self.serve_rules('--admin-on-data-port', 'true')
        chief = self.caller(server, CHIEF, kind=Admin)
        self.assertEqual([m.name for m in chief.list_versions().models], ['other', 'spec'])
        self.assertTrue(chief.command('ServeVersion', 'spec', 1)[-1].done)
        self.assertEqual(len(chief.list_models().models), 2)
        self.refused(CODES.PERMISSION_DENIED, 'may not look up', chief.lookup, request_of('spec'))
        everyone = self.caller(server, ALL, kind=Admin)
        self.refused(CODES.PERMISSION_DENIED, '"all" may not call ModelAdmin',
                     everyone.list_versions)
        self.refused(CODES.PERMISSION_DENIED, 'may not call', everyone.command, 'LoadVersion',
                     'spec', 1)
        self.refused(CODES.UNAUTHENTICATED, 'Bearer', self.caller(server, kind=Admin).list_versions)

    def test_keeps_commands_off_the_network_unless_told(self):
        path = self.authority.path('admin')
        server = self.serve_rules('--admin-listen', 'unix:' + path)
        self.refused(CODES.PERMISSION_DENIED, 'not available on this address',
                     self.caller(server, CHIEF, kind=Admin).list_versions)
        with Admin('unix:' + path) as admin:
            self.assertEqual(len(admin.list_versions().models), 2)


class Names(AuthTest):
    """Clients identified by their certificates."""

    def setUp(self):
        super().setUp()
        self.authority.issue('server', names=HERE)
        self.flags = ('--tls-cert', self.authority.path('server.pem'),
                      '--tls-key', self.authority.path('server.key'),
                      '--tls-client-ca', self.authority.path('ca.pem'),
                      '--tls-client-verify', 'optional')
        self.principals += [
            {'name': 'dns', 'client_name': 'a.example', 'models': ['spec']},
            {'name': 'uri', 'client_name': 'spiffe://x/a', 'models': ['spec']},
            {'name': 'common', 'client_name': 'plain name', 'models': ['spec']}]

    def named(self, server, certificate):
        """Returns a connection with a certificate, or without one if it is None."""
        client = SecureClient('localhost:%d' % server.port, self.authority, certificate)
        self.addCleanup(client.close)
        return client

    def test_knows_clients_by_their_names(self):
        server = self.serve_rules(*self.flags)
        for number, names in enumerate((
                'DNS:z.example,DNS:a.example', 'URI:spiffe://x/a', None)):
            self.authority.issue('client', 'plain name', names)
            client = self.named(server, 'client')
            with self.subTest(names=names, number=number):
                self.assertEqual(client.lookup(request_of('spec')).model, 'spec')
                self.refused(CODES.PERMISSION_DENIED, 'may not', client.lookup,
                             request_of('other'))

    def test_refuses_names_that_are_not_those(self):
        server = self.serve_rules(*self.flags)
        for common_name, names in (
                ('other', None), ('plain name', 'DNS:b.example'), ('a.example', 'DNS:b.example'),
                ('plain name x', None), ('other', 'DNS:a.example.org'),
                ('other', 'email:a.example')):
            self.authority.issue('client', common_name, names)
            with self.subTest(common_name=common_name, names=names):
                self.refused(CODES.UNAUTHENTICATED, 'authentication is required',
                             self.named(server, 'client').lookup, request_of('spec'))
        self.refused(CODES.UNAUTHENTICATED, 'authentication is required',
                     self.named(server, None).lookup, request_of('spec'))
        self.assertIsNone(server.find('tokens_in_clear'))

    def test_takes_a_token_over_a_name(self):
        server = self.serve_rules(*self.flags)
        self.authority.issue('client', 'plain name')
        client = self.named(server, 'client')
        client.channel = grpc.intercept_channel(
            client.channel, Shown([('authorization', 'Bearer ' + ALL)]))
        self.assertEqual(client.lookup(request_of('other')).model, 'other')

    def begin_call(self, server, certificate):
        """Returns a connection with an open call that has sent no message; the server has read the
        call's header."""
        context = ssl.create_default_context(cafile=self.authority.path('ca.pem'))
        context.load_cert_chain(self.authority.path(certificate + '.pem'),
                                self.authority.path(certificate + '.key'))
        context.set_alpn_protocols(['h2'])
        peer = context.wrap_socket(socket.create_connection(('127.0.0.1', server.port), SECONDS),
                                   server_hostname='localhost')
        self.addCleanup(peer.close)
        peer.sendall(PREFACE + frame(SETTINGS, 0, 0) +
                     frame(HEADERS, END_HEADERS, 1, header_encode(call_fields())) +
                     frame(PING, 0, 0, b'has read'))
        said = b''
        while frame(PING, ACK, 0, b'has read') not in said:
            data = peer.recv(65536)
            self.assertTrue(data, 'the server closed the connection')
            said += data
        return peer

    def test_logs_the_principal_of_a_call_that_ends_with_its_connection(self):
        # Freed memory is overwritten, so that a use after free shows.
        server = self.serve_rules(*self.flags, environment={'MALLOC_CONF': 'junk:true'})
        self.authority.issue('client', 'plain name')
        peer = self.begin_call(server, 'client')
        self.principals[-1]['name'] = 'another'
        self.write_rules()
        self.reload(server)
        peer.close()
        wait_until(lambda: server.has_ended() or ' principal=another ' in server.log, SECONDS,
                   'the log line of the lost call')
        client = self.named(server, 'client')
        self.assertEqual(client.lookup(request_of('spec')).model, 'spec')

    def test_needs_an_authority_for_names(self):
        log = Embagd(self.repository.path, '--auth-file', self.write_rules()).start_fails()
        self.assertIn('client_name requires tls_client_ca', log)


class Reload(AuthTest):
    def test_takes_new_rules_for_calls_and_streams_that_go_on(self):
        server = self.serve_rules()
        client = self.caller(server, RANKING)
        requests = Requests()
        answers = client.stream(requests, timeout=None)
        requests.put(request_of('other'))
        self.assertEqual(next(answers).error_code, 7)
        self.principals[0]['models'] = ['other']
        self.write_rules()
        self.reload(server)
        wait_until(lambda: error_of(client.lookup, request_of('spec'))[0] ==
                   CODES.PERMISSION_DENIED, SECONDS, 'the new rules')
        requests.put(request_of('other'))
        self.assertEqual(next(answers).error_code, 0)
        del self.principals[0]
        self.write_rules()
        self.reload(server)
        wait_until(lambda: error_of(client.lookup, request_of('other'))[0] ==
                   CODES.UNAUTHENTICATED, SECONDS, 'the newest rules')
        requests.put(request_of('other'))
        self.assertEqual(next(answers).error_code, 16)
        requests.end()

    def held_open(self, server, method, request):
        """Opens an admin's call; returns a function that sends its request and returns the
        answers."""
        client = self.caller(server, CHIEF, kind=Admin)
        call = client.channel.stream_stream(ADMIN + method, request_serializer=as_bytes)
        requests = Requests()
        answers = call(iter(requests), timeout=SECONDS)
        # When the server answers this second call, it has read the header of the first.
        client.list_versions()

        def go_on():
            requests.put(request)
            requests.end()
            return list(answers)
        return go_on

    def test_checks_admins_again_before_it_executes_a_command(self):
        request = admin_pb.VersionRequest(model='spec', version=1)
        chief = self.principals[2]
        for change, code, text in (
                (lambda: chief.update(admin=False, models=['*']), CODES.PERMISSION_DENIED,
                 '"chief" may not call ModelAdmin'),
                (lambda: self.principals.remove(chief), CODES.UNAUTHENTICATED, 'does not know')):
            chief.clear()
            chief.update(name='chief', admin=True, token_file=self.authority.path('chief.token'))
            server = self.serve_rules('--admin-on-data-port', 'true')
            calls = [self.held_open(server, method, request)
                     for method in ('UnloadVersion', 'ListVersions')]
            change()
            self.write_rules()
            self.reload(server)
            everyone = self.caller(server, ALL)
            wait_until(lambda s=server: error_of(
                self.caller(s, CHIEF, kind=Admin).list_versions)[0] == code,
                       SECONDS, 'the new rules')
            for call in calls:
                self.refused(code, text, call)
            self.assertEqual(everyone.lookup(request_of('spec')).model, 'spec')
            server.stop()

    def test_takes_new_rules_for_watches_that_go_on(self):
        server = self.serve_rules()
        feed = WATCH.feed(self.caller(server, RANKING).channel, timeout=None, service='spec')
        self.assertEqual(next(feed).status, SERVING)
        for models, status in ((['other'], SERVICE_UNKNOWN), (['spec'], SERVING)):
            self.principals[0]['models'] = models
            self.write_rules()
            self.reload(server)
            self.assertEqual(next(feed).status, status)
        feed.cancel()

    def test_keeps_the_old_rules_if_the_new_file_is_truncated(self):
        lines = ['principals:\n', *('  - %s\n' % json.dumps(p) for p in self.principals),
                 'end: true\n']
        server = self.serve_rules()
        self.authority.write('auth.yaml', ''.join(lines))
        self.reload(server)
        for count in range(2, len(lines)):  # a file that is cut between principals is still YAML
            self.authority.write('auth.yaml', ''.join(lines[:count]))
            self.reload(server, 'reload_failed')
            self.assertEqual(len(self.caller(server, CHIEF).list_models().models), 2)
        self.assertRegex(server.find('reload_failed'),
                         r'what=auth_file .*the last line is not \\"end: true\\"')
        self.principals.pop()
        self.authority.write('auth.yaml', ''.join(lines[:-2] + lines[-1:]))
        self.reload(server)
        self.refused(CODES.UNAUTHENTICATED, '', self.caller(server, CHIEF).list_models)

    def test_keeps_the_old_rules_if_the_new_are_invalid(self):
        server = self.serve_rules()
        self.authority.write('auth.yaml', 'principals: [{name: x}]')
        self.reload(server, 'reload_failed')
        self.assertIn('add token_file, token_sha256 or client_name', server.find('reload_failed'))
        self.assertEqual(self.caller(server, RANKING).lookup(request_of('spec')).model, 'spec')


class Strangers(AuthTest):
    """Connections on which no known principal has called."""

    TIME = '--auth-timeout-ms', '400'

    def greet(self, server):
        """Opens a connection without credentials."""
        peer = Attacker(server.port)
        self.addCleanup(peer.socket.close)
        return peer

    def test_may_ask_whether_the_server_lives(self):
        client = self.caller(self.serve_rules())
        for method in 'ServerLive', 'ServerReady':
            path = '/inference.GRPCInferenceService/' + method
            self.assertEqual(client.channel.unary_unary(path)(b'', timeout=SECONDS), b'\x08\x01')
        code, _ = error_of(lambda: client.channel.unary_unary(
            '/inference.GRPCInferenceService/ServerMetadata')(b'', timeout=SECONDS))
        self.assertEqual(code, CODES.UNAUTHENTICATED)

    def test_are_ended(self):
        server = self.serve_rules(*self.TIME)
        silent, prober, watcher, liar = [self.greet(server) for _ in range(4)]
        prober.send(*prober.call(message(b''), '/' + HEALTH + '/Check'))
        watcher.send(*watcher.call(message(b''), '/' + HEALTH + '/Watch'))
        liar.send(liar.headers(extra=[('authorization', 'Bearer ' + RANKING + 'x')]))
        for peer in silent, prober, liar:
            self.assertEqual(peer.ending(), 'NO_ERROR')
        while not watcher.goaway:  # its watch may continue for a while
            watcher.read_frame()

    def test_who_is_known_may_stay(self):
        server = self.serve_rules(*self.TIME)
        known, stranger = self.greet(server), self.greet(server)
        for _ in range(2):
            head = known.headers(extra=[('authorization', 'Bearer ' + RANKING)])
            known.send(head, DataFrame(known.stream, GOOD_MESSAGE, flags=['END_STREAM']))
            self.assertEqual(known.status(known.stream), 0)
            self.assertEqual(stranger.ending(), 'NO_ERROR')
            stranger = self.greet(server)

    def test_may_stay_without_an_auth_file(self):
        server = self.serve(*self.TIME)
        peer = self.greet(server)
        peer.socket.settimeout(2)
        with self.assertRaises(TimeoutError):
            peer.ending()


class Limits(AuthTest):
    """The limits of an auth_file, and one past each."""

    def test_lengths_of_tokens(self):
        self.principals = [{'name': 'longest', 'models': ['*'],
                            'token_file': self.authority.write('t', 'x' * 256)}]
        server = self.serve_rules()
        self.assertEqual(self.caller(server, 'x' * 256).lookup(request_of('spec')).model, 'spec')
        for token in 'x' * 255, 'x' * 257, 'x' * 15:
            self.refused(CODES.UNAUTHENTICATED, '', self.caller(server, token).lookup,
                         request_of('spec'))
        self.authority.write('t', 'x' * 257)
        self.reload(server, 'reload_failed')
        self.assertIn('16 to 256 visible characters', server.find('reload_failed'))

    def test_numbers_of_principals_and_models(self):
        def digest(number):
            return hashlib.sha256(b'%d' % number).hexdigest()
        most = [{'name': 'p%d' % n, 'token_sha256': digest(n)} for n in range(PRINCIPALS_MAX)]
        most[0]['models'] = ['m%d' % n for n in range(MODELS_MAX)]
        self.principals[3:] = most[:PRINCIPALS_MAX - 3]
        server = self.serve_rules()
        self.principals.append({'name': 'more', 'token_sha256': digest(PRINCIPALS_MAX)})
        self.write_rules()
        self.reload(server, 'reload_failed')
        self.principals.pop()
        self.principals[3]['models'].append('more')
        self.write_rules()
        failed = server.log.count('event=reload_failed')
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: server.log.count('event=reload_failed') > failed, SECONDS, 'a refusal')

    def test_a_relative_token_file_is_beside_the_file_that_names_it(self):
        self.principals = [{'name': 'near', 'models': ['*'], 'token_file': 'ranking.token'}]
        server = self.serve_rules()
        self.assertEqual(self.caller(server, RANKING).lookup(request_of('spec')).model, 'spec')

    def test_models_have_names(self):
        for name in '', 'rank*', '**':
            self.principals[0]['models'] = ['spec', name]
            log = Embagd(self.repository.path, '--auth-file', self.write_rules()).start_fails()
            self.assertIn('principals[0].models', log)


class Tool(AuthTest):
    def test_shows_its_token(self):
        server = self.serve_rules()

        def run(*flags, address=server.address):
            return subprocess.run(
                [served.EMBAG, 'models', '--server', address, '--json', *flags],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=SECONDS,
                check=False)
        ran = run('--token-file', self.authority.path('ranking.token'))
        self.assertEqual([m['name'] for m in json.loads(ran.stdout)['models']], ['spec'])
        self.assertIn('UNAUTHENTICATED', run().stderr)
        self.authority.issue('server', names=HERE)
        secure = self.serve('--tls-cert', self.authority.path('server.pem'),
                            '--tls-key', self.authority.path('server.key'))
        self.assertIn('requires TLS, set tls', run(address=secure.address).stderr)
        self.assertIn('use TLS', run(
            '--token-file', self.authority.path('ranking.token'),
            address='embag.example:1').stderr)
        self.assertIn('/none', run('--token-file', '/none').stderr)
        self.assertIn('is empty', run('--token-file', os.devnull).stderr)
