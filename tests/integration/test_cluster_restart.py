"""Part servers and routers that all restart while the repository cannot be read."""

import json
import os
import unittest

from cluster import Cluster, wait_served
from embagd_process import Embagd, wait_until
from http_peer import Metrics
from published import published_sums
from test_cluster_failures import MODEL, PARTS, PLACEMENT, request_of
from tmpfs_directory import make_tmpfs_directory

SCALE = 20000
SECONDS = 60
# All parts, whole tables in each part, and a table placed everywhere.
QUERIES = (('t00', [0, 1, 2, 7]), ('t20', [5, 6]), ('t21', [3]), ('t22', [1, 2]), ('t05', [0]))
# Without one: a router has then no rows at all.
NOWHERE = {name: 'placement: rows' for name in PLACEMENT}


class Restarts(unittest.TestCase):
    """One router, one server for each part, and a directory of resident files for each."""

    def setUp(self):
        self.directory = make_tmpfs_directory(self)
        self.cluster = Cluster(PARTS)
        self.addCleanup(self.cluster.remove)

    def publish(self, version, placement):
        """Writes a version and divides it into parts."""
        self.cluster.make_model(MODEL, version, SCALE)
        self.cluster.split(MODEL, version, placement=placement)

    def resident(self, name):
        """Returns the flags that keep the tables of a server in files."""
        path = os.path.join(self.directory, name)
        os.makedirs(path, exist_ok=True)
        return '--resident-dir', path, '--resident-small-pages', 'allow'

    def start(self):
        """Starts all servers at once, the router at the same address as before."""
        for part in range(PARTS):
            self.cluster.start_part(part, 0, *self.resident('part%d' % part))
        former = self.cluster.routers
        where = {'listen': (former[-1].address,)} if former else {}
        self.router = self.cluster.start_router(*self.resident('router'), **where)
        self.client = self.cluster.connect(self.router)

    def servers(self):
        """Returns all servers that run."""
        return [*self.cluster.servers.values(), self.router]

    def kill(self):
        """Kills all servers."""
        for server in self.servers():
            server.kill()

    def record(self, name):
        """Returns the recorded versions of the model, and whether they are complete."""
        path = os.path.join(self.directory, name, 'embag', 'served')
        if not os.path.exists(path):
            return []
        with open(path, encoding='utf-8') as file:
            models = json.loads(file.read().splitlines()[1])['models']
        return [(int(version['version']), version['is_complete'])
                for model in models for version in model['versions']]

    def wait_recorded(self, version):
        """Waits until all servers have recorded a version."""
        for name in ['router', *('part%d' % part for part in range(PARTS))]:
            wait_until(lambda name=name: (version, True) in self.record(name), SECONDS,
                       '%s to record version %d' % (name, version))

    def move_away(self):
        """Moves the repository away, at the latest until the end of the test."""
        os.rename(self.cluster.path, self.cluster.path + '.away')

    def move_back(self):
        """Moves the repository back."""
        os.rename(self.cluster.path + '.away', self.cluster.path)

    def check_answer(self, version):
        """Looks up, and compares the answer with the published values."""
        request = request_of(*QUERIES)
        answer = self.client.lookup(request)
        self.assertEqual(answer.version, version)
        self.assertEqual([result.values for result in answer.results],
                         published_sums(request, version))

    def restart_away(self, placement):
        """Serves a version, and again after all servers were killed, without the repository."""
        self.publish(1, placement)
        self.start()
        wait_served(self.client, 1, MODEL)
        self.check_answer(1)
        self.wait_recorded(1)
        self.kill()
        self.move_away()
        self.start()
        for server in self.servers():
            wait_until(lambda server=server: server.find('serving_from_resident'), SECONDS,
                       'event=serving_from_resident')
        wait_served(self.client, 1, MODEL)
        self.check_answer(1)

    def check_return(self, placement):
        """Expects a new version to be served when the repository is back."""
        self.move_back()
        self.publish(2, placement)
        wait_served(self.client, 2, MODEL)
        self.check_answer(2)
        self.wait_recorded(2)
        for server in self.servers():
            self.assertEqual(Metrics(server).get('embag_repository_readable'), 1)
            self.assertIsNone(server.find('resident_differs'))

    def test_all_serve_again_without_the_repository_and_go_on_when_it_is_back(self):
        self.restart_away(PLACEMENT)
        for server in self.servers():
            self.assertEqual(Metrics(server).get('embag_repository_readable'), 0)
            self.assertEqual(Metrics(server).get('embag_resident_served_complete'), 1)
        # A second time from the same record, which names the same files.
        self.kill()
        self.start()
        wait_served(self.client, 1, MODEL)
        self.check_answer(1)
        self.check_return(PLACEMENT)

    def test_a_router_without_rows_starts_without_the_repository_too(self):
        self.restart_away(NOWHERE)
        self.check_return(NOWHERE)

    def test_a_restart_with_the_repository_keeps_record_and_files(self):
        self.publish(1, PLACEMENT)
        self.start()
        wait_served(self.client, 1, MODEL)
        self.wait_recorded(1)
        self.kill()
        self.start()
        # At no time may a record lack the version, nor a file be loaded again.
        self.assertEqual([self.record(name) for name in ('router', 'part0')], [[(1, True)]] * 2)
        wait_served(self.client, 1, MODEL)
        self.check_answer(1)
        for server in self.servers():
            self.assertGreater(Metrics(server).get('embag_resident_tables_total',
                                                   outcome='adopted'), 0)
            self.assertEqual(Metrics(server).get('embag_resident_tables_total',
                                                 outcome='written'), 0)

    def test_a_record_of_another_part_is_not_served(self):
        self.publish(1, PLACEMENT)
        self.start()
        wait_served(self.client, 1, MODEL)
        self.wait_recorded(1)
        self.kill()
        self.move_away()
        for flags in (('--part', '1/%d' % PARTS), ('--part', '0/%d' % (PARTS + 1)), (),
                      ('--route', self.cluster.addresses())):
            server = Embagd(self.cluster.path, *flags, *self.resident('part0'))
            self.addCleanup(server.kill)
            self.assertEqual(server.wait(SECONDS), 1, flags)
            self.assertIn('event=resident_model_unserved', server.log)
            self.assertIn('another kind of server', server.log)
        self.move_back()

    def test_without_resident_files_the_start_fails(self):
        self.publish(1, PLACEMENT)
        self.move_away()
        for flags in ('--part', '0/%d' % PARTS), ('--route', self.cluster.addresses()):
            server = Embagd(self.cluster.path, *flags)
            self.addCleanup(server.kill)
            self.assertEqual(server.wait(SECONDS), 1)
            self.assertIn('model_repository', server.log)
            self.assertIn(self.cluster.path, server.log)
        self.move_back()


if __name__ == '__main__':
    unittest.main()
