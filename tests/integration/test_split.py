"""embag split: the files of versions in parts, read back by a separate reader; and embag check of
them."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import numpy as np

import served
from embagd_process import Embagd
from packed_file import PackedFile
from rpc import Client, pb

SALT = '5bd1e995a1b2c3d4'
MASK = (1 << 64) - 1
MODEL_YAML = '''
tables:
  - {name: small, source: tiny, missing: skip}
  - {name: codes, storage: int8, unknown_row: 3, missing: unknown_row}
  - {name: keyed, unknown_row: 17}
  - {name: vector, default_vector: [0.5], unknown_row: default_vector}
features:
  - {name: "a feature", table: codes, reduction: mean, id_map: hash_modulo, seed: 9, max_ids: 5}
  - {name: other, table: keyed, default_index: 7000, missing: zero}
groups:
  - {name: all, features: [other, "a feature"]}
versions: {keep: 3, labels: [{name: stable, version: 4}]}
exclude: ["left_out*"]
'''


def embag(*arguments):
    """Runs the tool; returns its exit status, output and messages."""
    done = subprocess.run([served.EMBAG, *arguments], capture_output=True, text=True, timeout=60,
                          check=False)
    return done.returncode, done.stdout, done.stderr


def mix(number):
    """The finaliser of splitmix64."""
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & MASK
    number = (number ^ number >> 27) * 0x94D049BB133111EB & MASK
    return number ^ number >> 31


def part_of_key(key, parts, salt=int(SALT, 16)):
    """Returns the part that a key belongs to."""
    return mix((int(key) & MASK) ^ salt) % parts


def manifest_of(version):
    """Returns the manifest's text."""
    with open(os.path.join(version, 'manifest.yaml'), encoding='utf-8') as file:
        return file.read()


class WithVersion(unittest.TestCase):
    """A version with tables of several kinds in a model repository."""

    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)
        self.version = self.path('models', 'ranking', '8')
        os.makedirs(self.version)
        rng = np.random.default_rng(3)
        self.keys = rng.integers(-2**63, 2**63, 900, dtype='i8')
        self.keys[5] = 7000
        self.tables = {
            'tiny': rng.standard_normal((9, 4)).astype('f4'),
            'codes': rng.standard_normal((1000, 33)).astype('f4'),
            'keyed': rng.standard_normal((900, 5)).astype('f4'),
            'vector': rng.standard_normal((77, 3)).astype('f2'),
            'numbers': rng.integers(-9, 9, (301, 2), 'i8'),
            'flat': rng.standard_normal(50).astype('f8'),
            'none': np.zeros((0, 3), 'f4'),
            'left_out': np.zeros((10, 3), 'f4'),
        }
        for name, values in self.tables.items():
            np.save(os.path.join(self.version, name + '.npy'), values)
        np.save(os.path.join(self.version, 'keyed.keys.npy'), self.keys)
        self.write('models/ranking/model.yaml', MODEL_YAML)

    def path(self, *names):
        """Returns a path in the test's directory."""
        return os.path.join(self.directory, *names)

    def write(self, name, text):
        """Writes a text file, and returns its path."""
        with open(self.path(name), 'w', encoding='utf-8') as file:
            file.write(text)
        return self.path(name)

    def split(self, parts, *more, out='out'):
        """Splits the version. Returns the path of the new one."""
        code, output, errors = embag('split', self.version, '--parts', str(parts), '--salt', SALT,
                                     '--out', self.path(out), *more)
        self.assertEqual((code, errors), (0, ''), output)
        return self.path(out, 'ranking', '8')

    def place(self, **placements):
        """Returns the flags that place tables."""
        lines = ''.join(f'  - {{name: {name}, placement: {placement}}}\n'
                        for name, placement in placements.items())
        return '--placement', self.write('placement.yaml', 'tables:\n' + lines)

    def whole_rows(self, name, *flags):
        """Returns the rows of a table as `embag pack` packs it whole."""
        packed = self.path('whole.embag')
        if os.path.exists(packed):
            os.remove(packed)
        code, _, errors = embag('pack', os.path.join(self.version, name + '.npy'), packed, *flags)
        self.assertEqual((code, errors), (0, ''))
        return PackedFile(packed).rows()

    def file_of(self, version, name, part=None, parts=None):
        """Reads a packed file of the version."""
        folder = '' if part is None else f'part-{part:05d}-of-{parts:05d}'
        return PackedFile(os.path.join(version, folder, name + '.embag'))


class SplitTest(WithVersion):
    """The files that it writes."""

    def test_deals_rows_by_their_numbers(self):
        rows = self.whole_rows('codes', '--storage', 'int8')
        for parts in 1, 3, 4:
            version = self.split(parts, *self.place(codes='rows'), out=f'out{parts}')
            for part in range(parts):
                file = self.file_of(version, 'codes', part, parts)
                self.assertEqual((file.parts, file.part, file.rows_total, file.unknown_row),
                                 (parts, part, 1000, 3))
                self.assertEqual((file.by_key, file.salt), (0, 0))
                np.testing.assert_array_equal(file.rows(), rows[part::parts])

    def test_deals_keys_by_their_hashes(self):
        rows = self.whole_rows('keyed')
        for parts in 1, 3, 4:
            version = self.split(parts, *self.place(keyed='rows'), out=f'out{parts}')
            for part in range(parts):
                file = self.file_of(version, 'keyed', part, parts)
                here = [i for i in range(900)
                        if i != 17 and part_of_key(self.keys[i], parts) == part] + [17]
                self.assertEqual((file.by_key, file.salt, file.unknown_row, file.rows_total),
                                 (1, int(SALT, 16), 17, 900))
                np.testing.assert_array_equal(file.keys(), self.keys[here])
                np.testing.assert_array_equal(file.rows(), rows[here])

    def test_names_the_key_of_the_row_for_unknown_keys(self):
        for placement in 'rows', 'whole':
            version = self.split(2, *self.place(keyed=placement, codes=placement), out=placement)
            lines = manifest_of(version).splitlines()
            keyed, codes = (next(line for line in lines if f'"{name}"' in line)
                            for name in ('keyed', 'codes'))
            self.assertIn(f'unknown_row: 17, unknown_key: {self.keys[17]},', keyed)
            self.assertNotIn('unknown_key', codes)

    def test_whole_tables_are_as_packed(self):
        version = self.split(2, *self.place(codes='whole', keyed='whole', flat='everywhere'))
        manifest = manifest_of(version)
        for name, flags in ('codes', ('--storage', 'int8')), ('keyed', ()):
            line = next(line for line in manifest.splitlines() if f'"{name}"' in line)
            part = int(line.split('part: ')[1].split(',')[0])
            file = self.file_of(version, name, part, 2)
            self.assertEqual((file.parts, file.by_key), (1, 0))
            np.testing.assert_array_equal(file.rows(), self.whole_rows(name, *flags))
        np.testing.assert_array_equal(self.file_of(version, 'flat').rows(),
                                      self.whole_rows('flat'))

    def test_leaves_out_and_renames_as_model_yaml_says(self):
        version = self.split(2)
        names = [file for _, _, files in os.walk(version) for file in files]
        self.assertNotIn('left_out.embag', names)
        self.assertNotIn('tiny.embag', names)
        self.assertIn('small.embag', names)

    def test_writes_what_is_left_of_model_yaml(self):
        self.split(2)
        with open(self.path('out', 'ranking', 'model.yaml'), encoding='utf-8') as file:
            text = file.read()
        for gone in 'source', 'storage', 'exclude', 'unknown_row: 3':
            self.assertNotIn(gone, text)
        for left in ('missing: UNKNOWN_ROW', 'default_vector: [0.5]', 'unknown_row: default_vector',
                     'id_map: hash_modulo, seed: 9, max_ids: 5', 'default_index: 7000',
                     'features: ["other", "a feature"]', 'keep: 3', '{name: "stable", version: 4}'):
            self.assertIn(left, text)

    def test_keeps_a_model_yaml_that_is_there(self):
        os.makedirs(self.path('out', 'ranking'))
        self.write('out/ranking/model.yaml', 'versions: {keep: 5}\n')
        _, output, _ = embag('split', self.version, '--parts', '2', '--out', self.path('out'))
        self.assertIn('model.yaml: kept as it was', output)
        with open(self.path('out', 'ranking', 'model.yaml'), encoding='utf-8') as file:
            self.assertEqual(file.read(), 'versions: {keep: 5}\n')

    def test_same_salt_gives_the_same_files(self):
        flags = self.place(keyed='rows', codes='rows')
        first = self.split(3, *flags, '--threads', '1')
        second = self.split(3, *flags, '--threads', '5', out='again')
        self.assertEqual(subprocess.run(['diff', '-r', first, second], check=False).returncode, 0)
        code, _, _ = embag('split', self.version, '--parts', '3', '--out', self.path('third'),
                           *flags)
        self.assertEqual(code, 0)
        self.assertNotEqual(manifest_of(first), manifest_of(self.path('third', 'ranking', '8')))

    def test_names_the_lineage(self):
        self.assertIn('lineage: "dlrm-2026"', manifest_of(self.split(2, '--lineage', 'dlrm-2026')))

    def test_dry_run_writes_nothing(self):
        code, output, _ = embag('split', self.version, '--parts', '2', '--dry-run',
                                '--everywhere-below', '1000', '--out', self.path('out'))
        self.assertEqual(code, 0)
        self.assertRegex(output, r'codes +\S+ KiB  whole 0')
        self.assertRegex(output, r'small +144 B  everywhere')
        self.assertIn('2 parts: ', output)
        self.assertFalse(os.path.exists(self.path('out')))

    def test_places_at_most_some_bytes_everywhere(self):
        flags = ('split', self.version, '--parts', '2', '--dry-run')
        # Those of no bytes, of 144 and of 400.
        for limit, names in ((0, ['none']), (143, ['none']), (144, ['none', 'small']),
                             (543, ['none', 'small']), (544, ['flat', 'none', 'small'])):
            code, output, errors = embag(*flags, '--everywhere-bytes-max', str(limit))
            self.assertEqual((code, errors), (0, ''))
            self.assertEqual(sorted(re.findall(r'^(\w+) .* everywhere$', output, re.M)), names)
        code, output, _ = embag(*flags, '--everywhere-bytes-max', '0',
                                *self.place(codes='everywhere'))
        self.assertEqual(code, 0)
        self.assertRegex(output, r'codes .* everywhere')
        self.assertRegex(output, r'small .* (whole|rows)')

    def test_joined_pieces_are_dealt_as_one_table(self):
        rows = self.tables['numbers']
        for i, piece in enumerate(np.array_split(rows, 3)):
            np.save(os.path.join(self.version, f'numbers-{i:05d}-of-00003.npy'), piece)
        os.remove(os.path.join(self.version, 'numbers.npy'))
        version = self.split(4, *self.place(numbers='rows'))
        for part in range(4):
            raw = self.file_of(version, 'numbers', part, 4).rows()
            np.testing.assert_array_equal(raw.view('<i8'), rows[part::4])

    def test_large_tables_are_dealt_in_several_windows(self):
        rows = np.arange(20_000_000, dtype='f4').reshape(-1, 1)
        np.save(os.path.join(self.version, 'large.npy'), rows)
        version = self.split(2, *self.place(large='rows'))
        for part in range(2):
            raw = self.file_of(version, 'large', part, 2).rows()
            np.testing.assert_array_equal(raw.view('<f4'), rows[part::2])


class MetricsTest(WithVersion):
    """Placement by what a server has looked up."""

    def dry_run(self, *flags, text=None):
        """Runs a split that writes nothing, and places no small tables everywhere."""
        done = subprocess.run(
            [served.EMBAG, 'split', self.version, '--parts', '2', '--dry-run',
             '--everywhere-below', '0', *flags],
            input=text, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout, done.stderr

    def assert_refused(self, source, what, text=None):
        """Expects an error that names the source."""
        code, output, errors = self.dry_run('--metrics', source, text=text)
        self.assertEqual((code, output), (1, ''))
        self.assertTrue(errors.startswith(f'embag: {source}: '), errors)
        self.assertIn(what, errors)

    def start(self):
        """Starts a server of the model. Returns it, a client, and the URL of its metrics."""
        server = Embagd(self.path('models'), http='127.0.0.1:0')
        self.addCleanup(server.stop)
        client = Client(server.wait_ready().address)
        self.addCleanup(client.close)
        return server, client, 'http://%s:%d/metrics' % (server.host, server.http_port)

    def test_reads_the_metrics_of_a_server(self):
        _, client, url = self.start()
        _, output, _ = self.dry_run()
        self.assertRegex(output, r'flat +400 B  whole')
        self.assert_refused(url, "nothing has been looked up in model 'ranking' yet")
        client.lookup(pb.LookupRequest(queries=[
            pb.BagQuery(table='flat', indices=[1] * 900, indices_per_bag=2),
            pb.BagQuery(table='small', indices=[1] * 100, indices_per_bag=2),
            pb.BagQuery(table='a feature', indices=[2], num_bags=0, indices_per_bag=1)]))
        code, output, errors = self.dry_run('--metrics', url)
        self.assertEqual((code, errors), (0, ''))
        self.assertRegex(output, r'flat +400 B   89.9% of rows  89.8% of bags  rows\n')
        self.assertRegex(output, r'codes .* 0.1% of rows   0.2% of bags  whole')
        self.assertIn('the busiest has 5', output)

    def test_takes_files_and_standard_input(self):
        text = ('embag_table_bags_total{model="other",table="codes"} 9\n'
                'embag_table_rows_touched_total{model="ranking",table="flat"} 5e3\n'
                'embag_table_bags_total{model="ranking",table="flat"} 5e3\n'
                'embag_table_rows_touched_total{model="ranking",table="gone"} 7\n')
        for flags in ('--metrics', self.write('metrics', text)), ('--metrics', '-'):
            code, output, errors = self.dry_run(*flags, text=text)
            self.assertEqual((code, errors), (0, ''))
            self.assertRegex(output, r'flat .* 100.0% of rows 100.0% of bags  rows\n')
            self.assertRegex(output, r'codes .* not counted +(whole|rows)')

    def test_names_what_is_wrong_with_the_metrics(self):
        server, _, url = self.start()
        self.assert_refused(url.replace('metrics', 'livez'), 'the answer has status 404')
        self.assert_refused(url.replace('metrics', 'healthz'),
                            'there is no embag_table_rows_touched_total in it')
        self.assert_refused(url.replace('http', 'https', 1), 'expected an http:// URL')
        server.stop()
        self.assert_refused(url, 'it cannot be reached (Connection refused)')
        lines = 'embag_table_bags_total{model="m",table="t"} 1\n'
        self.assert_refused('-', "counts of model 'm', but none of 'ranking'", text=lines)
        self.assert_refused('-', 'line 2: invalid sample', text=lines + lines[:-3])
        self.assert_refused(self.path('absent'), 'it cannot be opened')

    def test_excludes_a_placement(self):
        code, _, errors = self.dry_run('--metrics', 'file', *self.place(codes='rows'))
        self.assertEqual(code, 2)
        self.assertIn('--placement and --metrics exclude each other', errors)


class RefusalTest(WithVersion):
    """What it refuses, and what is left then."""

    def assert_refused(self, what, *arguments, status=1):
        """Expects an error, and no visible version."""
        code, _, errors = embag('split', *arguments)
        self.assertEqual(code, status, errors)
        self.assertIn(what, errors)
        visible = os.path.join(self.path('out', 'ranking'), '8')
        self.assertFalse(os.path.exists(visible))

    def test_refuses_wrong_arguments(self):
        out = ('--out', self.path('out'))
        self.assert_refused('--parts', self.version, *out, status=2)
        self.assert_refused('--parts', self.version, '--parts', '513', *out, status=2)
        self.assert_refused('--out', self.version, '--parts', '2', status=2)
        for salt in '0' * 16, 'abc', 'G' * 16:
            self.assert_refused('--salt', self.version, '--parts', '2', '--salt', salt, *out,
                                status=2)
        self.assert_refused('REPOSITORY/MODEL/VERSION', self.path('models'), '--parts', '2', *out)
        self.assert_refused('cannot be opened', self.path('nowhere'), '--parts', '2', *out)

    def test_refuses_wrong_placements(self):
        for text, what in (('tables: [{name: absent, placement: rows}]', "'absent'"),
                           ('tables: [{name: codes, placement: here}]', 'whole or rows'),
                           ('tables: [{name: codes, placement: rows, part: 1}]', 'part'),
                           ('tables: [{name: codes, placement: whole, part: 2}]', '0 to 1'),
                           ('tables: [{name: codes, placement: rows}, {name: codes}]', 'twice'),
                           ('colour: red', 'colour')):
            file = self.write('wrong.yaml', text)
            self.assert_refused(what, self.version, '--parts', '2', '--placement', file, '--out',
                                self.path('out'))

    def test_refuses_names_before_it_writes(self):
        out = ('--parts', '2', '--out', self.path('out'))
        self.assert_refused('lineage', self.version, *out, '--lineage', 'two\nlines')
        self.write('models/ranking/model.yaml',
                   'tables: [{name: x-00000-of-00002, source: codes}]\n')
        self.assert_refused('x-00000-of-00002', self.version, *out)
        self.assertFalse(os.path.exists(self.path('out')))

    def test_refuses_an_existing_version(self):
        version = self.split(2)
        before = manifest_of(version)
        code, _, errors = embag('split', self.version, '--parts', '3', '--out', self.path('out'))
        self.assertEqual(code, 1)
        self.assertIn('exists already', errors)
        self.assertEqual(manifest_of(version), before)

    def test_a_failure_leaves_nothing(self):
        values = self.tables['codes'].copy()
        values[999, 32] = np.inf
        np.save(os.path.join(self.version, 'codes.npy'), values)
        self.assert_refused('inf', self.version, '--parts', '2', '--out', self.path('out'))
        self.assertEqual(os.listdir(self.path('out', 'ranking')), [])

    def test_a_killed_split_shows_no_version(self):
        np.save(os.path.join(self.version, 'large.npy'), np.zeros((30_000_000, 4), 'f4'))
        with subprocess.Popen([served.EMBAG, 'split', self.version, '--parts', '2', '--out',
                               self.path('out')], stderr=subprocess.DEVNULL) as process:
            while process.poll() is None and not os.path.exists(self.path('out', 'ranking')):
                time.sleep(0.001)
            process.send_signal(signal.SIGKILL)
        self.assertNotIn('8', os.listdir(self.path('out', 'ranking')))


class CheckTest(WithVersion):
    """embag check of a version in parts."""

    def setUp(self):
        super().setUp()
        self.parts = self.split(2, *self.place(codes='rows', keyed='rows', numbers='whole'))

    def assert_unsound(self, *what):
        """Expects the check to find an error."""
        code, output, errors = embag('check', self.parts)
        self.assertEqual(code, 1, output)
        for text in what:
            self.assertIn(text, errors)

    def file(self, name, part=0):
        """Returns the path of a part's file."""
        return os.path.join(self.parts, f'part-0000{part}-of-00002', name + '.embag')

    def test_accepts_a_sound_version(self):
        code, output, errors = embag('check', self.parts)
        self.assertEqual((code, errors), (0, ''))
        self.assertIn('2 parts and 7 tables are as the manifest lists them', output)

    def test_finds_a_changed_byte(self):
        with open(self.file('codes'), 'r+b') as file:
            file.seek(-1, os.SEEK_END)
            last = file.read(1)
            file.seek(-1, os.SEEK_END)
            file.write(bytes([last[0] ^ 1]))
        self.assert_unsound('part-00000-of-00002/codes.embag', 'checksum')

    def test_finds_a_missing_file(self):
        os.remove(self.file('keyed', 1))
        self.assert_unsound('part-00001-of-00002/keyed.embag')

    def test_finds_another_unknown_key(self):
        path = os.path.join(self.parts, 'manifest.yaml')
        text = manifest_of(self.parts)
        with open(path, 'w', encoding='utf-8') as file:
            file.write(text.replace(f'unknown_key: {self.keys[17]},', 'unknown_key: 5,'))
        self.assert_unsound('part-00000-of-00002/keyed.embag', f'key {self.keys[17]}',
                            'the manifest says 5')

    def test_finds_a_file_of_another_part(self):
        shutil.copy(self.file('codes', 1), self.file('codes'))
        self.assert_unsound('part-00000-of-00002/codes.embag', 'part 1 of 2', 'split together')

    def test_finds_a_file_of_another_split(self):
        other = self.split(2, *self.place(codes='rows', keyed='rows'), out='other')
        shutil.rmtree(other)
        np.save(os.path.join(self.version, 'codes.npy'), self.tables['codes'] + 1)
        other = self.split(2, *self.place(codes='rows', keyed='rows'), out='other')
        shutil.copy(os.path.join(other, 'part-00000-of-00002', 'codes.embag'), self.file('codes'))
        self.assert_unsound('part-00000-of-00002/codes.embag', 'digest')

    def test_finds_a_file_more(self):
        shutil.copy(self.file('codes'), os.path.join(self.parts, 'codes.embag'))
        self.assert_unsound('codes.embag: the manifest does not list this file here')

    def test_names_an_error_of_the_manifest(self):
        with open(os.path.join(self.parts, 'manifest.yaml'), 'a', encoding='utf-8') as file:
            file.write('colour: red\n')
        self.assert_unsound('manifest', 'colour')


if __name__ == '__main__':
    unittest.main()
