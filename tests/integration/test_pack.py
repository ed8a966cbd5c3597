"""embag pack and embag check: the files that they write, read back by a separate reader, and the
input that they refuse."""

import errno
import os
import shutil
import subprocess
import tempfile
import unittest

import numpy as np

import embagd_process
import served
from packed_file import CODE_BITS, STORAGE_NUMBERS, PackedFile
from table_files import Table, write_npy, write_safetensors

PAGE = 2 << 20


def drawn_by(*arguments):
    """Runs the tool on a terminal; returns the exit status and what it draws there. The terminal's
    buffer holds all of it, but a read may return a part only. Once everything has been read, the
    other end of a closed terminal reports EIO."""
    outer, inner = os.openpty()
    drawn = b''
    try:
        try:
            status = subprocess.run([served.EMBAG, *arguments], stdout=subprocess.DEVNULL,
                                    stderr=inner, timeout=60, check=False).returncode
        finally:
            os.close(inner)
        try:
            while piece := os.read(outer, 65536):
                drawn += piece
        except OSError as error:
            if error.errno != errno.EIO:
                raise
    finally:
        os.close(outer)
    return status, drawn


def embag(*arguments):
    """Runs the tool; returns its exit status, output and messages."""
    done = subprocess.run([served.EMBAG, *arguments], capture_output=True, text=True, timeout=60,
                          check=False)
    return done.returncode, done.stdout, done.stderr


class WithDirectory(unittest.TestCase):
    """Tests each of which has its own directory."""

    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)
        rng = np.random.default_rng(11)
        self.table = rng.standard_normal((301, 45)).astype('f4')
        self.input = self.save('in.npy', self.table)
        self.output = self.path('out.embag')

    def path(self, name):
        """Returns a path in the directory."""
        return os.path.join(self.directory, name)

    def save(self, name, array):
        """Writes an npy file."""
        np.save(self.path(name), array)
        return self.path(name)

    def pack(self, *arguments):
        """Packs, which must succeed; returns the output."""
        status, out, messages = embag('pack', *arguments)
        self.assertEqual((status, messages), (0, ''))
        return out

    def refuse(self, part, *arguments, status=1):
        """Checks that a command fails with `part` in its message and leaves no file behind."""
        before = sorted(os.listdir(self.directory))
        got, _, messages = embag(*arguments)
        self.assertEqual(got, status, messages)
        self.assertIn(part, messages)
        self.assertEqual(sorted(os.listdir(self.directory)), before)


class Pack(WithDirectory):
    """embag pack."""

    def test_keeps_every_value_where_storage_stays(self):
        self.pack(self.input, self.output)
        file = PackedFile(self.output)
        self.assertEqual(file.shape, (301, 45))
        self.assertEqual((file.type, file.parts, file.part), (1, 1, 0))
        self.assertEqual((file.rows_total, file.row_first, file.unknown_row), (301, 0, -1))
        np.testing.assert_array_equal(file.values()[0], self.table)

    def test_is_as_far_off_as_the_storage_allows(self):
        bounds = {'f16': 2.0 ** -11, 'bf16': 2.0 ** -8, 'f8_e4m3': 2.0 ** -4, 'f8_e5m2': 2.0 ** -3}
        for storage in ('f16', 'bf16', 'f8_e4m3', 'f8_e5m2', 'int8', 'int4', 'int2'):
            with self.subTest(storage=storage):
                path = self.path(storage + '.embag')
                out = self.pack('--storage', storage, self.input, path)
                file = PackedFile(path)
                values, scales = file.values()
                errors = np.abs(values - self.table.astype('f8'))
                if scales is None:
                    allowed = np.maximum(np.abs(self.table) * bounds[storage], 2.0 ** -10)
                else:
                    allowed = scales * 0.500001
                    spread = self.table.max(axis=1) - self.table.min(axis=1)
                    levels = 2 ** CODE_BITS[storage] - 1
                    np.testing.assert_allclose(scales[:, 0], spread / levels, rtol=1e-6)
                self.assertTrue((errors <= allowed).all())
                # The values read back are rounded to f32; the values here are not.
                told = float(out.split('off by at most ')[1].split()[0])
                self.assertAlmostEqual(told, errors.max(), delta=1e-6 + told * 1e-4)
                self.assertEqual((file.storage, file.type), (STORAGE_NUMBERS[storage], 1))

    def test_refuses_above_a_bound(self):
        self.refuse('more than --max-error 0.0001', 'pack', '--storage', 'int8', '--max-error',
                    '0.0001', '--split', '4', self.input, self.output)
        self.pack('--storage', 'int8', '--max-error', '0.1', self.input, self.output)

    def test_takes_a_tensor_of_many(self):
        halves = Table.of_values('half', 'bf16', self.table)
        path = self.path('many.safetensors')
        write_safetensors(path, [halves, Table('ids', 'i64', np.arange(6).reshape(3, 2))])
        self.refuse('it has 2 tensors; choose one with --tensor', 'pack', path, self.output)
        self.refuse("no tensor 'x'", 'pack', '--tensor', 'x', path, self.output)
        self.refuse('a table of i64 cannot be stored as int8', 'pack', '--tensor', 'ids',
                    '--storage',
                    'int8', path, self.output)
        self.pack('--tensor', 'half', '--storage', 'int4', path, self.output)
        self.assertEqual(PackedFile(self.output).type, STORAGE_NUMBERS['bf16'])

    def test_stores_keys_beside_their_rows(self):
        keys = np.random.default_rng(3).permutation(301).astype('i8') * -(1 << 50)
        path = self.save('in.keys.npy', keys)
        self.pack('--keys', path, '--storage', 'int8', '--unknown-row', '7', self.input,
                  self.output)
        file = PackedFile(self.output)
        np.testing.assert_array_equal(file.keys(), keys)
        self.assertGreater(file.sections[2][1], 0)
        self.assertEqual(file.unknown_row, 7)
        self.assertIn(', keyed, ', embag('check', self.output)[1])

    def test_draws_how_far_an_index_of_keys_is(self):
        keys = self.save('in.keys.npy', np.arange(301))
        for arguments in (('pack', '--keys', keys, self.input, self.output),
                          ('check', self.output), ('check', keys)):
            with self.subTest(arguments=arguments):
                status, drawn = drawn_by(*arguments)
                self.assertEqual(status, 0)
                self.assertRegex(drawn, rb'\rkey index \[#+ *\] +\d+ %')
                self.assertRegex(drawn, rb'\rkey index \[#{40}\] 100 %\r?\n')

    def test_refuses_invalid_keys(self):
        keys = np.arange(301)
        keys[200] = 5
        self.refuse('/k.npy: rows 5 and 200 have the same key 5', 'pack', '--keys',
                    self.save('k.npy', keys), self.input, self.output)
        self.refuse('k.npy: rows 5 and 200 have the same key 5', 'pack', '--split', '3', '--keys',
                    self.path('k.npy'), self.input, self.output)
        self.refuse('k.npy: it has 300 keys for the 301 rows of ' + self.input, 'pack', '--keys',
                    self.save('k.npy', keys[:300]), self.input, self.output)
        self.refuse('k.npy: (301,) of i32 cannot be keys', 'pack', '--keys',
                    self.save('k.npy', keys.astype('i4')), self.input, self.output)
        self.refuse(self.path('none.npy') + ': ', 'pack', '--keys', self.path('none.npy'),
                    self.input, self.output)
        write_safetensors(self.path('k.safetensors'),
                          [Table(name, 'i64', np.arange(301)) for name in 'ab'])
        self.refuse('/k.safetensors: it has 2 tensors', 'pack', '--keys',
                    self.path('k.safetensors'), self.input, self.output)
        self.refuse('give only one of them', 'pack', '--keys', self.path('k.npy'), '--parts', '2',
                    self.input, self.output, status=2)

    def raw(self, name, values):
        """Writes values without a header. Returns the file's path."""
        path = self.path(name)
        with open(path, 'wb') as file:
            file.write(np.ascontiguousarray(values).tobytes())
        return path

    def test_packs_raw_files(self):
        keys = np.random.default_rng(4).permutation(301).astype('<i8') * -(1 << 50)
        values = self.raw('in.values', self.table.astype('<f4'))
        self.pack('--raw-keys', self.raw('in.keys', keys), '--raw-values', values, '--dim', '45',
                  '--type', 'f32', self.output)
        file = PackedFile(self.output)
        self.assertEqual(file.shape, (301, 45))
        np.testing.assert_array_equal(file.keys(), keys)
        np.testing.assert_array_equal(file.values()[0], self.table)

    def test_packs_raw_values_of_any_type(self):
        for dtype in ('f2', 'f4', 'f8', 'i1', 'u1', 'i2', 'u2', 'i4', 'u4', 'i8', 'u8'):
            name = dtype[0] + str(8 * int(dtype[1]))
            with self.subTest(name):
                table = np.arange(24).reshape(8, 3).astype('<' + dtype)
                output = self.path(name + '.embag')
                self.pack('--raw-values', self.raw(name, table), '--dim', '3', '--type', name,
                          output)
                other = self.path(name + '-npy.embag')
                self.pack(self.save(name + '.npy', table), other)
                with open(output, 'rb') as mine, open(other, 'rb') as expected:
                    self.assertEqual(mine.read(), expected.read())

    def test_packs_raw_values_with_keys_of_npy_and_the_reverse(self):
        keys = np.arange(301, dtype='<i8') * 3
        self.pack('--keys', self.save('in.keys.npy', keys), '--raw-values',
                  self.raw('in.values', self.table.astype('<f4')), '--dim', '45', '--type', 'f32',
                  self.output)
        other = self.path('other.embag')
        self.pack('--raw-keys', self.raw('in.keys', keys), self.input, other)
        for output in (self.output, other):
            np.testing.assert_array_equal(PackedFile(output).keys(), keys)

    def test_packs_raw_files_without_rows(self):
        empty = self.raw('empty', np.zeros(0))
        self.pack('--raw-keys', empty, '--raw-values', empty, '--dim', '4', '--type', 'f16',
                  self.output)
        self.assertEqual(PackedFile(self.output).shape, (0, 4))

    def test_refuses_raw_files_that_do_not_fit(self):
        values = self.raw('in.values', self.table.astype('<f4'))
        raw = ('pack', '--raw-values', values, '--dim', '45', '--type', 'f32')
        self.refuse('in.values: it has 54180 bytes, which is not a multiple of the 184 bytes of '
                    '46 f32', 'pack', '--raw-values', values, '--dim', '46', '--type', 'f32',
                    self.output)
        self.refuse('short: it has 7 bytes, which is not a multiple of 8; expected values of i64',
                    *raw, '--raw-keys', self.raw('short', np.zeros(7, 'u1')), self.output)
        self.refuse('has a header and is not raw', 'pack', '--raw-values', self.input, '--dim',
                    '45', '--type', 'f32', self.output)
        self.refuse('has a header and is not raw', *raw, '--raw-keys',
                    self.save('k.npy', np.arange(301)), self.output)
        self.refuse('few: it has 3 keys for the 301 rows of ' + values, *raw, '--raw-keys',
                    self.raw('few', np.arange(3)), self.output)
        self.refuse('same: rows 0 and 1 have the same key 0', *raw, '--raw-keys',
                    self.raw('same', np.zeros(301, 'i8')), self.output)
        self.refuse('No such file', 'pack', '--raw-values', self.path('absent'), '--dim', '4',
                    '--type', 'f32', self.output)
        self.refuse('it is not a regular file', 'pack', '--raw-values', self.path('.'), '--dim',
                    '4', '--type', 'f32', self.output)

    def test_refuses_flags_of_raw_files_that_do_not_fit(self):
        values = self.raw('in.values', self.table.astype('<f4'))
        for missing in (('--dim', '45'), ('--type', 'f32'), ()):
            self.refuse('--raw-values needs --dim N and --type T', 'pack', '--raw-values', values,
                        *missing, self.output, status=2)
        raw = ('pack', '--raw-values', values, '--dim', '45', '--type', 'f32')
        self.refuse('with --raw-values, expected one file', *raw, self.input, self.output, status=2)
        self.refuse('leave --format and --tensor out', *raw, '--format', 'fbgemm_int8', self.output,
                    status=2)
        self.refuse('leave --format and --tensor out', *raw, '--tensor', 't', self.output, status=2)
        self.refuse('--type is for --raw-values', 'pack', '--type', 'f32', self.input, self.output,
                    status=2)
        self.refuse('--keys and --raw-keys both give the keys', *raw, '--keys', values,
                    '--raw-keys', values, self.output, status=2)
        self.refuse('expected two files: INPUT and OUTPUT.embag', 'pack', self.output, status=2)
        self.refuse('expected two files', 'pack', self.input, self.input, self.output, status=2)
        self.refuse('give only one of them', 'pack', '--raw-keys', values, '--parts', '2',
                    self.input, self.output, status=2)

    def test_splits_by_rows(self):
        self.pack('--split', '4', self.input, self.output)
        files = [PackedFile(self.path(f'out-{i:05}-of-00004.embag')) for i in range(4)]
        np.testing.assert_array_equal(np.concatenate([f.values()[0] for f in files]), self.table)
        self.assertEqual([f.row_first for f in files], [0, 75, 150, 225])
        self.assertEqual([f.rows_total for f in files], [301] * 4)

    def test_threads_change_neither_files_nor_report(self):
        rng = np.random.default_rng(3)
        table = rng.standard_normal((150_001, 61)).astype('f4')  # 37 MB, which are several chunks
        large = self.save('large.npy', table)
        reports = []
        contents = []
        for threads in ((), ('--threads', '1'), ('--threads', '3'), ('--threads', '64')):
            reports.append(self.pack('--storage', 'int8', '--split', '2', *threads, large,
                                     self.output))
            names = [self.path(f'out-{i:05}-of-00002.embag') for i in range(2)]
            contents.append([PackedFile(name).bytes for name in names])
            for name in names:
                os.remove(name)
        self.assertEqual(reports, reports[:1] * 4)
        self.assertTrue(all(content == contents[0] for content in contents))
        for threads in ('0', '65'):
            self.refuse('--threads', 'pack', '--threads', threads, large, self.output, status=2)
        table[[70_000, 149_000], 7] = np.nan
        self.save('large.npy', table)
        for threads in ('1', '4'):
            self.refuse('packed row 70000: value 7 is nan', 'pack', '--storage', 'int8',
                        '--threads', threads, large, self.output)

    def test_files_of_two_packings_are_not_one_table(self):
        names = [f'out-{i:05}-of-00003.embag' for i in range(3)]
        other = self.save('other.npy', self.table + 1)
        contents = []
        for source in (self.input, other, self.input):
            self.pack('--split', '3', source, self.output)
            os.makedirs(self.path('m'))
            for name in names:
                os.rename(self.path(name), self.path('m/' + name))
            self.assertEqual(embag('check', self.path('m'))[0], 0)
            contents.append([PackedFile(self.path('m/' + name)) for name in names])
            shutil.rmtree(self.path('m'))
        for first, again in zip(contents[0], contents[2]):
            self.assertEqual(first.bytes, again.bytes)
        self.assertEqual(len({file.packing for file in contents[0]}), 1)
        os.makedirs(self.path('m'))
        for name, file in zip(names, (contents[0][0], contents[1][1], contents[0][2])):
            with open(self.path('m/' + name), 'wb') as out:
                out.write(file.bytes)
        self.refuse('out-00001-of-00003.embag: it was not packed together with', 'check',
                    self.path('m'))
        os.remove(self.path('m/' + names[1]))
        with open(self.path('piece.embag'), 'wb') as out:
            out.write(contents[0][1].bytes)
        self.pack(self.path('piece.embag'), self.path('m/' + names[1]))
        self.assertEqual(embag('check', self.path('m'))[0], 0)

    def test_packs_fused_rows_as_codes(self):
        rng = np.random.default_rng(4)
        for name, bits, number in (('int8', 8, '<f4'), ('int4', 4, '<f2'), ('int2', 2, '<f2')):
            with self.subTest(name=name):
                codes = rng.integers(0, 256, (9, 12), 'u1')
                numbers = rng.integers((1, -9), 9, (9, 2)).astype(number)
                fused = self.save('f.npy', np.concatenate([codes, numbers.view('u1')], axis=1))
                path = self.path(name + '.embag')
                self.pack('--format', 'fbgemm_' + name, fused, path)
                file = PackedFile(path)
                self.assertEqual((file.shape, file.storage, file.type),
                                 ((9, 12 * 8 // bits), STORAGE_NUMBERS[name], 1))
                np.testing.assert_array_equal(file.rows()[:, 8:20], codes)
                np.testing.assert_array_equal(file.rows()[:, :8].copy().view('<f4'), numbers)
                half = self.path(name + '-part.embag')
                self.pack('--format', 'fbgemm_' + name, '--parts', '2', '--part', '1', fused, half)
                np.testing.assert_array_equal(PackedFile(half).rows(), file.rows()[1::2])
                values = self.path(name + '-f32.embag')
                self.pack('--format', 'fbgemm_' + name, '--storage', 'f32', fused, values)
                np.testing.assert_allclose(PackedFile(values).values()[0], file.values()[0], 1e-6)

    def test_packs_rows_with_scale_and_bias_in_front(self):
        rng = np.random.default_rng(5)
        for name, bits, dim in (('int8', 8, 12), ('int4', 4, 23), ('int2', 2, 45)):
            with self.subTest(name=name):
                codes = rng.integers(0, 256, (9, 12), 'u1')
                numbers = rng.integers((1, -9), 9, (9, 2)).astype('<f2')
                fused = self.save('f.npy', np.concatenate(
                    [numbers.view('u1'), codes, np.zeros((9, 16), 'u1')], axis=1))
                path = self.path(name + '.embag')
                self.pack('--format', 'torchrec_' + name, '--dim', str(dim), fused, path)
                file = PackedFile(path)
                self.assertEqual((file.shape, file.storage), ((9, dim), STORAGE_NUMBERS[name]))
                np.testing.assert_array_equal(file.rows()[:, 8:8 + dim * bits // 8],
                                              codes[:, :dim * bits // 8])
                np.testing.assert_array_equal(file.rows()[:, :8].copy().view('<f4'), numbers)
                self.refuse('in this format, a row with such codes cannot have the scale 0', 'pack',
                            '--format', 'fbgemm_' + name, fused, self.output)
        numbers[4, 0] = 0
        fused = self.save('f.npy', np.concatenate([numbers.view('u1'), codes], axis=1))
        self.pack('--format', 'torchrec_int2', '--dim', '48', fused, self.path('zero.embag'))
        numbers[:, 0] = -1
        fused = self.save('f.npy', np.concatenate([numbers.view('u1'), codes], axis=1))
        self.refuse('packed row 0: in this format, a row with such codes cannot '
                    'have the scale -1 and', 'pack', '--format',
                    'torchrec_int2', '--dim', '48', fused, self.path('none.embag'))
        self.assertFalse(os.path.exists(self.path('none.embag')))
        self.refuse('format torchrec_int2 needs a dim: rows of 16 bytes have 48 values if', 'pack',
                    '--format', 'torchrec_int2', fused, self.path('none.embag'))
        self.refuse('--dim is for fused rows and codes', 'pack', '--dim', '4', self.input,
                    self.output, status=2)

    def test_packs_codes_with_scales_and_biases_of_their_own(self):
        rng = np.random.default_rng(6)
        for name, bits, dim, number in (('int8', 8, 12, '<f4'), ('int4', 4, 23, '<f2'),
                                        ('int2', 2, 45, '<f2')):
            with self.subTest(name=name):
                codes = rng.integers(0, 256, (9, 12), 'u1')
                numbers = rng.integers((1, -9), 9, (9, 2)).astype(number)
                given = ('--format', 'codes_' + name, '--dim', str(dim), '--scales',
                         self.save('s.npy', numbers[:, 0]))
                source, path = self.save('c.npy', codes), self.path(name + '.embag')
                biases = ('--biases', self.save('b.npy', numbers[:, 1:]))
                self.pack(*given, *biases, source, path)
                file = PackedFile(path)
                self.assertEqual((file.shape, file.storage, file.type),
                                 ((9, dim), STORAGE_NUMBERS[name], 1))
                np.testing.assert_array_equal(file.rows()[:, 8:8 + -(-dim * bits // 8)], codes)
                np.testing.assert_array_equal(file.rows()[:, :8].copy().view('<f4'), numbers)
                half = self.path(name + '-part.embag')
                self.pack(*given, *biases, '--parts', '2', '--part', '1', source, half)
                np.testing.assert_array_equal(PackedFile(half).rows(), file.rows()[1::2])
                values = self.path(name + '-f32.embag')
                self.pack(*given, '--storage', 'f32', source, values)
                np.testing.assert_allclose(PackedFile(values).values()[0],
                                           file.values()[0] - numbers[:, 1:], 1e-6)

    def test_packs_codes_with_scales_of_the_same_file_or_of_pieces(self):
        rng = np.random.default_rng(7)
        codes = rng.integers(0, 256, (9, 12), 'u1')
        scales, biases = (rng.random((9, 1)).astype('<f4') for _ in range(2))
        path = self.path('m.safetensors')
        write_safetensors(path, [Table('t', 'u8', codes), Table('t.s', 'f32', scales),
                                 Table('t.b', 'f32', biases)])
        self.pack('--tensor', 't', '--format', 'codes_int8', '--scales', 't.s', '--biases', 't.b',
                  path, self.output)
        rows = PackedFile(self.output).rows()
        np.testing.assert_array_equal(rows[:, :8].copy().view('<f4'),
                                      np.concatenate([scales, biases], axis=1))
        np.testing.assert_array_equal(rows[:, 8:20], codes)
        piece = self.save('s-00000-of-00002.npy', scales[:4])
        self.save('s-00001-of-00002.npy', scales[4:])
        self.pack('--format', 'codes_int8', '--scales', piece, '--biases',
                  self.save('b.npy', biases), self.save('c.npy', codes), self.path('two.embag'))
        np.testing.assert_array_equal(PackedFile(self.path('two.embag')).rows(), rows)
        self.refuse('m.safetensors: it has 3 tensors; give a file with one, or the name of a',
                    'pack', '--format', 'codes_int8', '--scales', path, self.path('c.npy'),
                    self.output)
        self.refuse("m.safetensors: it has no tensor 't.x'", 'pack', '--tensor', 't', '--format',
                    'codes_int8', '--scales', 't.x', path, self.output)
        self.refuse('expected an npy or safetensors file', 'pack', '--format', 'codes_int8',
                    '--scales', self.output, self.path('c.npy'), self.path('none.embag'))

    def test_refuses_scales_that_do_not_fit(self):
        codes = self.save('c.npy', np.full((9, 12), 7, 'u1'))
        scales = np.ones(9, '<f4')
        given = ('pack', '--format', 'codes_int8', '--scales', self.save('s.npy', scales))
        self.refuse('s8.npy: expected one f32 or f16 for each row, of shape (9,) or (9, 1), but '
                    'this is (8,) of f32', *given[:-1], self.save('s8.npy', scales[:8]), codes,
                    self.output)
        self.refuse('b.npy: expected one f32', *given, '--biases',
                    self.save('b.npy', scales.astype('f8')), codes, self.output)
        self.refuse('expected codes as a u8 tensor', *given, self.input, self.output)
        self.refuse('dim 11 needs rows of 11 bytes of int8 codes, but these have 12', *given,
                    '--dim', '11', codes, self.output)
        biases = np.zeros(9, '<f4')
        biases[4] = np.inf
        self.refuse('inf.npy: packed row 4: values of scale 1 and bias inf are not finite', *given,
                    '--biases', self.save('inf.npy', biases), codes, self.output)
        scales[[2, 3, 4]] = -1
        self.refuse('minus.npy: packed row 2: a row with such codes cannot have the scale -1 and '
                    'bias 0, and 3 of 9 rows', *given[:-1], self.save('minus.npy', scales), codes,
                    self.output)
        self.refuse('codes_ formats need --scales', 'pack', '--format', 'codes_int4', codes,
                    self.output, status=2)
        for flag in ('--scales', '--biases'):
            self.refuse('--scales and --biases are for --format codes_int8', 'pack', flag, codes,
                        self.input, self.output, status=2)
        self.refuse('--scales and --biases are for', 'pack', '--format', 'fbgemm_int8', '--biases',
                    codes, codes, self.output, status=2)

    def test_refuses_fp8_with_scales(self):
        path = self.path('m.safetensors')
        write_safetensors(path, [Table('e.weight', 'f8_e4m3', np.zeros((4, 2))),
                                 Table('e.weight_scale', 'f32', np.ones(4, '<f4'))])
        self.refuse("table 'e.weight' is f8_e4m3, and tensor 'e.weight_scale' seems to hold its "
                    'scales: fp8 with scales is not supported', 'pack', '--tensor', 'e.weight',
                    path, self.output)

    def test_refuses_invalid_fused_rows(self):
        fused = np.zeros((9, 20), 'u1')
        fused[5, 12:].view('<f4')[:] = 1, np.nan
        self.refuse('packed row 5: values of scale 1 and bias nan', 'pack', '--format',
                    'fbgemm_int8', self.save('f.npy', fused), self.output)
        self.refuse('expected fused rows as a u8 tensor', 'pack', '--format', 'fbgemm_int8',
                    self.input, self.output)
        self.refuse('rows of 8 bytes are not fused rows', 'pack', '--format', 'fbgemm_int8',
                    self.save('f.npy', np.zeros((2, 8), 'u1')), self.output)
        self.refuse('not one of fbgemm_int8', 'pack', '--format', 'x', self.input, self.output,
                    status=2)
        self.pack(self.input, self.output)
        self.refuse('--format is not for packed tables', 'pack', '--format', 'fbgemm_int8',
                    self.output, self.path('again.embag'))

    def test_packs_all_files_of_a_split_table(self):
        keys = np.random.default_rng(8).permutation(301)
        cuts = (0, 100, 100, 299, 301)
        names = [f't-{i:05}-of-00004' for i in range(4)]
        for name, first, end in zip(names, cuts, cuts[1:]):
            self.save(name + '.npy', self.table[first:end])
            self.save(name + '.keys.npy', keys[first:end])
        self.pack('--keys', self.save('k.npy', keys), '--storage', 'int8', self.input, self.output)
        for given in range(4):
            again = self.path(f'again{given}.embag')
            self.pack('--keys', self.path(names[3 - given] + '.keys.npy'), '--storage', 'int8',
                      self.path(names[given] + '.npy'), again)
            self.assertEqual(PackedFile(again).bytes, PackedFile(self.output).bytes)
        given, other = self.path(names[2] + '.npy'), self.path(names[1] + '.npy')
        packed = self.path('new.embag')
        os.rename(other, self.path('away'))
        self.refuse(f'{given}: {other}: it cannot be opened', 'pack', given, packed)
        self.save(names[1] + '.npy', np.zeros((2, 44), 'f4'))
        self.refuse(f'{given}: {other}: its type or row shape differs', 'pack', given, packed)
        self.refuse(f'{other}: its type or row shape differs', 'pack', other, packed)
        self.refuse('its name says piece 4 of 4', 'pack', self.path('t-00004-of-00004.npy'), packed)
        self.refuse(f'{names[0]}.keys.npy: ', 'pack', '--keys',
                    self.path(names[0] + '.keys.npy'), self.save('s.npy', self.table[:9]), packed)
        self.assertEqual(embag('check', given)[0], 0)

    def test_makes_no_file_without_rows(self):
        keys = self.save('k.npy', np.arange(301))
        for more in ((), ('--keys', keys)):
            self.refuse(self.input + ': 301 rows are too few for 302 files', 'pack',
                        '--split', '302', *more, self.input, self.output)
        for parts in ('302', '4294967295'):
            self.refuse(f'{self.input}: its 301 rows are too few for {parts} parts', 'pack',
                        '--part', '0', '--parts', parts, self.input, self.output)

    def test_a_keyed_table_stays_keyed_without_rows(self):
        once, twice = self.path('once.embag'), self.path('twice.embag')
        self.pack('--keys', self.save('k.npy', np.zeros(0, 'i8')),
                  self.save('none.npy', np.zeros((0, 4), 'f4')), once)
        self.assertIn(', keyed', self.pack('--storage', 'int8', once, twice))
        self.assertGreater(PackedFile(twice).sections[2][1], 0)
        for path in (once, twice):
            self.assertIn(', keyed, ', embag('check', path)[1])

    def test_takes_parts_of_rows(self):
        for part in range(3):
            path = self.path(f'part{part}.embag')
            self.pack('--parts', '3', '--part', str(part), self.input, path)
            np.testing.assert_array_equal(PackedFile(path).values()[0], self.table[part::3])

    def test_packs_again_what_is_packed(self):
        once, twice = self.path('once.embag'), self.path('twice.embag')
        self.pack('--storage', 'int8', self.input, once)
        self.pack(once, twice)
        with open(once, 'rb') as first, open(twice, 'rb') as second:
            self.assertEqual(first.read(), second.read())

    def test_keeps_keys_where_it_packs_again(self):
        keys = np.random.default_rng(5).permutation(301)
        once, twice = self.path('once.embag'), self.path('twice.embag')
        self.pack('--keys', self.save('k.npy', keys), self.input, once)
        self.pack('--storage', 'int4', once, twice)
        np.testing.assert_array_equal(PackedFile(twice).keys(), keys)
        np.testing.assert_array_equal(PackedFile(twice).section(2), PackedFile(once).section(2))
        self.pack('--split', '2', once, self.output)
        halves = [PackedFile(self.path(f'out-{i:05}-of-00002.embag')) for i in range(2)]
        np.testing.assert_array_equal(np.concatenate([f.keys() for f in halves]), keys)
        self.assertEqual([f.sections[2] for f in halves], [[0, 0], [0, 0]])
        again = self.path('again.embag')
        self.pack('--storage', 'f16', self.path('out-00001-of-00002.embag'), again)
        self.assertEqual((PackedFile(again).row_first, PackedFile(again).rows_total), (150, 301))
        self.refuse('a piece of a table or a keyed table', 'pack', '--parts', '2', '--part', '0',
                    once, self.path('part.embag'))

    def test_takes_tables_of_no_rows_and_of_any_rank(self):
        for shape in ((0, 4), (5,), (3, 2, 2), (1, 1, 1, 1, 1, 1, 1, 2)):
            with self.subTest(shape=shape):
                path = self.save('t.npy', np.arange(np.prod(shape), dtype='f4').reshape(shape))
                self.pack('--storage', 'int8', path, self.output)
                self.assertEqual(PackedFile(self.output).shape, shape)
                self.assertEqual(embag('check', self.output)[0], 0)
                os.remove(self.output)

    def test_says_what_is_wrong(self):
        self.refuse('No such file', 'pack', self.path('absent.npy'), self.output)
        self.refuse("must end in .embag", 'pack', self.input, self.path('out.npy'), status=2)
        self.refuse('--part K needs --parts P, and K must be in 0..P-1', 'pack', '--part', '1',
                    self.input, self.output, status=2)
        for bound in ('-1', 'x', 'nan', 'inf', '1e400', '1,2', ''):
            self.refuse('--max-error', 'pack', '--max-error', bound, self.input, self.output,
                        status=2)
        table = self.table.copy()
        table[2, 5] = -65520
        self.refuse('packed row 2: value 5 is -65520, more than f16 can hold', 'pack',
                    '--storage', 'f16', self.save('large.npy', table), self.output)
        self.refuse('more than f8_e4m3 can hold', 'pack', '--storage', 'f8_e4m3',
                    self.path('large.npy'), self.output)
        self.refuse('--parts needs --part', 'pack', '--parts', '4', self.input, self.output,
                    status=2)
        self.refuse("field 'unknown_row': 301", 'pack', '--unknown-row', '301', self.input,
                    self.output)
        self.pack(self.input, self.output)
        self.refuse(f'embag: {self.output}: it cannot be written (File exists); remove it', 'pack',
                    self.input, self.output)
        table = self.table.copy()
        table[3, 4] = np.inf
        self.refuse('packed row 3: value 4 is inf', 'pack', '--storage', 'int4',
                    self.save('inf.npy', table), self.path('inf.embag'))


class Check(WithDirectory):
    """embag check."""

    def test_tells_types_shapes_and_memory(self):
        write_safetensors(self.path('s.safetensors'), [Table('ids', 'i64', np.zeros((3, 2)))])
        self.pack('--storage', 'int8', self.input, self.output)
        status, out, messages = embag('check', self.input, self.output, self.path('s.safetensors'))
        self.assertEqual((status, messages), (0, ''))
        lines = out.splitlines()
        # Rows of 180 bytes take 192, which is three cache lines; rows of 53 bytes take 56.
        self.assertIn(f'(301, 45) of f32, stored as f32, {(301 * 192 + 63) // 64 * 64} bytes',
                      lines[0])
        self.assertIn('(301, 45) of f32, stored as int8', lines[1])
        self.assertIn('all bytes verified', lines[1])
        self.assertIn('table ids, (3, 2) of i64', lines[2])

    def test_finds_flips_and_truncations(self):
        keys = self.save('k.npy', np.arange(301) * 3)
        self.pack('--storage', 'int2', '--keys', keys, self.input, self.output)
        whole = PackedFile(self.output).bytes
        damaged = self.path('damaged.embag')
        for at in range(0, len(whole), len(whole) // 40):
            for content in (whole[:at], whole[:at] + bytes([whole[at] ^ 16]) + whole[at + 1:]):
                with open(damaged, 'wb') as file:
                    file.write(content)
                with self.subTest(at=at, size=len(content)):
                    status, out, messages = embag('check', damaged)
                    self.assertEqual((status, out), (1, ''))
                    self.assertIn(damaged, messages)

    def test_checks_every_path_and_names_the_bad_ones(self):
        with open(self.path('bad.npy'), 'wb') as file:
            file.write(b'no table')
        status, out, messages = embag('check', self.path('absent.npy'), self.path('bad.npy'),
                                      self.path('text.txt'), self.input)
        self.assertEqual(status, 1)
        self.assertEqual((out.count('\n'), messages.count('\n')), (1, 3))
        for name in ('absent.npy', 'bad.npy', 'text.txt'):
            self.assertIn(self.path(name) + ': ', messages)
        status, _, messages = embag('check', self.path('m/7'))
        self.assertEqual(status, 1)
        self.assertIn('it cannot be opened (No such file or directory); check the path', messages)

    def test_checks_keys(self):
        keys = np.arange(301)
        good = self.save('good.keys.npy', keys)
        self.assertIn('301 keys', embag('check', good)[1])
        keys[9] = 300
        status, _, messages = embag('check', self.save('bad.keys.npy', keys))
        self.assertEqual(status, 1)
        self.assertIn('rows 9 and 300 have the same key 300', messages)

    def test_checks_a_version_as_the_server_would_load_it(self):
        version = self.path('1')
        os.mkdir(version)
        write_npy(version, Table('a', 'f32', self.table))
        write_npy(version, Table('b', 'f32', self.table[:5]))
        status, out, _ = embag('check', version)
        self.assertEqual((status, out.count('\n')), (0, 3))
        memory = [int(line.split(' bytes of memory')[0].split()[-1]) for line in out.splitlines()]
        # Small tables share whole pages.
        self.assertEqual(memory[2], -(-(memory[0] + memory[1]) // PAGE) * PAGE)
        write_safetensors(os.path.join(version, 'x.safetensors'), [Table('a', 'f32', self.table)])
        status, _, messages = embag('check', version)
        self.assertEqual(status, 1)
        self.assertIn("table 'a' is also in", messages)

    def test_refuses_a_version_that_shows_its_errors_only_when_it_is_loaded(self):
        keys = np.arange(301)
        halves = (slice(0, 150), slice(150, 301))
        def write(version, number, name, array):
            os.makedirs(self.path(version), exist_ok=True)
            np.save(self.path(f'{version}/t-{number:05}-of-00002{name}'), array)
        for number, half in enumerate(halves):
            again = np.where(keys == 300, 7, keys)
            write('m/1', number, '.npy', self.table[half])
            write('m/1', number, '.keys.npy', again[half])
            write('m/2', number, '.npy', self.table[half])
            write('m/2', number, '.keys.npy', keys[half])
        self.refuse('have the same key', 'check', self.path('m/1'))
        self.assertEqual(embag('check', self.path('m/2'))[0], 0)
        with open(self.path('m/model.yaml'), 'w', encoding='utf-8') as file:
            file.write('tables: [{name: t, default_index: 999}]')
        self.refuse('default_index 999 is not one of its keys', 'check', self.path('m/2'))
        table = self.table.copy()
        table[9, 9] = np.nan
        os.makedirs(self.path('n/1'))
        np.save(self.path('n/1/t.npy'), table)
        self.assertEqual(embag('check', self.path('n/1'))[0], 0)
        with open(self.path('n/model.yaml'), 'w', encoding='utf-8') as file:
            file.write('tables: [{name: t, storage: int8}]')
        self.refuse('nan', 'check', self.path('n/1'))

    def test_refuses_what_a_server_refuses_by_default(self):
        for name, columns in (('wide', 16384), ('wider', 16385)):
            os.makedirs(self.path(name + '/1'))
            np.save(self.path(name + '/1/t.npy'), np.zeros((1, columns), 'f4'))
        self.assertEqual(embag('check', self.path('wide/1'))[0], 0)
        self.refuse('65540 bytes, more than row_bytes_max, which is 65536', 'check',
                    self.path('wider/1'))
        self.assertEqual(embag('check', '--row-bytes-max', '65540', self.path('wider/1'))[0], 0)
        for length, status in ((255, 0), (256, 1)):
            with open(self.path('wide/model.yaml'), 'w', encoding='utf-8') as file:
                file.write('versions: {labels: [{name: %s, version: 1}]}' % ('n' * length))
            self.assertEqual(embag('check', self.path('wide/1'))[0], status)
        self.assertEqual(embag('check', '--name-bytes-max', '256', self.path('wide/1'))[0], 0)
        helped = subprocess.run([embagd_process.EMBAGD, '--help'], capture_output=True, text=True,
                                timeout=60, check=True).stdout
        self.assertIn('--row-bytes-max N  (4..16777216 bytes, default 65536)', helped)
        self.assertIn('--name-bytes-max N  (1..4096 bytes, default 255)', helped)

    def test_refuses_a_directory_without_tables(self):
        os.mkdir(self.path('empty'))
        self.refuse('there is no table in it', 'check', self.path('empty'))
        self.refuse('FILE or DIRECTORY is missing', 'check', status=2)


if __name__ == '__main__':
    unittest.main()
