"""RemoteEmbeddingBagCollection compared with its definition: for each key the pooled rows of its
bags."""

import asyncio
import importlib
import re
import sys
import unittest
import unittest.mock
from dataclasses import dataclass
from typing import Optional

import numpy as np

import embag
from embag import aio
from rpc import Admin
from package_test import PackageTest
from served import SEED, OwnServerTest, scaled
from table_files import Table, write_model

FEATURES = ['t%02d' % n for n in range(6)]


@dataclass
class Jagged:
    """A stand-in with the methods of a KeyedJaggedTensor. `sizes` is [keys, bags]."""

    names: list
    sizes: np.ndarray
    rows: np.ndarray
    factors: Optional[np.ndarray] = None

    def keys(self):
        """Returns the keys of its features."""
        return self.names

    def stride(self):
        """Returns the number of bags of each key."""
        return self.sizes.shape[1]

    def lengths(self):
        """Returns the lengths of all bags, as [keys * bags]."""
        return self.sizes.reshape(-1)

    def offsets(self):
        """Returns the offsets of all bags, as [keys * bags + 1]."""
        return np.concatenate([[0], np.cumsum(self.lengths())])

    def values(self):
        """Returns the values of all bags."""
        return self.rows

    def weights_or_none(self):
        """Returns the weights of all values, or None."""
        return self.factors

    def bag(self, key, number):
        """Returns the slice of values() that is one bag."""
        place = self.names.index(key) * self.stride() + number
        return slice(*self.offsets()[place:place + 2])


class Tensor:
    """A stand-in with the attributes by which the package recognises a tensor."""

    def __init__(self, array):
        self.array = array

    def detach(self):
        """Returns the tensor without gradients."""
        return self

    def cpu(self):
        """Returns the tensor in the host's memory."""
        return self.array


def random_jagged(rng, keys, bags=5, dtype='i8'):
    """Returns bags of rows that all of the tables have; some bags are empty."""
    sizes = rng.integers(0, 4, (len(keys), bags)).astype('i4')
    return Jagged(list(keys), sizes, rng.integers(0, 50, sizes.sum()).astype(dtype),
                  rng.normal(size=sizes.sum()).astype('f4'))


class CollectionTest(PackageTest):
    """Tests on the shared server's wide tables."""

    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng(SEED)

    def pooled(self, jagged, key, table, reduction='sum', weighted=False):
        """Computes the vectors by the definition, as [bags, columns] in double precision."""
        raw = self.tables['wide'][table].raw.astype('f8')
        vectors = np.zeros((jagged.stride(), raw.shape[1]))
        for bag in range(jagged.stride()):
            part = jagged.bag(key, bag)
            rows, weights = raw[jagged.rows[part]], np.ones(part.stop - part.start)
            if weighted:
                weights = jagged.factors[part].astype('f8')
            if len(rows):
                vectors[bag] = (weights[:, None] * rows).sum(axis=0)
                vectors[bag] /= len(rows) if reduction == 'mean' else 1
        return vectors

    def collection(self, features, **fields):
        """Creates a collection on the model."""
        return embag.RemoteEmbeddingBagCollection(self.embag, features, model='wide', **fields)

    def check(self, vectors, expected):
        """Compares a KeyedVectors with [bags, columns] by key, in the order of the output."""
        widths = [array.shape[1] for array in expected.values()]
        self.assertEqual(vectors.keys(), list(expected))
        self.assertEqual(vectors.length_per_key(), widths)
        self.assertEqual(vectors.offset_per_key(), [0, *np.cumsum(widths).tolist()])
        self.assertEqual(vectors.key_dim(), 1)
        self.assertEqual(vectors.values().dtype, np.float32)
        np.testing.assert_allclose(vectors.values(), np.hstack(list(expected.values())),
                                   rtol=1e-5, atol=1e-5)
        for key, array in vectors.to_dict().items():
            np.testing.assert_allclose(array, expected[key], rtol=1e-5, atol=1e-5)
            np.testing.assert_array_equal(array, vectors[key])
        with self.assertRaises(KeyError):
            print(vectors['nothing'])


class Collections(CollectionTest):
    """The blocking client's collections."""

    def test_all_keys_in_one_group(self):
        asked = self.collection(FEATURES)
        for dtype in 'i4', 'i8':
            for _ in range(scaled(50)):
                jagged = random_jagged(self.rng, FEATURES, dtype=dtype)
                self.check(asked(jagged), {key: self.pooled(jagged, key, key) for key in FEATURES})
        self.assertEqual(len(asked._collection.ask(jagged).groups), 1)

    def test_keys_in_another_order_and_too_many(self):
        jagged = random_jagged(self.rng, FEATURES)
        wanted = FEATURES[4:1:-1]
        self.check(self.collection(wanted)(jagged),
                   {key: self.pooled(jagged, key, key) for key in wanted})

    def test_keys_that_the_server_calls_otherwise(self):
        tables = {'user': 't03', 'item': 'narrow', 'friend': 't03'}
        jagged = random_jagged(self.rng, tables)
        self.check(self.collection(tables)(jagged),
                   {key: self.pooled(jagged, key, table) for key, table in tables.items()})

    def test_reductions_by_key(self):
        reductions = dict(zip(FEATURES, ['sum', 'mean', 'sum', 'mean', 'mean', 'sum']))
        asked = self.collection(FEATURES, reduction=reductions)
        jagged = random_jagged(self.rng, FEATURES)
        self.check(asked(jagged), {key: self.pooled(jagged, key, key, reductions[key])
                                   for key in FEATURES})
        self.assertEqual(len(asked._collection.ask(jagged).groups), 2)
        self.check(self.collection(FEATURES, reduction='mean')(jagged),
                   {key: self.pooled(jagged, key, key, 'mean') for key in FEATURES})

    def test_weights_where_it_is_weighted(self):
        jagged = random_jagged(self.rng, FEATURES)
        self.check(self.collection(FEATURES)(jagged),
                   {key: self.pooled(jagged, key, key) for key in FEATURES})
        part = FEATURES[1:4]
        self.check(self.collection(part, is_weighted=True)(jagged),
                   {key: self.pooled(jagged, key, key, weighted=True) for key in part})
        with self.assertRaises(ValueError):
            jagged.factors = None
            self.collection(FEATURES, is_weighted=True)(jagged)

    def test_a_key_that_several_tables_share(self):
        jagged = random_jagged(self.rng, ['user', 'item'])
        tables = {'user': ['t03', 'narrow'], 'item': 't01'}
        asked = self.collection(tables, reduction={'user': 'mean', 'user@narrow': 'sum',
                                                   'item': 'sum'})
        self.check(asked(jagged), {'user@t03': self.pooled(jagged, 'user', 't03', 'mean'),
                                   'user@narrow': self.pooled(jagged, 'user', 'narrow'),
                                   'item': self.pooled(jagged, 'item', 't01')})
        with self.assertRaisesRegex(ValueError, "two outputs are called 't00'"):
            self.collection(['t00', 't00'])
        with self.assertRaisesRegex(ValueError, 'no features'):
            self.collection([])

    def test_numbers_of_bags_that_vary_by_key(self):
        for _ in range(scaled(50)):
            asked, strides = self.collection(FEATURES), self.rng.integers(1, 6, len(FEATURES))
            jagged = random_jagged(self.rng, FEATURES)
            sizes = self.rng.integers(0, 4, strides.sum()).astype('i4')
            inverse = np.stack([self.rng.integers(0, stride, 7) for stride in strides])
            rows, begins = self.rng.integers(0, 50, sizes.sum()), np.cumsum([0, *strides])
            ends = np.cumsum([0, *sizes])
            jagged.lengths, jagged.values = lambda: sizes, lambda: rows
            jagged.variable_stride_per_key = lambda: True
            jagged.stride_per_key = strides.tolist
            jagged.inverse_indices_or_none = lambda: (FEATURES, inverse)
            expected = {}
            for number, key in enumerate(FEATURES):
                raw = self.tables['wide'][key].raw.astype('f8')
                bags = [raw[rows[ends[bag]:ends[bag + 1]]].sum(axis=0)
                        for bag in range(begins[number], begins[number + 1])]
                expected[key] = np.stack(bags)[inverse[number]]
            self.check(asked(jagged), expected)
        jagged.inverse_indices_or_none = lambda: None
        strides[:2] = 1, 2
        sizes = np.ones(strides.sum(), 'i4')
        rows = np.zeros(strides.sum(), 'i8')
        with self.assertRaisesRegex(ValueError, 'expected the same number for all'):
            asked(jagged)

    def test_values_and_weights_that_the_lengths_do_not_add_up_to(self):
        jagged = random_jagged(self.rng, FEATURES)
        jagged.rows = np.append(jagged.rows, 1)
        with self.assertRaisesRegex(ValueError, 'values of shape .*: the lengths add up to'):
            self.collection(FEATURES)(jagged)
        jagged.rows, jagged.factors = jagged.rows[:-1], jagged.factors[1:]
        with self.assertRaisesRegex(ValueError, 'weights of shape .*: the lengths add up to'):
            self.collection(FEATURES, is_weighted=True)(jagged)

    def test_no_bags_and_no_values(self):
        for bags in 0, 3:
            jagged = Jagged(FEATURES, np.zeros((len(FEATURES), bags), 'i4'), np.zeros(0, 'i8'))
            values = self.collection(FEATURES)(jagged).values()
            self.assertEqual(values.shape, (bags, 128 * len(FEATURES)))
            self.assertFalse(values.any())

    def test_tensors_in_and_out(self):
        jagged = random_jagged(self.rng, FEATURES)
        expected = {key: self.pooled(jagged, key, key) for key in FEATURES}
        jagged.lengths, jagged.values = (
            lambda: Tensor(jagged.sizes.reshape(-1)), lambda: Tensor(jagged.rows))
        vectors = self.collection(FEATURES, convert=lambda array: array.copy())(jagged)
        vectors.values()[0, 0] += 0
        self.check(vectors, expected)

    def test_what_does_not_fit(self):
        jagged = random_jagged(self.rng, FEATURES)
        with self.assertRaises(KeyError):
            self.collection(['t00', 't09'])(jagged)
        with self.assertRaises(embag.NotFound):
            self.collection({'t00': 'nothing'})(jagged)
        sizes, jagged.sizes = jagged.sizes, jagged.sizes.astype('i8') + 2**32
        with self.assertRaisesRegex(ValueError, r'lengths\[0\]'):
            self.collection(FEATURES)(jagged)
        jagged.sizes, jagged.stride = sizes[1:], lambda: 5
        with self.assertRaises(ValueError):
            self.collection(FEATURES)(jagged)

    def test_asyncio(self):
        jagged = random_jagged(self.rng, FEATURES)

        async def ask():
            async with aio.Client(self.server.address) as client:
                asked = aio.RemoteEmbeddingBagCollection(client, FEATURES, model='wide')
                return [await asked(jagged) for _ in range(2)]
        for vectors in asyncio.run(ask()):
            self.check(vectors, {key: self.pooled(jagged, key, key) for key in FEATURES})


class NewVersion(OwnServerTest):
    """Tables that become wider while a collection is in use."""

    def test_columns_are_those_of_the_version_that_answered(self):
        def tables(width):
            return [Table.of_values(name, 'f32', np.full((3, width + n), width))
                    for n, name in enumerate(('a', 'b'))]
        server = self.serve('--watch', 'off', '--admin-on-data-port', 'true', tables=tables(2))
        jagged = Jagged(['a', 'b'], np.ones((2, 1), 'i4'), np.zeros(2, 'i8'))
        with embag.Client(server.address) as client:
            asked = embag.RemoteEmbeddingBagCollection(client, ['a', 'b'])
            self.assertEqual(asked(jagged).length_per_key(), [2, 3])
            write_model(self.repository.path, 'spec', 2, tables(5))
            with Admin(server.address) as admin:
                admin.command('ServeVersion', 'spec', 2)
            self.assertEqual(asked(jagged).length_per_key(), [5, 6])
            self.assertEqual(asked(jagged).to_dict()['b'].tolist(), [[5] * 6])


class Traces(OwnServerTest):
    """Traces that requests name, in the server's log."""

    def test_each_lookup_has_its_own(self):
        traces = ['00-%032x-%016x-01' % (n, n) for n in range(1, 6)]
        server = self.serve('--access-log', 'all', '--loops', '1')
        jagged = Jagged(['emb_table'], np.ones((1, 1), 'i4'), np.zeros(1, 'i8'))
        one_bag = {'indices': [0], 'num_bags': 1}

        async def ask():
            async with aio.Client(server.address) as client:
                asked = aio.RemoteEmbeddingBagCollection(client, ['emb_table'])
                await asked(jagged, traceparent=traces[4])
        with embag.Client(server.address) as client:
            client.lookup('emb_table', **one_bag, traceparent=traces[0])
            with client.stream() as stream:
                for trace in traces[1:3]:
                    stream.submit('emb_table', **one_bag, traceparent=trace).result(60)
            asked = embag.RemoteEmbeddingBagCollection(client, ['emb_table'])
            asked(jagged, traceparent=traces[3])
            asyncio.run(ask())
            client.lookup('emb_table', **one_bag)
        server.stop()
        told = re.findall(r'event=request .*/Lookup.* trace_id=(\w+) span_id=(\w+) ', server.log)
        self.assertEqual(['00-%s-%s-01' % ids for ids in told], traces)


class WithoutTorch(unittest.TestCase):
    """embag.torch where PyTorch is not installed."""

    def test_the_error_says_what_to_install(self):
        with unittest.mock.patch.dict(sys.modules, {'torch': None}):
            sys.modules.pop('embag.torch', None)
            with self.assertRaisesRegex(ModuleNotFoundError, 'run `pip install torch`'):
                importlib.import_module('embag.torch')
