"""embag.tensorflow compared with TensorFlow's own functions on the same rows."""

import os
import subprocess
import sys
import unittest

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
os.environ.setdefault('CUDA_VISIBLE_DEVICES', '-1')

import ml_dtypes
import numpy as np
import tensorflow as tf

import embag
from embag.tensorflow import embedding_lookup_sparse, safe_embedding_lookup_sparse
from package_test import PackageTest
from served import SEED, OwnServerTest, scaled
from table_files import Table

COMBINERS = ('sum', 'mean', 'sqrtn')
NUMPY_TYPES = {'f32': np.float32, 'f64': np.float64, 'f16': np.float16, 'bf16': ml_dtypes.bfloat16}
# By the type of a table: eps of the sums, and half a unit of the output, relative to its value.
ROUNDING = {'f32': (2.0 ** -23, 2.0 ** -24), 'f64': (2.0 ** -52, 2.0 ** -53),
            'f16': (2.0 ** -23, 2.0 ** -11), 'bf16': (2.0 ** -23, 2.0 ** -8)}
# Half of the smallest step of the output.
SMALLEST = {'f32': 2.0 ** -150, 'f64': 0.0, 'f16': 2.0 ** -25, 'bf16': 2.0 ** -134}


def array_of(table):
    """Returns a table's rows in the corresponding type of TensorFlow."""
    return table.raw.view(NUMPY_TYPES[table.storage])


class Case:
    """Random ids and weights, as tensors and as arrays.

    - ids, weights: tensors of one form; None for weights stands for 1
    - row, values, factors: the row, counted over all dims but the last, the id and the weight of
      each entry
    - counts: all dims but the last
    """

    def __init__(self, rng, row_count, storage, **how):
        self.storage = storage
        kind = how.get('form') or ('sparse', 'ragged')[rng.integers(2)]
        rank = 2 if kind == 'ragged' else how.get('rank') or int(rng.integers(2, 5))
        shape = [int(size) for size in rng.integers(1, 7, rank)]
        cells = rng.random(shape) < rng.choice([0, 0.2, 0.6, 1])
        indices = np.argwhere(cells)
        if kind == 'ragged':
            indices[:, 1] = 0
        self.counts = tuple(shape[:-1])
        self.row = np.ravel_multi_index(indices[:, :-1].T, self.counts)
        lowest = -3 if how.get('is_safe') else 0
        integer = rng.choice([np.int32, np.int64])
        self.values = rng.integers(lowest, row_count, len(indices)).astype(integer)
        self.factors = np.ones(len(indices))
        self.weights = None
        self.indices, self.shape = indices, shape
        self.ids = self._tensor(kind, self.values)
        if how.get('is_weighted', rng.integers(2)):
            lowest = -0.5 if how.get('is_safe') else 0.1
            factors = rng.uniform(lowest, 2, len(indices))
            factors[rng.random(len(indices)) < 0.1] = 0 if how.get('is_safe') else 1
            factors = factors.astype(how.get('weights_type', NUMPY_TYPES[storage]))
            self.weights = self._tensor(kind, factors)
            self.factors = factors.astype('f8')

    def _tensor(self, kind, values):
        if kind == 'sparse':
            return tf.SparseTensor(self.indices.astype('i8'), tf.constant(values), self.shape)
        return tf.RaggedTensor.from_value_rowids(tf.constant(values), tf.constant(self.row),
                                                 nrows=self.shape[0])

    def exact(self, rows, combiner, is_safe, default_id=None):
        """Returns the result [rows, values] in extended precision, and the bound of its error."""
        eps, _ = ROUNDING[self.storage]
        count = int(np.prod(self.counts))
        out = np.zeros((count, rows.shape[1]), np.longdouble)
        bound = np.zeros_like(out)
        keep = self.values >= 0
        if is_safe and combiner != 'sum' and self.weights is not None:
            keep &= self.factors > 0
        for row in range(count):
            here = np.flatnonzero((self.row == row) & keep)
            if here.size == 0:
                out[row] = 0 if default_id is None else rows[default_id]
                continue
            factors = self.factors[here].astype(np.longdouble)[:, np.newaxis]
            taken = rows[self.values[here]].astype(np.longdouble)
            divisor = {'sum': 1, 'mean': factors.sum(),
                       'sqrtn': np.sqrt((factors ** 2).sum())}[combiner]
            out[row] = (factors * taken).sum(axis=0) / divisor
            bound[row] = ((len(here) + 4) * eps * np.abs(factors * taken).sum(axis=0)
                          / np.abs(divisor))
        return out, bound


class Lookups(PackageTest):
    """Differential tests, with thousands of seeded cases for each function."""

    def assert_close(self, got, case, exact, bound, what):
        """Compares with exact arithmetic, by the bound of the operation's specification."""
        _, half = ROUNDING[case.storage]
        got = np.asarray(got.numpy()).astype(np.longdouble).reshape(exact.shape)
        limit = bound + half * (np.abs(exact) + bound) + SMALLEST[case.storage]
        wrong = ~(np.abs(got - exact) <= limit)
        self.assertFalse(wrong.any(), '%s: off by %s where %s is allowed' % (
            what, np.abs(got - exact)[wrong][:3], limit[wrong][:3]))

    def compare(self, ours, theirs, is_safe, count):
        """Compares two functions, and both with exact arithmetic, for every type of table."""
        rng = np.random.default_rng(SEED)
        tables = [self.tables['every'][name % storage] for storage in NUMPY_TYPES
                  for name in ('%s_23x7', '%s_64x16')]
        for turn in range(scaled(count)):
            table = tables[turn % len(tables)]
            combiner = COMBINERS[turn // len(tables) % 3]
            case = Case(rng, table.rows, table.storage, is_safe=is_safe,
                        rank=None if is_safe else 2)
            more = {}
            if is_safe and rng.integers(2):
                more['default_id'] = int(rng.integers(table.rows))
            got = ours(self.embag, table.name, case.ids, case.weights, combiner,
                       allow_fast_lookup=bool(turn % 2), model='every', **more)
            wanted = theirs(array_of(table), case.ids, case.weights, combiner,
                            allow_fast_lookup=bool(turn % 2), **more)
            self.assertEqual(got.dtype, wanted.dtype)
            self.assertEqual(got.shape, (*case.counts, table.raw.shape[1]))
            exact, bound = case.exact(array_of(table), combiner, is_safe, **more)
            what = 'seed %d, turn %d, %s, %s' % (SEED, turn, table.name, combiner)
            self.assert_close(got, case, exact, bound, what)
            # TensorFlow leaves out trailing rows without ids, except in the safe function.
            rows = exact.shape[0] if is_safe else wanted.shape[0]
            self.assertTrue(is_safe or case.row.size == 0 or rows == case.row[-1] + 1)
            self.assert_close(wanted, case, exact[:rows], 2 * bound[:rows], 'TensorFlow, ' + what)
            self.assertFalse(np.any(got[rows:].numpy()), what)

    def test_lookups_equal_those_of_tensorflow(self):
        self.compare(embedding_lookup_sparse, tf.nn.embedding_lookup_sparse, False, 3000)

    def test_safe_lookups_equal_those_of_tensorflow(self):
        self.compare(safe_embedding_lookup_sparse, tf.nn.safe_embedding_lookup_sparse, True, 3000)

    def test_graphs_equal_eager_lookups(self):
        rng = np.random.default_rng(SEED)
        for turn in range(scaled(300)):
            name, combiner = list(NUMPY_TYPES)[turn % 4] + '_23x7', COMBINERS[turn % 3]
            case = Case(rng, 23, name.split('_')[0], is_safe=True)

            def look_up(ids, weights):
                return safe_embedding_lookup_sparse(
                    self.embag, name, ids, weights, combiner, default_id=2, model='every')

            wanted = look_up(case.ids, case.weights)
            graph = tf.function(look_up).get_concrete_function(case.ids, case.weights)
            self.assertEqual(graph.output_shapes.rank, wanted.shape.rank)
            self.assertEqual(graph.output_shapes[-1], 7)
            got = graph(case.ids, case.weights)
            self.assertEqual((got.dtype, got.shape), (wanted.dtype, wanted.shape))
            self.assertEqual(got.numpy().tobytes(), wanted.numpy().tobytes(), 'seed %d' % SEED)

    def test_one_graph_takes_every_shape(self):
        @tf.function(input_signature=[tf.SparseTensorSpec([None, None, None], tf.int64)])
        def sparse(ids):
            return safe_embedding_lookup_sparse(self.embag, 'bf16_23x7', ids, model='every')

        @tf.function(input_signature=[tf.RaggedTensorSpec([None, None], tf.int32)])
        def ragged(ids):
            return embedding_lookup_sparse(self.embag, 'bf16_23x7', ids, model='every')

        table = array_of(self.tables['every']['bf16_23x7'])
        for count in 1, 5:
            got = sparse(tf.sparse.from_dense(tf.ones([count, 2, 1], tf.int64)))
            self.assertEqual(got.numpy().tolist(), [[table[1].tolist()] * 2] * count)
            got = ragged(tf.RaggedTensor.from_row_lengths([3] * count, [1] * count))
            self.assertEqual(got.numpy().tolist(), [table[3].tolist()] * count)


class Forms(PackageTest):
    """Ids and weights in every form, and those that are refused."""

    def setUp(self):
        super().setUp()
        self.table = array_of(self.tables['every']['f32_23x7'])

    def look_up(self, *arguments, is_safe=False, **fields):
        """Looks up in a table of 23 rows of 7 values."""
        function = safe_embedding_lookup_sparse if is_safe else embedding_lookup_sparse
        return function(self.embag, 'f32_23x7', *arguments, model='every', **fields)

    def test_unsorted_rows(self):
        ids = tf.SparseTensor([[2, 0], [0, 1], [2, 1]], tf.constant([5, 6, 7]), [4, 2])
        for is_safe in False, True:
            got = self.look_up(ids, combiner='sum', is_safe=is_safe).numpy()
            self.assertEqual(got[0].tolist(), self.table[6].tolist())
            self.assertEqual(got[2].tolist(), (self.table[5] + self.table[7]).tolist())
            self.assertFalse(got[[1, 3]].any())

    def test_dims_that_are_not_two(self):
        one = tf.SparseTensor([[0], [2]], tf.constant([5, 6]), [4])
        three = tf.SparseTensor([[0, 0, 0], [0, 2, 1], [2, 0, 0]], tf.constant([1, 2, 3]),
                                [3, 4, 4])
        for ours, theirs, ids in (
                (safe_embedding_lookup_sparse, tf.nn.safe_embedding_lookup_sparse, one),
                (embedding_lookup_sparse, tf.nn.embedding_lookup_sparse, three)):
            got = ours(self.embag, 'f32_23x7', ids, None, 'sum', model='every')
            wanted = theirs(self.table, ids, None, 'sum')
            self.assertEqual(got.numpy().tolist(), wanted.numpy().tolist())

    def test_tables_whose_rows_have_several_dims(self):
        table = array_of(self.tables['every']['f64_11x3x5'])
        ids = tf.SparseTensor([[0, 1, 0], [1, 0, 0]], tf.constant([5, -1]), [2, 2, 1])
        got = safe_embedding_lookup_sparse(self.embag, 'f64_11x3x5', ids, model='every').numpy()
        self.assertEqual(got.shape, (2, 2, 3, 5))
        self.assertEqual(got[0, 1].tolist(), table[5].tolist())
        self.assertEqual(np.count_nonzero(got), np.count_nonzero(table[5]))

    def test_weights_of_other_types_than_the_table(self):
        rng = np.random.default_rng(SEED)
        for turn in range(scaled(200)):
            name = list(NUMPY_TYPES)[turn % 4]
            kind = list(NUMPY_TYPES.values())[turn // 4 % 4]
            case = Case(rng, 23, name, is_weighted=True, weights_type=kind, rank=2)
            if name != 'f64':
                case.factors = case.factors.astype('f4').astype('f8')
            got = embedding_lookup_sparse(self.embag, name + '_23x7', case.ids, case.weights,
                                          'sum', model='every')
            rows = array_of(self.tables['every'][name + '_23x7'])
            exact, bound = case.exact(rows, 'sum', False)
            Lookups.assert_close(self, got, case, exact, bound, 'seed %d, turn %d' % (SEED, turn))

    def test_no_ids_at_all(self):
        for shape in [0, 3], [3, 0], [2, 3]:
            none = tf.SparseTensor(np.zeros((0, 2), 'i8'), tf.constant([], tf.int64), shape)
            for is_safe in False, True:
                got = self.look_up(none, is_safe=is_safe)
                self.assertEqual(got.numpy().tolist(), [[0.0] * 7] * shape[0])

    def test_the_output_type_that_is_asked_for(self):
        ids = tf.ragged.constant([[1], []], dtype=tf.int64)

        def ask():
            return self.look_up(ids, output_type='bf16')

        self.assertEqual(ask().dtype, tf.bfloat16)
        self.assertEqual(tf.function(ask)().dtype, tf.bfloat16)

    def test_there_is_no_gradient(self):
        weights = tf.Variable([1.0, 2.0])
        with tf.GradientTape() as tape:
            ids = tf.RaggedTensor.from_row_lengths([1, 2], [2])
            got = self.look_up(ids, tf.RaggedTensor.from_row_lengths(weights, [2]), 'sum')
        self.assertIsNone(tape.gradient(got, weights))

    def test_arguments_that_do_not_fit(self):
        ids = tf.SparseTensor([[0, 0], [1, 0]], tf.constant([5, 6]), [2, 2])
        ragged = tf.ragged.constant([[5], [6]])
        weights = tf.ones([2])
        far = tf.SparseTensor([[0, 0], [2, 0]], tf.constant([5, 6]), [2, 2])
        wrong = [
            (TypeError, 'is a EagerTensor: expected a tf.SparseTensor', (tf.ones([2, 2]),), {}),
            (TypeError, 'is a ndarray: expected', (ids, np.ones(2)), {}),
            (TypeError, 'is a RaggedTensor, but the ids are a SparseTensor', (ids, ragged), {}),
            (TypeError, 'ids must be integers', (tf.cast(ids, tf.float32),), {}),
            (ValueError, 'of rank 3, not 2', (tf.ragged.constant([[[1]]]),), {}),
            (ValueError, 'different indices or shapes',
             (ids, tf.SparseTensor([[0, 0], [1, 1]], weights, [2, 2])), {}),
            (ValueError, 'different indices or shapes',
             (ids, tf.SparseTensor(ids.indices, weights, [2, 3])), {}),
            (ValueError, 'different indices or shapes',
             (ragged, tf.RaggedTensor.from_row_lengths(weights, [2, 0])), {}),
            (ValueError, r'indices\[1\] is \[2, 0\], outside the shape \[2, 2\]', (far,), {}),
            (ValueError, 'max_norm is not supported', (ids,), {'max_norm': 1.0}),
            (ValueError, "unknown combiner 'max'", (ids, None, 'max'), {}),
            (embag.OutOfRange, 'outside the table', (tf.ragged.constant([[23]]),), {}),
        ]
        for kind, text, arguments, fields in wrong:
            for is_safe in False, True:
                with self.subTest(text=text, is_safe=is_safe):
                    with self.assertRaisesRegex(kind, text):
                        self.look_up(*arguments, is_safe=is_safe, **fields)
        for default_id, kind in (-1, ValueError), (23, embag.OutOfRange):
            with self.assertRaises(kind):
                self.look_up(ids, is_safe=True, default_id=default_id)

    def test_errors_in_a_graph_are_those_of_tensorflow(self):
        @tf.function(input_signature=[tf.RaggedTensorSpec([None, None], tf.int64)])
        def graph(ids):
            return self.look_up(ids)

        with self.assertRaisesRegex(tf.errors.OpError, "outside the table's 23 rows"):
            graph(tf.ragged.constant([[23]], dtype=tf.int64))

    def test_an_unknown_table_is_refused_while_tracing(self):
        with self.assertRaises(embag.NotFound):
            tf.function(lambda: embedding_lookup_sparse(
                self.embag, 'no_such', tf.ragged.constant([[1]]), model='every'),
                        autograph=False)()


class DefaultRow(OwnServerTest):
    """A table with a default row for empty bags."""

    def test_is_used_only_if_it_is_asked_for(self):
        os.makedirs(self.repository.join('spec'))
        with open(self.repository.join('spec', 'model.yaml'), 'w', encoding='utf-8') as file:
            file.write('tables:\n  - {name: t, default_index: 0}\n')
        server = self.serve(tables=[Table.of_values('t', 'f32', [[1, 2], [3, 4], [5, 6]])])
        ids = tf.ragged.constant([[-1], [1], []])
        with embag.Client(server.address) as client:
            for default_id, filled in (None, [0, 0]), (0, [1, 2]), (2, [5, 6]):
                got = safe_embedding_lookup_sparse(client, 't', ids, default_id=default_id)
                self.assertEqual(got.numpy().tolist(), [filled, [3, 4], filled])


class WithoutTensorFlow(unittest.TestCase):
    """An interpreter that cannot import TensorFlow."""

    def test_is_told_what_to_install(self):
        code = "import sys; sys.modules['tensorflow'] = None; import embag.tensorflow"
        done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True,
                              timeout=60, check=False)
        self.assertIn('ImportError: embag.tensorflow needs TensorFlow, which is not installed: '
                      'run `pip install tensorflow` or `pip install tensorflow-cpu`', done.stderr)
