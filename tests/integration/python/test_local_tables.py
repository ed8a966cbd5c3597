"""embag.local: lookups in this process, in a server's resident tables."""

import os
import shutil
import tempfile
import threading

import numpy as np

import embag
import served
from embag import local
from embagd_process import wait_until
from random_query import random_query, random_vector_tables
from served import SEED, OwnServerTest, scaled
from table_files import Table, write_model, write_vectors
from test_lookups import as_query, needs_ml_dtypes

REQUESTS = 200
SECONDS = 60


class LocalTables(OwnServerTest):
    """A server with resident tables, and this process, which maps them."""

    def setUp(self):
        super().setUp()
        self.library = os.path.join(served.BUILD, 'libembag_local.so')
        if not os.path.isdir('/dev/shm'):
            self.skipTest('there is no tmpfs at /dev/shm')
        self.directory = tempfile.mkdtemp(prefix='embag-test-', dir='/dev/shm')
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.rng = np.random.default_rng([SEED, 71])

    def start(self):
        """Starts a server whose tables are resident."""
        return self.serve('--resident-dir', self.directory, '--resident-small-pages', 'allow')

    def open(self):
        """Maps the tables until the test ends."""
        tables = local.Tables(self.directory, library=self.library)
        self.addCleanup(tables.close)
        return tables

    def write_version(self, version):
        """Writes a version of the model `m`, whose only value is its number."""
        write_model(self.repository.path, 'm', version, [
            Table.of_values('table', 'f32', np.full((5, 4), version))])

    def test_random_lookups_are_those_of_the_server(self):
        tables = random_vector_tables(self.rng)
        write_model(self.repository.path, 'every', 1, tables)
        write_vectors(self.repository.path, 'every', 1, tables)
        server = self.start()
        mapped = self.open()
        failures = 0
        with embag.Client(server.address) as client:
            for _ in range(scaled(REQUESTS)):
                table = tables[self.rng.integers(len(tables))]
                query = random_query(self.rng, table)
                if needs_ml_dtypes(query):
                    continue
                asked = as_query(query)
                try:
                    expected = client.lookup(asked, model='every', report_missing=True)
                except embag.EmbagError as error:
                    failures += 1
                    with self.assertRaises(type(error)) as caught:
                        mapped.lookup(asked, model='every', report_missing=True)
                    self.assertEqual(str(caught.exception), str(error))
                    self.assertEqual(caught.exception.query, error.query)
                    continue
                answer = mapped.lookup(asked, model='every', report_missing=True)
                self.assertEqual((answer.model, answer.version), ('every', 1))
                self.assertEqual(answer.values.dtype, expected.values.dtype)
                self.assertEqual(answer.values.shape, expected.values.shape)
                self.assertEqual(answer.values.tobytes(), expected.values.tobytes())
                self.assertEqual(answer[0].missing, expected[0].missing)
                np.testing.assert_array_equal(
                    answer[0].missing_positions, expected[0].missing_positions)
        self.assertLess(failures, scaled(REQUESTS) // 2)

    def test_several_queries_and_their_errors(self):
        self.write_version(3)
        self.start()
        mapped = self.open()
        good = embag.Query('table', [[0, 1], [2, 3]])
        first, second = mapped.lookup([good, embag.Query('table', [4], num_bags=1)], model='m',
                                      output_type='f16')
        np.testing.assert_array_equal(first.values, np.full((2, 4), 6.0))
        np.testing.assert_array_equal(second.values, np.full((1, 4), 3.0))
        self.assertEqual(first.values.dtype, np.float16)
        with self.assertRaises(embag.OutOfRange) as caught:
            mapped.lookup([good, embag.Query('table', [[5]])], model='m')
        self.assertEqual(caught.exception.query, 1)
        for asked in ('feature', embag.Query('feature', [[0]])):
            with self.assertRaises(embag.NotFound):
                mapped.lookup(asked, [[0]] if isinstance(asked, str) else None, model='m')
        with self.assertRaises(embag.NotFound):
            mapped.lookup('table', [[0]], model='none')
        with self.assertRaises(embag.Unimplemented):
            mapped.lookup('table', [[0]], model='m', reduction='none', max_len=1)
        for asked, model in (good, 'm\0'), (embag.Query('table\0x', [[0]]), 'm'):
            with self.assertRaisesRegex(ValueError, 'NUL'):
                mapped.lookup(asked, model=model)
        with self.assertRaises(TypeError):
            mapped.lookup('table')
        with self.assertRaises(TypeError):
            mapped.lookup(good, [1], model='m')
        mapped.check()
        mapped.close()
        mapped.close()
        with self.assertRaisesRegex(ValueError, 'closed'):
            mapped.lookup(good, model='m')
        with self.assertRaisesRegex(ValueError, 'closed'):
            mapped.check()

    def test_threads_follow_another_version_and_outlive_the_server(self):
        self.write_version(1)
        server = self.start()
        mapped = self.open()
        wrong, seen = [], [0] * 4

        def read(number):
            while seen[number] < 2:
                answer = mapped.lookup('table', np.array([[0, 1]]), model='m')
                seen[number] = answer.version
                if (answer.values != 2 * answer.version).any():
                    wrong.append(answer.values)

        threads = [threading.Thread(target=read, args=(number,), daemon=True)
                   for number in range(len(seen))]
        for thread in threads:
            thread.start()
        wait_until(lambda: min(seen) == 1, SECONDS, 'lookups in version 1')
        self.write_version(2)
        for thread in threads:
            thread.join(SECONDS)
        self.assertEqual((seen, wrong), ([2] * len(seen), []))
        server.stop()
        self.assertEqual(mapped.lookup('table', [[0]], model='m').values[0, 0], 2)

    def test_says_what_is_missing(self):
        with self.assertRaisesRegex(OSError, 'install the Debian package'):
            local.Tables(self.directory, library='/nonexistent/libembag_local.so')
        with self.assertRaisesRegex(embag.FailedPrecondition, self.directory):
            local.Tables(self.directory, library=self.library)
