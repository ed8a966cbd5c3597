"""Checkpoints as torch.distributed.checkpoint writes them, read without torch."""

import os
import struct
import sys
import tempfile
import tracemalloc
import unittest
import zipfile
from unittest import mock

import numpy as np

from embag.importer import dcp, saved_tensor as archives, shards
from embag.importer.source import CheckpointError
from served import SEED, scaled
from dcp_fixtures import Names, importable, saved_tensor, write_checkpoint


def whole(array):
    """Returns the boxes of an array in one shard."""
    return [((0,) * array.ndim, array.shape)]


def grid(shape, row_ends, column_ends):
    """Returns the boxes of a grid."""
    return [((row, column), (row_end - row, column_end - column))
            for row, row_end in zip([0, *row_ends], [*row_ends, shape[0]])
            for column, column_end in zip([0, *column_ends], [*column_ends, shape[1]])]


def random_boxes(rng, shape):
    """Cuts an array into boxes: each cut divides one of them by a row or a column."""
    boxes = [((0, 0), shape)]
    for _ in range(rng.integers(0, 12)):
        offsets, sizes = boxes.pop(rng.integers(len(boxes)))
        dim = rng.integers(2)
        cut = int(rng.integers(0, sizes[dim] + 1))
        if dim == 0:
            boxes += [(offsets, (cut, sizes[1])),
                      ((offsets[0] + cut, offsets[1]), (sizes[0] - cut, sizes[1]))]
        else:
            boxes += [(offsets, (sizes[0], cut)),
                      ((offsets[0], offsets[1] + cut), (sizes[0], sizes[1] - cut))]
    boxes = [box for box in boxes if 0 not in box[1]]
    return [boxes[i] for i in rng.permutation(len(boxes))]


class DcpTest(unittest.TestCase):
    """A directory for a checkpoint."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.path = scratch.name
        self.rng = np.random.default_rng([SEED, 19])

    def array(self, *shape, kind='f4'):
        """Returns random values, of every bit pattern."""
        return np.frombuffer(self.rng.bytes(int(np.prod(shape)) * np.dtype(kind).itemsize),
                             kind).reshape(shape)

    def read(self, name='t'):
        """Returns the tensor of the checkpoint that has a name."""
        return {tensor.name: tensor for tensor in dcp.open_checkpoint(self.path).tensors}[name]

    def check_rows(self, tensor, array):
        """Checks all rows, and some ranges of them."""
        expected = np.ascontiguousarray(array).reshape(len(array), -1).view('u1')
        np.testing.assert_array_equal(tensor.read(0, len(array)), expected)
        for _ in range(5):
            begin = int(self.rng.integers(0, len(array)))
            end = int(self.rng.integers(begin, len(array) + 1))
            got = tensor.read(begin, end)
            self.assertEqual((got.dtype, got.shape), (np.uint8, expected[begin:end].shape))
            np.testing.assert_array_equal(got, expected[begin:end])

    def check_refused(self, text):
        """Checks that opening the checkpoint fails."""
        with self.assertRaisesRegex(CheckpointError, text) as raised:
            dcp.open_checkpoint(self.path)
        self.assertIn(self.path, str(raised.exception))

    def metadata(self, names, tensors, stored, **more):
        """Writes metadata."""
        with open(os.path.join(self.path, '.metadata'), 'wb') as file:
            file.write(names.pickle(tensors, stored, **more))


class Read(DcpTest):
    """Checkpoints that are read."""

    def test_a_directory_with_metadata_is_recognised(self):
        self.assertFalse(dcp.recognises(self.path))
        write_checkpoint(self.path, {'t': (self.array(2, 3), [((0, 0), (2, 3))])})
        self.assertTrue(dcp.recognises(self.path))
        self.assertFalse(dcp.recognises(os.path.join(self.path, '.metadata')))

    def test_metadata_of_old_and_new_versions_are_read(self):
        array = self.array(4, 3)
        for old in (False, True):
            write_checkpoint(self.path, {'t': (array, whole(array))}, old)
            self.assertEqual(self.read().shape, (4, 3))
            self.check_rows(self.read(), array)

    def test_every_type_is_read(self):
        arrays = {'t_' + kind: self.array(5, 3, kind=kind)
                  for kind in ('f4', 'f8', 'f2', 'i8', 'u1', 'i1')}
        write_checkpoint(self.path, {name: (array, whole(array)) for name, array in arrays.items()})
        for name, array in arrays.items():
            self.check_rows(self.read(name), array)

    def test_shards_of_rows_columns_and_both_are_one_array(self):
        array = self.array(12, 10)
        for rows, columns in (([], []), ([5], []), ([1, 2, 11], []), ([], [4]), ([], [1, 9]),
                              ([6], [5]), ([1, 2, 3], [2, 4, 8])):
            write_checkpoint(self.path, {'t': (array, grid(array.shape, rows, columns))})
            self.check_rows(self.read(), array)

    def test_any_boxes_that_cover_an_array_are_one_array(self):
        for case in range(scaled(300)):
            shape = tuple(int(size) for size in self.rng.integers(1, 14, 2))
            array = self.array(*shape)
            with self.subTest(seed=SEED, case=case):
                write_checkpoint(self.path, {'t': (array, random_boxes(self.rng, shape))})
                self.check_rows(self.read(), array)

    def test_arrays_of_one_and_three_dims_are_read(self):
        vector, cube = self.array(7), self.array(4, 3, 2)
        write_checkpoint(self.path, {
            'v': (vector, [((0,), (3,)), ((3,), (4,))]),
            'c': (cube, [((0, 0, 0), (4, 1, 2)), ((0, 1, 0), (4, 2, 2))])})
        self.check_rows(self.read('v'), vector)
        self.check_rows(self.read('c'), cube)

    def test_empty_shards_are_passed_over(self):
        array = self.array(4, 3)
        boxes = [((0, 0), (4, 3)), ((4, 0), (0, 3)), ((0, 3), (4, 0))]
        write_checkpoint(self.path, {'t': (array, boxes)})
        self.check_rows(self.read(), array)

    def test_what_is_not_read_is_listed(self):
        names = Names()
        tensors = {name: names.tensor(dtype, shape, []) for name, dtype, shape in (
            ('optim.state.t.momentum1', 'float32', (4, 3)), ('t.momentum1', 'float32', (4,)),
            ('state.t.exp_avg_sq', 'float32', (4,)), ('mask', 'bool', (4, 3)),
            ('scalar', 'float32', ()), ('none', 'float32', (0, 3)))}
        tensors['step'] = names.make(names.BytesStorageMetadata)
        self.metadata(names, tensors, {})
        checkpoint = dcp.open_checkpoint(self.path)
        self.assertEqual(list(checkpoint.tensors), [])
        self.assertEqual(dict(checkpoint.left), {
            'optim.state.t.momentum1': "an optimizer's state",
            't.momentum1': "an optimizer's state", 'state.t.exp_avg_sq': "an optimizer's state",
            'mask': 'values of type bool', 'scalar': 'a single value', 'none': 'no rows',
            'step': 'a pickled object'})

    def test_reading_rows_takes_memory_for_these_rows_only(self):
        array = np.zeros((1 << 20, 64), 'u1')
        array[-1] = 7
        boxes = grid(array.shape, [1 << 19], [32])
        write_checkpoint(self.path, {'t': (array, boxes)})
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        tensor = self.read()
        self.assertEqual(tensor.read(len(array) - 1, len(array)).tolist(), [[7] * 64])
        self.assertEqual(tensor.read((1 << 19) - 512, (1 << 19) + 512).shape, (1024, 64))
        self.assertLess(tracemalloc.get_traced_memory()[1], 1 << 20)


class Refused(DcpTest):
    """Checkpoints that are not what torch writes."""

    def test_shards_that_overlap_or_are_missing_are_named(self):
        array = self.array(8, 6)
        for boxes, text in (
                ([((0, 0), (5, 6)), ((4, 0), (4, 6))],
                 r't: two shards have rows \[4, 5\), columns \[0, 6\)'),
                ([((0, 0), (8, 4)), ((0, 3), (8, 3))],
                 r't: two shards have rows \[0, 8\), columns \[3, 4\)'),
                ([((0, 0), (4, 6)), ((5, 0), (3, 6))],
                 r't: no shard has rows \[4, 5\), columns \[0, 6\)'),
                ([((0, 0), (7, 6))], r't: no shard has rows \[7, 8\), columns \[0, 6\)'),
                ([((1, 0), (7, 6))], r't: no shard has rows \[0, 1\), columns \[0, 6\)'),
                ([((0, 0), (8, 2)), ((0, 3), (8, 3))],
                 r't: no shard has rows \[0, 8\), columns \[2, 3\)'),
                ([((0, 0), (8, 3)), ((0, 3), (5, 3))],
                 r't: no shard has rows \[5, 8\), columns \[3, 6\)'),
                ([((0, 1), (8, 5))], r't: no shard has rows \[0, 8\), columns \[0, 1\)'),
                ([], r't: no shard has rows \[0, 8\), columns \[0, 6\)')):
            with self.subTest(text=text):
                write_checkpoint(self.path, {'t': (array, boxes)})
                self.check_refused(text)

    def test_any_missing_or_doubled_box_is_found(self):
        for case in range(scaled(200)):
            shape = tuple(int(size) for size in self.rng.integers(2, 10, 2))
            boxes = random_boxes(self.rng, shape)
            with self.subTest(seed=SEED, case=case):
                made = [shards.Shard(*box, None) for box in boxes]
                one = made.pop(self.rng.integers(len(made)))
                with self.assertRaisesRegex(CheckpointError, 'no shard has'):
                    shards.gather('t', 'F32', shape, made)
                with self.assertRaisesRegex(CheckpointError, 'two shards have'):
                    shards.gather('t', 'F32', shape, [*made, one, one])

    def test_boxes_outside_the_array_are_refused(self):
        for offsets, sizes in (((0, 0), (5, 3)), ((0, 0), (4, 4)), ((4, 0), (1, 3)), ((0,), (4,)),
                               ((0, 0, 0), (4, 3, 1)), ((-1, 0), (4, 3))):
            with self.assertRaisesRegex(CheckpointError, 'does not lie|does not have'):
                shards.gather('t', 'F32', (4, 3), [shards.Shard(offsets, sizes, None)])
        with self.assertRaisesRegex(CheckpointError, 'dim 2'):
            shards.gather('t', 'F32', (4, 3, 2), [shards.Shard((0, 0, 0), (4, 3, 1), None)])

    def test_the_largest_number_of_shards_is_read_and_not_one_more(self):
        count = shards.SHARDS_MAX
        made = [shards.Shard((row, 0), (1, 1), lambda begin, end: np.zeros((1, 1), 'u1'))
                for row in range(count + 1)]
        tensor = shards.gather('t', 'U8', (count, 1), made[:-1])
        self.assertEqual(tensor.read(0, 3).shape, (3, 1))
        with self.assertRaisesRegex(CheckpointError, 'expected at most'):
            shards.gather('t', 'U8', (count + 1, 1), made)

    def test_the_largest_array_is_read_and_no_larger_one(self):
        rows = shards.ARRAY_BYTES_MAX
        shards.gather('t', 'U8', (rows, 1), [shards.Shard((0, 0), (rows, 1), None)])
        with self.assertRaisesRegex(CheckpointError, '2\\^62'):
            shards.gather('t', 'U8', (rows + 1, 1), [shards.Shard((0, 0), (rows + 1, 1), None)])

    def test_the_largest_number_of_entries_is_read_and_not_one_more(self):
        names = Names()
        entry = names.make(names.BytesStorageMetadata)
        tensors = {str(n): entry for n in range(dcp.ENTRIES_MAX)}
        self.metadata(names, tensors, {})
        self.assertEqual(len(dcp.open_checkpoint(self.path).left), dcp.ENTRIES_MAX)
        tensors['more'] = entry
        self.metadata(names, tensors, {})
        self.check_refused('entries')

    def test_the_largest_number_of_shards_of_all_tensors_is_read_and_not_one_more(self):
        names = Names()
        empty = names.tensor('float32', (0, 2), [((0, 0), (0, 2))] * 3)
        whole = names.tensor('float32', (4, 2), [((0, 0), (4, 2)), *[((0, 0), (0, 2))] * 3])
        self.metadata(names, {'a': whole, 'b': whole, 'c': empty}, {
            names.index(name, (0, 0)): names.info('f', 0, 0) for name in 'ab'})
        with open(os.path.join(self.path, 'f'), 'wb'):
            pass
        for limit, is_read in ((8, True), (7, False)):
            with mock.patch.object(dcp, 'ENTRIES_MAX', limit):
                if is_read:
                    self.assertEqual(len(dcp.open_checkpoint(self.path).tensors), 2)
                else:
                    self.check_refused('has 8 shards: expected at most 7')

    def test_the_largest_number_of_dims_is_read_and_not_one_more(self):
        names = Names()
        for dims in (dcp.DIMS_MAX, dcp.DIMS_MAX + 1):
            self.metadata(names, {'t': names.tensor('bool', (1,) * dims, [])}, {})
            if dims == dcp.DIMS_MAX:
                dcp.open_checkpoint(self.path)
        self.check_refused('torch.Size')

    def test_metadata_that_are_too_large_are_not_read(self):
        with open(os.path.join(self.path, '.metadata'), 'wb') as file:
            file.truncate(dcp.PICKLE_BYTES_MAX + 1)
        self.check_refused('expected at most')

    def test_malicious_metadata_are_refused_by_name(self):
        class Evil:
            def __reduce__(self):
                return os.system, ('touch ' + witness,)

        witness = os.path.join(self.path, 'ran')
        names = Names()
        for more in ({'storage_meta': Evil()}, {'version': [Evil()]}):
            self.metadata(names, {}, {}, **more)
            self.check_refused('posix.system')
        self.assertFalse(os.path.exists(witness))

    def test_other_pickles_are_refused(self):
        names = Names()
        tensor = names.tensor('float32', (2,), [((0,), (2,))])
        index, info = names.index('t', (0,)), names.info('a.distcp', 0, 1)
        for tensors, stored, text in (
                ([], {}, 'list'), ({}, [], 'list'), ({1: tensor}, {}, 'named'),
                ({'t': 1}, {}, 'named'),
                ({'t': info}, {}, 'expected a TensorStorageMetadata'),
                ({'t': tensor}, {'t': info}, 'expected a MetadataIndex'),
                ({'t': tensor}, {index: tensor}, 'expected a _StorageInfo'),
                ({'t': tensor}, {}, 'does not say where'),
                ({'t': tensor}, {index: info, names.index('t', (0,)): info}, 'two places'),
                ({'t': tensor}, {index: names.info(3, 0, 1)}, 'int as'),
                ({'t': tensor}, {index: names.info('a', True, 1)}, 'bool as'),
                ({'t': tensor}, {index: names.info('a', -1, 1)}, 'at byte -1'),
                ({'t': tensor}, {index: names.info('a', 0, 1, transform_descriptors=['zstd'])},
                 'extension')):
            with self.subTest(text=text):
                self.metadata(names, dict(tensors) if tensors else tensors, stored)
                self.check_refused(text)
        with open(os.path.join(self.path, '.metadata'), 'wb') as file:
            file.write(b'N.')
        self.check_refused('NoneType')

    def test_files_outside_of_the_directory_are_refused(self):
        names = Names()
        tensor = names.tensor('float32', (2,), [((0,), (2,))])
        for file in ('/etc/passwd', '../x', 'a/b', '..', '.', '', 'a\\b', 'a\0b'):
            self.metadata(names, {'t': tensor}, {names.index('t', (0,)): names.info(file, 0, 1)})
            self.check_refused('same directory')

    def test_missing_short_and_odd_files_are_refused(self):
        array = self.array(4, 3)
        write_checkpoint(self.path, {'t': (array, whole(array))})
        file = os.path.join(self.path, '__0_0.distcp')
        size = os.path.getsize(file)
        os.truncate(file, size - 1)
        self.check_refused(f'has {size - 1} bytes: expected at least {size}')
        os.remove(file)
        self.check_refused('No such file')
        os.mkfifo(file)
        self.check_refused('regular file')


class Archives(DcpTest):
    """Shards that are not what torch.save writes."""

    def check(self, content, text, shape=(4, 3)):
        """Checks the error for a shard."""
        file = os.path.join(self.path, 'shard')
        with open(file, 'wb') as output:
            output.write(content)
        with self.assertRaisesRegex(CheckpointError, text):
            found = archives.find_saved_tensor(file, 0, len(content))
            self.assertEqual(found.shape, shape)
            raise AssertionError('it was read')

    def test_other_contents_are_refused(self):
        array = self.array(4, 3)
        self.check(b'', 'no archive')
        self.check(b'x' * 5000, 'no archive')
        self.check(saved_tensor(array, zipfile.ZIP_DEFLATED), 'compressed')
        self.check(saved_tensor(array, big_endian=True), 'big-endian')
        self.check(saved_tensor(array, strides=(1, 4)), 'in steps of')
        self.check(saved_tensor(array, strides=(4, 1)), 'in steps of')
        twice = saved_tensor(array, members=[('data.pkk', b'N.')]).replace(b'data.pkk', b'data.pkl')
        self.check(twice, '2 members')
        self.check(saved_tensor(array, members=[('x' * 65000 + str(n), b'') for n in range(17)]),
                   'read at once')

    def test_a_shard_of_another_type_or_shape_is_refused(self):
        array = self.array(4, 3)
        for saved in (array[:3], array.astype('f8'), array.reshape(3, 4), array.reshape(12)):
            write_checkpoint(self.path, {'t': (array, whole(array))},
                             save=lambda part, saved=saved: saved_tensor(saved))
            with self.assertRaisesRegex(CheckpointError, r't: .* expected F32 of shape \[4, 3\]'):
                self.read().read(0, 1)

    def test_every_truncated_archive_is_refused(self):
        content = saved_tensor(self.array(4, 3))
        for end in range(0, len(content)):
            self.check(content[:end], 'archive')

    def test_every_changed_byte_of_an_archive_is_read_or_refused(self):
        content = bytearray(saved_tensor(self.array(2, 2)))
        file = os.path.join(self.path, 'shard')
        for at in range(len(content)):
            for change in (0xff, 0x80, 0x01):
                content[at] ^= change
                with open(file, 'wb') as output:
                    output.write(content)
                content[at] ^= change
                try:
                    found = archives.find_saved_tensor(file, 0, len(content))
                    self.assertLessEqual(found.offset, len(content))
                except CheckpointError:
                    pass

    def test_a_description_of_something_else_is_refused(self):
        evil = b'\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.'
        for pickled, text in ((evil, 'os.system'), (b'N.', 'does not describe'),
                              (b'ccollections\nOrderedDict\n)R.', 'does not describe'),
                              (b'ctorch._utils\n_rebuild_tensor_v2\n)R.', '0 values'),
                              (b'ctorch._utils\n_rebuild_tensor_v2\n(NNNNNNtR.', 'storage'),
                              (b'N' * 70000, 'at most')):
            path = os.path.join(self.path, 'archive')
            with zipfile.ZipFile(path, 'w') as file:
                file.writestr('archive/data.pkl', pickled)
                file.writestr('archive/data/0', b'')
            with open(path, 'rb') as file:
                self.check(file.read(), text)

    def test_a_member_beyond_the_end_is_refused(self):
        content = bytearray(saved_tensor(self.array(4, 3)))
        name = content.index(b'archive/data/0')    # behind the lengths of itself and of more fields
        struct.pack_into('<H', content, name - 2, 60000)
        self.check(bytes(content), 'beyond its end')

    def test_the_fixtures_leave_no_module_behind(self):
        before = dict(sys.modules)
        with importable(*Names().members):
            self.assertNotEqual(sys.modules, before)
        self.assertEqual(sys.modules, before)


if __name__ == '__main__':
    unittest.main()
