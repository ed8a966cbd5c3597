"""Default vectors of keyed tables: in empty bags, in place of missing rows, through features
and groups, and as the catalogue and the tools show them."""

import json
import os
import subprocess
import unittest

import numpy as np

import served
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import Embagd
from rpc import error_of
from served import SEED, OwnServerTest

DIM = 24
MISSING = 77    # no key of any table
MODEL = '''
tables:
- {name: codes, storage: int8, missing: unknown_row, unknown_row: default_vector,
   default_vector: [%s]}
- {name: packed, missing: skip, unknown_row: default_vector, default_vector: [0.01]}
features:
- {name: heir, table: codes, reduction: mean}
- {name: own, table: codes, missing: skip, default_index: %d}
- {name: bare, table: packed}
groups:
- {name: both, features: [heir, own]}
'''
REDUCTIONS = ('SUM', 'MEAN', 'WEIGHTED_MEAN', 'SQRTN', 'MAX', 'MIN')


class DefaultVectors(OwnServerTest):
    """A table of codes and a packed one, looked up with unknown keys and empty bags."""

    def setUp(self):
        super().setUp()
        rng = np.random.default_rng([SEED, 71])
        directory = self.repository.join('m', '1')
        os.makedirs(directory)
        self.keys = 1000 + rng.choice(10**6, 60, replace=False).astype('<i8')
        self.rows = rng.normal(size=(60, DIM)).astype('<f4')
        self.vector = rng.normal(size=DIM).astype('<f4')
        np.save(os.path.join(directory, 'codes.npy'), self.rows)
        np.save(os.path.join(directory, 'codes.keys.npy'), self.keys)
        self.pack(directory)
        texts = ', '.join(repr(float(value)) for value in self.vector)
        with open(self.repository.join('m', 'model.yaml'), 'w', encoding='utf-8') as file:
            file.write(MODEL % (texts, self.keys[5]))
        server = Embagd(self.repository.path)
        self.addCleanup(server.stop)
        self.server = server.wait_ready()
        self.client = self.connect(self.server)

    def pack(self, directory):
        """Packs the same rows as int8, whose file names row 3 for unknown ids."""
        rows, keys = self.repository.join('.rows.npy'), self.repository.join('.keys.npy')
        np.save(rows, self.rows)
        np.save(keys, self.keys)
        self.packed = os.path.join(directory, 'packed.embag')
        subprocess.run(
            [served.EMBAG, 'pack', rows, self.packed, '--storage', 'int8', '--keys', keys,
             '--unknown-row', '3'],
            check=True, timeout=60, stdout=subprocess.DEVNULL)

    def ask(self, table, ids, offsets, dtype='<f4', **fields):
        """Returns the only result of a query, and its values as an array."""
        query = pb.BagQuery(table=table, indices_i64=np.array(ids, '<i8').tobytes(),
                            offsets_i64=np.array(offsets, '<i8').tobytes(), **fields)
        request = pb.LookupRequest(model='m', queries=[query], report_missing=True)
        if dtype == '<f2':
            request.output_type = pb.DATA_TYPE_F16
        result, = self.client.lookup(request).results
        return result, np.frombuffer(result.values, dtype).reshape(result.shape)

    def tool(self, *arguments):
        """Returns what `embag models` prints."""
        return subprocess.run(
            [served.EMBAG, 'models', '--server', self.server.address, *arguments], check=True,
            timeout=60, stdout=subprocess.PIPE, text=True).stdout

    def test_empty_bags_are_copies_whatever_the_reduction(self):
        for reduction in REDUCTIONS:
            number = getattr(pb, 'REDUCTION_' + reduction)
            for table, vector in (('codes', self.vector), ('packed', np.full(DIM, 0.01, '<f4'))):
                _, got = self.ask(table, [self.keys[0]], [0, 1, 1], reduction=number)
                np.testing.assert_array_equal(got[1:], [vector, vector], reduction)
            _, got = self.ask('codes', [], [0], '<f2', reduction=number)
            np.testing.assert_array_equal(got, [self.vector.astype('<f2')], reduction)

    def test_bags_whose_keys_are_all_skipped_are_empty(self):
        result, got = self.ask('packed', [MISSING, MISSING, self.keys[1]], [0, 2])
        np.testing.assert_array_equal(got[0], np.full(DIM, 0.01, '<f4'))
        np.testing.assert_allclose(got[1], self.rows[1], atol=0.02)
        self.assertEqual(result.missing, 2)

    def test_missing_rows_are_copies_without_pooling(self):
        result, got = self.ask('codes', [MISSING, self.keys[2], MISSING], [],
                               reduction=pb.REDUCTION_NONE)
        np.testing.assert_array_equal(got[::2], [self.vector, self.vector])
        self.assertEqual(result.missing, 2)
        self.assertEqual(np.frombuffer(result.missing_positions, '<u4').tolist(), [0, 2])

    def test_missing_rows_are_weighted(self):
        weights = np.array([2, -3, 0.5], '<f4')
        result, got = self.ask('codes', [self.keys[0], MISSING, self.keys[1]], [0],
                               weights=weights.tobytes(), weights_type=pb.DATA_TYPE_F32)
        want = 2 * self.rows[0] - 3 * self.vector + self.rows[1] / 2
        np.testing.assert_allclose(got[0], want, atol=0.05)
        self.assertEqual(result.missing, 1)
        _, got = self.ask('codes', [MISSING], [0], weights=weights[1:2].tobytes(),
                          weights_type=pb.DATA_TYPE_F32)
        np.testing.assert_array_equal(got[0], -3 * self.vector)

    def test_missing_rows_count_in_means(self):
        _, got = self.ask('heir', [MISSING, MISSING, MISSING, self.keys[3]], [0])
        np.testing.assert_allclose(got[0], (3 * self.vector + self.rows[3]) / 4, atol=0.02)

    def test_a_default_index_overrides_it(self):
        _, got = self.ask('own', [], [0])
        np.testing.assert_allclose(got[0], self.rows[5], atol=0.02)
        for table in ('codes', 'own', 'heir', 'bare'):
            _, got = self.ask(table, [], [0], default_index=int(self.keys[9]))
            np.testing.assert_allclose(got[0], self.rows[9], atol=0.02)
        query = pb.BagQuery(table='codes', num_bags=1, default_index=-1)
        code, _ = error_of(self.client.lookup, pb.LookupRequest(model='m', queries=[query]))
        self.assertEqual(code.name, 'OUT_OF_RANGE')

    def test_features_and_groups_inherit_it(self):
        for name, vector in (('heir', self.vector), ('bare', np.full(DIM, 0.01, '<f4'))):
            _, got = self.ask(name, [], [0])
            np.testing.assert_array_equal(got, [vector], name)
        group = pb.FeatureGroup(name='both', bags=2,
                                values_i64=np.full(2, MISSING, '<i8').tobytes(),
                                lengths_i32=np.array([0, 1, 1, 0], '<i4').tobytes())
        result, = self.client.lookup(pb.LookupRequest(model='m', groups=[group])).results
        got = np.frombuffer(result.values, '<f4').reshape(2, 2, DIM)
        np.testing.assert_array_equal(got[:, 0], [self.vector, self.vector])
        np.testing.assert_allclose(got[:, 1], [self.rows[5]] * 2, atol=0.02)
        self.assertEqual(result.missing, 2)

    def test_the_catalogue_describes_it(self):
        version, = self.client.get_model('m').versions
        tables = {table.name: table for table in version.tables}
        self.assertEqual(tables['codes'].default_vector, self.vector.tobytes())
        self.assertTrue(tables['codes'].unknown_vector)
        self.assertIsNone(tables['packed'].WhichOneof('unknown'))
        self.assertEqual(tables['packed'].default_vector, np.full(DIM, 0.01, '<f4').tobytes())

    def test_the_tool_shows_it(self):
        text = self.tool('--features')
        self.assertIn('feature heir: table codes, reduction MEAN, missing UNKNOWN_ROW, '
                      'default_vector, id_map none\n', text)
        self.assertIn('feature own: table codes, reduction SUM, missing SKIP, default_index %d, '
                      'id_map none\n' % self.keys[5], text)
        model, = json.loads(self.tool('--json'))['models']
        codes, packed = sorted(model['versions'][0]['tables'], key=lambda table: table['name'])
        np.testing.assert_array_equal(np.array(codes['default_vector'], '<f4'), self.vector)
        self.assertIs(codes['unknown_vector'], True)
        self.assertEqual(packed['default_vector'], [0.01] * DIM)

    def test_a_packed_table_keeps_its_digest(self):
        directory = self.repository.join('plain', '1')
        os.makedirs(directory)
        os.link(self.packed, os.path.join(directory, 'packed.embag'))
        other = self.serve()
        models = {}
        for model in self.connect(other).list_models().models:
            models[model.name] = {table.name: table for table in model.versions[0].tables}
        plain, described = models['plain']['packed'], models['m']['packed']
        self.assertEqual((plain.digest, plain.rows), (described.digest, described.rows))
        self.assertEqual((plain.unknown_row, plain.default_vector), (3, b''))


if __name__ == '__main__':
    unittest.main()
