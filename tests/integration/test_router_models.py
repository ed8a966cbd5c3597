"""What a router tells its callers of models and versions: health, ListModels, GetModel, KServe."""

import os
import shutil
import time
import unittest

import numpy as np

import dynamic
from cluster import Cluster, wait_served
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import wait_until
from http_peer import fetch
from infer import call
from inference import open_inference_pb2 as oip
from table_files import Table, write_model

SERVICE = 'grpc.health.v1.Health'
POOL = dynamic.load('grpc/health/v1/health.proto')
CHECK, LIST, WATCH = (dynamic.Method(POOL, SERVICE, name) for name in ('Check', 'List', 'Watch'))
UNKNOWN, SERVING, NOT_SERVING, SERVICE_UNKNOWN = range(4)
STATES = pb.ModelVersion.State
PARTS = 2
ROWS = 30
SECONDS = 60
LOST_SECONDS = 5    # without any part server until a router is not ready


class RouterModelsTest(unittest.TestCase):
    """A model with a table of each placement, in two parts with one server each."""

    def setUp(self):
        self.cluster = Cluster(PARTS)
        self.addCleanup(self.cluster.remove)
        self.publish(1)

    def publish(self, version, path=None):
        """Divides a version, which is the same but for its values."""
        tables = [Table.of_values(name, 'f32', np.full((ROWS, 4), version))
                  for name in ('split', 'whole', 'here')]
        write_model(self.cluster.source, 'm', version, tables)
        self.cluster.split('m', version, path=path, placement={
            'split': 'placement: rows', 'whole': 'placement: whole, part: 1',
            'here': 'placement: everywhere'})

    def start_router(self):
        """Starts a router, and connects to it."""
        self.router = self.cluster.start_router()
        self.client = self.cluster.connect(self.router)

    def start(self):
        """Starts everything, and waits until version 1 is served."""
        self.cluster.start_parts()
        self.start_router()
        wait_served(self.client, 1)

    def health(self, name):
        """Returns the router's health."""
        return CHECK.unary(self.client.channel, service=name).status

    def wait_health(self, name, status):
        """Waits for a health of the router, as Check and List tell it."""
        wait_until(lambda: self.health(name) == status, SECONDS, 'health %d' % status)
        self.assertEqual(LIST.unary(self.client.channel).statuses[name].status, status)

    def is_ready(self, version=''):
        """Returns what KServe says of the model."""
        return call(self.client, 'ModelReady',
                    oip.ModelReadyRequest(name='m', version=version)).ready

    def is_server_ready(self):
        """Returns what KServe says of the router."""
        return call(self.client, 'ServerReady', oip.ServerReadyRequest()).ready

    def version(self, number):
        """Returns what the router says of a version, None if nothing."""
        model = self.client.unary('GetModel', pb.Model)(pb.GetModelRequest(model='m'), timeout=10)
        listed, = self.client.unary('ListModels', pb.ListModelsResponse)(
            pb.ListModelsRequest(), timeout=10).models
        self.assertEqual(listed.name, 'm')
        self.assertEqual([v.version for v in model.versions],
                         sorted((v.version for v in model.versions), reverse=True))
        return next((v for v in model.versions if v.version == number), None)

    def wait_version(self, number, state, owned):
        """Waits until a version has a state and these parts. Returns it."""
        def find():
            found = self.version(number)
            is_found = found and found.state == state and list(found.owned_parts) == owned
            return found if is_found else None
        return wait_until(find, SECONDS, 'version %d to be %s, with the parts %s' % (
            number, STATES.Name(state), owned))

    def test_health_of_a_model_is_that_of_its_parts(self):
        self.start()
        self.wait_health('m', SERVING)
        feed = WATCH.feed(self.client.channel, timeout=SECONDS, service='m')
        self.assertEqual(next(feed).status, SERVING)
        self.assertTrue(self.is_ready())
        self.cluster.servers[1, 0].kill()
        self.assertEqual(next(feed).status, NOT_SERVING)
        self.wait_health('m', NOT_SERVING)
        self.assertFalse(self.is_ready())
        self.assertFalse(self.is_ready('1'))
        # One lost part does not take the router out of the balancer, also later.
        until = time.monotonic() + LOST_SECONDS + 1
        while time.monotonic() < until:
            self.assertEqual(self.health(''), SERVING)
            self.assertEqual(fetch(self.router, '/readyz')[0], 200)
            self.assertTrue(self.is_server_ready())
        self.cluster.start_part(1)
        self.assertEqual(next(feed).status, SERVING)
        self.wait_health('m', SERVING)
        self.assertTrue(self.is_ready())
        self.assertTrue(self.is_ready('1'))
        feed.cancel()

    def test_health_of_the_router_is_told_to_those_who_watch(self):
        self.start_router()
        feed = WATCH.feed(self.client.channel, timeout=2 * SECONDS, service='')
        self.assertEqual(next(feed).status, NOT_SERVING)
        self.assertFalse(self.is_server_ready())
        self.cluster.start_parts()
        self.assertEqual(next(feed).status, SERVING)
        self.assertEqual(fetch(self.router, '/readyz')[0], 200)
        self.assertTrue(self.is_server_ready())
        killed = time.monotonic()
        for server in self.cluster.servers.values():
            server.kill()
        self.assertEqual(next(feed).status, NOT_SERVING)
        self.assertGreater(time.monotonic() - killed, LOST_SECONDS - 0.1)
        self.assertFalse(self.is_server_ready())
        self.assertEqual(fetch(self.router, '/readyz')[0], 503)
        self.assertEqual(fetch(self.router, '/healthz')[0], 200)
        self.cluster.start_part(0)    # It is enough that one is connected.
        self.assertEqual(next(feed).status, SERVING)
        self.assertTrue(self.is_server_ready())
        self.assertEqual(self.health('m'), NOT_SERVING)
        feed.cancel()

    def test_describes_the_whole_version(self):
        self.start()
        served = self.version(1)
        self.assertEqual((served.state, served.parts, served.error), (
            STATES.STATE_SERVING, PARTS, ''))
        self.assertEqual(list(served.owned_parts), [0, 1])
        tables = {table.name: table for table in served.tables}
        self.assertEqual({name: (table.rows, table.placement, table.part)
                          for name, table in tables.items()},
                         {'split': (ROWS, 'rows', 0), 'whole': (ROWS, 'whole', 2),
                          'here': (ROWS, 'everywhere', 0)})
        self.assertEqual(tables['split'].resident_bytes, tables['whole'].resident_bytes)
        self.assertGreaterEqual(served.bytes, sum(t.resident_bytes for t in served.tables))
        answer = call(self.client, 'ModelMetadata', oip.ModelMetadataRequest(name='m'))
        self.assertEqual(list(answer.versions), ['1'])

    def test_tells_why_a_version_is_not_complete(self):
        self.start()
        self.cluster.servers[1, 0].kill()
        self.wait_version(1, STATES.STATE_SERVING, [0])
        self.publish(2)
        loading = self.wait_version(2, STATES.STATE_LOADING, [0])
        self.assertEqual((loading.error, loading.parts), ('', PARTS))
        folder = os.path.join(self.cluster.path, 'm', '2', 'part-00001-of-00002')
        shutil.copytree(folder, self.cluster.repository.join('good'))
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), 'wb') as file:
                file.write(b'junk')
        self.cluster.start_part(1)
        failed = self.wait_version(2, STATES.STATE_FAILED, [0])
        self.assertTrue(failed.error.startswith('part 1: '), failed.error)
        self.assertIn('.embag', failed.error)
        self.assertNotIn(self.cluster.path, failed.error)
        self.assertEqual(failed.parts, PARTS)
        self.assertEqual(self.wait_version(1, STATES.STATE_SERVING, [0, 1]).error, '')
        named = self.client.unary('GetModel', pb.Model)(
            pb.GetModelRequest(model='m', version=2), timeout=10)
        self.assertEqual([v.state for v in named.versions], [STATES.STATE_FAILED])
        self.assertFalse(self.is_ready('2'))
        shutil.rmtree(folder)
        shutil.copytree(self.cluster.repository.join('good'), folder)
        self.assertEqual(self.wait_version(2, STATES.STATE_SERVING, [0, 1]).error, '')
        self.wait_version(1, STATES.STATE_READY, [0, 1])

    def test_tells_why_the_only_version_is_not_served(self):
        folder = os.path.join(self.cluster.path, 'm', '1', 'part-00001-of-00002')
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), 'wb') as file:
                file.write(b'junk')
        for part in range(PARTS):
            self.cluster.start_part(part)
        self.cluster.servers[0, 0].wait_ready()
        self.start_router()
        failed = self.wait_version(1, STATES.STATE_FAILED, [0])
        self.assertTrue(failed.error.startswith('part 1: '), failed.error)
        self.assertEqual(self.health('m'), NOT_SERVING)


if __name__ == '__main__':
    unittest.main()
