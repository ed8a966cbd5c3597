"""What a sequence lookup returns: a plain search of the rows that each bag keeps. The values are
those of the lookup that names these rows one by one."""

from dataclasses import dataclass, replace

import numpy as np

import bag_model

ABSENT = -1  # an index that names no row, for rows of zeros


@dataclass
class Sequence:
    """The fields of a request that make it a sequence lookup."""

    max_len: int = 0
    keep_first: bool = False
    pad: bool = False
    unique: bool = False

    def set(self, message):
        """Sets the fields of a BagQuery or FeatureGroup."""
        message.max_len = self.max_len
        message.keep_first = self.keep_first
        message.pad = self.pad
        message.unique = self.unique


@dataclass
class ExpectedSequence:
    """The correct answer of a sequence lookup."""

    rows: bag_model.Expected  # of the lookup that names the rows one by one
    shape: tuple
    lengths: list
    inverse: list
    missing: int


def random_sequence(rng, weighted=False):
    """Returns fields of which at least one is set."""
    max_len = int(rng.choice([0, 1, 2, 3, 5, 50]))
    sequence = Sequence(max_len, bool(max_len and rng.random() < 0.5),
                        bool(max_len and rng.random() < 0.5))
    sequence.unique = bool(not sequence.pad and not weighted and rng.random() < 0.5)
    if sequence == Sequence():
        sequence.max_len = 4
    return sequence


def kept_positions(query, table, sequence):
    """Returns for each bag the positions of the indices that it keeps."""
    def is_kept(position):
        return query.missing != 'skip' or table.row_of(query.indices[position]) >= 0

    bags = [[int(p) for p in bag if is_kept(p)] for bag in bag_model.bag_positions(query)]
    if not sequence.max_len:
        return bags
    if sequence.keep_first:
        return [bag[:sequence.max_len] for bag in bags]
    return [bag[-sequence.max_len:] for bag in bags]


def unique_positions(query, table, positions):
    """Returns the positions at which each row occurs first, and for each position the number of its
    row among them."""
    numbers, firsts, inverse = {}, [], []
    for position in positions:
        row = table.row_of(int(query.indices[position]))
        if row not in numbers:
            numbers[row] = len(firsts)
            firsts.append(position)
        inverse.append(numbers[row])
    return firsts, inverse


def result_positions(query, table, sequence, bags):
    """Returns for each row of the result the position of its index, or ABSENT for padding, and the
    inverse. `bags` are the positions that the bags keep."""
    positions = [p for bag in bags for p in bag]
    if sequence.pad:
        return [p for bag in bags for p in bag + [ABSENT] * (sequence.max_len - len(bag))], []
    return unique_positions(query, table, positions) if sequence.unique else (positions, [])


def expect(query, table, sequence, output_type=None):
    """Returns the correct answer of `query`, which has the layout of its bags."""
    bags = kept_positions(query, table, sequence)
    positions, inverse = result_positions(query, table, sequence, bags)
    shape = (len(bags), sequence.max_len) if sequence.pad else (len(positions),)
    indices = np.array([query.indices[p] if p != ABSENT else ABSENT for p in positions], np.int64)
    weights = query.weights
    if weights is not None:
        weights = np.concatenate([weights, weights[:1]])[positions]
    plain = replace(query, indices=indices, weights=weights, layout=None, num_bags=0,
                    default_index=None, reduction='none', missing='zero')
    missing = sum(not 0 <= query.indices[p] < table.rows
                  for p in bag_model.checked_positions(replace(query, reduction='sum')))
    return ExpectedSequence(bag_model.expect(plain, table, output_type), shape,
                            [len(bag) for bag in bags], inverse, missing)


def check_result(expected, table, result, number=0):
    """Compares the BagResult of a query with the expected answer."""
    got = (result.query, tuple(result.shape), result.missing,
           np.frombuffer(result.lengths, '<i4').tolist(),
           np.frombuffer(result.inverse, '<u4').tolist())
    want = (number, expected.shape + tuple(table.dims), expected.missing, expected.lengths,
            expected.inverse)
    if got != want:
        raise AssertionError('%s, expected %s' % (got, want))
    bag_model.check_values(expected.rows, table, bag_model.TYPE_NAMES[result.type], result.values)
