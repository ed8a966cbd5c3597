"""The values of the tables that `embag make-model` writes, by the formula in proto/PROTOCOL.md."""

import numpy as np

DIM = 128    # of the tables of dlrm-v2
MASK = (1 << 64) - 1


def mix(number):
    """The finaliser of splitmix64."""
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & MASK
    number = (number ^ number >> 27) * 0x94D049BB133111EB & MASK
    return number ^ number >> 31


def published_row(table, version, row):
    """Returns the values of a row."""
    name = 0xCBF29CE484222325
    for byte in table.encode():
        name = (name ^ byte) * 0x100000001B3 & MASK
    seed = mix(name + version * 0x9E3779B97F4A7C15 & MASK)
    hashes = [mix(seed + row * 0xD1B54A32D192ED03 + group * 0x8CB92BA72F3D8DD7 & MASK)
              for group in range(DIM // 8)]
    return (np.array(hashes, '<u8').view('u1').astype('f4') - 128) / 128


def published_sums(request, version):
    """Returns the sums of a lookup of one bag for each query, as bytes."""
    return [np.sum([published_row(query.table, version, row) for row in query.indices], axis=0,
                   dtype='f4').tobytes() for query in request.queries]
