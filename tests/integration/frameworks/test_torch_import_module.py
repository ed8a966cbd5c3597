"""Modules of torch itself, imported live and served."""

import unittest

import numpy as np
import torch
from torch import nn

import embag
from embag.importer import import_module
from embag.importer.module_config import module_config
from embag.importer.torchrec_model import open_module
from embagd_process import Embagd
from served import SEED, OwnServerTest, scaled

EPS = 2.0**-24
REQUESTS = 250


class Model(nn.Module):
    """A model with every kind of torch's embeddings."""

    def __init__(self):
        super().__init__()
        self.sums = nn.EmbeddingBag(50, 16, mode='sum')
        self.parts = nn.ModuleDict({'means': nn.EmbeddingBag(40, 8, mode='mean'),
                                    'largest': nn.EmbeddingBag(30, 3, mode='max')})
        self.rows = nn.Embedding(20, 5, padding_idx=3)
        self.narrow = nn.Embedding(20, 5).half()
        self.dense = nn.Linear(5, 2)


class Configuration(unittest.TestCase):
    """Names of tables and features."""

    def test_each_module_is_a_table_and_a_feature(self):
        checkpoint = open_module(Model())
        self.assertEqual([table.name for table in checkpoint.tables],
                         ['sums.weight', 'parts.means.weight', 'parts.largest.weight',
                          'rows.weight', 'narrow.weight'])
        self.assertEqual([(f.name, f.table, f.reduction) for f in checkpoint.features],
                         [('sums', 'sums.weight', 'sum'),
                          ('parts.means', 'parts.means.weight', 'mean'),
                          ('parts.largest', 'parts.largest.weight', 'max'),
                          ('rows', 'rows.weight', 'none'), ('narrow', 'narrow.weight', 'none')])
        self.assertEqual(checkpoint.groups, {})
        self.assertEqual(checkpoint.left, [('dense.weight', 'not an embedding table'),
                                           ('dense.bias', 'not an embedding table')])

    def test_a_module_alone_is_called_embedding(self):
        (table,), (feature,), _ = module_config(nn.Embedding(3, 2))
        self.assertEqual((table.name, feature.name), ('weight', 'embedding'))

    def test_a_module_without_embeddings_has_no_tables(self):
        self.assertEqual(module_config(nn.Linear(3, 2)), ([], [], {}))

    def test_what_the_server_does_not_do_is_noted(self):
        left = dict(open_module(nn.ModuleDict({
            'a': nn.EmbeddingBag(4, 2, padding_idx=1), 'b': nn.Embedding(4, 2, max_norm=1.0),
            'c': nn.Embedding(4, 2, padding_idx=1)})).left)
        self.assertIn('id 1', left['a'])
        self.assertIn('max_norm=1.0', left['b'])
        self.assertEqual(set(left), {'a', 'b'})

    def test_the_rows_of_every_type_are_read(self):
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
            module = nn.Embedding(7, 3).to(dtype)
            table, = module_config(module)[0]
            np.testing.assert_array_equal(table.tensor.read(2, 6), module.weight[2:6].detach()
                                          .contiguous().view(torch.uint8).numpy())


class ServedModule(OwnServerTest):
    """A module that is imported and served."""

    def test_lookups_are_those_of_the_module(self):
        torch.manual_seed(SEED)
        rng = np.random.default_rng([SEED, 37])
        model = Model()
        import_module(model, self.repository.join('m'))
        server = Embagd(self.repository.path)
        self.addCleanup(server.stop)
        client = embag.Client(server.wait_ready().address)
        self.addCleanup(client.close)
        for case in range(scaled(REQUESTS)):
            for name, module in (('sums', model.sums), ('parts.means', model.parts['means']),
                                 ('parts.largest', model.parts['largest']), ('rows', model.rows),
                                 ('narrow', model.narrow)):
                lengths = rng.integers(0, 20, rng.integers(1, 6))
                ids = rng.integers(0, module.num_embeddings, lengths.sum())
                with self.subTest(seed=SEED, case=case, feature=name):
                    if isinstance(module, nn.Embedding):
                        got = client.lookup(name, ids, model='m').values
                        np.testing.assert_array_equal(
                            got, module(torch.from_numpy(ids)).detach().numpy())
                        continue
                    got = client.lookup(name, ids, lengths=lengths, model='m').values
                    own = module(torch.from_numpy(ids),
                                 torch.from_numpy(np.cumsum(lengths) - lengths)).detach().numpy()
                    size = np.abs(module.weight.detach().numpy()).max() * (lengths + 1)
                    bound = 2 * (lengths + 5) * EPS * size    # of both
                    self.assertTrue(np.all(np.abs(got - own) <= bound[:, None]))


if __name__ == '__main__':
    unittest.main()
