"""Runs embag-sync, and writes repositories with versions in parts for it."""

import contextlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import served
from import_run import Done
from served import SEED
from table_files import Table, write_model

PARTS = 3
SALT = '0123456789abcdef'
PLACEMENT = '''
tables:
  - {name: rows, placement: rows}
  - {name: same, placement: rows}
  - {name: whole, placement: whole, part: 1}
  - {name: small, placement: everywhere}
'''


def command(*arguments):
    """Returns the command line of embag-sync."""
    return [sys.executable, '-I', '-B', '-m', 'embag.sync.cli', *arguments]


def part_folder(part, parts=PARTS):
    """Returns the name of a part's folder."""
    return 'part-%05d-of-%05d' % (part, parts)


def read(*names):
    """Returns the bytes of a file."""
    with open(os.path.join(*names), 'rb') as file:
        return file.read()


def files_below(folder):
    """Returns the bytes of all files below a folder, by their paths in it. Leaves out what
    embag-sync notes for itself."""
    return {os.path.relpath(os.path.join(at, name), folder): read(at, name)
            for at, _, names in os.walk(folder) if '.embag-sync' not in at for name in names}


class SyncTest(unittest.TestCase):
    """A test with the repository `source`, which has the model m with versions in three parts, and
    the directory `copy`, to which it is copied."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix='embag-test-')
        self.addCleanup(shutil.rmtree, self.folder)
        self.rng = np.random.default_rng([SEED, 17])
        self.same = Table.of_values('same', 'f32', self.rng.normal(size=(3000, 64)))
        self.url = self.join('source')
        self.rows = {}
        with open(self.join('placement.yaml'), 'w', encoding='utf-8') as file:
            file.write(PLACEMENT)

    def join(self, *names):
        """Returns a path in the folder."""
        return os.path.join(self.folder, *names)

    def write_version(self, number, model='m', parts=PARTS, out='source', count=9000):
        """Writes a version in parts. Its table `same` is that of all versions, and `rows` has
        `count` rows."""
        rows = Table.of_values('rows', 'f32', self.rng.integers(-9, 9, (count, 64)))
        self.rows[number] = rows.values
        write_model(self.join('whole'), model, number, [
            rows, self.same, Table.of_values('small', 'f32', [[number, 2]]),
            Table.of_values('whole', 'f32', self.rng.normal(size=(50, 4)))])
        done = subprocess.run(
            [served.EMBAG, 'split', self.join('whole', model, str(number)), '--parts', str(parts),
             '--salt', SALT, '--placement', self.join('placement.yaml'), '--out', self.join(out)],
            capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def write_config(self, text, model='m', out='source'):
        """Writes the model.yaml of the source."""
        with open(self.join(out, model, 'model.yaml'), 'w', encoding='utf-8') as file:
            file.write(text)

    def run_sync(self, *options, to='copy'):
        """Runs embag-sync in this process. Returns the exit status and both outputs."""
        from embag.sync.cli import main
        stdout, stderr = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            try:
                status = main([self.url, self.join(to), *options])
            except SystemExit as ended:
                status = ended.code
        return Done(status, stdout.getvalue(), stderr.getvalue())

    def syncs(self, *options, to='copy'):
        """Runs embag-sync, which must succeed. Returns what it printed."""
        done = self.run_sync(*options, to=to)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def refuses(self, *options, because, to='copy', status=1):
        """Runs embag-sync, which must fail with lines that have all of `because`."""
        done = self.run_sync(*options, to=to)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        for text in (because,) if isinstance(because, str) else because:
            self.assertIn(text, done.stderr)
        if status == 1:
            self.assertTrue(done.stderr.startswith('embag-sync: '), done.stderr)
        return done

    def versions(self, to='copy', model='m'):
        """Returns the names of the versions that were copied."""
        folder = self.join(to, model)
        return sorted(name for name in os.listdir(folder) if name.isdecimal()) \
            if os.path.isdir(folder) else []

    def part_files(self, number, part, source='source', model='m', parts=PARTS):
        """Returns what a part server needs of a version, by path in the version."""
        version = self.join(source, model, str(number))
        folder = part_folder(part, parts)
        found = {os.path.join(folder, name): data
                 for name, data in files_below(os.path.join(version, folder)).items()}
        return {'manifest.yaml': read(version, 'manifest.yaml'), **found}

    def assert_part(self, number, part, to='copy'):
        """Checks that the copy has a version's part, and nothing else of the version."""
        self.assertEqual(files_below(self.join(to, 'm', str(number))),
                         self.part_files(number, part))
