"""grpc.health.v1: Check, List and Watch of the server, its services and its models."""

import os
import unittest

import grpc

import dynamic
from h2raw import DATA, GOAWAY, Connection, call_fields, message
from rpc import OPTIONS, error_of
from served import OwnServerTest, spec_table
from table_files import write_model

SERVICE = 'grpc.health.v1.Health'
POOL = dynamic.load('grpc/health/v1/health.proto')
CHECK, LIST, WATCH = (dynamic.Method(POOL, SERVICE, name) for name in ('Check', 'List', 'Watch'))
UNKNOWN, SERVING, NOT_SERVING, SERVICE_UNKNOWN = range(4)
WATCHES_MAX = 32


class Health(OwnServerTest):
    """Tests each of which has its own server."""

    def channel(self, server):
        """Opens a connection that is closed at the end of the test."""
        channel = grpc.insecure_channel(server.address, options=OPTIONS)
        self.addCleanup(channel.close)
        return channel

    def test_check_knows_the_server_its_services_and_its_models(self):
        channel = self.channel(self.serve())
        for name in '', 'embag.v1.EmbeddingBag', 'embag.v1.ModelAdmin', SERVICE, 'spec':
            self.assertEqual(CHECK.unary(channel, service=name).status, SERVING, name)
        for name in 'spe', 'spec2', 'embag.v1', 'EmbeddingBag', ' ':
            code, text = error_of(CHECK.unary, channel, service=name)
            self.assertEqual(code.name, 'NOT_FOUND')
            self.assertIn('"%s"' % name, text)

    def test_a_name_that_is_too_long_is_refused(self):
        channel = self.channel(self.serve('--name-bytes-max', '100'))
        self.assertEqual(error_of(CHECK.unary, channel, service='m' * 100)[0].name, 'NOT_FOUND')
        for call in (CHECK.unary, lambda *a, **k: list(WATCH.feed(*a, **k))):
            code, _ = error_of(call, channel, service='m' * 101)
            self.assertEqual(code.name, 'RESOURCE_EXHAUSTED')

    def test_list_names_all_that_can_be_checked(self):
        channel = self.channel(self.serve())
        statuses = LIST.unary(channel).statuses
        self.assertLessEqual({'', 'embag.v1.EmbeddingBag', SERVICE, 'spec'}, set(statuses))
        for name, answer in statuses.items():
            self.assertEqual(answer.status, CHECK.unary(channel, service=name).status)

    def test_watch_follows_models_that_come_and_go(self):
        server = self.serve('--watch', 'poll', '--watch-poll-ms', '100', '--loops', '2')
        channels = [self.channel(server) for _ in range(4)]
        feeds = [WATCH.feed(channel, service='late') for channel in channels]
        steady = WATCH.feed(channels[0], service='spec')
        self.assertEqual(next(steady).status, SERVING)
        self.assertEqual([next(feed).status for feed in feeds], [SERVICE_UNKNOWN] * 4)
        write_model(self.repository.path, 'late', 1, [spec_table()])
        with open(self.repository.join('late', 'model.yaml'), 'w', encoding='utf-8') as file:
            file.write('versions: {keep_s: 0}\n')
        for feed in feeds:
            status = next(feed).status
            while status in (SERVICE_UNKNOWN, NOT_SERVING):
                status = next(feed).status
            self.assertEqual(status, SERVING)
        os.rename(self.repository.join('late'), self.repository.join('.gone'))
        for feed in feeds:
            status = next(feed).status
            while status == NOT_SERVING:
                status = next(feed).status
            self.assertEqual(status, SERVICE_UNKNOWN)
        self.assertEqual(CHECK.unary(channels[0], service='spec').status, SERVING)
        steady.cancel()

    def test_a_connection_watches_so_many_names_and_no_more(self):
        channel = self.channel(self.serve())
        feeds = [WATCH.feed(channel, service='spec') for _ in range(WATCHES_MAX)]
        self.assertEqual([next(feed).status for feed in feeds], [SERVING] * WATCHES_MAX)
        code, _ = error_of(next, WATCH.feed(channel, service='spec'))
        self.assertEqual(code.name, 'RESOURCE_EXHAUSTED')
        self.assertEqual(CHECK.unary(channel).status, SERVING)

    def test_not_serving_is_said_before_goaway(self):
        server = self.serve()
        with Connection(server.port) as peer:
            stream = peer.call(message(b''), call_fields('/%s/Watch' % SERVICE))
            self.assertEqual(peer.wait_frame(DATA).payload, message(b'\x08\x01'))
            peer.waiting.clear()
            server.terminate()
            got = peer.read_frame()
            while got.type not in (DATA, GOAWAY):
                got = peer.read_frame()
            self.assertEqual((got.type, got.stream), (DATA, stream))
            self.assertEqual(got.payload, message(b'\x08\x02'))
            peer.wait_frame(GOAWAY)
            self.assertEqual(peer.status(stream)[:2], (None, 14))
            self.assertTrue(peer.is_closed())
        self.assertEqual(server.wait(), 0)

    def test_a_draining_server_does_not_serve(self):
        """An open call keeps the connection for a while, and other calls still arrive on it."""
        server = self.serve()
        with Connection(server.port) as peer:
            watch = peer.call(message(b''), call_fields('/%s/Watch' % SERVICE))
            half = peer.open(call_fields('/%s/Check' % SERVICE))
            peer.wait_frame(DATA)
            server.terminate()
            peer.wait_frame(GOAWAY)
            peer.status(watch)
            peer.data(half, message(b''))
            _, body = peer.finish(half)
            self.assertEqual(body, message(b'\x08\x02'))
        self.assertEqual(server.wait(), 0)


if __name__ == '__main__':
    unittest.main()
