"""Checkpoints of torch.distributed.checkpoint, imported without torch and served."""

import contextlib
import io
import os

import numpy as np

import embag
from dcp_fixtures import write_checkpoint
from embag.importer import cli
from embag.importer.readers import find_reader
from embagd_process import Embagd
from served import SEED, OwnServerTest


class ImportedCheckpoint(OwnServerTest):
    """A checkpoint in a directory, and the repository that it is imported into."""

    def setUp(self):
        super().setUp()
        self.source = self.repository.join('.source')
        os.makedirs(self.source)
        self.rng = np.random.default_rng([SEED, 41])

    def run_import(self):
        """Runs embag-import, and returns its status and what it printed."""
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            status = cli.main([self.source, '--out', self.repository.join('m'), '--format', 'dcp'])
        return status, output.getvalue()

    def test_sharded_tables_are_imported_and_served(self):
        users = self.rng.normal(size=(50, 8)).astype('f4')
        items = self.rng.normal(size=(40, 6)).astype('f4')
        write_checkpoint(self.source, {
            'model.ebc.embedding_bags.user.weight':
                (users, [((0, 0), (20, 8)), ((20, 0), (30, 8))]),
            'model.ebc.embedding_bags.item.weight':
                (items, [((0, 0), (40, 2)), ((0, 2), (40, 4))]),
            'optim.state.user.momentum1': (users, [((0, 0), (50, 8))])})
        status, output = self.run_import()
        self.assertEqual(status, 0, output)
        self.assertIn('optim.state.user.momentum1', output)
        server = Embagd(self.repository.path)
        self.addCleanup(server.stop)
        client = embag.Client(server.wait_ready().address)
        self.addCleanup(client.close)
        tables = {table.name: table for table in client.model('m', 1).versions[0].tables}
        self.assertEqual(len(tables), 2)
        for name, array in (('user', users), ('item', items)):
            called, = [table for table in tables if name in table]
            got = client.lookup(called, np.arange(len(array)), model='m', reduction='none').values
            np.testing.assert_array_equal(got, array)

    def test_the_directory_is_recognised(self):
        write_checkpoint(self.source, {'emb': (np.ones((4, 3), 'f4'), [((0, 0), (4, 3))])})
        self.assertEqual(find_reader(self.source, None).format, 'dcp')

    def test_a_checkpoint_with_a_missing_shard_is_not_imported(self):
        users = self.rng.normal(size=(50, 8)).astype('f4')
        write_checkpoint(self.source, {
            'embedding_bags.user.weight': (users, [((0, 0), (20, 8)), ((21, 0), (29, 8))])})
        status, output = self.run_import()
        self.assertNotEqual(status, 0)
        self.assertIn('embedding_bags.user.weight: no shard has rows [20, 21), columns [0, 8)',
                      output)
        self.assertNotIn('Traceback', output)
        self.assertFalse(os.path.exists(self.repository.join('m')))

    def test_a_malicious_checkpoint_is_not_imported(self):
        witness = self.repository.join('.ran')
        command = b'touch ' + witness.encode()
        with open(os.path.join(self.source, '.metadata'), 'wb') as file:
            file.write(b'\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c%c%s\x85R.' % (
                len(command), command))
        status, output = self.run_import()
        self.assertNotEqual(status, 0)
        self.assertIn('posix.system', output)
        self.assertNotIn('Traceback', output)
        self.assertFalse(os.path.exists(witness))
