"""Lookups in another process than the server's, in the server's resident tables."""

import os
import shutil
import unittest

import numpy as np

import local_tables
from bag_query import Query, to_message
from element_types import TYPE_NUMBERS
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import wait_until
from local_tables import LocalError, LocalTables
from random_query import random_query, random_vector_tables
from rpc import error_of
from served import SEED, OwnServerTest, scaled
from table_files import Table, write_model, write_vectors
from tmpfs_directory import make_tmpfs_directory

REQUESTS = 600
SECONDS = 60


class Local(OwnServerTest):
    """A server with resident tables, and this process, which maps them."""

    def setUp(self):
        super().setUp()
        reason = local_tables.skip_reason()
        if reason:
            self.skipTest(reason)
        self.directory = make_tmpfs_directory(self)
        self.rng = np.random.default_rng([SEED, 67])

    def start(self, *flags):
        """Starts a server whose tables are resident."""
        return self.serve('--resident-dir', self.directory, '--resident-small-pages', 'allow',
                          *flags)

    def open(self):
        """Maps the tables; they are unmapped at the end of the test."""
        local = LocalTables(self.directory)
        self.addCleanup(local.close)
        return local

    def write_version(self, version):
        """Writes a version of the model `m`, whose only value is its number."""
        write_model(self.repository.path, 'm', version, [
            Table.of_values('table', 'f32', np.full((5, 4), version))])

    def value(self, local, version=0):
        """Returns the version that answers, and a value of it."""
        number, results = local.lookup('m', [Query('table', np.array([2]), num_bags=1)], version)
        return number, np.frombuffer(results[0][0], '<f4')[0]

    def follow(self, local, version):
        """Waits until the version answers, and checks that all of it is of that version."""
        wait_until(lambda: self.value(local)[0] == version, SECONDS,
                   'version %d is not followed' % version)
        self.assertEqual(self.value(local), (version, version))

    def test_every_kind_of_lookup_has_the_servers_bits(self):
        tables = random_vector_tables(self.rng)
        write_model(self.repository.path, 'vectors', 1, tables)
        write_vectors(self.repository.path, 'vectors', 1, tables)
        client = self.connect(self.start())
        local = self.open()
        for _ in range(scaled(REQUESTS)):
            chosen = self.rng.choice(len(tables), 4)
            queries = [random_query(self.rng, tables[number]) for number in chosen]
            output = 'f32' if all(tables[number].is_float and tables[number].type != 'f64'
                                  for number in chosen) and self.rng.random() < 0.5 else None
            request = pb.LookupRequest(
                model='vectors', report_missing=True, output_type=TYPE_NUMBERS.get(output, 0),
                queries=[to_message(query, query.num_bags) for query in queries])
            answer = client.lookup(request)
            version, results = local.lookup('vectors', queries, output=output)
            self.assertEqual(version, answer.version)
            for query, result, wanted in zip(queries, results, answer.results, strict=True):
                positions = np.frombuffer(wanted.missing_positions, '<u4').tolist()
                self.assertEqual(
                    result, (wanted.values, list(wanted.shape), wanted.type, positions), query)

    def test_refuses_what_the_server_refuses(self):
        self.write_version(1)
        client = self.connect(self.start())
        local = self.open()
        rows = np.array([0, 1, 2])
        for query in (Query('none', rows, num_bags=1), Query('table', rows + 4, num_bags=1),
                      Query('table', rows), Query('table', rows, 'offsets', np.array([0, 2, 1])),
                      Query('table', rows, 'offsets', np.array([0, 7])),
                      Query('table', rows, 'lengths', np.array([1, 1])),
                      Query('table', rows, 'packed', indices_per_bag=2),
                      Query('table', rows, 'segments', np.array([0, 1, 2]), num_segments=2),
                      Query('table', rows, num_bags=1, missing='unknown_row'),
                      Query('table', rows[:0], num_bags=1, default_index=5)):
            code, text = error_of(client.lookup, pb.LookupRequest(
                model='m', queries=[to_message(query)]))
            with self.assertRaises(LocalError) as raised:
                local.lookup('m', [query])
            self.assertEqual(raised.exception.status, code.value[0], query)
            if query.table != 'none':
                self.assertEqual(str(raised.exception), text)
        for model, version in (('other', 0), ('m', 7)):
            code, text = error_of(client.lookup, pb.LookupRequest(model=model, version=version))
            with self.assertRaises(LocalError) as raised:
                local.lookup(model, [], version)
            self.assertEqual((raised.exception.status, str(raised.exception)),
                             (code.value[0], text))

    def test_follows_the_server_and_outlives_it(self):
        self.write_version(1)
        server = self.start()
        local = self.open()
        self.assertEqual(self.value(local), (1, 1))
        for version in (2, 3):
            self.write_version(version)
            self.follow(local, version)
        server.kill()
        self.assertEqual(self.value(local), (3, 3))
        self.assertEqual(self.value(self.open()), (3, 3))
        self.write_version(4)
        self.start()
        self.follow(local, 4)

    def test_follows_a_server_that_makes_the_directory_again(self):
        self.write_version(1)
        server = self.start()
        local = self.open()
        server.kill()
        shutil.rmtree(os.path.join(self.directory, 'embag'))
        self.assertEqual(self.value(local), (1, 1))
        self.write_version(2)
        self.start()
        self.follow(local, 2)

    def test_says_that_nothing_is_there(self):
        with self.assertRaises(LocalError) as raised:
            self.open()
        self.assertEqual(raised.exception.status, 9)  # FAILED_PRECONDITION
        self.assertIn(self.directory, str(raised.exception))


if __name__ == '__main__':
    unittest.main()
