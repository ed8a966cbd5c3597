"""embedding_lookup_sparse compared with its definition. Each row is the weighted sum of the
embeddings of its ids; 'mean' divides it by the sum of the weights, 'sqrtn' by the root of the sum
of their squares. A row without ids, or with a divisor of zero, is zeros."""

import os
from collections import namedtuple

import numpy as np

import embag
from package_test import PackageTest
from served import SEED, OwnServerTest, scaled
from table_files import Table

Sparse = namedtuple('Sparse', 'indices values dense_shape')
COMBINERS = ('sum', 'mean', 'sqrtn')


def combined(table, ids, weights, combiner):
    """Computes the result by the definition, in double precision."""
    out = np.zeros((ids.dense_shape[0], *table.shape[1:]))
    for row in range(ids.dense_shape[0]):
        here = ids.indices[:, 0] == row
        factors = np.ones(here.sum()) if weights is None else weights.values[here].astype('f8')
        total = np.tensordot(factors, table[ids.values[here]].astype('f8'), 1)
        divisor = {'sum': 1, 'mean': factors.sum(), 'sqrtn': np.sqrt((factors ** 2).sum())}
        if divisor[combiner] != 0:
            out[row] = total / divisor[combiner]
    return out


def random_sparse(rng, rows, weighted, dtype='f4'):
    """Returns a matrix of ids and weights. Some of its rows are empty, including the last."""
    shape = int(rng.integers(1, 12)), 7
    cells = rng.random(shape) < rng.choice([0.1, 0.5])
    cells[-1] = False
    indices = np.argwhere(cells)
    ids = Sparse(indices, rng.integers(0, rows, len(indices)), np.array(shape))
    weights = rng.uniform(0.1, 2, len(indices)).astype(dtype)
    return ids, Sparse(indices, weights, ids.dense_shape) if weighted else None


class SparseLookups(PackageTest):
    """Lookups in tables of every floating-point type."""

    def test_all_combiners_with_and_without_weights(self):
        rng = np.random.default_rng(SEED)
        for name, tolerance in ('f32_23x7', 1e-5), ('f64_11x3x5', 1e-12), ('f16_64x16', 2e-3):
            table = self.tables['every'][name].raw
            for turn in range(scaled(120)):
                combiner = COMBINERS[turn % 3]
                ids, weights = random_sparse(rng, len(table), turn % 2)
                got = embag.embedding_lookup_sparse(self.embag, name, ids, weights, combiner,
                                                    model='every')
                np.testing.assert_allclose(got, combined(table, ids, weights, combiner),
                                           rtol=tolerance, atol=tolerance)

    def test_the_mean_is_what_is_said_by_default(self):
        ids = Sparse([[0, 0], [0, 1]], [0, 1], [1, 2])
        table = self.tables['every']['f32_23x7'].raw
        got = embag.embedding_lookup_sparse(self.embag, 'f32_23x7', ids, model='every')
        np.testing.assert_allclose(got[0], table[:2].mean(axis=0), rtol=1e-6)

    def test_weights_that_cancel_out_give_zeros(self):
        indices = np.array([[0, 0], [0, 1]])
        ids = Sparse(indices, np.array([0, 1]), [1, 2])
        weights = Sparse(indices, np.array([1, -1], 'f4'), [1, 2])
        got = embag.embedding_lookup_sparse(self.embag, 'f32_23x7', ids, weights, model='every')
        self.assertEqual(got.tolist(), [[0] * 7])

    def test_weights_of_double_precision(self):
        rng = np.random.default_rng(SEED)
        for name, tolerance in ('f32_23x7', 1e-5), ('f64_23x7', 1e-12):
            table = self.tables['every'][name].raw
            ids, weights = random_sparse(rng, len(table), True, 'f8')
            got = embag.embedding_lookup_sparse(self.embag, name, ids, weights, model='every')
            np.testing.assert_allclose(got, combined(table, ids, weights, 'mean'),
                                       rtol=tolerance, atol=tolerance)

    def test_no_ids_at_all(self):
        none = Sparse(np.zeros((0, 2), int), np.zeros(0, int), [3, 4])
        got = embag.embedding_lookup_sparse(self.embag, 'f32_23x7', none, model='every')
        self.assertEqual(got.tolist(), [[0] * 7] * 3)
        got = embag.embedding_lookup_sparse(
            self.embag, 'f32_23x7', none._replace(dense_shape=[0, 4]), model='every')
        self.assertEqual(got.shape, (0, 7))
        lists = Sparse([], [], [3, 4])
        for weights in None, lists:
            got = embag.embedding_lookup_sparse(self.embag, 'f32_23x7', lists, weights,
                                                model='every')
            self.assertEqual(got.tolist(), [[0] * 7] * 3)

    def test_what_does_not_fit(self):
        indices = np.array([[0, 0], [1, 1]])
        ids = Sparse(indices, np.array([0, 1]), [2, 2])
        wrong = [
            (ids, Sparse(indices[::-1], np.ones(2, 'f4'), [2, 2]), 'mean', None),
            (ids, Sparse(indices, np.ones(2, 'f4'), [2, 3]), 'mean', None),
            (Sparse(np.zeros((1, 3), int), np.zeros(1, int), [1, 1, 1]), None, 'mean', None),
            (ids, None, 'max', None), (ids, None, 'mean', 1.0),
        ]
        for sp_ids, sp_weights, combiner, max_norm in wrong:
            with self.assertRaises(ValueError):
                embag.embedding_lookup_sparse(self.embag, 'f32_23x7', sp_ids, sp_weights, combiner,
                                              max_norm, model='every')
        with self.assertRaises(TypeError):
            embag.embedding_lookup_sparse(self.embag, 'f32_23x7',
                                          ids._replace(indices=indices + .5), model='every')
        with self.assertRaises(embag.OutOfRange):
            embag.embedding_lookup_sparse(self.embag, 'f32_23x7',
                                          ids._replace(values=np.array([0, 23])), model='every')


    def test_what_is_no_sparse_tensor_says_how_to_make_one(self):
        class RaggedTensor:
            """Has attributes of a RaggedTensor that a SparseTensor lacks."""

            values, row_splits, shape = np.array([0, 1]), [0, 1, 2], (2, None)
        ids = Sparse(np.array([[0, 0], [1, 0]]), np.array([0, 1]), [2, 1])
        for asked, name in (((RaggedTensor(),), 'sp_ids is a RaggedTensor'),
                            ((ids, RaggedTensor()), 'sp_weights is a RaggedTensor'),
                            ((np.eye(2),), 'sp_ids is a ndarray')):
            with self.assertRaisesRegex(TypeError, name + r'.*\.to_sparse\(\)'):
                embag.embedding_lookup_sparse(self.embag, 'f32_23x7', *asked, model='every')


class DefaultRow(OwnServerTest):
    """A table with a default row for empty bags."""

    def test_is_not_what_empty_rows_get(self):
        os.makedirs(self.repository.join('spec'))
        with open(self.repository.join('spec', 'model.yaml'), 'w', encoding='utf-8') as file:
            file.write('tables:\n  - {name: t, default_index: 0}\n')
        server = self.serve(tables=[Table.of_values('t', 'f32', [[1, 2], [3, 4]])])
        ids = Sparse(np.array([[1, 0]]), np.array([1]), [3, 1])
        with embag.Client(server.address) as client:
            got = embag.embedding_lookup_sparse(client, 't', ids, combiner='sum')
            self.assertEqual(client.lookup('t', [], lengths=[0]).values.tolist(), [[1, 2]])
        self.assertEqual(got.tolist(), [[0, 0], [3, 4], [0, 0]])
