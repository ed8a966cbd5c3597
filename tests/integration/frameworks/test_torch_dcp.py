"""Checkpoints that torch.distributed.checkpoint writes: every tensor is read bit by bit."""

import os
import pickle
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import torch

from embag.importer import dcp
from embag.importer.source import CheckpointError
from served import SEED, scaled

try:
    import torch.distributed.checkpoint as checkpoint
    HAS_SAVE = hasattr(checkpoint, 'save')
except (ImportError, ValueError):    # PyTorch 1.13 cannot import it with Python 3.11
    HAS_SAVE = False
HERE = os.path.dirname(os.path.abspath(__file__))
SPAWN_SECONDS = 200
TYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32,
         torch.int16, torch.int8, torch.uint8)


@unittest.skipUnless(HAS_SAVE, 'this PyTorch has no torch.distributed.checkpoint.save')
class SavedCheckpoints(unittest.TestCase):
    """Checkpoints of one process and of several."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.path = scratch.name
        self.rng = np.random.default_rng([SEED, 23])

    def save(self, state, **writer):
        """Saves a state_dict, and returns the checkpoint as the importer reads it."""
        directory = os.path.join(self.path, str(len(os.listdir(self.path))))
        checkpoint.save(state, storage_writer=checkpoint.FileSystemWriter(directory, **writer),
                        no_dist=True)
        self.assertTrue(dcp.recognises(directory))
        return dcp.open_checkpoint(directory)

    def check_rows(self, tensor, expected):
        """Checks all rows of a tensor, and some ranges of them; `expected` is uint8."""
        rows = len(expected)
        self.assertEqual(tensor.shape[0], rows)
        np.testing.assert_array_equal(tensor.read(0, rows), expected.reshape(rows, -1))
        for _ in range(5):
            begin = int(self.rng.integers(0, rows))
            end = int(self.rng.integers(begin, rows)) + 1
            np.testing.assert_array_equal(tensor.read(begin, end),
                                          expected.reshape(rows, -1)[begin:end])

    def random(self, *shape, dtype=torch.float32):
        """Returns random bits."""
        count = int(np.prod(shape)) * torch.empty((), dtype=dtype).element_size()
        values = np.frombuffer(self.rng.bytes(count), 'u1').copy()
        return torch.from_numpy(values).view(dtype).reshape(shape)

    def test_tensors_of_every_type_are_read(self):
        state = {str(dtype): self.random(11, 6, dtype=dtype) for dtype in TYPES}
        read = {tensor.name: tensor for tensor in self.save(state).tensors}
        self.assertEqual(sorted(read), sorted(state))
        for name, array in state.items():
            self.check_rows(read[name], array.view(torch.uint8).numpy())

    def test_random_states_are_read_from_one_file_and_from_several(self):
        for case in range(scaled(40)):
            with self.subTest(seed=SEED, case=case):
                state = {f't{n}': self.random(int(self.rng.integers(1, 40)),
                                              int(self.rng.integers(1, 20)),
                                              dtype=TYPES[self.rng.integers(len(TYPES))])
                         for n in range(self.rng.integers(1, 8))}
                found = self.save({'model': state}, thread_count=int(self.rng.integers(1, 4)),
                                  single_file_per_rank=bool(self.rng.integers(2)))
                self.assertEqual(len(found.tensors), len(state))
                for tensor in found.tensors:
                    array = state[tensor.name.removeprefix('model.')]
                    self.check_rows(tensor, array.view(torch.uint8).numpy())

    def test_parts_of_larger_tensors_are_read(self):
        base = self.random(20, 6)
        state = {'rows': base[5:9], 'columns': base[:, 2:4].contiguous(),
                 'parameter': torch.nn.Parameter(base.clone())}
        read = {tensor.name: tensor for tensor in self.save(state).tensors}
        for name, array in state.items():
            self.check_rows(read[name], array.detach().contiguous().view(torch.uint8).numpy())

    def test_a_transposed_tensor_is_refused_by_name(self):
        tensor, = self.save({'turned': self.random(4, 6).t()}).tensors
        with self.assertRaisesRegex(CheckpointError, r'^turned: .*steps of \[1, 6\]'):
            tensor.read(0, 1)

    def test_what_is_not_a_table_is_listed(self):
        found = self.save({'a': {'weight': self.random(3, 2)}, 'step': 5, 'mask': torch.ones(2) > 0,
                           'one': torch.tensor(1.0), 'names': ['x', 'y'],
                           'optim': {'state': {'a.weight': {'exp_avg': torch.ones(3, 2)}}}})
        self.assertEqual([tensor.name for tensor in found.tensors], ['a.weight'])
        self.assertEqual(dict(found.left), {
            'step': 'a pickled object', 'mask': 'values of type bool', 'one': 'a single value',
            'names': 'a pickled object',
            'optim.state.a.weight.exp_avg': "an optimizer's state"})

    def test_metadata_of_another_pickle_protocol_are_read(self):
        found = self.save({'t': self.random(3, 2)})
        path = os.path.join(self.path, '0', '.metadata')
        with open(path, 'rb') as file:
            metadata = pickle.load(file)
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            with open(path, 'wb') as file:
                pickle.dump(metadata, file, protocol)
            again, = dcp.open_checkpoint(os.path.join(self.path, '0')).tensors
            np.testing.assert_array_equal(again.read(0, 3), found.tensors[0].read(0, 3))

    def check_ranks(self, ranks):
        """Checks a checkpoint of several processes."""
        subprocess.run([sys.executable, os.path.join(HERE, 'dcp_ranks.py'), self.path, str(ranks)],
                       check=True, timeout=SPAWN_SECONDS, stdout=subprocess.DEVNULL)
        found = dcp.open_checkpoint(os.path.join(self.path, 'checkpoint'))
        arrays = {file.removesuffix('.npy') for file in os.listdir(self.path)
                  if file.endswith('.npy')}
        self.assertEqual({tensor.name for tensor in found.tensors},
                         {'model.' + name for name in arrays})
        for tensor in found.tensors:
            name = tensor.name.removeprefix('model.')
            with self.subTest(name, ranks=ranks):
                self.check_rows(tensor, np.load(os.path.join(self.path, name + '.npy')))
        self.assertEqual({name for name, _ in found.left}, {'step', 'optim.state.t.momentum1'})
        return arrays

    def test_shards_of_two_processes_are_gathered_and_a_lost_file_is_named(self):
        self.assertLessEqual({'rows_bfloat16', 'columns', 'table', 'grid', 'd_rows', 'd_columns'},
                             self.check_ranks(2))
        os.remove(os.path.join(self.path, 'checkpoint', '__1_0.distcp'))
        with self.assertRaisesRegex(CheckpointError, r'__1_0\.distcp: No such file'):
            dcp.open_checkpoint(os.path.join(self.path, 'checkpoint'))

    def test_shards_of_four_processes_are_gathered(self):
        self.assertLessEqual({'grid', 'd_grid', 'd_grid_turned', 'd_hybrid', 'd_rows_twice'},
                             self.check_ranks(4))


if __name__ == '__main__':
    unittest.main()
