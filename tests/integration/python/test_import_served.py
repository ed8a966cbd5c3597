"""embag-import, then embagd on what it wrote: lookups return the bits of the checkpoint."""

import os
import subprocess

import numpy as np

import embag
import served
from embagd_process import Embagd, wait_until
from import_run import ImportTest, write_tensors
from served import SEED


class Served(ImportTest):
    """Checkpoints from the file to the answer."""

    def serve(self, version=1):
        """Checks a version, starts a server on the repository, and returns a client."""
        checked = subprocess.run([served.EMBAG, 'check', os.path.join(self.out, str(version))],
                                 capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(checked.returncode, 0, checked.stderr)
        server = Embagd(self.join('repository'))
        self.addCleanup(server.stop)
        client = embag.Client(server.wait_ready().address, timeout=60)
        self.addCleanup(client.close)
        return client

    def test_tables_of_every_type_come_back_to_the_bit(self):
        rng = np.random.default_rng(SEED)
        arrays = {'t%d' % n: rng.normal(size=(100 + n, 8)).astype(kind)
                  for n, kind in enumerate(('<f4', '<f2', '<f8'))}
        bits = (rng.normal(size=(50, 8)).astype('<f4').view('<u4') >> 16).astype('<u2')
        write_tensors(self.join('m.safetensors'), {
            **{'ebc.embedding_bags.%s.weight' % name: array for name, array in arrays.items()},
            'ebc.embedding_bags.t3.weight': ('BF16', bits), 'over.weight': arrays['t0']})
        self.imports('m.safetensors')
        client = self.serve()
        for name, array in {**arrays, 't3': bits}.items():
            answer = client.lookup(name, np.arange(len(array)), model='shop', reduction='none')
            self.assertEqual(answer.values.tobytes(), array.tobytes(), name)
        with self.assertRaises(embag.NotFound):
            client.lookup('over', [0], model='shop', reduction='none')

    def test_a_reduction_is_that_of_the_features(self):
        rows = np.arange(12, dtype='<f4').reshape(4, 3)
        write_tensors(self.join('m.safetensors'), {'emb.b': rows, 'emb.c': rows * 2})
        self.imports('m.safetensors', '--reduction', 'mean', '--name', 'emb.b=a/b: c')
        client = self.serve()
        answer = client.lookup('a/b: c', [0, 2], offsets=[0], model='shop')
        np.testing.assert_array_equal(answer.values, [rows[[0, 2]].mean(0)])

    def test_keys_find_their_rows(self):
        rng = np.random.default_rng(SEED)
        os.mkdir(self.join('dump'))
        keys = rng.permutation(np.arange(-500, 500)).astype('<i8') * 2**50
        rows = rng.normal(size=(1000, 16)).astype('<f4')
        for rank, (begin, end) in enumerate(((0, 300), (300, 1000))):
            for what, array in (('keys', keys), ('values', rows)):
                array[begin:end].tofile(self.join('dump', 'items_emb_%s.rank_%d.world_size_2' % (
                    what, rank)))
        self.imports('dump', '--format', 'raw')
        order = rng.permutation(1000)
        answer = self.serve().lookup('items', keys[order], model='shop', reduction='none')
        self.assertEqual(answer.values.tobytes(), rows[order].tobytes())

    def test_a_storage_is_applied_by_the_server(self):
        rows = np.random.default_rng(SEED).normal(size=(100, 16)).astype('<f4')
        write_tensors(self.join('m.safetensors'), {'emb': rows})
        self.imports('m.safetensors', '--storage', 'int8')
        answer = self.serve().lookup('emb', np.arange(100), model='shop', reduction='none')
        bound = (rows.max(1) - rows.min(1)) / 500
        self.assertTrue((np.abs(answer.values - rows).max(1) <= bound).all())
        self.assertNotEqual(answer.values.tobytes(), rows.tobytes())

    def test_codes_are_served_with_their_scales(self):
        rng = np.random.default_rng(SEED)
        codes = rng.integers(0, 256, (40, 8)).astype(np.uint8)
        scale, bias = rng.random(40).astype('<f4') + 1, rng.normal(size=40).astype('<f4')
        write_tensors(self.join('m.safetensors'), {
            'ebc.t.weight': codes, 'ebc.t.weight_qscale': scale, 'ebc.t.weight_qbias': bias})
        with open(self.join('described.yaml'), 'w', encoding='utf-8') as file:
            file.write('tables: [{name: t, source: t.weight, format: codes_int8, '
                       'scales: t.weight_qscale, biases: t.weight_qbias}]\n')
        self.imports('m.safetensors', '--model-yaml', self.join('described.yaml'))
        answer = self.serve().lookup('t', np.arange(40), model='shop', reduction='none')
        exact = codes * scale[:, None].astype('f8') + bias[:, None].astype('f8')
        np.testing.assert_array_equal(answer.values, exact.astype('f4'))

    def test_a_version_appears_in_a_server_that_runs(self):
        rows = np.arange(12, dtype='<f4').reshape(4, 3)
        write_tensors(self.join('m.safetensors'), {'emb': rows})
        self.imports('m.safetensors')
        client = self.serve()
        write_tensors(self.join('m.safetensors'), {'emb': rows + 1})
        self.imports('m.safetensors')
        wait_until(lambda: client.lookup('emb', [3], num_bags=1, model='shop').version == 2, 60,
                   'version 2')
        self.assertEqual(client.lookup('emb', [3], num_bags=1, model='shop').values[0, 2], 12)
