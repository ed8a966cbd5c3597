"""Directories in a tmpfs, for resident files."""

import os
import shutil
import tempfile

TMPFS = '/dev/shm'


def make_tmpfs_directory(test):
    """Makes a directory in a tmpfs, which is removed when `test` is over. Skips the test if the
    machine has no tmpfs there. Returns the directory's path."""
    if not os.path.isdir(TMPFS):
        test.skipTest('there is no tmpfs at ' + TMPFS)
    path = tempfile.mkdtemp(prefix='embag-test-', dir=TMPFS)
    test.addCleanup(shutil.rmtree, path, ignore_errors=True)
    return path
