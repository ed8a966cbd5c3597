"""Tables that a model.yaml describes: stored smaller, keyed, split, packed and fused, with their
own defaults. Each answers with the values that its description implies."""

import os
import subprocess
import unittest

import numpy as np

import served
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import Embagd
from rpc import error_of
from served import SEED, OwnServerTest

MODEL = '''
tables:
- {name: codes, storage: int8, missing: skip, default_index: 3}
- {name: keyed, missing: unknown_row, unknown_row: 7, default_index: %d}
- {name: split, source: emb.0.weight, storage: f16, missing: zero}
- {name: fused, format: fbgemm_int4}
'''
CLOSE = {'rtol': 1e-5, 'atol': 5e-4}    # a quantisation step is more than ten times as large


def quantized(values, bits):
    """Returns the values of rows stored as codes, following the definition in
    kernels/quantize.h."""
    levels = 2**bits - 1
    low = values.min(axis=1, keepdims=True)
    width = values.max(axis=1, keepdims=True).astype('f8') - low
    step = (width / levels).astype('f4')
    above = np.nextafter(step, np.float32(np.inf))
    step = np.where(step.astype('f8') * levels < width, above, step)
    codes = np.floor((values.astype('f8') - low) / step + 0.5)
    return codes * step + low


def fused_int4(codes, scales, biases):
    """Returns rows in FBGEMM's format: codes, low nibble first, then scale and bias in f16."""
    packed = codes[:, ::2] | codes[:, 1::2] << 4
    tail = np.stack([scales, biases], axis=1).astype('<f2').view('u1')
    return np.concatenate([packed, tail], axis=1).astype('u1')


class DescribedTables(OwnServerTest):
    """One model that has all of these tables."""

    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng([SEED, 61])
        self.directory = self.repository.join('m', '1')
        os.makedirs(self.directory)
        self.tables = {}
        self.write_tables()
        server = Embagd(self.repository.path)
        self.addCleanup(server.stop)
        self.client = self.connect(server.wait_ready())

    def save(self, name, array):
        """Saves an array as DIRECTORY/NAME."""
        np.save(os.path.join(self.directory, name), array)

    def write_tables(self):
        """Writes the files and notes the expected rows of each table, by index or by key."""
        rng = self.rng
        codes = rng.normal(size=(200, 16)).astype('<f4')
        self.save('codes.npy', codes)
        self.tables['codes'] = dict(enumerate(quantized(codes, 8)))
        keyed = rng.normal(size=(300, 8)).astype('<f4')
        keys = rng.integers(-2**63, 2**63 - 1, 300, dtype='<i8')
        self.save('keyed.npy', keyed)
        self.save('keyed.keys.npy', keys)
        self.tables['keyed'] = dict(zip(keys.tolist(), keyed.astype('f8')))
        self.unknown = keyed[7].astype('f8')
        split = rng.normal(size=(90, 4)).astype('<f4')
        for part, rows in enumerate(np.split(split, [10, 10, 55])):
            self.save('emb.0.weight-%05d-of-00004.npy' % part, rows)
        self.tables['split'] = dict(enumerate(split.astype('f2').astype('f8')))
        nibbles = rng.integers(0, 16, (50, 12))
        scales, biases = rng.random((2, 50)).astype('f2')
        self.save('fused.npy', fused_int4(nibbles, scales, biases))
        self.tables['fused'] = dict(enumerate(
            nibbles * scales[:, None].astype('f8') + biases[:, None]))
        self.default_key = int(keys[5])
        with open(self.repository.join('m', 'model.yaml'), 'w', encoding='utf-8') as file:
            file.write(MODEL % self.default_key)
        self.pack(codes)

    def pack(self, values):
        """Writes a packed table of int8 codes with keys."""
        keys = np.arange(len(values)).astype('<i8') * 1000003
        with_keys = self.repository.join('.rows.npy'), self.repository.join('.keys.npy')
        np.save(with_keys[0], values)
        np.save(with_keys[1], keys)
        subprocess.run(
            [served.EMBAG, 'pack', with_keys[0], os.path.join(self.directory, 'packed.embag'),
             '--storage', 'int8', '--keys', with_keys[1]],
            check=True, timeout=60, stdout=subprocess.DEVNULL)
        self.tables['packed'] = dict(zip(keys.tolist(), quantized(values, 8)))

    def ask(self, table, ids, offsets, **fields):
        """Returns the pooled bags as an array."""
        query = pb.BagQuery(table=table, indices_i64=np.array(ids, '<i8').tobytes(),
                            offsets_i64=np.array(offsets, '<i8').tobytes(), **fields)
        result, = self.client.lookup(pb.LookupRequest(model='m', queries=[query])).results
        return np.frombuffer(result.values, '<f4').reshape(result.shape), result.missing

    def some_ids(self, table, count):
        """Returns ids that the table has."""
        return self.rng.choice(sorted(self.tables[table]), count).tolist()

    def test_sums_rows_of_every_table(self):
        for name, rows in self.tables.items():
            ids = self.some_ids(name, 60)
            got, missing = self.ask(name, ids, [0, 10, 25])
            want = [sum(rows[i] for i in bag) for bag in (ids[:10], ids[10:25], ids[25:])]
            np.testing.assert_allclose(got, want, **CLOSE, err_msg=name)
            self.assertEqual(missing, 0, name)

    def test_fills_empty_bags_with_the_default_of_the_table(self):
        defaults = {'codes': self.tables['codes'][3],
                    'keyed': self.tables['keyed'][self.default_key], 'split': np.zeros(4)}
        for name, row in defaults.items():
            ids = self.some_ids(name, 2)
            got, _ = self.ask(name, ids, [0, 0, 2])
            np.testing.assert_allclose(
                got, [row, sum(self.tables[name][i] for i in ids), row], **CLOSE, err_msg=name)
            other = self.some_ids(name, 1)[0]
            got, _ = self.ask(name, ids, [0, 2], default_index=other)
            np.testing.assert_allclose(got[1], self.tables[name][other], **CLOSE, err_msg=name)
        got, _ = self.ask('codes', [], [0], default_index=-1)
        np.testing.assert_array_equal(got, np.zeros((1, 16)))

    def test_treats_missing_ids_as_the_table_says(self):
        gone = {'codes': 200, 'keyed': self.default_key + 1, 'split': -1}
        unknown = {'codes': 0, 'keyed': self.unknown, 'split': 0}
        for name, id_gone in gone.items():
            ids = self.some_ids(name, 3) + [id_gone]
            rows = [self.tables[name][i] for i in ids[:3]]
            got, missing = self.ask(name, ids, [0])
            np.testing.assert_allclose(got[0], sum(rows) + unknown[name], **CLOSE, err_msg=name)
            self.assertEqual(missing, 1, name)
            got, _ = self.ask(name, ids, [0], missing='MISSING_SKIP', reduction='REDUCTION_MEAN')
            np.testing.assert_allclose(got[0], sum(rows) / 3, **CLOSE, err_msg=name)
            code, text = error_of(self.ask, name, ids, [0], missing='MISSING_ERROR')
            self.assertEqual(code.name, 'OUT_OF_RANGE', text)
            self.assertIn('%d' % id_gone, text)
        for name in ('fused', 'packed'):
            code, text = error_of(self.ask, name, [7], [0]) if name == 'packed' else \
                error_of(self.ask, name, [50], [0])
            self.assertEqual(code.name, 'OUT_OF_RANGE', text)

    def test_tells_how_tables_are_stored(self):
        version, = self.client.get_model('m').versions
        said = {table.name: (table.storage, table.keyed, table.rows) for table in version.tables}
        self.assertEqual(said, {
            'codes': ('int8', False, 200), 'keyed': ('f32', True, 300),
            'split': ('f16', False, 90), 'fused': ('int4', False, 50),
            'packed': ('int8', True, 200)})

    def check_files(self):
        """Runs `embag check` on the version."""
        return subprocess.run([served.EMBAG, 'check', self.directory], timeout=60, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def test_the_tool_checks_tables_as_they_are_described(self):
        run = self.check_files()
        self.assertEqual(run.returncode, 0, run.stderr)
        with open(self.repository.join('m', 'model.yaml'), 'a', encoding='utf-8') as file:
            file.write('- {name: nowhere}\n')
        run = self.check_files()
        self.assertEqual(run.returncode, 1, run.stdout)
        self.assertIn("table 'nowhere': its source 'nowhere' is not in this version", run.stderr)

    def test_defaults_hold_in_groups(self):
        group = pb.FeatureGroup(
            features=['codes', 'split'], bags=1, values_i64=np.array([200, 5], '<i8').tobytes(),
            lengths_i32=np.array([1, 1], '<i4').tobytes())
        result, = self.client.lookup(pb.LookupRequest(model='m', groups=[group])).results
        got = np.frombuffer(result.values, '<f4')
        np.testing.assert_allclose(
            got, np.concatenate([self.tables['codes'][3], self.tables['split'][5]]), **CLOSE)


class BrokenDescriptions(OwnServerTest):
    """The start fails with a line that names the file, the position and the allowed values."""

    def check_start(self, yaml, pattern):
        """Checks how a start fails if the specification's table is described like this."""
        served.write_model(self.repository.path, 'spec', 1, [served.spec_table()])
        with open(self.repository.join('spec', 'model.yaml'), 'w', encoding='utf-8') as file:
            file.write(yaml)
        server = Embagd(self.repository.path)
        self.addCleanup(server.kill)
        self.assertRegex(server.start_fails(), pattern)

    def test_unknown_key(self):
        self.check_start('tables: [{name: emb_table, stroage: int8}]',
                         r'spec/model\.yaml: .*Unexpected key: stroage')

    def test_unknown_word(self):
        self.check_start('tables: [{name: emb_table, storage: int7}]',
                         r"spec/model\.yaml: tables\[0\]\.storage: 'int7' .*int8, int4, int2")

    def test_row_that_is_not_there(self):
        self.check_start('tables: [{name: emb_table, default_index: 5}]',
                         r"model\.yaml: table 'emb_table': default_index 5 is neither one of its 5")


if __name__ == '__main__':
    unittest.main()
