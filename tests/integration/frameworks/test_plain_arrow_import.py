"""embag-import: parquet and Arrow files."""

import os
import shutil
from unittest import mock

import numpy as np
import pyarrow as pa
from pyarrow import feather, parquet

from import_run import ImportTest
from served import SEED, scaled

COUNT = 20000
DIM = 8


class Arrow(ImportTest):
    """Files with a column of keys and a column of vectors."""

    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(SEED)
        self.ids = rng.permutation(COUNT).astype('<i8') * 3 - 7
        self.vectors = rng.normal(size=(COUNT, DIM)).astype('<f4')

    def table(self, vectors=None, **columns):
        """Returns a table with keys and vectors, by default of a fixed size."""
        if vectors is None:
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(self.vectors.ravel()), DIM)
        return pa.table({'id': self.ids[:len(vectors)], 'vector': vectors, **columns})

    def assert_imported(self, name, version=1, count=COUNT):
        """Checks keys and rows."""
        np.testing.assert_array_equal(self.keys(name, version), self.ids[:count])
        self.assert_rows(name, self.vectors[:count], version)

    def test_row_groups_and_batches_of_any_size_follow_each_other(self):
        for version, rows in enumerate((1000, 4096, 4097, COUNT), 1):
            parquet.write_table(self.table(), self.join('t.parquet'), row_group_size=rows)
            self.imports('t.parquet', '--version', str(version))
            feather.write_feather(self.table(), self.join('t.feather'), chunksize=rows,
                                  compression=('lz4', 'uncompressed')[version % 2])
            self.imports('t.feather', '--version', str(10 + version))
            self.assert_imported('t', version)
            self.assert_imported('t', 10 + version)

    def test_rows_can_be_read_in_any_order(self):
        from embag.importer import open_source
        parquet.write_table(self.table(), self.join('t.parquet'), row_group_size=3000)
        (table,) = open_source(self.join('t.parquet')).tables
        rng = np.random.default_rng(SEED)
        for begin in rng.integers(0, COUNT - 1, 20):
            end = min(int(begin) + int(rng.integers(1, 7000)), COUNT)
            self.assertEqual(table.tensor.read(int(begin), end).tobytes(),
                             self.vectors[begin:end].tobytes())

    def test_lists_of_variable_type_are_read_if_all_have_the_same_length(self):
        for version, kind in enumerate((pa.list_, pa.large_list), 1):
            vectors = pa.array(list(self.vectors[:5000]), kind(pa.float32()))
            parquet.write_table(self.table(vectors), self.join('t.parquet'))
            self.imports('t.parquet')
            self.assert_imported('t', version, 5000)

    def test_files_of_a_directory_follow_each_other_by_name(self):
        os.mkdir(self.join('items'))
        for number, (begin, end) in enumerate(((0, 7000), (7000, 7000), (7000, COUNT))):
            parquet.write_table(self.table()[begin:end],
                                self.join('items', 'part-%d.parquet' % number))
        with open(self.join('items', '_SUCCESS'), 'wb'):
            pass
        self.imports('items', '--format', 'arrow')
        self.assert_imported('items')
        parquet.write_table(self.table(other=self.ids), self.join('items', 'part-3.parquet'))
        self.refuses('items', '--format', 'arrow', because='has other columns')

    def test_columns_are_chosen_by_type_or_by_name(self):
        parquet.write_table(self.table(other=pa.array(['x'] * COUNT)), self.join('t.parquet'))
        self.assertIn('other: neither the keys nor the vectors', self.imports('t.parquet'))
        parquet.write_table(self.table(other=self.ids), self.join('t.parquet'))
        self.refuses('t.parquet', because=('has 2 columns of keys', '--key-column', 'other int64'))
        self.imports('t.parquet', '--key-column', 'id')
        self.assert_imported('t', 2)
        for name in ('vector', 'none'):
            self.refuses('t.parquet', '--key-column', name, because='is not one of keys')
        self.refuses('t.parquet', '--key-column', 'id', '--vector-column', 'other',
                     because='is not one of vectors')

    def test_ragged_vectors_and_nulls_are_refused_with_their_row(self):
        rows = [row.tolist() for row in self.vectors[:6000]]
        for at, value, because in ((5000, [1.0], 'row 5000 has 1 values, expected 8'),
                                   (4096, None, 'row 4096 is null'), (0, None, 'row 0 is null'),
                                   (17, [1.0] * 7 + [None], 'row 17 has a null at position 7')):
            vectors = pa.array(rows[:at] + [value] + rows[at + 1:], pa.list_(pa.float32()))
            parquet.write_table(self.table(vectors), self.join('t.parquet'))
            self.refuses('t.parquet', because=because)
        keys = pa.array([None if n == 9 else n for n in range(6000)])
        parquet.write_table(pa.table({'id': keys, 'v': pa.array(rows, pa.list_(pa.float32()))}),
                            self.join('t.parquet'))
        self.refuses('t.parquet', because='column id: row 9 is null')

    def test_files_without_rows_or_values_are_refused(self):
        for rows, because in (([], 'has no rows'), ([[], []], 'vectors have no values')):
            vectors = pa.array(rows, pa.list_(pa.float32()))
            parquet.write_table(self.table(vectors), self.join('t.parquet'))
            self.refuses('t.parquet', because=because)

    def test_wide_rows_are_decoded_a_few_at_a_time(self):
        from embag.importer import arrow_file
        for width, rows in ((1, 4096), (256, 4096), (257, 4080), (1 << 20, 1), (1 << 21, 1)):
            self.assertEqual(arrow_file._Column([], 'v', 'F32', width).batch_rows, rows)

    def test_two_columns_of_one_name_are_refused(self):
        table = pa.Table.from_arrays([pa.array([1]), pa.array([[1.0]]), pa.array([[2.0]])],
                                     ['id', 'v', 'v'])
        with pa.OSFile(self.join('t.arrow'), 'wb') as file, \
                pa.ipc.new_file(file, table.schema) as writer:
            writer.write(table)
        self.refuses('t.arrow', '--vector-column', 'v', because='two columns have the same name')

    def test_flipped_bytes_end_neither_the_process_nor_in_a_traceback(self):
        rng = np.random.default_rng(SEED)
        table = self.table().slice(0, 50)
        parquet.write_table(table, self.join('t.parquet'))
        feather.write_feather(pa.table({'id': table['id'], 'vector': table['vector'].cast(
            pa.list_(pa.float32()))}), self.join('t.feather'), compression='uncompressed')
        for name in ('t.parquet', 't.feather'):
            with open(self.join(name), 'rb') as file:
                whole = file.read()
            for _ in range(scaled(100)):
                broken = bytearray(whole)
                for at in rng.integers(4, len(whole), rng.integers(1, 4)):
                    broken[at] = rng.integers(256)
                with open(self.join(name), 'wb') as file:
                    file.write(broken)
                shutil.rmtree(self.out, ignore_errors=True)
                done = self.run_import(name)
                self.assertIn(done.returncode, (0, 1))
                self.assertEqual(done.stderr.count('\n'), done.returncode, done.stderr)

    def test_broken_files_are_told_in_one_line(self):
        rng = np.random.default_rng(SEED)
        parquet.write_table(self.table(), self.join('t.parquet'))
        feather.write_feather(self.table(), self.join('t.feather'), compression='lz4')
        for name in ('t.parquet', 't.feather'):
            with open(self.join(name), 'rb') as file:
                whole = file.read()
            for size in [0, 3, 4, *rng.integers(5, len(whole), 10)]:
                with open(self.join(name), 'wb') as file:
                    file.write(whole[:size])
                self.refuses(name, because=name)
        with open(self.join('t.parquet'), 'wb') as file:
            file.write(b'FEA1' + bytes(100))
        self.refuses('t.parquet', because='expected a parquet file or an Arrow IPC file')
