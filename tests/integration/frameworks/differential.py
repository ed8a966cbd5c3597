"""Compares served vectors with exact arithmetic and with what a framework returns."""

import numpy as np

EPS = 2.0**-24


class Rows:
    """The rows of a table in f64, which holds them exactly, and their magnitudes: |x| of a float,
    |scale * code| + |bias| of a code."""

    def __init__(self, values, magnitudes=None):
        self.values = np.asarray(values, 'f8')
        self.magnitudes = np.abs(self.values) if magnitudes is None else magnitudes


def fused_rows(scales, codes, biases):
    """Returns rows of codes [rows, dim] with scales and biases [rows, 1]."""
    products = scales.astype('f8') * codes
    biases = biases.astype('f8')
    return Rows(products + biases, np.abs(products) + np.abs(biases))


def unpack_codes(packed, bits, dim):
    """Returns codes [rows, dim] of packed bytes, low bits first."""
    shifts = np.arange(0, 8, bits, 'u1')
    return (packed[..., None] >> shifts & (1 << bits) - 1).reshape(len(packed), -1)[:, :dim]


def check_bag(got, rows, ids, weights, reduction):
    """Checks one pooled vector, f32 [dim], against exact arithmetic and the bound that the server
    promises: (n + 4) eps sum|w x|, and half a unit of the result."""
    weights = np.ones(len(ids)) if weights is None else np.asarray(weights, 'f8')
    exact = (rows.values[ids] * weights[:, None]).sum(axis=0)
    size = (rows.magnitudes[ids] * np.abs(weights)[:, None]).sum(axis=0)
    if reduction == 'mean' and len(ids):
        exact, size = exact / len(ids), size / len(ids)
    bound = (len(ids) + 4) * EPS * size + np.spacing(np.abs(exact).astype('f4')) / 2
    error = np.abs(got.astype('f8') - exact)
    at = np.argmax(error - bound)
    assert np.all(error <= bound), f'column {at}: {got[at]}, expected {exact[at]} +- {bound[at]}'


def check_bags(got, rows, ids, lengths, weights, reduction):
    """Checks pooled vectors [bags, dim]; `ids` and `weights` have those of all bags in order."""
    ends = np.cumsum(lengths)
    assert got.shape == (len(lengths), rows.values.shape[1]), got.shape
    for bag, (begin, end) in enumerate(zip(ends - lengths, ends)):
        check_bag(got[bag], rows, ids[begin:end],
                  None if weights is None else weights[begin:end], reduction)
