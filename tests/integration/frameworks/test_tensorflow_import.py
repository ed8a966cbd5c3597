"""TensorFlow's checkpoints as the importer reads them, compared with tf.train.load_checkpoint."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
os.environ.setdefault('CUDA_VISIBLE_DEVICES', '-1')

import keras
import numpy as np
import tensorflow as tf

import embag
from embag.importer import tf_bundle, tf_checkpoint, tf_graph
from embag.importer.crc32c import crc32c
from embag.importer.source import CheckpointError
from embag.tensorflow import safe_embedding_lookup_sparse
from embagd_process import Embagd
from import_run import ImportTest
from served import SEED, scaled

VALUE = '/.ATTRIBUTES/VARIABLE_VALUE'
GRAPH = '_CHECKPOINTABLE_OBJECT_GRAPH'
PIECE = 1 << 22


def read_all(tensor, rows=7):
    """Returns the bytes of a tensor, which is read a few rows at a time."""
    count = tensor.shape[0]
    return b''.join(tensor.read(begin, min(begin + rows, count)).tobytes()
                    for begin in range(0, count, rows))


def masked(checksum):
    """Returns a checksum in the form that files contain."""
    return ((checksum >> 15 | checksum << 17) + 0xa282ead8 & 0xffffffff).to_bytes(4, 'little')


def varint(number):
    """Returns a number in the encoding of messages."""
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7f | 0x80)
        number >>= 7
    return bytes([*out, number])


def message(*fields):
    """Returns a message of fields: pairs of a number and an int or bytes."""
    out = b''
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value % (1 << 64))
        else:
            out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def entry(shape, size, *more):
    """Returns the entry of an f32 tensor at the beginning of the first file."""
    dims = message(*((2, message((1, dim))) for dim in shape))
    return message((1, 1), (2, dims), (5, size), *more)


def block(entries, kind=b'\0'):
    """Returns a block of entries, with its trailer."""
    body = b''.join(b'\0' + varint(len(key)) + varint(len(value)) + key + value
                    for key, value in entries) + b'\0\0\0\0\1\0\0\0' + kind
    return body + masked(crc32c(np.frombuffer(body, np.uint8)))


def index_of(entries, header=message((1, 1)), kind=b'\0'):
    """Returns the bytes of a whole index, with valid checksums."""
    data = block([(b'', header), *entries], kind)
    at = len(data)
    index = block([(b'~', varint(0) + varint(at - 5))])
    footer = varint(at) + varint(0) + varint(at) + varint(len(index) - 5)
    return data + index + footer.ljust(40, b'\0') + bytes.fromhex('57fb808b247547db')


class CheckpointTest(unittest.TestCase):
    """A test with a directory of its own."""

    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)

    def path(self, *names):
        """Returns a path in the directory."""
        return os.path.join(self.directory, *names)

    def write_index(self, entries, data=b'', **how):
        """Writes a checkpoint by hand and returns its prefix."""
        with open(self.path('c.data-00000-of-00001'), 'wb') as file:
            file.write(data)
        with open(self.path('c.index'), 'wb') as file:
            file.write(index_of(entries, **how))
        return self.path('c')

    def open(self, path):
        """Opens a checkpoint, which must be recognised."""
        self.assertTrue(tf_checkpoint.recognises(path))
        return tf_checkpoint.open_checkpoint(path)

    def assert_values(self, found, prefix):
        """Compares every tensor with TensorFlow's reader. Returns their number."""
        reader = tf.train.load_checkpoint(prefix)
        tensors = [*found.tensors, *(table.tensor for table in found.tables)]
        for tensor in tensors:
            names = [name for name in reader.get_variable_to_shape_map()
                     if name in (tensor.name, tensor.name + VALUE)]
            self.assertEqual(len(names), 1, tensor.name)
            wanted = reader.get_tensor(names[0])
            self.assertEqual(tensor.shape, wanted.shape)
            self.assertEqual(read_all(tensor), wanted.tobytes())
            self.assertEqual(read_all(tensor, 1000), wanted.tobytes())
            middle = wanted.shape[0] // 2
            self.assertEqual(tensor.read(middle, min(middle + 1, wanted.shape[0])).tobytes(),
                             wanted[middle:middle + 1].tobytes())
        return len(tensors)


class Variables(CheckpointTest):
    """Checkpoints that tf.train.Checkpoint writes."""

    def test_values_of_every_type(self):
        rng = np.random.default_rng(SEED)
        types = {'F32': tf.float32, 'F64': tf.float64, 'F16': tf.float16, 'BF16': tf.bfloat16,
                 'I64': tf.int64, 'I32': tf.int32, 'I16': tf.int16, 'I8': tf.int8,
                 'U8': tf.uint8, 'U16': tf.uint16, 'U32': tf.uint32, 'U64': tf.uint64}
        made = {name: tf.Variable(tf.cast(rng.integers(0, 100, shape), kind)) for name, kind, shape
                in ((name, kind, rng.integers(1, 40, rng.integers(1, 4)))
                    for name, kind in types.items())}
        tf.train.Checkpoint(**made).write(self.path('ckpt'))
        found = self.open(self.path('ckpt'))
        self.assertEqual({t.name: t.dtype for t in found.tensors}, dict(zip(types, types)))
        self.assertEqual(self.assert_values(found, self.path('ckpt')), len(types))

    def test_random_checkpoints(self):
        rng = np.random.default_rng(SEED)
        for _ in range(scaled(60)):
            made = {'v%d_%d' % (n, rng.integers(9)): tf.Variable(
                rng.normal(size=rng.integers(0, 30, rng.integers(1, 4))).astype('f4'))
                    for n in range(rng.integers(1, 40))}
            tf.train.Checkpoint(**made).write(self.path('ckpt'))
            self.assertEqual(self.assert_values(self.open(self.path('ckpt')), self.path('ckpt')),
                             len(made))

    def test_strings_and_single_values_are_left(self):
        tf.train.Checkpoint(a=tf.Variable('text'), b=tf.Variable([True]), c=tf.Variable(1.5),
                            d=tf.Variable([1j])).write(self.path('ckpt'))
        found = self.open(self.path('ckpt'))
        self.assertEqual((found.tensors, found.tables), ([], []))
        self.assertEqual(sorted(found.left), [
            ('a', 'its type is string'), ('b', 'its type is bool'), ('c', 'it is one value'),
            ('d', 'its type is complex128')])

    def test_names_with_slashes_and_points(self):
        holder = tf.train.Checkpoint()
        setattr(holder, 'a/b.c', tf.Variable([1.0]))
        holder.write(self.path('ckpt'))
        self.assertEqual([t.name for t in self.open(self.path('ckpt')).tensors], ['a/b.c'])

    def test_a_directory_whose_checkpoint_was_moved(self):
        checkpoint = tf.train.Checkpoint(v=tf.Variable([1.0]))
        manager = tf.train.CheckpointManager(checkpoint, self.path('old'), 2)
        for _ in range(3):
            manager.save()
        os.rename(self.path('old'), self.path('new'))
        found = self.open(self.path('new'))
        self.assertEqual([t.name for t in found.tensors], ['v'])
        self.assertTrue(tf_checkpoint.recognises(self.path('new', 'ckpt-3.index')))
        self.assertFalse(tf_checkpoint.recognises(self.path('new', 'ckpt-1')))
        self.assertFalse(tf_checkpoint.recognises(self.directory))

    def test_a_file_checkpoint_names_no_file_elsewhere(self):
        os.mkdir(self.path('d'))
        tf.train.Checkpoint(v=tf.Variable([1.0])).write(self.path('other'))
        with open(self.path('d', 'checkpoint'), 'w', encoding='utf-8') as file:
            file.write('model_checkpoint_path: "%s"\n' % self.path('other'))
        self.assertFalse(tf_checkpoint.recognises(self.path('d')))
        with self.assertRaisesRegex(CheckpointError, 'no file `checkpoint` that names'):
            tf_checkpoint.open_checkpoint(self.path('d'))


class Partitions(CheckpointTest):
    """Variables that TensorFlow 1 writes, whole and in parts."""

    def save(self, make):
        """Saves the variables that `make` creates in a graph, with their optimizer's state."""
        v1 = tf.compat.v1
        with tf.Graph().as_default(), v1.Session() as session:
            loss = make(v1)
            v1.train.AdamOptimizer(0.1).minimize(loss)
            session.run(v1.global_variables_initializer())
            v1.train.Saver().save(session, self.path('v1'), write_meta_graph=False)
        return self.path('v1')

    def test_rows_in_several_slices_are_one_tensor(self):
        def make(v1):
            table = v1.get_variable('emb', [1003, 16], partitioner=v1.fixed_size_partitioner(3),
                                    initializer=v1.random_normal_initializer())
            large = v1.get_variable('many', [300000, 1], initializer=v1.random_normal_initializer(),
                                    partitioner=v1.fixed_size_partitioner(5))
            return tf.reduce_sum(tf.nn.embedding_lookup(table, [1, 2])) + tf.reduce_sum(
                tf.nn.embedding_lookup(large, [1, 2]))

        prefix = self.save(make)
        found = self.open(prefix)
        self.assertEqual({t.name: t.shape for t in found.tensors},
                         {'emb': (1003, 16), 'many': (300000, 1)})
        self.assertEqual(self.assert_values(
            tf_checkpoint.Checkpoint('', found.tensors[:1]), prefix), 1)
        wanted = tf.train.load_checkpoint(prefix).get_tensor('many')
        many = next(t for t in found.tensors if t.name == 'many')
        self.assertEqual(read_all(many, 70001), wanted.tobytes())
        self.assertIn(('emb/Adam', 'state of the optimizer for emb'), found.left)
        self.assertIn(('emb/Adam_1', 'state of the optimizer for emb'), found.left)

    def test_slices_of_columns_are_left(self):
        def make(v1):
            columns = v1.get_variable('columns', [8, 6],
                                      partitioner=v1.fixed_size_partitioner(2, axis=1))
            return tf.reduce_sum(columns)

        self.assertIn(('columns', 'it is sliced along other dims than the rows'),
                      self.open(self.save(make)).left)

    def test_parts_that_are_variables_of_their_own(self):
        rng = np.random.default_rng(SEED)
        parts = [rng.normal(size=(rows, 4)).astype('f4') for rows in (5, 4, 4)]

        def make(v1):
            made = [tf.Variable(part, name='emb/part_%d' % n) for n, part in enumerate(parts)]
            lone = tf.Variable(parts[0], name='lone/part_1')
            return tf.reduce_sum(tf.concat([*made, lone], 0))

        found = self.open(self.save(make))
        tensor, = found.tensors
        self.assertEqual((tensor.name, tensor.shape), ('emb', (13, 4)))
        self.assertEqual(read_all(tensor, 3), np.concatenate(parts).tobytes())
        self.assertEqual(tensor.read(2, 2).shape, (0, 16))
        self.assertIn(('lone/part_1', 'not all parts of this variable are in the checkpoint'),
                      found.left)

    def test_files_of_several_writers(self):
        for shard in range(2):
            with open(self.path('c.data-0000%d-of-00002' % shard), 'wb') as file:
                file.write(np.arange(6, dtype='f4').tobytes())
        data = np.arange(6, dtype='f4')
        checksum = masked(crc32c(data.view('u1')))
        crc = b'\x35' + checksum
        entries = [(b'a', entry([2, 3], 24) + crc), (b'b', entry([3, 2], 24, (3, 1)) + crc)]
        with open(self.path('c.index'), 'wb') as file:
            file.write(index_of(entries, header=message((1, 2))))
        for tensor in self.open(self.path('c')).tensors:
            self.assertEqual(read_all(tensor), data.tobytes())


class Layers(CheckpointTest):
    """Models of Keras."""

    def make_model(self):
        """Returns a model that was trained for a step."""
        model = keras.Sequential([
            keras.layers.Input((3,), dtype='int32'), keras.layers.Embedding(20, 4, name='items'),
            keras.layers.Flatten(), keras.layers.Dense(1)])
        model.compile('adam', 'mse')
        model.fit(np.ones((8, 3), 'i4'), np.ones((8, 1)), verbose=0)
        return model

    def assert_table(self, found, model):
        """Checks that the embedding is the only table, and that no optimizer state is imported."""
        table, = found.tables
        self.assertEqual(table.name, 'items')
        self.assertEqual(read_all(table.tensor), model.layers[0].get_weights()[0].tobytes())
        self.assertTrue(all(len(t.shape) == 1 or t.shape == (12, 1) for t in found.tensors))

    def test_an_embedding_is_a_table(self):
        model = self.make_model()
        tf.train.Checkpoint(optimizer=model.optimizer, model=model).write(self.path('ckpt'))
        found = self.open(self.path('ckpt'))
        self.assert_table(found, model)
        self.assertEqual(len([1 for _, reason in found.left if reason == 'state of the optimizer']),
                         8)

    def test_saved_models_of_both_kinds(self):
        model = self.make_model()
        tf.saved_model.save(model, self.path('saved'))
        model.export(self.path('exported'), verbose=False)
        for name in 'saved', 'exported':
            found = self.open(self.path(name))
            self.assertIn('SavedModel', found.kind)
            self.assert_table(found, model)
            self.assertEqual(len(found.tensors), 2)

    def test_layers_of_the_same_name_keep_their_paths(self):
        class Two(keras.Model):
            """A model whose variables have the same name."""

            def __init__(self):
                super().__init__()
                self.user, self.item = keras.layers.Embedding(5, 2), keras.layers.Embedding(6, 2)

            def call(self, ids):
                """Returns both embeddings."""
                return self.user(ids) + self.item(ids)

        model = Two()
        model(np.zeros((1, 2), 'i4'))
        tf.train.Checkpoint(model).write(self.path('ckpt'))
        found = self.open(self.path('ckpt'))
        self.assertEqual({t.name: t.tensor.shape for t in found.tables},
                         {'user': (5, 2), 'item': (6, 2)})

    def test_names_leave_out_what_all_begin_with(self):
        class Part(tf.Module):
            """Two embeddings at different depths of the model."""

            def __init__(self):
                super().__init__()
                self.user, self.deep = tf.Module(), tf.Module()
                self.user.embeddings = tf.Variable(tf.ones([4, 2]), name='a')
                self.deep.item = tf.Module()
                self.deep.item.embeddings = tf.Variable(tf.ones([5, 2]), name='b')

        tf.train.Checkpoint(model=Part()).write(self.path('ckpt'))
        self.assertEqual([t.name for t in self.open(self.path('ckpt')).tables],
                         ['deep/item', 'user'])

    def test_tables_with_equal_values_are_all_taken(self):
        class Equal(tf.Module):
            """A module whose variables have the same name, shape and values."""

            def __init__(self):
                super().__init__()
                self.all = [tf.Variable(tf.zeros([4, 2]), name='embeddings') for _ in range(3)]

        tf.saved_model.save(Equal(), self.path('saved'))
        self.assertEqual([t.name for t in self.open(self.path('saved')).tables],
                         ['all/0', 'all/1', 'all/2'])

    def test_code_of_a_saved_model_never_runs(self):
        marker = self.path('marker')

        class Evil(tf.Module):
            """A module whose function writes a file."""

            def __init__(self):
                super().__init__()
                self.emb = tf.Variable([[1.0, 2.0]])

            @tf.function(input_signature=[tf.TensorSpec([], tf.string)])
            def __call__(self, text):
                tf.io.write_file(marker, text)
                return tf.py_function(lambda: open(marker, 'wb').close() or 1.0, [], tf.float32)

        tf.saved_model.save(Evil(), self.path('saved'))
        code = ('import sys; from embag.importer import tf_checkpoint\n'
                'found = tf_checkpoint.open_checkpoint(sys.argv[1])\n'
                'print(found.tensors[0].name, found.tensors[0].read(0, 1).view("f4").tolist(),'
                ' "tensorflow" in sys.modules)')
        done = subprocess.run([sys.executable, '-c', code, self.path('saved')], timeout=60,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.stdout, 'emb [[1.0, 2.0]] False\n', done.stderr)
        self.assertFalse(os.path.exists(marker))


class Served(ImportTest):
    """embag-import on a checkpoint, and embagd on what it wrote."""

    def test_lookups_are_those_of_the_model(self):
        rng = np.random.default_rng(SEED)
        user, item = keras.layers.Embedding(50, 8), keras.layers.Embedding(70, 8)
        for layer in user, item:
            layer.build()
        made = tf.train.Checkpoint(model=tf.train.Checkpoint(user=user, item=item))
        made.save(self.join('trained', 'run'))
        self.imports('trained')
        server = Embagd(self.join('repository'))
        self.addCleanup(server.stop)
        with embag.Client(server.wait_ready().address) as client:
            for name, layer in ('user', user), ('item', item):
                weights = layer.get_weights()[0]
                rows = client.lookup(name, np.arange(len(weights)), reduction='none').values
                self.assertEqual(rows.tobytes(), weights.tobytes())
                ids = tf.sparse.from_dense(rng.integers(-3, 50, (20, 9)))
                np.testing.assert_allclose(
                    safe_embedding_lookup_sparse(client, name, ids, default_id=1),
                    tf.nn.safe_embedding_lookup_sparse(weights, ids, default_id=1), atol=1e-7)


class KeyedTables(CheckpointTest):
    """Tables of keys and values."""

    def test_a_lookup_table_has_keys(self):
        table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, [0.0, 0.0])
        table.insert(tf.constant([7, -1, 1 << 40], tf.int64), [[1.0, 2], [3, 4], [5, 6]])
        tf.train.Checkpoint(table=table).write(self.path('ckpt'))
        found = self.open(self.path('ckpt'))
        self.assertEqual(found.tensors, [])
        keyed, = found.tables
        self.assertEqual(keyed.name, 'table')
        keys = np.frombuffer(read_all(keyed.keys), 'i8')
        values = np.frombuffer(read_all(keyed.tensor), 'f4').reshape(-1, 2)
        self.assertEqual(dict(zip(keys.tolist(), values.tolist())),
                         {7: [1, 2], -1: [3, 4], 1 << 40: [5, 6]})

    def test_tables_that_grow_are_left(self):
        data = np.zeros(24, 'u1')
        crc = b'\x35' + masked(crc32c(data))
        keys = message((1, 9), (2, message((2, message((1, 3))))), (5, 24)) + crc
        entries = [(b'ev-keys', keys), (b'ev-values', entry([3, 2], 24) + crc),
                   (b'ev-versions', keys)]
        found = self.open(self.write_index(entries, data.tobytes()))
        self.assertEqual((found.tensors, found.tables), ([], []))
        self.assertEqual({name for name, reason in found.left if 'grows' in reason},
                         {'ev-keys', 'ev-values', 'ev-versions'})


class Damage(CheckpointTest):
    """Files that are damaged, truncated or malicious."""

    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(SEED)
        self.prefix = self.path('ckpt')
        tf.train.Checkpoint(a=tf.Variable(rng.normal(size=(50, 3)).astype('f4')),
                            b=tf.Variable([1, 2])).write(self.prefix)
        self.index = self.prefix + '.index'
        self.data = self.prefix + '.data-00000-of-00001'
        self.good = {path: self.bytes_of(path) for path in (self.index, self.data)}
        self.values = self.read()

    def bytes_of(self, path):
        """Returns the content of a file."""
        with open(path, 'rb') as file:
            return file.read()

    def read(self):
        """Returns all values, or None if a CheckpointError is raised."""
        try:
            found = tf_checkpoint.open_checkpoint(self.prefix)
            return {t.name: read_all(t) for t in found.tensors}
        except CheckpointError as error:
            self.assertIn(self.directory, str(error))
            return None

    def change(self, path, data):
        """Replaces a file, reads the values, and restores it."""
        with open(path, 'wb') as file:
            file.write(data)
        try:
            return self.read()
        finally:
            with open(path, 'wb') as file:
                file.write(self.good[path])

    def test_no_flipped_bit_changes_values(self):
        for path, good in self.good.items():
            noticed = 0
            for at in range(len(good)):
                for bit in (1, 16, 128) if path == self.index else (1 << at % 8,):
                    changed = bytearray(good)
                    changed[at] ^= bit
                    got = self.change(path, bytes(changed))
                    self.assertIn(got, (None, self.values), '%s, byte %d' % (path, at))
                    noticed += got is None
            self.assertGreater(noticed, len(good) * 0.8)

    def test_files_that_end_early(self):
        for path, good in self.good.items():
            for size in range(len(good)):
                self.assertIsNone(self.change(path, good[:size]), '%s, %d' % (path, size))

    def test_a_bit_flip_names_the_file_and_the_tensor(self):
        changed = bytearray(self.good[self.data])
        changed[5] ^= 1
        with open(self.data, 'wb') as file:
            file.write(changed)
        tensor = tf_checkpoint.open_checkpoint(self.prefix).tensors[0]
        tensor.read(10, 50)
        tensor.read(0, 49)
        with self.assertRaisesRegex(CheckpointError, 'data-00000-of-00001: the values of a.* have '
                                    'the checksum .*: the file is damaged'):
            tensor.read(49, 50)

    def test_missing_files(self):
        os.remove(self.data)
        with self.assertRaisesRegex(CheckpointError, 'data-00000-of-00001: No such file'):
            tf_checkpoint.open_checkpoint(self.prefix)
        os.remove(self.index)
        self.assertFalse(tf_checkpoint.recognises(self.prefix))
        with self.assertRaisesRegex(CheckpointError, 'ckpt.index: No such file'):
            tf_checkpoint.open_checkpoint(self.prefix)

    def test_random_indexes_with_valid_checksums(self):
        rng = np.random.default_rng(SEED)
        extent = message((1, message((1, 1), (2, 1))))
        dims = [entry([2, 3], 24), entry([2, 3], 0, (7, extent + extent)),
                message((1, 7), (5, 9)), entry([1 << 40, 1 << 40], 24), entry([0, 3], 0)]
        for turn in range(scaled(4000)):
            entries = []
            for name in b'a', b'b', b'c/part_0', GRAPH.encode(), b'd-keys', b'd-values':
                value = bytearray(dims[rng.integers(len(dims))])
                for _ in range(rng.integers(3)):
                    value[rng.integers(len(value))] = rng.integers(256)
                entries.append((name, bytes(value[:rng.integers(1, 2 * len(value))])))
            prefix = self.write_index(entries, rng.bytes(64))
            try:
                found = tf_checkpoint.open_checkpoint(prefix)
                for tensor in [*found.tensors, *(table.tensor for table in found.tables)]:
                    if tensor.shape[0] < 1000:
                        read_all(tensor)
            except CheckpointError:
                continue
            except Exception as error:
                raise AssertionError('seed %d, turn %d' % (SEED, turn)) from error

    def test_random_object_graphs(self):
        rng = np.random.default_rng(SEED)
        good = bytes(tf.train.load_checkpoint(self.prefix).get_tensor(GRAPH))
        for _ in range(scaled(3000)):
            changed = bytearray(good)
            for _ in range(rng.integers(1, 4)):
                changed[rng.integers(len(changed))] = rng.integers(256)
            try:
                tf_checkpoint.read_graph(bytes(changed[:rng.integers(1, 2 * len(changed))]))
            except ValueError:
                continue

    def test_what_an_index_must_not_say(self):
        whole = entry([2, 3], 24)
        wrong = [
            ('dims of more than 2.59 values', {'entries': [(b'a', entry([2**60] * 254, 24))]}),
            ('is in shard 1 of 1', {'entries': [(b'a', entry([2, 3], 24, (3, 1)))]}),
            ('is in shard -1 of 1', {'entries': [(b'a', entry([2, 3], 24, (3, -1)))]}),
            ('is at bytes 1 to 25', {'entries': [(b'a', entry([2, 3], 24, (4, 1)))]}),
            ('-1 bytes at byte 0', {'entries': [(b'a', entry([2, 3], -1))]}),
            ('has 24 bytes, expected 36', {'entries': [(b'a', entry([3, 3], 24))]}),
            ('a dim of size -1', {'entries': [(b'a', entry([-1, 3], 24))]}),
            ('has 255 dims, expected at most 254', {'entries': [(b'a', entry([1] * 255, 4))]}),
            ("the key b'a' twice", {'entries': [(b'a', whole), (b'a', whole)]}),
            ('is compressed', {'entries': [(b'a', whole)], 'kind': b'\1'}),
            ('are big-endian', {'entries': [], 'header': message((1, 1), (2, 1))}),
            ('has 0 files of values', {'entries': [], 'header': b''}),
            ('needs a reader of version 2', {
                'entries': [], 'header': message((1, 1), (3, message((2, 2))))}),
            ('lacks a slice of a', {'entries': [
                (tf_bundle.slice_key('b', ((0, 1), (0, -1))), entry([1, 3], 12)),
                (b'a', entry([1, 3], 0, (7, message((1, message((2, 1))), (1, b'')))))]}),
            ('have more slices than it has', {'entries': [
                (b'a', entry([1, 3], 0, (7, message((1, message((2, 1))), (1, b'')))))]}),
        ]
        for text, how in wrong:
            with self.subTest(text=text), self.assertRaisesRegex(CheckpointError, text):
                tf_checkpoint.open_checkpoint(self.write_index(
                    how.pop('entries'), bytes(24), **how))
        self.write_index([(b'a', entry([1] * 254, 4))], bytes(24))
        self.assertEqual(len(self.open(self.path('c')).tensors[0].shape), 254)

    def test_names_that_take_time_or_have_huge_numbers(self):
        names = [b'a/part_' + b'7' * 5000, b'b' + b'/part_1' * 5000 + b'\n', b'c/part_0']
        prefix = self.write_index([(name, entry([1], 4)) for name in names], bytes(4))
        start = time.monotonic()
        found = self.open(prefix)
        self.assertEqual([tensor.name[0] for tensor in found.tensors], ['a', 'c'])
        self.assertEqual([name[0] for name, _ in found.left], ['b'])
        self.assertLess(time.monotonic() - start, 5)

    def test_a_file_checkpoint_of_many_lines_takes_no_time(self):
        with open(self.path('checkpoint'), 'w', encoding='utf-8') as file:
            file.write('\n' * 200_000)
        start = time.monotonic()
        self.assertFalse(tf_checkpoint.recognises(self.path()))
        self.assertLess(time.monotonic() - start, 5)

    def test_a_pipe_is_no_checkpoint(self):
        os.mkdir(self.path('variables'))
        os.mkfifo(self.path('variables', 'variables.index'))
        os.mkfifo(self.path('checkpoint'))
        self.assertFalse(tf_checkpoint.recognises(self.path()))

    def test_slices_must_be_all_rows(self):
        def part(begin, length):
            return message((1, message((1, begin), (2, length))), (1, b''))

        for extents, is_right in (([(0, 1), (1, 1)], True), ([(0, 1)], False),
                                  ([(0, 1), (0, 1)], False), ([(0, 2), (1, 1)], False)):
            value = entry([2, 3], 0, *((7, part(*extent)) for extent in extents))
            slices = {tf_bundle.slice_key('a', (extent, (0, -1))): entry([extent[1], 3],
                                                                         12 * extent[1])
                      for extent in extents}
            other = (tf_bundle.slice_key('b', ((0, 1), (0, -1))), entry([1, 3], 12))
            prefix = self.write_index([*sorted(slices.items()), other, (b'a', value)], bytes(24))
            if is_right:
                self.assertEqual(self.open(prefix).tensors[0].shape, (2, 3))
                continue
            with self.assertRaisesRegex(CheckpointError, 'the slices of a are not its 2 rows'):
                tf_checkpoint.open_checkpoint(prefix)

    def test_limits_at_their_edges(self):
        entries = [(b'%03d' % n, entry([1], 4)) for n in range(20)]
        size = len(index_of(entries))
        total = sum(len(key) + len(value) for key, value in entries) + 2
        prefix = self.write_index(entries, bytes(4))
        for name, edge in (('INDEX_BYTES_MAX', size), ('ENTRIES_MAX', 21),
                           ('ENTRY_BYTES_MAX', total)):
            with mock.patch.object(tf_bundle, name, edge):
                self.assertEqual(len(self.open(prefix).tensors), 20)
            with mock.patch.object(tf_bundle, name, edge - 1):
                with self.assertRaisesRegex(CheckpointError, 'it has more than'):
                    tf_checkpoint.open_checkpoint(prefix)
        graph = len(tf.train.load_checkpoint(self.prefix).get_tensor(GRAPH))
        size = graph + len(varint(graph)) + 4
        for edge in size, size - 1:
            with mock.patch.object(tf_checkpoint, 'GRAPH_BYTES_MAX', edge):
                left = dict(self.open(self.prefix).left)
            self.assertEqual(GRAPH in left, edge < size)

    def test_objects_at_their_limit(self):
        data = message((1, message((1, message((1, 1), (2, b'v'))))), (1, b''), (1, b''))
        with mock.patch.object(tf_graph, 'OBJECTS_MAX', 4):
            tf_graph.read_graph(data)
        with mock.patch.object(tf_graph, 'OBJECTS_MAX', 3):
            with self.assertRaisesRegex(ValueError, 'more than 3 objects and references'):
                tf_graph.read_graph(data)


class Memory(CheckpointTest):
    """The memory that reading takes."""

    def test_does_not_grow_with_the_table(self):
        rows, width = 1 << 24, 128
        with open(self.path('c.data-00000-of-00001'), 'wb') as file:
            file.truncate(4 * rows * width)
        with open(self.path('c.index'), 'wb') as file:
            file.write(index_of([(b'emb', entry([rows, width], 4 * rows * width))]))
        code = '''
import sys
import numpy
from embag.importer import tf_checkpoint
def anonymous():
    with open('/proc/self/status') as file:
        return next(int(line.split()[1]) for line in file if line.startswith('RssAnon'))
before = anonymous()
tensor = tf_checkpoint.open_checkpoint(sys.argv[1]).tensors[0]
most, step = 0, int(sys.argv[2]) // 512
for begin in range(0, tensor.shape[0], step):
    try:
        tensor.read(begin, begin + step)
    except tf_checkpoint.CheckpointError as error:
        print(begin + step == tensor.shape[0], 'checksum' in str(error))
    most = max(most, anonymous())
print((most - before) >> 10)
'''
        done = subprocess.run([sys.executable, '-c', code, self.path('c'), str(PIECE)],
                              timeout=300, capture_output=True, text=True, check=False)
        # The values are zeros, whose checksum is not 0.
        self.assertEqual(done.stdout.split()[:2], ['True', 'True'], done.stderr)
        self.assertLess(int(done.stdout.split()[2]), 64)
