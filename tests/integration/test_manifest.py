"""Manifests of versions: what embag manifest writes, and what the server makes of it."""

import os
import re
import shutil
import subprocess
import unittest

import numpy as np
import yaml

import served
from embagd_process import wait_until
from served import SEED, OwnServerTest
from table_files import Table, write_model

ROWS = 20000  # of 64 f32: 5 MB, so that versions share the table
SECONDS = 30


def fields_of(line):
    """Returns a log line's keys and values."""
    return dict(re.findall(r'(\w+)=("[^"]*"|\S+)', line))


class Manifests(OwnServerTest):
    """A version with a large and a small table."""

    def setUp(self):
        super().setUp()
        rng = np.random.default_rng([SEED, 71])
        self.tables = [Table.of_values('large', 'f32', rng.normal(size=(ROWS, 64))),
                       Table.of_values('small', 'f32', rng.normal(size=(10, 4)))]
        write_model(self.repository.path, 'spec', 1, self.tables)
        self.version = self.repository.join('spec', '1')

    def manifest(self, *arguments, status=0):
        """Runs embag manifest. Returns its output and errors."""
        done = subprocess.run([served.EMBAG, 'manifest', *arguments], capture_output=True,
                              text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout + done.stderr

    def listed(self):
        """Returns the manifest's files by name."""
        with open(os.path.join(self.version, 'manifest.yaml'), encoding='utf-8') as file:
            manifest = yaml.safe_load(file)
        self.assertEqual((manifest['format'], manifest['parts']), (1, 1))
        return {entry['name']: entry for entry in manifest['files']}

    def flip(self, name):
        """Changes a byte of a file, and keeps its size and times."""
        path = os.path.join(self.version, name)
        status = os.stat(path)
        with open(path, 'r+b') as file:
            file.seek(3000)
            byte = file.read(1)
            file.seek(3000)
            file.write(bytes([byte[0] ^ 1]))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    def test_it_lists_sizes_and_digests(self):
        self.assertIn('2 files', self.manifest(self.version))
        files = self.listed()
        self.assertEqual(sorted(files), ['large.npy', 'small.npy'])
        for name, entry in files.items():
            path = os.path.join(self.version, name)
            self.assertEqual(entry['bytes'], os.path.getsize(path))
            if shutil.which('xxhsum'):
                told = subprocess.run(['xxhsum', '-H3', path], capture_output=True, text=True,
                                      check=True).stdout
                self.assertIn(entry['xxh3_64'], told)
        self.assertIn('as the manifest lists them', self.manifest('--check', self.version))
        self.assertEqual(sorted(os.listdir(self.version)),
                         ['large.npy', 'manifest.yaml', 'small.npy'])

    def test_a_check_finds_every_difference(self):
        self.manifest(self.version)
        self.flip('large.npy')
        with open(os.path.join(self.version, 'small.npy'), 'ab') as file:
            file.write(b'x')
        write_model(self.repository.path, 'other', 1, [self.tables[1]])
        shutil.copy(self.repository.join('other', '1', 'small.npy'),
                    os.path.join(self.version, 'more.npy'))
        told = self.manifest('--check', self.version, status=1)
        self.assertRegex(told, r'large\.npy: its digest is [0-9a-f]{16}, but')
        self.assertRegex(told, r'small\.npy: it has \d+ bytes, but')
        self.assertIn('more.npy: the manifest does not list it', told)

    def test_a_packed_table_has_the_digest_of_its_header(self):
        packed = os.path.join(self.version, 'large.embag')
        subprocess.run([served.EMBAG, 'pack', os.path.join(self.version, 'large.npy'), packed],
                       check=True, capture_output=True, timeout=60)
        os.remove(os.path.join(self.version, 'large.npy'))
        self.manifest(self.version)
        with open(packed, 'rb') as file:
            digest = int.from_bytes(file.read(16)[8:], 'little')
        self.assertEqual(self.listed()['large.embag']['xxh3_64'], '%016x' % digest)
        self.manifest('--check', self.version)
        self.serve()
        with open(packed, 'r+b') as file:
            file.seek(100000)
            byte = file.read(1)
            file.seek(100000)
            file.write(bytes([byte[0] ^ 1]))
        self.assertIn('checksum', self.manifest('--check', self.version, status=1))

    def test_it_refuses_what_is_not_a_version(self):
        self.assertIn('MODEL/VERSION', self.manifest(self.repository.path, status=1))
        self.assertIn('nowhere', self.manifest('/nowhere', status=1))
        self.assertIn('manifest.yaml', self.manifest('--check', self.version, status=1))
        self.manifest(status=2)

    def test_a_copy_shares_tables_without_reading(self):
        self.manifest(self.version)
        server = self.serve('--watch-poll-ms', '100', '--log-level', 'debug')
        shutil.copytree(self.version, self.repository.join('spec', '.2'),
                        copy_function=shutil.copy2)
        os.rename(self.repository.join('spec', '.2'), self.repository.join('spec', '2'))
        line = wait_until(
            lambda: next((line for line in list(server.lines)
                          if 'event=model_loaded' in line and 'version=2' in line), None),
            SECONDS, 'version 2')
        self.assertGreater(int(fields_of(line)['shared_bytes']), ROWS * 256 - 1)
        self.assertIsNone(server.find('manifest_stale'))

    def test_a_version_that_is_not_as_listed_is_refused_until_it_is_mended(self):
        self.manifest(self.version)
        server = self.serve('--watch-poll-ms', '100')
        shutil.copytree(self.version, self.repository.join('spec', '.2'),
                        copy_function=shutil.copy2)
        path = self.repository.join('spec', '.2', 'small.npy')
        shutil.move(path, path + '.whole')
        with open(path + '.whole', 'rb') as whole, open(path, 'wb') as file:
            file.write(whole.read()[:-4])
        os.rename(self.repository.join('spec', '.2'), self.repository.join('spec', '2'))
        line = wait_until(lambda: server.find('model_failed'), SECONDS, 'event=model_failed')
        self.assertIn('the manifest lists', line)
        path = self.repository.join('spec', '2', 'small.npy')
        os.rename(path + '.whole', path)
        wait_until(lambda: 'version=2' in str([line for line in list(server.lines)
                                               if 'event=model_loaded' in line]),
                   SECONDS, 'version 2')

    def test_a_version_may_exist_only_when_it_has_a_manifest(self):
        self.manifest(self.version)
        with open(self.repository.join('spec', 'model.yaml'), 'w', encoding='utf-8') as file:
            file.write('require_manifest: true\n')
        write_model(self.repository.path, 'spec', 2, self.tables)
        server = self.serve('--watch-poll-ms', '100')
        self.assertEqual(self.connect(server).get_model('spec').served_version, 1)
        self.assertNotIn('version=2', server.log)
        self.manifest(self.repository.join('spec', '2'))
        wait_until(lambda: 'version=2' in str([line for line in list(server.lines)
                                               if 'event=model_serving' in line]),
                   SECONDS, 'version 2')

    def test_a_file_newer_than_the_manifest_is_reported(self):
        self.manifest(self.version)
        path = os.path.join(self.version, 'large.npy')
        later = os.stat(os.path.join(self.version, 'manifest.yaml')).st_mtime_ns + 10**9
        os.utime(path, ns=(later, later))
        server = self.serve()
        self.assertIn('large.npy', server.find('manifest_stale'))


if __name__ == '__main__':
    unittest.main()
