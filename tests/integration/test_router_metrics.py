"""What a router tells its operators: metrics, readiness and its status."""

import json
import os
import subprocess
import unittest

import grpc
import numpy as np

import dynamic
import served
from cluster import Cluster, wait_served
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import wait_until
from http_peer import Metrics, fetch
from rpc import error_of
from table_files import Table, write_model

CHECK = dynamic.Method(dynamic.load('grpc/health/v1/health.proto'), 'grpc.health.v1.Health',
                       'Check')
SERVING, NOT_SERVING = 1, 2
PARTS, REPLICAS = 3, 2
SERVERS = PARTS * REPLICAS
COUNT = 40
SECONDS = 30
ROWS = 30
EVERY_ROW = pb.LookupRequest(model='m', allow_incomplete=True, queries=[
    pb.BagQuery(table='split', indices=list(range(ROWS)), indices_per_bag=ROWS)])
NOT_KNOWN = 'no part server is connected\n'


class RouterCase(unittest.TestCase):
    """A cluster for each test."""

    def start(self, parts, replicas):
        """Starts a cluster that serves version 1, and its router."""
        self.cluster = Cluster(parts, replicas)
        self.addCleanup(self.cluster.remove)
        self.publish(1)
        self.cluster.start_parts()
        self.router = self.cluster.start_router()
        self.client = self.cluster.connect(self.router)
        wait_served(self.client, 1)

    def publish(self, version):
        """Publishes a version with a table in all parts, one in part 0 and one everywhere."""
        tables = [Table.of_values(name, 'f32', np.full((ROWS, 4), version))
                  for name in ('split', 'whole', 'here')]
        write_model(self.cluster.source, 'm', version, tables)
        self.cluster.split('m', version, '--lineage', 'x', placement={
            'split': 'placement: rows', 'whole': 'placement: whole, part: 0',
            'here': 'placement: everywhere'})

    def wait(self, wanted, name, **labels):
        """Waits until a metric of the router has this value."""
        def is_wanted():
            self.metrics = Metrics(self.router)
            return self.metrics.get('embag_route_' + name, **labels) == wanted
        wait_until(is_wanted, SECONDS, '%s %s to be %s' % (name, labels, wanted))

    def expect(self, wanted, name, **labels):
        """Checks a metric of the last metrics."""
        self.assertEqual(self.metrics.get('embag_route_' + name, **labels), wanted, (name, labels))

    def status(self):
        """Returns what the router's status says of routing."""
        return json.loads(fetch(self.router, '/status.json')[2])['route']

    def health(self, name=''):
        """Returns the router's health."""
        return CHECK.unary(self.client.channel, service=name).status

    def models(self, *flags):
        """Returns what `embag models` prints."""
        return subprocess.run(
            [served.EMBAG, 'models', '--server', self.router.address, *flags], check=True,
            capture_output=True, text=True, timeout=SECONDS).stdout


class Story(RouterCase):
    """Numbers that a test can foresee."""

    def test_tells_of_traffic_a_flip_and_lost_parts(self):
        self.start(PARTS, REPLICAS)
        self.wait(SERVERS, 'connected')
        self.check_start()
        self.check_traffic()
        self.check_flip()
        self.check_lost_part()

    def check_start(self):
        """All is there, and nothing has happened."""
        for part in range(PARTS):
            self.wait(REPLICAS, 'replicas', model='m', slot='served', part=str(part))
            self.expect(0, 'suspects', part=str(part))
            self.expect(0, 'ejected', part=str(part))
            for outcome in 'ok', 'unreached', 'failed', 'cancelled':
                self.expect(0, 'legs_total', part=str(part), outcome=outcome)
        self.assertIsNone(self.metrics.get('embag_route_legs_total', part='3', outcome='ok'))
        self.expect(1, 'version', model='m', slot='served')
        self.expect(0, 'version', model='m', slot='previous')
        self.expect(1, 'complete', model='m', slot='served')
        self.expect(0, 'version_behind', model='m')
        self.expect(0, 'flips_total', direction='forward')
        self.expect(0, 'digest_conflict')
        self.expect(1, 'replicas_wanted')

    def check_traffic(self):
        """Each lookup has one leg to each part."""
        for _ in range(COUNT):
            self.assertFalse(self.client.lookup(EVERY_ROW).incomplete)
        self.client.lookup(pb.LookupRequest(model='m', queries=[
            pb.BagQuery(table='whole', indices=[1], indices_per_bag=1),
            pb.BagQuery(table='here', indices=[1], indices_per_bag=1)]))
        self.check_split()
        self.metrics = Metrics(self.router)
        for part in range(PARTS):
            legs = COUNT + (part == 0)
            self.expect(legs, 'legs_total', part=str(part), outcome='ok')
            self.expect(legs, 'leg_seconds_count', part=str(part))
            self.expect(legs, 'leg_seconds_bucket', part=str(part), le='+Inf')
            self.assertGreater(self.metrics.get('embag_route_leg_seconds_sum', part=str(part)), 0)
        for direction in 'sent', 'received':
            self.assertGreater(self.metrics.get('embag_route_leg_bytes_total', direction=direction),
                               COUNT * PARTS * 16)
        self.expect(0, 'unreached_total')
        self.assertEqual(self.metrics.sum('embag_route_resends_total'), 0)
        peers = self.status()['peers']
        self.assertEqual([peer['state'] for peer in peers], ['connected'] * SERVERS)
        self.assertEqual(sorted(peer['part'] for peer in peers),
                         [part for part in range(PARTS) for _ in range(REPLICAS)])
        self.assertGreaterEqual(sum(peer['sent'] for peer in peers), COUNT * PARTS)

    def check_split(self):
        """A router's metrics count all tables, also those that are in parts. So the next version
        can be divided by them."""
        done = subprocess.run(
            [served.EMBAG, 'split', os.path.join(self.cluster.source, 'm', '1'), '--parts', '3',
             '--dry-run', '--everywhere-below', '0', '--metrics',
             'http://%s:%d/metrics' % (self.router.host, self.router.http_port)],
            capture_output=True, text=True, timeout=SECONDS, check=True)
        rows, bags = COUNT * ROWS + 2, COUNT + 2
        lines = ''.join(r'%s .* %.1f%% of rows +%.1f%% of bags  %s\n'
                        % (name, 100 * of_rows / rows, 100 * of_bags / bags, placement)
                        for name, of_rows, of_bags, placement in (
                            ('here', 1, 1, r'(whole \d|rows)'),
                            ('split', rows - 2, bags - 2, 'rows'),
                            ('whole', 1, 1, r'(whole \d|rows)')))
        self.assertRegex(done.stdout, lines)

    def check_flip(self):
        """The next version is told as such until it is served."""
        self.publish(2)
        self.wait(2, 'version', model='m', slot='next')
        self.expect(1, 'version_behind', model='m')
        self.wait(2, 'version', model='m', slot='served')
        self.expect(1, 'version', model='m', slot='previous')
        self.expect(0, 'version_behind', model='m')
        self.expect(1, 'flips_total', direction='forward')
        self.expect(0, 'flips_total', direction='back')
        wait_served(self.client, 2)

    def check_lost_part(self):
        """A lost part is missing everywhere, but does not make the router unready."""
        self.cluster.servers[0, 0].kill()
        self.wait(1, 'replicas', model='m', slot='served', part='0')
        self.expect(1, 'complete', model='m', slot='served')
        self.cluster.servers[0, 1].kill()
        self.wait(0, 'replicas', model='m', slot='served', part='0')
        self.expect(0, 'complete', model='m', slot='served')
        self.expect(REPLICAS, 'replicas', model='m', slot='served', part='1')
        self.expect(SERVERS - REPLICAS, 'connected')
        before = self.metrics
        for _ in range(COUNT):
            self.assertTrue(self.client.lookup(EVERY_ROW).incomplete)
        self.metrics = Metrics(self.router)
        self.expect(COUNT * ROWS / PARTS, 'unreached_total')
        unreached = {'part': '0', 'outcome': 'unreached'}
        self.expect(before.get('embag_route_legs_total', **unreached) + COUNT, 'legs_total',
                    **unreached)
        slot = self.status()['models'][0]['slots'][0]
        self.assertIn('serving, %d/%d parts' % (PARTS - 1, PARTS), self.models())
        version = next(v for v in json.loads(self.models('--json'))['models'][0]['versions']
                       if v['version'] == 2)
        self.assertEqual((version['parts'], version['ready_parts']), (PARTS, [1, 2]))
        tables = {t['name']: (t['placement'], t['part']) for t in version['tables']}
        self.assertEqual(tables, {'split': ('rows', None), 'whole': ('whole', 0),
                                  'here': ('everywhere', None)})
        self.assertEqual((slot['version'], slot['ready_parts'], slot['replicas']),
                         ('2', PARTS - 1, [0, REPLICAS, REPLICAS]))
        self.assertEqual(sorted((peer['part'], peer['state']) for peer in self.status()['peers']),
                         [(part, 'lost' if part == 0 else 'connected')
                          for part in range(PARTS) for _ in range(REPLICAS)])
        self.assertEqual(fetch(self.router, '/readyz')[0], 200)
        self.assertEqual(self.health(), SERVING)


class Ready(RouterCase):
    """Whether the router gets requests."""

    def test_is_ready_from_the_first_served_version_until_all_parts_are_lost(self):
        self.start(1, 1)
        wait_until(lambda: fetch(self.router, '/readyz')[0] == 200, SECONDS, 'to be ready')
        wait_until(lambda: self.health() == SERVING, SECONDS, 'to be SERVING')
        self.cluster.servers[0, 0].kill()
        self.wait(0, 'connected')
        self.assertEqual(fetch(self.router, '/readyz')[0], 200)
        wait_until(lambda: fetch(self.router, '/readyz')[0] == 503, SECONDS, 'to be unready')
        self.assertEqual(fetch(self.router, '/readyz')[2], NOT_KNOWN)
        self.assertEqual(fetch(self.router, '/healthz')[0], 200)
        wait_until(lambda: self.health() == NOT_SERVING, SECONDS, 'to be NOT_SERVING')
        self.assertEqual(self.health('embag.v1.EmbeddingBag'), SERVING)
        self.cluster.start_part(0)
        wait_until(lambda: fetch(self.router, '/readyz')[0] == 200, SECONDS, 'to be ready again')
        wait_until(lambda: self.health() == SERVING, SECONDS, 'to be SERVING again')

    def test_is_not_ready_before_a_version_is_served(self):
        self.cluster = Cluster(1)
        self.addCleanup(self.cluster.remove)
        self.publish(1)
        self.router = self.cluster.start_router('--route-settle-ms', '60000')
        self.client = self.cluster.connect(self.router)
        code, _, text = fetch(self.router, '/readyz')
        self.assertEqual(code, 503)
        self.assertIn(text, ('not all part servers have said what they have\n',
                             'no model is served yet\n'))
        self.assertEqual(self.health(), NOT_SERVING)
        code, _ = error_of(self.client.lookup, EVERY_ROW)
        self.assertEqual(code, grpc.StatusCode.UNAVAILABLE)
        self.cluster.start_part(0)
        wait_until(lambda: fetch(self.router, '/readyz')[0] == 200, SECONDS, 'to be ready')
        wait_until(lambda: self.health() == SERVING, SECONDS, 'to be SERVING')


if __name__ == '__main__':
    unittest.main()
