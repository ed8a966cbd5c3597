"""Rows that torch's and FBGEMM's operators quantise: they are imported bit by bit, each row is
served as the operators return it, and pooled vectors lie within the bound that the server
promises."""

import os
import unittest

import numpy as np
import torch

import embag
from differential import check_bags, fused_rows, unpack_codes
from embag.importer import import_checkpoint
from embag.importer.module_config import torch_rows
from embag.importer.source import Checkpoint, Feature, Table, Tensor
from embagd_process import Embagd
from served import SEED, OwnServerTest, scaled

try:
    import fbgemm_gpu  # noqa: F401
    HAS_FBGEMM = True
except (ImportError, OSError):
    HAS_FBGEMM = False
REQUESTS = 250
LOOKUPS = {8: 'embedding_bag_byte_rowwise_offsets', 4: 'embedding_bag_4bit_rowwise_offsets',
           2: 'embedding_bag_2bit_rowwise_offsets'}
PREPACK = {8: 'embedding_bag_byte_prepack', 4: 'embedding_bag_4bit_prepack',
           2: 'embedding_bag_2bit_prepack'}


def random_rows(rng, rows, dim):
    """Returns f32 rows: some of equal values, of nearly equal ones, and of small and large ones."""
    values = rng.normal(size=(rows, dim)) * 10.0**rng.integers(-3, 3, (rows, 1))
    values[rng.integers(rows)] = 0
    values[rng.integers(rows)] = 0.3
    values[rng.integers(rows)] = -2.5 + 1e-6 * values[0]
    return torch.from_numpy(values.astype('f4'))


def exact_rows(raw, bits, dim):
    """Returns the rows that fused bytes hold: codes, and behind them scale and bias, which are f32
    for 8 bits and f16 for fewer."""
    kind, size = ('<f4', 4) if bits == 8 else ('<f2', 2)
    codes = unpack_codes(raw[:, :-2 * size], bits, dim)
    scales = raw[:, -2 * size:-size].copy().view(kind)
    return fused_rows(scales, codes, raw[:, -size:].copy().view(kind))


class QuantisedRows(OwnServerTest):
    """Tables of one model, each of which an operator quantised."""

    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng([SEED, 31])
        self.tables = {}

    def serve_tables(self):
        """Imports the tables, checks the stored bytes, and returns a client."""
        tables = [Table(Tensor(name, 'U8', raw.shape, torch_rows(raw)), name, None,
                        f'fbgemm_int{bits}', dim) for name, (raw, bits, dim) in self.tables.items()]
        features = [Feature(f'{name}.{reduction}', name, reduction)
                    for name in self.tables for reduction in ('sum', 'mean', 'none')]
        import_checkpoint(Checkpoint('test', (), tables, features), self.repository.join('m'))
        stored = b''
        for directory, _, files in os.walk(self.repository.join('m', '1')):
            for file in files:
                with open(os.path.join(directory, file), 'rb') as opened:
                    stored += opened.read()
        for name, (raw, _, _) in self.tables.items():
            self.assertIn(raw.numpy().tobytes(), stored, name)
        server = Embagd(self.repository.path)
        self.addCleanup(server.stop)
        client = embag.Client(server.wait_ready().address)
        self.addCleanup(client.close)
        return client

    def check_rows(self, client, name, expected):
        """Looks up every row alone."""
        got = client.lookup(name + '.none', np.arange(len(expected)), model='m').values
        np.testing.assert_array_equal(got.view('u4'), expected.numpy().view('u4'))

    def random_request(self, rows, weighted):
        """Returns ids, lengths, and weights or None."""
        lengths = self.rng.integers(0, self.rng.integers(1, 40), self.rng.integers(1, 9))
        ids = self.rng.integers(0, rows, lengths.sum())
        weights = self.rng.normal(size=len(ids)).astype('f4') if weighted else None
        return ids, lengths, weights

    def check_pooled(self, client, name, lookup):
        """Sends random requests. `lookup` is the operator's own pooled lookup, or None."""
        raw, bits, dim = self.tables[name]
        exact = exact_rows(raw.numpy(), bits, dim)
        for case in range(scaled(REQUESTS)):
            reduction = ('sum', 'mean', 'weighted')[self.rng.integers(3)]
            ids, lengths, weights = self.random_request(len(raw), reduction == 'weighted')
            feature = f'{name}.mean' if reduction == 'mean' else f'{name}.sum'
            got = client.lookup(feature, ids, lengths=lengths, weights=weights, model='m').values
            with self.subTest(seed=SEED, table=name, case=case):
                check_bags(got, exact, ids, lengths, weights, reduction)
                if lookup is not None and reduction != 'mean' and len(ids):
                    own = lookup(raw, torch.from_numpy(ids), torch.from_numpy(lengths), weights)
                    check_bags(own.numpy(), exact, ids, lengths, weights, reduction)

    def test_rows_that_torch_packs_are_served_as_its_lookups_return_them(self):
        for bits, prepack in PREPACK.items():
            for dim in (4, 16, 24, 64, 128):
                raw = getattr(torch.ops.quantized, prepack)(random_rows(self.rng, 60, dim))
                self.tables[f't{bits}_{dim}'] = raw, bits, dim

        def lookup(raw, ids, lengths, weights):
            offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
            return getattr(torch.ops.quantized, LOOKUPS[bits])(
                raw, ids, offsets, include_last_offset=True, mode=0,
                per_sample_weights=None if weights is None else torch.from_numpy(weights))

        client = self.serve_tables()
        for name, (raw, bits, _) in self.tables.items():
            each = torch.arange(len(raw))
            self.check_rows(client, name, lookup(raw, each, torch.ones_like(each), None))
            self.check_pooled(client, name, lookup)

    @unittest.skipUnless(HAS_FBGEMM, 'fbgemm_gpu is not installed')
    def test_rows_that_fbgemm_quantises_are_served_as_it_dequantises_them(self):
        own = {}
        for dim in (8, 16, 24, 64, 128):
            values = random_rows(self.rng, 60, dim)
            raw = torch.ops.fbgemm.FloatToFused8BitRowwiseQuantized(values)
            self.tables[f'f8_{dim}'] = raw, 8, dim
            own[f'f8_{dim}'] = torch.ops.fbgemm.Fused8BitRowwiseQuantizedToFloat(raw)
            for bits in (4, 2):
                raw = torch.ops.fbgemm.FloatToFusedNBitRowwiseQuantizedSBHalf(values, bits)
                self.tables[f'f{bits}_{dim}'] = raw, bits, dim
                own[f'f{bits}_{dim}'] = torch.ops.fbgemm.FusedNBitRowwiseQuantizedSBHalfToFloat(
                    raw, bits)
        client = self.serve_tables()
        for name, values in own.items():
            with self.subTest(name):
                self.check_rows(client, name, values)
            self.check_pooled(client, name, None)


if __name__ == '__main__':
    unittest.main()
