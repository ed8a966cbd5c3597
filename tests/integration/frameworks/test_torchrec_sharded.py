"""TorchRec models that DistributedModelParallel shards over processes: their checkpoints are read
bit by bit, and the live module gets the same description as the one that is not sharded."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import torchrec_ranks
from embag.importer import Choices, dcp, import_checkpoint, import_module
from embag.importer.module_config import module_config

HERE = os.path.dirname(os.path.abspath(__file__))
SPAWN_SECONDS = 300


class ShardedModels(unittest.TestCase):
    """Checkpoints of one process, of two and of four."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.path = scratch.name

    def save(self, ranks):
        """Saves a model, and returns its values by name and its checkpoint."""
        subprocess.run([sys.executable, os.path.join(HERE, 'torchrec_ranks.py'), self.path,
                        str(ranks)], check=True, timeout=SPAWN_SECONDS, stdout=subprocess.DEVNULL)
        values = {file.removesuffix('.npy'): np.load(os.path.join(self.path, file))
                  for file in os.listdir(self.path) if file.endswith('.npy')}
        self.assertEqual(len(values), 10)
        return values, dcp.open_checkpoint(os.path.join(self.path, 'checkpoint'))

    def check_values(self, values, found):
        """Checks all tensors of a checkpoint."""
        self.assertEqual({tensor.name for tensor in found.tensors},
                         {'model.' + name for name in values})
        for tensor in found.tensors:
            array = values[tensor.name.removeprefix('model.')]
            np.testing.assert_array_equal(
                tensor.read(0, len(array)),
                np.ascontiguousarray(array.reshape(len(array), -1)).view('u1'), tensor.name)
        for name, reason in found.left:
            self.assertTrue(name.startswith('optim.') or 'pickled' in reason, name)

    def found_by_ranks(self, ranks):
        """Checks that each process finds the tables and features of the model that is not
        sharded, and returns the tables that it cannot read."""
        tables, features, groups = module_config(torchrec_ranks.make_module())
        unreadable = []
        for rank in range(ranks):
            with open(os.path.join(self.path, f'{rank}.json'), encoding='utf-8') as file:
                found = json.load(file)
            self.assertEqual(found['tables'], [[t.name, t.tensor.name, list(t.tensor.shape)]
                                               for t in tables])
            self.assertEqual(sorted(found['features']),
                             sorted([f.name, f.table, f.reduction] for f in features))
            self.assertEqual(found['groups'], {name: sorted(members)
                                               for name, members in groups.items()})
            unreadable.append(found['unreadable'])
        return unreadable

    def test_one_process_reads_its_sharded_model_live(self):
        values, found = self.save(1)
        self.check_values(values, found)
        self.assertEqual(self.found_by_ranks(1), [{}])

    def check_description(self, found):
        """Checks that a checkpoint gets its features and pooling from a model.yaml, which was
        written for the module that is not sharded."""
        described, out = os.path.join(self.path, 'described'), os.path.join(self.path, 'imported')
        import_module(torchrec_ranks.make_module(), described)
        model_yaml = os.path.join(described, 'model.yaml')
        imported = import_checkpoint(found, out, choices=Choices(model_yaml=model_yaml))
        with open(model_yaml, encoding='utf-8') as first, \
                open(os.path.join(out, 'model.yaml'), encoding='utf-8') as second:
            self.assertEqual(first.read(), second.read())
        self.assertEqual(len(imported.plan.taken), 8)
        self.assertEqual({f.name: f.reduction for f in imported.plan.features}['f_table'], 'mean')

    def test_the_shards_of_two_processes_are_gathered_and_described(self):
        values, found = self.save(2)
        self.check_values(values, found)
        self.assertTrue(any('momentum' in name for name, _ in found.left), found.left)
        for unreadable in self.found_by_ranks(2):
            self.assertRegex(unreadable['ebc.embedding_bags.row.weight'],
                             'no shard has rows .*torch.distributed.checkpoint')
            self.assertNotIn('ebc.embedding_bags.copied.weight', unreadable)
        self.check_description(found)

    def test_the_shards_of_four_processes_are_gathered(self):
        values, found = self.save(4)
        self.check_values(values, found)
        self.found_by_ranks(4)


if __name__ == '__main__':
    unittest.main()
