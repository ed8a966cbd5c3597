"""Rows quantised by FBGEMM and TorchRec: each is served bit by bit as their own lookup returns it.

The rows are made here, following the documented layouts. If EMBAG_TEST_TORCH_PYTHON names a Python
with torch, torchrec and fbgemm_gpu, TorchRec itself also makes rows, and the answers that it gives.
"""

import os
import re
import subprocess
import unittest

import numpy as np

import served
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import Embagd
from served import SEED, OwnServerTest

HERE = os.path.dirname(os.path.abspath(__file__))
TORCH_PYTHON = os.environ.get('EMBAG_TEST_TORCH_PYTHON')
TORCH_SECONDS = 300
ROWS = 33


def pack_codes(codes, bits):
    """Packs codes of one byte each into rows of bytes, low bits first."""
    per_byte = 8 // bits
    full = np.pad(codes, ((0, 0), (0, -codes.shape[1] % per_byte)))
    parts = full.reshape(len(codes), -1, per_byte).astype('u4') << bits * np.arange(per_byte)
    return parts.sum(axis=2).astype('u1')


def one_rounding(codes, scales, biases):
    """Returns fma(scale, code, bias). If scale and bias are f16, the product and the sum are
    multiples of 2^-24 below 2^25, which f64 holds exactly."""
    return (scales.astype('f8') * codes + biases.astype('f8')).astype('<f4')


class TorchRecRows(OwnServerTest):
    """The tables of one model, each with its format and dim."""

    def setUp(self):
        super().setUp()
        self.directory = self.repository.join('m', '1')
        os.makedirs(self.directory)
        self.rng = np.random.default_rng([SEED, 73])
        self.own = {}
        self.described = []

    def add(self, name, array, own, described):
        """Adds a table, and the values with which each of its rows must be served."""
        np.save(os.path.join(self.directory, name + '.npy'), array)
        self.own[name] = own
        self.described.append('- {name: %s, %s}\n' % (name, described))

    def describe(self):
        """Writes model.yaml."""
        with open(self.repository.join('m', 'model.yaml'), 'w', encoding='utf-8') as file:
            file.write('tables:\n' + ''.join(self.described))

    def check_all(self):
        """Looks up each row of each table alone."""
        self.describe()
        server = Embagd(self.repository.path)
        self.addCleanup(server.stop)
        client = self.connect(server.wait_ready())
        for name, own in self.own.items():
            with self.subTest(name):
                query = pb.BagQuery(
                    table=name, reduction=pb.REDUCTION_NONE, indices=range(len(own)))
                result, = client.lookup(pb.LookupRequest(model='m', queries=[query])).results
                got = np.frombuffer(result.values, '<u4').reshape(result.shape)
                np.testing.assert_array_equal(got, own.view('<u4'))

    def make(self, bits, dim):
        """Returns codes, f16 scales and f16 biases. The last row is like some that FBGEMM makes:
        its scale is negative, so its values lie below its bias."""
        codes = self.rng.integers(0, 2**bits, (ROWS, dim))
        scales = self.rng.uniform(1e-4, 0.1, (ROWS, 1)).astype('<f2')
        biases = self.rng.normal(size=(ROWS, 1)).astype('<f2')
        codes[-1], scales[-1], biases[-1] = 2**bits - 1, -1.2e-5 / 2**bits, 0.3
        return codes, scales, biases

    def test_rows_with_scale_and_bias_in_front(self):
        for bits, dim, padded in ((8, 16, 32), (8, 28, 32), (4, 16, 16), (4, 23, 16), (2, 17, 16)):
            codes, scales, biases = self.make(bits, dim)
            rows = np.concatenate([scales.view('u1'), biases.view('u1'), pack_codes(codes, bits)],
                                  axis=1)
            rows = np.pad(rows, ((0, 0), (0, padded - rows.shape[1])))
            self.add('t%d_%d' % (bits, dim), rows, one_rounding(codes, scales, biases),
                     'format: torchrec_int%d, dim: %d' % (bits, dim))
        self.check_all()

    def test_rows_of_eight_bits_with_f16_behind(self):
        codes, scales, biases = self.make(8, 20)
        rows = np.concatenate([codes.astype('u1'), scales.view('u1'), biases.view('u1')], axis=1)
        self.add('t', rows, one_rounding(codes, scales, biases), 'format: fbgemm_int8_f16')
        self.check_all()

    def check_refused(self, name, rows, wrong):
        """Checks that a version is refused if a table's rows are in another format than the
        declared one."""
        self.repository.remove()
        os.makedirs(self.directory)
        self.described = []
        self.add(name, rows, None, 'format: ' + wrong)
        self.describe()
        log = Embagd(self.repository.path).start_fails()
        self.assertRegex(log, r"m/1/%s\.npy: row \d+ of table '%s': .*rows may be of format" %
                         (re.escape(name), re.escape(name)))
        run = subprocess.run([served.EMBAG, 'check', self.directory], timeout=60, check=False,
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.assertEqual(run.returncode, 1)
        self.assertIn('rows may be of format', run.stderr)

    def test_rows_of_another_format_are_refused(self):
        codes, scales, biases = self.make(8, 16)
        front = np.concatenate([scales.view('u1'), biases.view('u1'), codes.astype('u1'),
                                np.zeros((ROWS, 12), 'u1')], axis=1)
        self.check_refused('padded', front, 'fbgemm_int8')
        self.check_refused('unpadded', front[:, :20], 'fbgemm_int8')

    @unittest.skipUnless(TORCH_PYTHON, 'EMBAG_TEST_TORCH_PYTHON names no Python with torchrec')
    def test_what_torchrec_quantises_is_served_as_its_own_lookup(self):
        made = self.repository.join('.made')
        os.makedirs(made)
        subprocess.run([TORCH_PYTHON, os.path.join(HERE, 'torchrec_rows.py'), made], check=True,
                       timeout=TORCH_SECONDS, stderr=subprocess.DEVNULL)
        tables = {}
        for file in sorted(os.listdir(made)):
            name, _, kind = file.partition('.')
            tables.setdefault(name, {})[kind] = np.load(os.path.join(made, file))
        self.assertGreaterEqual(len(tables), 14)
        for name, arrays in tables.items():
            codes, _, dim = name.partition('_')
            self.add(name, arrays['npy'], arrays['own.npy'],
                     'format: torchrec_%s, dim: %s' % (codes, dim))
            for kind in 'scales', 'biases':
                np.save(os.path.join(self.directory, '%s.%s.npy' % (name, kind)),
                        arrays[kind + '.npy'])
            self.add(name + '.codes', arrays['codes.npy'], arrays['own.npy'],
                     'format: codes_%s, scales: %s.scales, biases: %s.biases' % (codes, name, name))
        self.check_all()
        for name, arrays in tables.items():
            with self.subTest(refused=name):
                self.check_refused(name, arrays['npy'], 'fbgemm_' + name.partition('_')[0])


if __name__ == '__main__':
    unittest.main()
