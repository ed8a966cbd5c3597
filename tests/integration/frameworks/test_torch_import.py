"""embag-import: files of torch.save, from the file to the answer, and malicious files."""

import io
import json
import os
import pickle
import pickletools
import subprocess
import sys
import unittest
import zipfile
from unittest import mock

import numpy as np
import torch

import embag
import served
from embagd_process import Embagd
from import_run import MEASURED_IMPORT, ImportTest
from served import SEED

MAPS_FILES = tuple(int(n) for n in torch.__version__.split('.')[:2]) >= (2, 1)


class Attack:
    """An object whose pickle runs a command when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, ('touch ' + self.path,)


class TorchImportTest(ImportTest):
    """A test with a small model."""

    def setUp(self):
        super().setUp()
        torch.manual_seed(SEED)
        self.model = torch.nn.ModuleDict({
            'user_embedding': torch.nn.EmbeddingBag(50, 8, mode='mean'),
            'item_embedding': torch.nn.Embedding(20, 8).to(torch.bfloat16),
            'half_embedding': torch.nn.Embedding(30, 4).to(torch.float16),
            'over': torch.nn.Linear(8, 100)})

    def save(self, content, **options):
        """Writes m.pt."""
        torch.save(content, self.join('m.pt'), **options)

    def assert_bits(self, version=1):
        """Checks the tables of the model in a version."""
        for name, kind in (('user_embedding', 'F32'), ('item_embedding', 'BF16'),
                           ('half_embedding', 'F16')):
            weight = self.model[name].weight.detach()
            bits = weight.view(torch.int32 if kind == 'F32' else torch.int16).numpy()
            self.assertEqual(self.rows(name, version), (kind, tuple(weight.shape), bits.tobytes()))


class Files(TorchImportTest):
    """Checkpoints."""

    def test_a_state_dict_is_served_to_the_bit(self):
        self.save(self.model.state_dict())
        printed = self.imports('m.pt')
        self.assertIn('over.weight: it has a bias', printed)
        self.assert_bits()
        checked = subprocess.run([served.EMBAG, 'check', os.path.join(self.out, '1')],
                                 capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(checked.returncode, 0, checked.stderr)
        server = Embagd(self.join('repository'))
        self.addCleanup(server.stop)
        with embag.Client(server.wait_ready().address, timeout=60) as client:
            rows = np.arange(50)
            answer = client.lookup('user_embedding', rows, model='shop', reduction='none')
            expected = self.model['user_embedding'].weight.detach().numpy()
            self.assertEqual(answer.values.tobytes(), expected.tobytes())
            answer = client.lookup('item_embedding', rows[:20], model='shop', reduction='none')
            expected = self.model['item_embedding'].weight.detach().view(torch.int16).numpy()
            self.assertEqual(answer.values.tobytes(), expected.tobytes())

    def test_containers_of_training_are_opened_and_optimizers_left(self):
        for version, wrapper in enumerate(('state_dict', 'model', 'model_state_dict', 'module'), 1):
            self.save({wrapper: self.model.state_dict(), 'epoch': 3, 'optimizer': {
                'state': {0: {'exp_avg': torch.zeros(50, 8), 'step': torch.zeros(1)}}}})
            self.assertIn('  optimizer: state of the optimizer\n', self.imports('m.pt'))
            self.assert_bits(version)
        self.save({'state_dict': {'model': {'net': self.model.state_dict()}}})
        self.imports('m.pt', '--replace-config')
        self.assert_bits(5)

    def test_views_and_transposed_tables_have_their_own_rows(self):
        rows = torch.arange(24.).reshape(4, 6)
        tables = {'a': rows.t(), 'b': rows[1:3], 'c': rows[:, 2:5], 'd': rows}
        self.save({**{name + '.emb.weight': value for name, value in tables.items()},
                   'd.emb.weight': torch.nn.Parameter(rows)})
        self.imports('m.pt')
        for name, value in tables.items():
            self.assert_rows(name + '.emb', np.ascontiguousarray(value.numpy()))

    def test_tensors_that_are_no_arrays_are_left(self):
        self.save({'a.emb.weight': torch.zeros(3, 2), 'b.emb.weight': torch.zeros(1, 4).expand(
            10**9, 4), 'c.emb.weight': torch.zeros(3, 2).to_sparse(), 'd.emb': 'text'})
        printed = self.imports('m.pt')
        self.assertIn('b.emb.weight: a tensor that repeats elements', printed)
        self.assertIn('c.emb.weight: a sparse tensor', printed)
        self.assertIn('d.emb: no tensor', printed)

    def test_what_is_read_as_a_whole_is_read_up_to_a_maximum(self):
        from embag.importer import torch_file
        self.save(self.model.state_dict(), _use_new_zipfile_serialization=not MAPS_FILES)
        self.imports('m.pt')
        self.assert_bits()
        size = os.path.getsize(self.join('m.pt'))
        whole = torch_file.WHOLE_BYTES_MAX
        self.addCleanup(setattr, torch_file, 'WHOLE_BYTES_MAX', whole)
        for limit, is_read in ((size, True), (size - 1, False)):
            torch_file.WHOLE_BYTES_MAX = limit
            if is_read:
                self.imports('m.pt')
            else:
                self.refuses('m.pt', because='expected at most %d: ' % limit)

    @unittest.skipUnless(MAPS_FILES, 'this torch cannot map files')
    def test_memory_does_not_grow_with_the_file(self):
        code = 'import torch\n' + MEASURED_IMPORT
        self.save({'emb.weight': torch.zeros(1 << 20, 128)})
        done = subprocess.run([sys.executable, '-I', '-B', '-c', code, self.join('m.pt'), self.out],
                              capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLess(int(done.stdout), 64 << 10)


class Shards(TorchImportTest):
    """Lists of shards."""

    def test_tables_of_all_shards_are_imported(self):
        os.mkdir(self.join('hub'))
        weight_map = {}
        for number, (name, value) in enumerate(self.model.state_dict().items()):
            weight_map[name] = 'pytorch_model-%d.bin' % number
            torch.save({name: value, 'unlisted.emb.weight': value},
                       self.join('hub', weight_map[name]))
        index = self.join('hub', 'pytorch_model.bin.index.json')
        with open(index, 'w', encoding='utf-8') as file:
            json.dump({'weight_map': weight_map}, file)
        self.assertNotIn('unlisted', self.imports('hub', '--format', 'torch'))
        self.assert_bits()
        with open(index, 'w', encoding='utf-8') as file:
            json.dump({'weight_map': {'x': '../m.pt'}}, file)
        self.save(self.model.state_dict())
        self.refuses('hub', '--format', 'torch', because='expected one in the same directory')


class Attacks(TorchImportTest):
    """Files that are not what torch.save writes."""

    def test_nothing_but_tensors_is_unpickled(self):
        marker = self.join('ran')
        for options in ({}, {'_use_new_zipfile_serialization': False}):
            for content in ({'state_dict': self.model.state_dict(), 'x': Attack(marker)},
                            Attack(marker), [Attack(marker)]):
                self.save(content, **options)
                self.refuses('m.pt', because=('weights_only=True', 'posix.system'))
        with open(self.join('m.pt'), 'wb') as file:
            pickle.dump(Attack(marker), file)
        self.refuses('m.pt', because='weights_only=True')
        self.save(self.model)
        self.refuses('m.pt', because='weights_only=True')
        self.assertFalse(os.path.exists(marker))

    def test_other_contents_are_refused(self):
        self.save([1, 2])
        self.refuses('m.pt', because='holds a list, expected a state_dict')
        torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), self.join('m.pt'))
        self.refuses('m.pt', because='TorchScript')
        for data in (b'', b'text', b'PK\3\4', b'PK\3\4' + bytes(100), b'\x80\2}q\0.'[:5]):
            with open(self.join('m.pt'), 'wb') as file:
                file.write(data)
            self.refuses('m.pt', because='m.pt: ')

    def test_files_that_are_cut_off_anywhere_are_refused(self):
        self.save(self.model.state_dict())
        with open(self.join('m.pt'), 'rb') as file:
            whole = file.read()
        rng = np.random.default_rng(SEED)
        for size in [len(whole) - 1, *rng.integers(1, len(whole), 20)]:
            with open(self.join('m.pt'), 'wb') as file:
                file.write(whole[:size])
            self.refuses('m.pt', because='m.pt: ')

    def test_flipped_bytes_never_end_in_a_traceback(self):
        self.save(self.model.state_dict())
        with open(self.join('m.pt'), 'rb') as file:
            whole = file.read()
        rng = np.random.default_rng(SEED)
        for _ in range(served.scaled(200)):
            broken = bytearray(whole)
            for at in rng.integers(0, 1500, rng.integers(1, 4)):
                broken[at] = rng.integers(256)
            with open(self.join('m.pt'), 'wb') as file:
                file.write(broken)
            done = self.run_import('m.pt', '--dry-run')
            self.assertIn(done.returncode, (0, 1))
            self.assertEqual(done.stderr.count('\n'), done.returncode)

    def rewrite(self, change, compression=zipfile.ZIP_STORED):
        """Writes m.pt again, with the entries that `change` makes of each name and content."""
        content = io.BytesIO()
        torch.save(self.model.state_dict(), content)
        with zipfile.ZipFile(content) as old, \
                zipfile.ZipFile(self.join('m.pt'), 'w', compression) as new:
            for name in old.namelist():
                for inner, data in change(name, old.read(name)):
                    new.writestr(inner, data)

    def test_archives_that_torch_does_not_write_are_refused(self):
        self.rewrite(lambda name, data: [(name, data)], zipfile.ZIP_DEFLATED)
        self.refuses('m.pt', because='is compressed')
        self.rewrite(lambda name, data: [(name, data), ('../../out', b'x')]
                     if name.endswith('data.pkl') else [(name, data)])
        self.refuses('m.pt', because='has a name that leaves the archive')
        self.rewrite(lambda name, data: [(name, data), ('/out', b'x')]
                     if name.endswith('data.pkl') else [(name, data)])
        self.refuses('m.pt', because='has a name that leaves the archive')

    def test_a_pickle_is_read_up_to_a_maximum(self):
        from embag.importer import torch_file
        self.save(self.model.state_dict())
        with zipfile.ZipFile(self.join('m.pt')) as archive:
            size = next(e.file_size for e in archive.infolist() if e.filename.endswith('data.pkl'))
        whole = torch_file.PICKLE_BYTES_MAX
        self.addCleanup(setattr, torch_file, 'PICKLE_BYTES_MAX', whole)
        for limit, is_read in ((size, True), (size - 1, False)):
            torch_file.PICKLE_BYTES_MAX = limit
            if is_read:
                self.imports('m.pt')
            else:
                self.refuses('m.pt', because='expected at most %d' % limit)

    def test_instructions_of_a_pickle_are_read_up_to_a_maximum(self):
        from embag.importer import torch_file
        for is_zip in True, False:
            self.save(self.model.state_dict(), _use_new_zipfile_serialization=is_zip)
            with open(self.join('m.pt'), 'rb') as file:
                if is_zip:
                    with zipfile.ZipFile(file) as archive:
                        name = next(n for n in archive.namelist() if n.endswith('data.pkl'))
                        count = len(list(pickletools.genops(archive.read(name))))
                else:
                    count = sum(len(list(pickletools.genops(file))) for _ in range(5))
            for limit, is_read in ((count, True), (count - 1, False)):
                with mock.patch.object(torch_file, 'INSTRUCTIONS_MAX', limit):
                    if is_read:
                        self.imports('m.pt')
                    else:
                        self.refuses('m.pt', because='more than %d instructions' % limit)

    def test_the_directory_of_an_archive_is_read_up_to_a_maximum(self):
        from embag.importer import torch_file
        self.save(self.model.state_dict())
        with zipfile.ZipFile(self.join('m.pt'), 'a') as archive:
            # zipfile always reads the last 64 KiB.
            for number in range(700):
                archive.writestr('%s/%0100d' % (archive.namelist()[0].split('/')[0], number), b'')
        with zipfile.ZipFile(self.join('m.pt')) as archive:
            size = os.path.getsize(self.join('m.pt')) - archive.start_dir - 22
        with mock.patch.object(torch_file, 'DIRECTORY_BYTES_MAX', size):
            self.imports('m.pt')
        with mock.patch.object(torch_file, 'DIRECTORY_BYTES_MAX', size - 1):
            self.refuses('m.pt', because='has %d bytes that are read at once' % size)

    def test_dicts_are_searched_down_to_the_maximum_depth(self):
        from embag.importer.torch_file import DEPTH_MAX
        for depth, is_found in ((DEPTH_MAX, True), (DEPTH_MAX + 1, False)):
            content = {'emb': torch.zeros(3, 2)}
            for _ in range(depth):
                content = {'a': content}
            self.save({**content, 'b.emb': torch.zeros(3, 2)})
            printed = self.imports('m.pt', '--replace-config')
            self.assertEqual('tables:\n  a.' in printed, is_found, printed)
