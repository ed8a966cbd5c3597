"""TLS, mutual TLS and tokens against embagd."""

import asyncio
import json

import embag
from certificates import HERE, Authority
from embag import aio
from served import OwnServerTest

TOKEN = 'ranking-token-0123456789'
ROW = {'asked': 'emb_table', 'indices': [0], 'num_bags': 1, 'model': 'spec'}


class Secure(OwnServerTest):
    """A server with a certificate, or with tokens."""

    def setUp(self):
        super().setUp()
        self.files = Authority()
        self.addCleanup(self.files.remove)
        self.files.issue('server', names=HERE)
        self.files.issue('client', names='DNS:embag.example')
        self.ca_file, self.cert_file, self.key_file = map(
            self.files.path, ('ca.pem', 'client.pem', 'client.key'))

    def serve_tls(self, *flags):
        """Starts a server with TLS."""
        return self.serve('--tls-cert', self.files.path('server.pem'),
                          '--tls-key', self.files.path('server.key'), *flags)

    def serve_known(self, **rights):
        """Starts a server without TLS that serves the token's holder, with these rights."""
        rules = {'principals': [
            {'name': 'ranking', 'token_file': self.files.write('token', TOKEN), **rights}]}
        return self.serve('--auth-file', self.files.write('auth.yaml', json.dumps(rules)))

    def test_calls_streams_and_asyncio(self):
        address = self.serve_tls().address
        with embag.Client(address, ca_file=self.ca_file) as client, client.stream() as stream:
            self.assertEqual(client.lookup(**ROW).version, 1)
            self.assertEqual(stream.submit(**ROW).result(60).version, 1)

        async def ask():
            async with aio.Client(address, ca_file=self.ca_file) as one, one.stream() as lane:
                return [(await one.lookup(**ROW)).version, (await lane.submit(**ROW)).version]
        self.assertEqual(asyncio.run(ask()), [1, 1])
        with embag.Client(address) as client, self.assertRaises(embag.Unavailable):
            client.lookup(**ROW)

    def test_mutual(self):
        address = self.serve_tls('--tls-client-ca', self.ca_file).address
        with embag.Client(address, ca_file=self.ca_file, cert_file=self.cert_file,
                          key_file=self.key_file) as client:
            self.assertEqual(client.lookup(**ROW).version, 1)
        with embag.Client(address, ca_file=self.ca_file) as client:
            with self.assertRaises(embag.Unavailable):
                client.lookup(**ROW)

    def test_tokens(self):
        address = self.serve_known(models=['spec']).address
        with embag.Client(address, token_file=self.files.path('token')) as client:
            self.assertEqual(client.lookup(**ROW).version, 1)
            with client.stream() as stream:
                self.assertEqual(stream.submit(**ROW).result(60).version, 1)
        for fields in {}, {'token': TOKEN[:-1]}:
            with embag.Client(address, **fields) as client:
                with self.assertRaises(embag.Unauthenticated):
                    client.lookup(**ROW)
                with client.stream() as stream:
                    self.assertIsInstance(stream.submit(**ROW).exception(60),
                                          embag.Unauthenticated)

    def test_what_the_token_does_not_allow(self):
        with embag.Client(self.serve_known(models=['other']).address, token=TOKEN) as client:
            with self.assertRaises(embag.PermissionDenied):
                client.lookup(**ROW)
