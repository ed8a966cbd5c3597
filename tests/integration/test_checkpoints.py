"""Checkpoints as frameworks write them: the tables are served, and everything else is reported."""

import os
import subprocess
import unittest

import numpy as np

import served
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import Embagd, wait_until
from served import OwnServerTest
from table_files import safetensors_bytes


def state_dict(tensors):
    """Builds a safetensors file from (name, dtype of the format, array)."""
    entries, data = {'__metadata__': {'format': 'pt'}}, b''
    for name, dtype, array in tensors:
        body = array.tobytes()
        entries[name] = {'dtype': dtype, 'shape': list(array.shape),
                         'data_offsets': [len(data), len(data) + len(body)]}
        data += body
    return safetensors_bytes(entries, data)


EMB = np.arange(20, dtype='<f4').reshape(5, 4)
# Parameters of nn.EmbeddingBag and nn.BatchNorm1d, a mask, a scalar, a complex and an empty one.
STATE = state_dict([
    ('emb.weight', 'F32', EMB),
    ('bn.weight', 'F32', np.ones(4, '<f4')),
    ('bn.bias', 'F32', np.zeros(4, '<f4')),
    ('bn.num_batches_tracked', 'I64', np.array(7, '<i8')),
    ('mask', 'BOOL', np.ones((5, 4), '?')),
    ('temperature', 'F32', np.array(0.5, '<f4')),
    ('phases', 'C64', np.ones(3, '<c8')),
    ('empty', 'F32', np.ones((4, 0), '<f4')),
])


class Checkpoints(OwnServerTest):
    """One model, described in several ways."""

    def write(self, name, data, version=1):
        """Writes a file of a version."""
        directory = self.repository.join('m', str(version))
        os.makedirs(directory, exist_ok=True)
        with open(os.path.join(directory, name), 'wb') as file:
            file.write(data)

    def describe(self, yaml):
        """Writes model.yaml, by renaming it into place."""
        path = self.repository.join('m', '.model.yaml')
        with open(path, 'w', encoding='utf-8') as file:
            file.write(yaml)
        os.replace(path, self.repository.join('m', 'model.yaml'))

    def start(self):
        """Starts a server of the model, and a client."""
        self.server = Embagd(self.repository.path, '--watch-poll-ms', '100')
        self.addCleanup(self.server.stop)
        self.client = self.connect(self.server.wait_ready())

    def tables(self, version=0):
        """Returns the names of a version's tables."""
        model = self.client.get_model('m')
        number = version or model.served_version
        found, = [v for v in model.versions if v.version == number]
        return sorted(table.name for table in found.tables)

    def check_tool(self, status, pattern):
        """Checks what `embag check` reports about the version."""
        run = subprocess.run([served.EMBAG, 'check', self.repository.join('m', '1')], timeout=60,
                             check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(run.returncode, status, run.stdout + run.stderr)
        self.assertRegex(run.stdout + run.stderr, pattern)

    def test_a_state_dict_with_scalars_and_masks_is_served(self):
        self.write('model.safetensors', STATE)
        self.start()
        self.assertEqual(self.tables(), ['bn.bias', 'bn.weight', 'emb.weight'])
        query = pb.BagQuery(table='emb.weight', indices=[1, 4], num_bags=1)
        result, = self.client.lookup(pb.LookupRequest(model='m', queries=[query])).results
        np.testing.assert_array_equal(np.frombuffer(result.values, '<f4'), EMB[1] + EMB[4])
        lines = [line for line in self.server.log.splitlines() if 'tensors_passed_over' in line]
        self.assertEqual(len(lines), 1, lines)
        self.assertRegex(lines[0],
                         r'level=info .*version=1 count=5 first=.*a scalar is not a table')
        self.assertRegex(lines[0], 'remedy=.*an entry of tables that names one makes it an error')
        self.check_tool(0, r'tensor mask is skipped: .*BOOL(.|\n)*3 tables')

    def test_passes_over_fields_that_it_does_not_know(self):
        entries = {'__metadata__': {'format': 'pt'},
                   'emb': {'dtype': 'F32', 'shape': list(EMB.shape),
                           'data_offsets': [0, EMB.nbytes], 'origin': {'step': [1, 2]}}}
        self.write('model.safetensors', safetensors_bytes(entries, EMB.tobytes()))
        self.start()
        self.assertEqual(self.tables(), ['emb'])
        line = self.server.find('fields_passed_over')
        self.assertRegex(line, r"level=info .*count=1 first=.*model\.safetensors.*: 1, the first "
                               r"of them 'origin'")

    def test_a_described_tensor_that_cannot_be_a_table_fails_the_version(self):
        self.write('model.safetensors', STATE)
        self.describe('tables: [{name: m, source: mask}]')
        log = Embagd(self.repository.path).start_fails()
        self.assertRegex(log,
                         r"m/1/model\.safetensors: tensor 'mask', .*'BOOL' is not an element type")
        self.check_tool(1, r"tensor 'mask', .*'BOOL' is not an element type")

    def test_patterns_choose_tables(self):
        self.write('model.safetensors', STATE)
        self.write('flags.npy', b'broken')
        self.describe("only: ['emb.*', 'bn.*', 'gone']\nexclude: ['*.bias', 'flags']\n")
        self.start()
        self.assertEqual(self.tables(), ['bn.weight', 'emb.weight'])
        line = self.server.find('patterns_unmatched')
        self.assertRegex(line, r"level=warn .*count=1 first='?\"?'gone'")
        self.check_tool(0, r"match no table \(1\): 'gone'(.|\n)*2 tables")

    def test_other_patterns_hold_from_the_next_version_on(self):
        self.write('model.safetensors', STATE)
        self.describe("only: ['emb.*']\n")
        self.start()
        self.describe("only: ['bn.*']\n")
        wait_until(lambda: 'model_described_anew' in self.server.log, 30, 'the new patterns')
        self.write('.model.safetensors', STATE, version='.2')
        os.rename(self.repository.join('m', '.2', '.model.safetensors'),
                  self.repository.join('m', '.2', 'model.safetensors'))
        os.rename(self.repository.join('m', '.2'), self.repository.join('m', '2'))
        wait_until(lambda: self.client.get_model('m').served_version == 2, 30, 'version 2')
        self.assertEqual(self.tables(2), ['bn.bias', 'bn.weight'])
        self.assertEqual(self.tables(1), ['emb.weight'])

    def test_a_contradiction_is_refused(self):
        self.write('model.safetensors', STATE)
        self.describe("exclude: ['emb.*']\ntables: [{name: e, source: emb.weight}]\n")
        self.assertRegex(Embagd(self.repository.path).start_fails(),
                         r"m/model\.yaml: tables\[0\]\.source: 'emb\.weight' is left out")
        self.check_tool(1, r"tables\[0\]\.source: 'emb\.weight' is left out")

    def test_a_version_of_another_format_says_how_it_is_converted(self):
        for name, how in (('model.pt', r'embag-import FILE --out'),
                          ('pytorch_model.bin', r'if torch\.save wrote it: embag-import FILE'),
                          ('a.npz', r'numpy\.load'), ('model.onnx', r'onnx\.load'),
                          ('saved_model.pb', r'embag-import DIRECTORY_OF_FILE'),
                          ('model.ckpt-1.index', r'embag-import FILE')):
            with self.subTest(name):
                self.write(name, b'x')
                log = Embagd(self.repository.path).start_fails()
                self.assertRegex(log, r"m/1: there is no table in it; .*'%s': .*%s" % (name, how))
                self.repository.remove()

    def test_files_of_other_formats_beside_tables_are_passed_over(self):
        self.write('model.safetensors', STATE)
        self.write('model.pt', b'x')
        self.write('optimizer.pt', b'x')
        self.start()
        lines = [line for line in self.server.log.splitlines() if 'files_passed_over' in line]
        self.assertEqual(len(lines), 1, lines)
        self.assertRegex(lines[0], r"level=info .*count=2 first=.*'model\.pt'.*'optimizer\.pt'")

    def test_pack_takes_the_only_table_and_refuses_a_scalar(self):
        self.write('model.safetensors', state_dict([
            ('emb', 'F32', EMB), ('n', 'I64', np.array(7, '<i8'))]))
        path = self.repository.join('m', '1', 'model.safetensors')
        out = self.repository.join('emb.embag')
        subprocess.run([served.EMBAG, 'pack', path, out], check=True, timeout=60,
                       stdout=subprocess.DEVNULL)
        run = subprocess.run([served.EMBAG, 'pack', '--tensor', 'n', path, out], check=False,
                             timeout=60, stderr=subprocess.PIPE, text=True)
        self.assertEqual(run.returncode, 1)
        self.assertIn("tensor 'n': field 'shape': a scalar is not a table", run.stderr)


if __name__ == '__main__':
    unittest.main()
