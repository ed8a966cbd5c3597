"""Runs embag-import, and writes checkpoints for it."""

import contextlib
import io
import os
import shutil
import sys
import tempfile
import unittest
from collections import namedtuple

import numpy as np

from table_files import safetensors_bytes

# The result of a run, with the names of subprocess.CompletedProcess.
Done = namedtuple('Done', 'returncode stdout stderr')
# A program that imports its first argument as its second one. It prints the most KiB by which its
# anonymous memory grew.
MEASURED_IMPORT = '''
import sys
from embag.importer import import_checkpoint, open_source

def anonymous():
    with open('/proc/self/status') as file:
        return next(int(line.split()[1]) for line in file if line.startswith('RssAnon'))

def advance(size):
    global most
    most = max(most, anonymous() - base)

most, base = 0, anonymous()
import_checkpoint(open_source(sys.argv[1]), sys.argv[2], advance=advance)
print(most)
'''
# Names of NumPy's types in safetensors files.
_KINDS = {'f': 'F', 'i': 'I', 'u': 'U'}


def type_name(dtype):
    """Returns the name of a type in safetensors files, such as 'F32'."""
    return '%s%d' % (_KINDS[dtype.kind], 8 * dtype.itemsize)


def command(*arguments):
    """Returns the command line of embag-import."""
    return [sys.executable, '-I', '-B', '-m', 'embag.importer.cli', *arguments]


def write_tensors(path, tensors, metadata=None):
    """Writes a safetensors file.

    `tensors` has, by name, an array, or a pair of the name of a type and an array of its bits.
    """
    entries, data = {'__metadata__': metadata} if metadata else {}, b''
    for name, value in tensors.items():
        dtype, array = value if isinstance(value, tuple) else (type_name(value.dtype), value)
        body = np.ascontiguousarray(array).tobytes()
        entries[name] = {'dtype': dtype, 'shape': list(array.shape),
                         'data_offsets': [len(data), len(data) + len(body)]}
        data += body
    with open(path, 'wb') as file:
        file.write(safetensors_bytes(entries, data))


def tree(folder):
    """Returns all paths below a folder, relative to it."""
    return sorted(os.path.relpath(os.path.join(at, name), folder)
                  for at, folders, names in os.walk(folder) for name in folders + names)


class ImportTest(unittest.TestCase):
    """A test with a folder of its own, and with the model REPOSITORY/shop to import to."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix='embag-test-')
        self.addCleanup(shutil.rmtree, self.folder)
        self.out = self.join('repository', 'shop')
        os.mkdir(self.join('repository'))

    def join(self, *names):
        """Returns a path in the folder."""
        return os.path.join(self.folder, *names)

    def run_import(self, source, *options):
        """Runs embag-import on a file of the folder, in this process. Returns the exit status and
        both outputs."""
        from embag.importer.cli import main
        stdout, stderr = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            try:
                status = main([self.join(source), '--out', self.out, *options])
            except SystemExit as ended:
                status = ended.code
        return Done(status, stdout.getvalue(), stderr.getvalue())

    def imports(self, source, *options):
        """Runs embag-import, which must succeed. Returns what it printed."""
        done = self.run_import(source, *options)
        self.assertEqual((done.returncode, done.stderr), (0, ''), done.stdout)
        return done.stdout

    def refuses(self, source, *options, because, status=1):
        """Runs embag-import, which must fail with one line that has all of `because`, and must
        leave nothing behind."""
        before = tree(self.join('repository'))
        done = self.run_import(source, *options)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        for text in (because,) if isinstance(because, str) else because:
            self.assertIn(text, done.stderr)
        if status == 1:
            self.assertEqual(done.stderr.count('\n'), 1, done.stderr)
            self.assertTrue(done.stderr.startswith('embag-import: '), done.stderr)
        self.assertEqual(tree(self.join('repository')), before)

    def config(self):
        """Returns the text of the model.yaml that was written."""
        with open(os.path.join(self.out, 'model.yaml'), encoding='utf-8') as file:
            return file.read()

    def rows(self, table, version=1):
        """Returns type name, shape and bytes of a table that was written."""
        from embag.importer.safetensors_file import read_tensors
        (tensor,) = read_tensors(os.path.join(self.out, str(version), table + '.safetensors'))
        return tensor.dtype, tensor.shape, tensor.read(0, tensor.shape[0]).tobytes()

    def keys(self, table, version=1):
        """Returns the keys of a table that was written."""
        return np.load(os.path.join(self.out, str(version), table + '.keys.npy'))

    def assert_rows(self, table, array, version=1):
        """Checks that a table has the bits of an array."""
        dtype, shape, data = self.rows(table, version)
        self.assertEqual((dtype, shape), (type_name(array.dtype), array.shape))
        self.assertEqual(data, array.tobytes())
