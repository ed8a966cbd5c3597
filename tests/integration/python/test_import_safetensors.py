"""embag-import: safetensors files, and lists of shards."""

import json
import os

import numpy as np

from import_run import ImportTest, write_tensors
from served import SEED, scaled
from table_files import safetensors_bytes

ROWS = np.arange(24, dtype='<f4').reshape(6, 4)


def header(**fields):
    """Returns the header of a file with one tensor of 6 x 4 F32, some of its fields replaced."""
    entry = {'dtype': 'F32', 'shape': [6, 4], 'data_offsets': [0, 96]}
    return {'emb': {**entry, **fields}}


class Files(ImportTest):
    """Single files."""

    def test_tables_of_every_floating_point_type_keep_their_bits(self):
        arrays = {'emb.a.weight': ROWS, 'emb.b.weight': ROWS.astype('<f2'),
                  'emb.c.weight': ROWS.astype('<f8')}
        bits = ROWS.view('<u4') >> 16
        write_tensors(self.join('m.safetensors'),
                      {**arrays, 'emb.d.weight': ('BF16', bits.astype('<u2'))}, {'format': 'pt'})
        self.imports('m.safetensors')
        for name, array in zip('abc', arrays.values()):
            self.assert_rows(name, array)
        self.assertEqual(self.rows('d'), ('BF16', (6, 4), bits.astype('<u2').tobytes()))

    def test_chunks_of_many_rows_keep_their_order(self):
        rng = np.random.default_rng(1)
        rows = rng.integers(0, 2**32, (40000, 40), dtype=np.uint32).view('<f4')
        write_tensors(self.join('m.safetensors'), {'emb': rows})
        self.imports('m.safetensors')
        self.assertEqual(self.rows('emb')[2], rows.tobytes())

    def refuses_bytes(self, content, because):
        """Checks that a file with this content is refused."""
        with open(self.join('m.safetensors'), 'wb') as file:
            file.write(content)
        self.refuses('m.safetensors', because=because)

    def test_refuses_headers_that_do_not_fit_the_data(self):
        data = ROWS.tobytes()
        two = {**header(), 'two': {'dtype': 'F32', 'shape': [1, 4], 'data_offsets': [80, 96]}}
        for entries, because in (
                (header(data_offsets=[0, 92]), 'has 92 bytes, expected 96'),
                (header(data_offsets=[4, 100]), 'begins at byte 4 of the data, expected 0'),
                (header(data_offsets=[96, 0]), 'expected [begin, end]'),
                (header(data_offsets=[0, True]), 'expected [begin, end]'),
                (header(data_offsets=None), 'expected [begin, end]'),
                (header(shape=[6, -4]), 'shape is [6, -4]'),
                (header(shape=[7, 4], data_offsets=[0, 112]), 'the file is cut off'),
                (header(shape=[5, 4], data_offsets=[0, 80]), 'longer than its header says'),
                (header(shape=[1] * 65), 'expected at most 64 sizes'),
                (header(shape=[2**62, 2**62]), 'has 96 bytes'),
                (header(dtype=7), 'dtype is 7'),
                ({'emb': []}, 'expected an object'),
                (two, 'tensors overlap')):
            self.refuses_bytes(safetensors_bytes(entries, data), because)

    def test_refuses_files_that_are_cut_off_at_any_byte_of_the_header(self):
        whole = safetensors_bytes(header(), ROWS.tobytes())
        for size in (0, 7, 8, 9, len(whole) - 97, len(whole) - 1):
            self.refuses_bytes(whole[:size], 'expected')

    def test_refuses_headers_that_are_not_json(self):
        for text in (b'[]', b'{', b'{"a": 1, "a": 2}', b'\xff\xff', b'[' * 100000,
                     b'{"a": ' * 100000):
            self.refuses_bytes(len(text).to_bytes(8, 'little') + text, 'm.safetensors: ')

    def test_refuses_a_header_of_one_byte_more_than_the_maximum(self):
        from embag.importer.file_bytes import JSON_BYTES_MAX
        for size, because in ((JSON_BYTES_MAX, 'no embedding table found'),
                              (JSON_BYTES_MAX + 1, 'the header has %d bytes' % (
                                  JSON_BYTES_MAX + 1))):
            self.refuses_bytes(size.to_bytes(8, 'little') + b'{}'.ljust(size), because)

    def test_flipped_bytes_never_end_in_a_traceback(self):
        whole = safetensors_bytes(header(), ROWS.tobytes())
        rng = np.random.default_rng(SEED)
        for _ in range(scaled(1000)):
            broken = bytearray(whole)
            for at in rng.integers(0, len(whole) - ROWS.nbytes, rng.integers(1, 4)):
                broken[at] = rng.integers(256)
            with open(self.join('m.safetensors'), 'wb') as file:
                file.write(broken)
            done = self.run_import('m.safetensors', '--dry-run')
            self.assertIn(done.returncode, (0, 1))
            self.assertEqual(done.stderr.count('\n'), done.returncode, bytes(broken))

    def test_tensors_of_unknown_types_are_left(self):
        write_tensors(self.join('m.safetensors'), {
            'emb.a': ROWS, 'emb.b': ('F8_E4M3', np.zeros((3, 2), np.uint8)),
            'emb.c': ('F99', np.zeros(9, np.uint8)), 'emb.d': np.float32(1).reshape(())})
        self.assertIn('emb.b, emb.c: its type is not', self.imports('m.safetensors'))
        self.refuses('m.safetensors', '--tables', 'emb.b', '--version', '9', '--replace-config',
                     because='has the type F8_E4M3')


class Shards(ImportTest):
    """Directories, and lists of shards."""

    def setUp(self):
        super().setUp()
        os.mkdir(self.join('hub'))
        for number in (1, 2):
            write_tensors(self.join('hub', 'model-%05d-of-00002.safetensors' % number),
                          {'model.embed_tokens.weight' if number == 1 else 'other.emb.weight':
                           ROWS + number})

    def list_shards(self, weight_map):
        """Writes the list."""
        with open(self.join('hub', 'model.safetensors.index.json'), 'w', encoding='utf-8') as file:
            json.dump({'weight_map': weight_map}, file)

    def test_tables_of_all_shards_are_imported(self):
        self.list_shards({'model.embed_tokens.weight': 'model-00001-of-00002.safetensors',
                          'other.emb.weight': 'model-00002-of-00002.safetensors'})
        self.imports('hub', '--format', 'safetensors')
        self.imports('hub/model.safetensors.index.json')
        for version in (1, 2):
            self.assert_rows('model.embed_tokens', ROWS + 1, version)
            self.assert_rows('other.emb', ROWS + 2, version)

    def test_refuses_lists_that_name_files_elsewhere(self):
        write_tensors(self.join('out.safetensors'), {'emb': ROWS})
        for name in ('../out.safetensors', self.join('out.safetensors'), '..', '', 'a\0b', 5):
            self.list_shards({'emb': name})
            self.refuses('hub/model.safetensors.index.json',
                         because='expected one in the same directory')

    def test_refuses_lists_of_what_is_not_there(self):
        self.list_shards({'emb': 'model-00001-of-00002.safetensors'})
        self.refuses('hub/model.safetensors.index.json', because='which does not have it')
        self.list_shards({'emb': 'model-00003-of-00002.safetensors'})
        self.refuses('hub/model.safetensors.index.json', because='No such file')
        for weight_map in ({}, [], None):
            self.list_shards(weight_map)
            self.refuses('hub/model.safetensors.index.json', because='has no "weight_map"')

    def test_refuses_shards_without_a_list(self):
        self.refuses('hub', '--format', 'safetensors', because='is one of several shards')

    def test_files_of_a_directory_are_read_together(self):
        os.mkdir(self.join('tables'))
        for name in ('a', 'b'):
            write_tensors(self.join('tables', name + '.safetensors'), {'emb.' + name: ROWS})
        self.imports('tables', '--format', 'safetensors')
        self.assert_rows('b', ROWS)
        write_tensors(self.join('tables', 'c.safetensors'), {'emb.a': ROWS})
        self.refuses('tables', '--format', 'safetensors', because='expected it once')

    def test_directories_are_recognised(self):
        self.list_shards({'model.embed_tokens.weight': 'model-00001-of-00002.safetensors'})
        self.imports('hub')
        os.mkdir(self.join('empty'))
        self.refuses('empty', because='not recognised')
        with open(self.join('text'), 'w', encoding='utf-8') as file:
            file.write('text')
        self.refuses('text', because='not recognised')
        with open(self.join('hub', 'pytorch_model.bin'), 'wb'):
            pass
        self.refuses('hub', because='safetensors or torch, expected one kind')
