"""The modules of embag.torch compared with TorchRec's collections, whose tables they serve."""

import copy
import unittest

import numpy as np

try:
    import torch
    from torchrec import (EmbeddingBagCollection, EmbeddingBagConfig, EmbeddingCollection,
                          EmbeddingConfig, JaggedTensor, KeyedJaggedTensor, KeyedTensor,
                          PoolingType)
    from torchrec.modules.embedding_configs import DataType
except ImportError as error:
    raise unittest.SkipTest('TorchRec cannot be imported: %s' % error) from error

import embag
import embag.torch
from served import SEED, scaled
from torch_models import ModuleTest

ROWS = 40
CASES = 2500    # of each kind
MODELS = 6


def random_tables(rng, kind, dim=None, weighted=False):
    """Returns the configurations of some tables, which share features.

    torch wants weights of the table's type, and with the sum only.
    """
    features, tables = ['f%d' % n for n in range(7)], []
    for n in range(rng.integers(1, 5)):
        tables.append(kind(
            name='t%d' % n, embedding_dim=dim or int(rng.integers(1, 5)) * 4, num_embeddings=ROWS,
            feature_names=rng.choice(features, rng.integers(1, 4), replace=False).tolist(),
            data_type=DataType.FP16 if rng.random() < 0.3 and not weighted else DataType.FP32))
        if kind is EmbeddingBagConfig and rng.random() < 0.4 and not weighted:
            tables[-1].pooling = PoolingType.MEAN
    return tables


def random_jagged(rng, keys, weighted=False, varies=False, bags=None):
    """Returns a KeyedJaggedTensor with these keys, in random order and with one key more."""
    keys = rng.permutation([*keys, 'other']).tolist()
    bags = int(rng.integers(1, 7)) if bags is None else bags
    strides = [int(rng.integers(1, 7)) if varies else bags for _ in keys]
    lengths = torch.from_numpy(rng.integers(0, 5, sum(strides)).astype(rng.choice(['i4', 'i8'])))
    count = int(lengths.sum())
    fields = {}
    if varies:
        inverse = [torch.from_numpy(rng.integers(0, stride, bags)) for stride in strides]
        fields = {'stride_per_key_per_rank': [[stride] for stride in strides],
                  'inverse_indices': (keys, torch.stack(inverse))}
    if weighted:
        fields['weights'] = torch.from_numpy(rng.normal(size=count).astype('f4'))
    values = torch.from_numpy(rng.integers(0, ROWS, count).astype(rng.choice(['i4', 'i8'])))
    if rng.random() < 0.5:
        return KeyedJaggedTensor(keys=keys, values=values, lengths=lengths, **fields)
    offsets = torch.cat([lengths.new_zeros(1), torch.cumsum(lengths, 0).to(lengths.dtype)])
    return KeyedJaggedTensor(keys=keys, values=values, offsets=offsets,
                             **{**({} if varies else {'stride': bags}), **fields})


def in_double(collection, transform=None):
    """Returns a copy of a collection with tables in double precision."""
    twin = copy.deepcopy(collection).double()
    for table in twin.parameters():
        if transform is not None:
            table.data = transform(table.data)
    return twin


def with_weights(jagged, transform):
    """Returns the input with its weights changed."""
    if jagged.weights_or_none() is None:
        return jagged
    twin = copy.copy(jagged)
    twin._weights, twin._jt_dict = transform(jagged.weights()), None
    return twin


class Pooled:
    """A collection of pooled features, its exact values, and their bounds."""

    def __init__(self, rng, weighted):
        self.weighted = weighted
        self.module = EmbeddingBagCollection(
            random_tables(rng, EmbeddingBagConfig, weighted=weighted), is_weighted=weighted)
        self.exact = in_double(self.module)
        self.terms = in_double(self.module, torch.abs)
        self.keys = sorted({name for table in self.module.embedding_bag_configs()
                            for name in table.feature_names})

    def bounds(self, jagged):
        """Returns the exact values, and the bound of each."""
        exact = self.exact(with_weights(jagged, torch.Tensor.double)).values()
        terms = self.terms(with_weights(jagged, lambda w: w.double().abs())).values()
        most = int(jagged.lengths().max()) if jagged.lengths().numel() else 0
        eps = torch.finfo(torch.float32).eps / 2
        return exact, (most + 4) * eps * terms + eps * exact.abs() + 1e-45


class Pooling(ModuleTest):
    """Random EmbeddingBagCollections, some weighted."""

    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng(SEED)
        torch.manual_seed(SEED)
        self.pooled = [Pooled(self.rng, weighted=n % 2 == 1) for n in range(MODELS)]
        self.address = self.serve_modules(
            **{'m%d' % n: each.module for n, each in enumerate(self.pooled)})
        self.remotes = [embag.torch.RemoteEmbeddingBagCollection.from_module(
            each.module, self.address, model='m%d' % n) for n, each in enumerate(self.pooled)]

    @torch.no_grad()
    def check(self, varies):
        """Compares random inputs."""
        for case in range(scaled(CASES)):
            pooled, remote = self.pooled[case % MODELS], self.remotes[case % MODELS]
            jagged = random_jagged(self.rng, pooled.keys, pooled.weighted, varies)
            got, want = remote(jagged), pooled.module(jagged)
            self.assertIsInstance(got, KeyedTensor)
            self.assertEqual(got.keys(), want.keys())
            self.assertEqual(got.length_per_key(), want.length_per_key())
            self.assertEqual(got.values().dtype, torch.float32)
            exact, bounds = pooled.bounds(jagged)
            self.assertTrue(bool(((got.values() - exact).abs() <= bounds).all()))
            torch.testing.assert_close(got.values(), want.values(), rtol=2e-3, atol=2e-3)

    def test_values_are_within_the_bound(self):
        self.check(varies=False)

    def test_bags_that_vary_by_key(self):
        self.check(varies=True)

    def test_inputs_without_bags(self):
        for pooled, remote in zip(self.pooled, self.remotes):
            jagged = random_jagged(self.rng, pooled.keys, pooled.weighted, bags=0)
            columns = sum(pooled.module._lengths_per_embedding)
            self.assertEqual(remote(jagged).values().shape, (0, columns))

    def test_compare_holds_and_finds_a_changed_row(self):
        for number, pooled in enumerate(self.pooled):
            jagged = random_jagged(self.rng, pooled.keys, pooled.weighted, bags=6)
            model = 'm%d' % number
            compared = embag.torch.compare(pooled.module, self.address, jagged, model=model)
            self.assertTrue(compared.holds, compared)
            self.assertLessEqual(compared.difference, compared.bound)
            self.assertGreater(compared.elements, 0)
        pooled, number = self.pooled[0], 0
        table = pooled.module.embedding_bag_configs()[0]
        jagged = KeyedJaggedTensor(
            keys=pooled.keys, values=torch.arange(len(pooled.keys) * 3) % 3,
            lengths=torch.ones(len(pooled.keys) * 3, dtype=torch.int64))
        with torch.no_grad():
            pooled.module.embedding_bags[table.name].weight[1, 2] += 0.5
        compared = embag.torch.compare(pooled.module, self.address, jagged, model='m0')
        self.assertFalse(compared.holds)
        self.assertIn('beyond', str(compared))
        self.assertAlmostEqual(compared.difference, 0.5, places=2)
        self.assertEqual((compared.element, compared.bag % 3), (2, (1 - 3 * pooled.keys.index(
            compared.feature.partition('@')[0])) % 3))
        self.assertIn(compared.feature.partition('@')[0], table.feature_names)


class Sequences(ModuleTest):
    """Random EmbeddingCollections."""

    @torch.no_grad()
    def test_vectors_are_equal_bit_by_bit(self):
        rng = np.random.default_rng(SEED)
        torch.manual_seed(SEED)
        modules = [EmbeddingCollection(random_tables(rng, EmbeddingConfig, dim=4 * n + 4),
                                       need_indices=n % 2 == 1) for n in range(MODELS)]
        address = self.serve_modules(**{'m%d' % n: each for n, each in enumerate(modules)})
        remotes = [embag.torch.RemoteEmbeddingCollection.from_module(each, address, model='m%d' % n)
                   for n, each in enumerate(modules)]
        for case in range(scaled(CASES)):
            module, remote = modules[case % MODELS], remotes[case % MODELS]
            self.assertEqual(remote.need_indices(), module.need_indices())
            self.assertEqual(remote.embedding_dim(), module.embedding_dim())
            self.assertEqual(remote.embedding_names_by_table(), module.embedding_names_by_table())
            keys = sorted({name for table in module.embedding_configs()
                           for name in table.feature_names})
            jagged = random_jagged(rng, keys, varies=case % 3 == 0)
            got, want = remote(jagged), module(jagged)
            self.assertEqual(list(got), list(want))
            for key, vectors in want.items():
                self.assertIsInstance(got[key], JaggedTensor)
                self.assertTrue(torch.equal(got[key].values(), vectors.values()))
                self.assertTrue(torch.equal(got[key].lengths(), vectors.lengths()))
                self.assertTrue(torch.equal(got[key].offsets(), vectors.offsets()))
                if module.need_indices():
                    self.assertTrue(torch.equal(got[key].weights(), vectors.weights()))
                else:
                    self.assertIsNone(got[key].weights_or_none())
        compared = embag.torch.compare(modules[0], address, random_jagged(rng, sorted(
            {name for table in modules[0].embedding_configs()
             for name in table.feature_names}), bags=9), model='m0')
        self.assertEqual((compared.holds, compared.difference), (True, 0.0))


class Interface(ModuleTest):
    """The methods, the arguments and the errors."""

    def setUp(self):
        super().setUp()
        self.tables = [
            EmbeddingBagConfig(name='t0', embedding_dim=4, num_embeddings=ROWS,
                               feature_names=['a', 'b']),
            EmbeddingBagConfig(name='t1', embedding_dim=8, num_embeddings=ROWS,
                               feature_names=['a'], pooling=PoolingType.MEAN)]
        self.module = EmbeddingBagCollection(tables=self.tables)
        self.address = self.serve_modules(m=self.module)
        self.jagged = KeyedJaggedTensor(keys=['a', 'b'], values=torch.tensor([1, 2, 3]),
                                        lengths=torch.tensor([1, 0, 1, 1]))
        self.remote = embag.torch.RemoteEmbeddingBagCollection(self.address, self.tables)

    def test_configurations_are_those_of_the_module_or_of_the_server(self):
        self.assertIs(self.remote.embedding_bag_configs()[0], self.tables[0])
        self.assertFalse(self.remote.is_weighted())
        described = embag.torch.RemoteEmbeddingBagCollection(
            self.address, features={'a': ['a@t0', 'a@t1'], 'b': 'b'}).embedding_bag_configs()
        self.assertEqual(
            [(each.name, each.embedding_dim, each.num_embeddings, each.feature_names, each.pooling)
             for each in described],
            [('t0', 4, ROWS, ['a', 'b'], 'sum'), ('t1', 8, ROWS, ['a'], 'mean')])

    def test_outputs_by_other_names(self):
        names = {'a@t0': 't0', 'b': 't0', 'a@t1': 't1'}
        remote = embag.torch.RemoteEmbeddingBagCollection(self.address, self.tables,
                                                          features=names)
        torch.testing.assert_close(remote(self.jagged).values(),
                                   self.module(self.jagged).values())

    def test_types_of_the_output(self):
        for dtype in torch.float16, torch.bfloat16:
            remote = embag.torch.RemoteEmbeddingBagCollection(self.address, self.tables,
                                                              dtype=dtype)
            got = remote(self.jagged).values()
            self.assertEqual(got.dtype, dtype)
            torch.testing.assert_close(got, self.module(self.jagged).values().to(dtype))
        with self.assertRaisesRegex(ValueError, 'int32'):
            embag.torch.RemoteEmbeddingBagCollection(self.address, self.tables, dtype=torch.int32)

    def test_inputs_that_do_not_fit(self):
        with self.assertRaises(embag.OutOfRange):
            self.remote(KeyedJaggedTensor(keys=['a', 'b'], values=torch.tensor([1, ROWS]),
                                          lengths=torch.tensor([1, 1])))
        with self.assertRaises(KeyError):
            self.remote(KeyedJaggedTensor(keys=['a'], values=torch.tensor([1]),
                                          lengths=torch.tensor([1])))
        varying = KeyedJaggedTensor(keys=['a', 'b'], values=torch.tensor([1, 2, 3]),
                                    lengths=torch.tensor([1, 1, 1]),
                                    stride_per_key_per_rank=[[1], [2]])
        with self.assertRaisesRegex(ValueError, '1 or 2 bags'):
            self.remote(varying)
        short = KeyedJaggedTensor(keys=['a', 'b'], values=torch.tensor([1]),
                                  lengths=torch.tensor([1, 1]))
        with self.assertRaisesRegex(ValueError, 'add up to 2'):
            self.remote(short)
        with self.assertRaisesRegex(ValueError, 'is_weighted'):
            embag.torch.RemoteEmbeddingBagCollection(
                self.address, self.tables[:1], is_weighted=True)(self.jagged)

    def test_tables_that_do_not_fit(self):
        self.tables[1].embedding_dim = 6
        with self.assertRaisesRegex(ValueError, "'t1' has embedding_dim 6, .* rows of 8"):
            embag.torch.RemoteEmbeddingBagCollection(self.address, self.tables)(self.jagged)
        with self.assertRaises(embag.NotFound):
            embag.torch.RemoteEmbeddingBagCollection(self.address, features=['c'])(
                KeyedJaggedTensor(keys=['c'], values=torch.tensor([1]), lengths=torch.tensor([1])))
        with self.assertRaises(embag.NotFound):
            embag.torch.RemoteEmbeddingBagCollection(
                self.address, features=['c']).embedding_bag_configs()

    def test_compare_without_a_feature_in_common(self):
        jagged = KeyedJaggedTensor(keys=['c'], values=torch.tensor([1]), lengths=torch.tensor([1]))
        with self.assertRaisesRegex(ValueError, 'none of the features a@t0, b, a@t1'):
            embag.torch.compare(self.module, self.address, jagged)
