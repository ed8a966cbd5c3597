"""Tables whose scales and biases are in separate tensors, as TorchRec writes them.

Each row is served bit by bit as fma(scale, code, bias). Versions that seem to have such scales and
do not mention them are refused.
"""

import os
import subprocess
import unittest

import numpy as np

import served
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import Embagd
from served import SEED, OwnServerTest
from table_files import safetensors_bytes
from test_torchrec_rows import one_rounding, pack_codes

ROWS = 60
DTYPES = {'uint8': 'U8', 'float16': 'F16', 'float32': 'F32', 'int8': 'I8'}


def safetensors(tensors):
    """Returns a safetensors file of the arrays, by name. fp8 arrays are given as void."""
    entries, data = {}, b''
    for name, array in tensors.items():
        body = array.tobytes()
        entries[name] = {'dtype': DTYPES.get(array.dtype.name, 'F8_E4M3'),
                         'shape': list(array.shape), 'data_offsets': [len(data),
                                                                      len(data) + len(body)]}
        data += body
    return safetensors_bytes(entries, data)


class ScaleTensors(OwnServerTest):
    """One model; each test writes its files and its model.yaml."""

    def setUp(self):
        super().setUp()
        self.directory = self.repository.join('m', '1')
        os.makedirs(self.directory)
        self.rng = np.random.default_rng([SEED, 79])
        self.own = {}
        self.described = []

    def save(self, name, array):
        """Writes an npy file of the version."""
        np.save(os.path.join(self.directory, name + '.npy'), array)

    def write(self, name, data):
        """Writes any other file of the version."""
        with open(os.path.join(self.directory, name), 'wb') as file:
            file.write(data)

    def make(self, bits, dim, number='<f2'):
        """Returns codes, scales and biases of random rows."""
        codes = self.rng.integers(0, 2**bits, (ROWS, dim))
        scales = self.rng.uniform(1e-4, 0.1, (ROWS, 1)).astype('<f2').astype(number)
        biases = self.rng.normal(size=(ROWS, 1)).astype('<f2').astype(number)
        return codes, scales, biases

    def describe(self, *more):
        """Writes model.yaml."""
        with open(self.repository.join('m', 'model.yaml'), 'w', encoding='utf-8') as file:
            file.write('tables:\n' + ''.join('- {%s}\n' % text for text in self.described) +
                       ''.join(more))

    def add(self, name, own, text):
        """Describes a table, and keeps the values that each row must have when served."""
        self.own[name] = own
        self.described.append('name: %s, %s' % (name, text))

    def check_all(self):
        """Looks up each row of each table alone, and checks that there are no other tables."""
        self.describe()
        server = Embagd(self.repository.path)
        self.addCleanup(server.stop)
        client = self.connect(server.wait_ready())
        version, = client.get_model('m').versions
        self.assertEqual(sorted(table.name for table in version.tables), sorted(self.own))
        for name, own in self.own.items():
            with self.subTest(name):
                query = pb.BagQuery(
                    table=name, reduction=pb.REDUCTION_NONE, indices=range(len(own)))
                result, = client.lookup(pb.LookupRequest(model='m', queries=[query])).results
                got = np.frombuffer(result.values, '<u4').reshape(result.shape)
                np.testing.assert_array_equal(got, own.view('<u4'))
        return client

    def check_tool(self, status, text):
        """Checks what `embag check` reports about the version."""
        run = subprocess.run([served.EMBAG, 'check', self.directory], timeout=60, check=False,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(run.returncode, status, run.stdout)
        self.assertIn(text, run.stdout)

    def check_refused(self, *texts):
        """Checks that neither the server nor the tool accepts the version."""
        self.describe()
        log = Embagd(self.repository.path).start_fails()
        for text in texts:
            self.assertIn(text, log)
            self.check_tool(1, text)

    def test_npy_files_of_every_width_and_type(self):
        for bits, dim, number in ((8, 16, '<f2'), (8, 7, '<f4'), (4, 12, '<f2'), (4, 7, '<f4'),
                                  (2, 24, '<f2'), (2, 5, '<f4')):
            codes, scales, biases = self.make(bits, dim, number)
            name = 't%d_%d' % (bits, dim)
            self.save(name, pack_codes(codes, bits))
            self.save(name + '.s', scales if dim % 2 else scales[:, 0])
            self.save(name + '.b', biases)
            self.add(name, one_rounding(codes, scales, biases),
                     'format: codes_int%d, dim: %d, scales: %s.s, biases: %s.b' %
                     (bits, dim, name, name))
        codes, scales, _ = self.make(8, 16)
        self.save('unbiased', codes.astype('u1'))
        self.save('unbiased_scale', scales)
        self.add('unbiased', one_rounding(codes, scales, np.zeros((ROWS, 1))),
                 'format: codes_int8, scales: unbiased_scale')
        self.check_all()
        self.check_tool(0, '7 tables')

    def save_split(self, name, array):
        """Writes an array of rows whole, or in up to four files at random rows."""
        pieces = int(self.rng.integers(5))
        if pieces == 0:
            self.save(name, array)
            return
        cuts = sorted(self.rng.integers(0, ROWS + 1, pieces - 1))
        for number, rows in enumerate(np.split(array, cuts)):
            self.save('%s-%05d-of-%05d' % (name, number, pieces), rows)

    def test_random_tables_in_any_pieces(self):
        for number in range(60):
            bits, dim = int(self.rng.choice([8, 4, 2])), int(self.rng.integers(1, 70))
            codes, scales, biases = self.make(bits, dim, self.rng.choice(['<f2', '<f4']))
            biases = biases.astype(self.rng.choice(['<f2', '<f4']))
            name = 'r%d' % number
            text = 'format: codes_int%d, dim: %d, scales: %s.s' % (bits, dim, name)
            self.save_split(name, pack_codes(codes, bits))
            self.save_split(name + '.s', scales[:, 0] if self.rng.integers(2) else scales)
            if self.rng.integers(4):
                self.save_split(name + '.b', biases)
                text += ', biases: %s.b' % name
            else:
                biases = np.zeros((ROWS, 1))
            self.add(name, one_rounding(codes, scales, biases), text)
        self.check_all()

    def test_a_quantised_state_dict(self):
        codes, scales, biases = self.make(4, 8)
        prefix = 'embedding_bags.t1.weight'
        self.write('model.safetensors', safetensors({
            prefix: pack_codes(codes, 4), prefix + '_qscale': scales, prefix + '_qbias': biases}))
        self.add('t1', one_rounding(codes, scales, biases),
                 'source: %s, format: codes_int4, scales: %s_qscale, biases: %s_qbias' %
                 (prefix, prefix, prefix))
        client = self.check_all()
        query = pb.BagQuery(table='t1', indices=[3, 3, 59], num_bags=1)
        result, = client.lookup(pb.LookupRequest(model='m', queries=[query])).results
        rows = self.own['t1'].astype('f8')
        np.testing.assert_allclose(np.frombuffer(result.values, '<f4'), 2 * rows[3] + rows[59],
                                   rtol=1e-5, atol=1e-5)

    def test_split_and_keyed(self):
        codes, scales, biases = self.make(8, 8)
        for part, rows in enumerate(np.split(codes.astype('u1'), [20, 20])):
            self.save('t-%05d-of-00003' % part, rows)
        for part, rows in enumerate(np.split(scales, [31])):
            self.save('s-%05d-of-00002' % part, rows)
        self.save('b', biases)
        self.save('t.keys', np.arange(ROWS)[::-1].astype('<i8'))
        self.add('t', one_rounding(codes, scales, biases)[::-1],
                 'format: codes_int8, scales: s, biases: b')
        self.check_all()

    def test_names_the_place_and_the_file_of_wrong_scales(self):
        codes, scales, biases = self.make(8, 8)
        self.save('t', codes.astype('u1'))
        self.described = ['name: t, format: codes_int8, scales: s, biases: b']
        self.check_refused("m/1/t.npy: model.yaml: table 't': scales: tensor 's' is not in this")
        self.save('s', scales)
        self.save('b', biases[:-1])
        self.check_refused("m/1/b.npy: model.yaml: table 't': biases: expected one f32 or f16 for "
                           'each row, of shape (60,) or (60, 1), but this is (59, 1) of f16')
        self.save('b', biases)
        scales[17] = np.nan
        self.save('s', scales)
        self.check_refused("m/1/s.npy: row 17 of table 't': values of scale nan")
        self.save('s', biases)
        self.check_refused("of table 't': ", 'scales and biases may be swapped')
        self.described = ['name: t, format: codes_int8']
        self.check_refused('model.yaml: tables[0].scales: is missing but required')

    def test_scales_that_are_not_mentioned_are_refused(self):
        codes, scales, _ = self.make(8, 8)
        eights = codes.astype('u1').view('V1')
        for name, scale, array, texts in (
                ('e.weight', 'e.weight_qscale', codes.astype('u1'),
                 ["'e.weight' is u8", "'e.weight_qscale' seems", 'format codes_int8']),
                ('e.weight', 'e.weight_scale', codes.astype('i1'), ["'e.weight' is i8"]),
                ('e.weight', 'e.weight_scale_inv', eights,
                 ["'e.weight' is f8_e4m3", 'fp8 with scales is not supported', 'F32 or BF16']),
                ('e', 'e_scale', eights, ["'e' is f8_e4m3", "'e_scale' seems"])):
            with self.subTest(name=name, scale=scale):
                self.write('model.safetensors', safetensors({name: array, scale: scales}))
                self.check_refused(*texts)
        self.describe("exclude: ['*_scale']\n")
        self.check_tool(0, '1 table')


if __name__ == '__main__':
    unittest.main()
