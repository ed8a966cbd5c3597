"""embag-import: files of keys and values without headers."""

import os

import numpy as np

from import_run import ImportTest

KEYS = np.array([5, -7, 2**62, 0, 1], '<i8')
ROWS = np.arange(40, dtype='<f4').reshape(5, 8)


class Raw(ImportTest):
    """Directories as dynamicemb and HugeCTR write them."""

    def write(self, path, array):
        """Writes the bytes of an array to a file in the directory that is imported."""
        os.makedirs(os.path.dirname(self.join('dump', path)), exist_ok=True)
        array.tofile(self.join('dump', path))

    def write_rank(self, rank, of, begin, end, table='t'):
        """Writes the files of a rank."""
        self.write('model.ec/%s_emb_keys.rank_%d.world_size_%d' % (table, rank, of),
                   KEYS[begin:end])
        self.write('model.ec/%s_emb_values.rank_%d.world_size_%d' % (table, rank, of),
                   ROWS[begin:end])

    def raw_imports(self, *options):
        """Imports the directory."""
        return self.imports('dump', '--format', 'raw', *options)

    def raw_refuses(self, because, *options):
        """Checks that the directory is refused."""
        self.refuses('dump', '--format', 'raw', *options, because=because)

    def test_files_of_all_ranks_follow_each_other(self):
        for rank, begin, end in ((0, 0, 2), (1, 2, 2), (2, 2, 5)):
            self.write_rank(rank, 3, begin, end)
        self.write('model.ec/t_emb_scores.rank_0.world_size_3', KEYS)
        self.write('model.ec/t_opt_args.json', KEYS)
        self.assertIn('neither keys nor values', self.raw_imports())
        np.testing.assert_array_equal(self.keys('t'), KEYS)
        self.assert_rows('t', ROWS)
        self.assertEqual(self.keys('t').dtype, np.int64)

    def test_ten_ranks_are_in_the_order_of_their_numbers(self):
        for rank in range(11):
            self.write_rank(rank, 11, rank % 5, rank % 5 + 1)
        self.raw_imports()
        np.testing.assert_array_equal(self.keys('t'), np.tile(KEYS, 3)[:11])

    def test_directories_of_hps_are_tables(self):
        for name in ('users', 'items'):
            self.write(name + '/key', KEYS)
            self.write(name + '/emb_vector', ROWS)
        self.raw_imports()
        self.assert_rows('users', ROWS)
        self.assert_rows('items', ROWS)
        self.refuses('dump', '--format', 'raw', '--dim', '4', because='rows have 8 values')
        self.imports('dump/users', '--format', 'raw', '--tables', 'users', '--replace-config')
        self.assert_rows('users', ROWS, 2)

    def test_types_are_those_of_the_options(self):
        self.write('t.keys', KEYS.astype('<i4')[[0, 1, 3, 4]])
        self.write('t.values', ROWS[:4].astype('<f2'))
        self.raw_imports('--type', 'f16', '--key-type', 'i32', '--dim', '8')
        np.testing.assert_array_equal(self.keys('t'), [5, -7, 0, 1])
        self.assert_rows('t', ROWS[:4].astype('<f2'))
        self.raw_imports('--type', 'f16', '--key-type', 'u32')
        np.testing.assert_array_equal(self.keys('t', 2), [5, 2**32 - 7, 0, 1])
        self.assertEqual(self.keys('t', 2).dtype, np.uint64)

    def test_tables_of_the_same_name_have_their_directories_before_it(self):
        for folder in 'ab':
            self.write(folder + '/t_keys', KEYS)
            self.write(folder + '/t_values', ROWS)
        self.raw_refuses('--name a/t=NEW')
        self.raw_imports('--name', '*/t=t_*')
        self.assert_rows('t_a', ROWS)
        self.assert_rows('t_b', ROWS)

    def test_refuses_files_that_do_not_fit(self):
        self.write_rank(0, 2, 0, 2)
        self.raw_refuses('the file with the keys and the values of rank 1 is missing')
        self.write_rank(1, 2, 2, 5)
        self.write('model.ec/t_emb_keys.rank_2.world_size_2', KEYS)
        self.raw_refuses('expected ranks below 2')
        os.remove(self.join('dump/model.ec/t_emb_keys.rank_2.world_size_2'))
        self.write('model.ec/t_emb_values.rank_1.world_size_2', ROWS[2:5, :7])
        self.raw_refuses('rows have 7 values, expected 8')
        self.write('model.ec/t_emb_values.rank_1.world_size_2', ROWS.ravel()[:25])
        self.raw_refuses('has 25 values for 3 keys')
        self.write('model.ec/t_emb_values.rank_1.world_size_2', np.zeros(97, np.uint8))
        self.raw_refuses('has 97 bytes, expected a multiple of 4')
        self.write('model.ec/t_emb_keys.rank_1.world_size_2', np.zeros(25, np.uint8))
        self.raw_refuses('has 25 bytes, expected a multiple of 8')
        self.write_rank(0, 4, 0, 2)
        self.raw_refuses('the world size 4, expected 2')

    def test_refuses_a_table_without_rows(self):
        self.write('t.keys', KEYS[:0])
        self.write('t.values', ROWS[:0])
        self.raw_refuses('has no rows')
        self.raw_refuses('expected rows and values', '--dim', '8')
        self.write('t.values', ROWS)
        self.raw_refuses('has 40 values for 0 keys')

    def test_refuses_a_directory_without_pairs(self):
        self.write('t', KEYS)
        self.raw_refuses('has no files of keys and values')
        self.refuses('dump/t', '--format', 'raw', because='expected a directory')
        self.write('t.keys', KEYS)
        self.raw_refuses('the file with the values of rank 0 is missing')
        self.write('t.values', ROWS)
        self.write('t_values', ROWS)
        self.raw_refuses('both have the values of rank 0')

    def test_searches_directories_down_to_the_maximum_depth(self):
        from embag.importer.raw_pairs import DEPTH_MAX
        folders = ['d'] * (DEPTH_MAX + 1)
        for depth, is_found in ((DEPTH_MAX, True), (DEPTH_MAX + 1, False)):
            at = os.path.join(*folders[:depth], 't%d' % depth)
            self.write(at + '.keys', KEYS)
            self.write(at + '.values', ROWS)
            self.assertEqual('t%d ' % depth in self.raw_imports('--replace-config'), is_found)
