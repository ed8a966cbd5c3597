"""Writes the repositories for the figures of models."""

import os

import numpy as np

CHUNK_ROWS = 1 << 20
KEY_FACTOR = 2654435761     # a prime above any number of rows, so that all keys are different
NAME = 'items'
DIM = 16


def write_many(path, models, tables, rows, dim):
    """Writes models m00, m01, ... with tables t000, t001, ..., all of the same shape."""
    values = np.random.default_rng(5).random((rows, dim), dtype='f4')
    for model in range(models):
        folder = os.path.join(path, 'm%02d' % model, '1')
        os.makedirs(folder)
        for table in range(tables):
            values[0, 0] = model * tables + table
            np.save(os.path.join(folder, 't%03d.npy' % table), values)


def keys_of(rows, rows_total):
    """Returns the keys of rows: a permutation of the numbers below the table's number of rows."""
    return rows * KEY_FACTOR % rows_total


class KeyedTable:
    """A large keyed table of f32 as npy files.

    Its rows repeat every CHUNK_ROWS, apart from the first column, which counts the repetitions.
    """

    def __init__(self, rows):
        self.rows = rows
        self.chunk = np.random.default_rng(7).random((min(rows, CHUNK_ROWS), DIM), dtype='f4')

    def write(self, folder):
        """Writes FOLDER/items.npy and FOLDER/items.keys.npy."""
        os.makedirs(folder)
        values = self._create(folder, NAME + '.npy', '<f4', (self.rows, DIM))
        keys = self._create(folder, NAME + '.keys.npy', '<i8', (self.rows,))
        for begin in range(0, self.rows, CHUNK_ROWS):
            rows = np.arange(begin, min(begin + CHUNK_ROWS, self.rows))
            values[rows[0]:rows[-1] + 1] = self.values(rows)
            keys[rows[0]:rows[-1] + 1] = keys_of(rows, self.rows)

    @staticmethod
    def _create(folder, name, dtype, shape):
        return np.lib.format.open_memmap(
            os.path.join(folder, name), mode='w+', dtype=dtype, shape=shape)

    def values(self, rows):
        """Returns the values of rows."""
        values = self.chunk[rows % CHUNK_ROWS]
        values[:, 0] = rows // CHUNK_ROWS / 64
        return values
