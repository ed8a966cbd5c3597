"""A plain reference implementation of lookups.

It is written from their definition and is independent of the server's code. Floating-point sums are
long doubles, integers are Python ints.

For every value it computes an error bound, by which the server's answer may differ: (n + 4) eps
sum|w x| plus half a unit in the last place of the output. Values that must be exact have a bound of
0, and their signs are compared too.
"""

from dataclasses import dataclass

import numpy as np

from element_types import (CANONICAL_NAN, LARGEST, TYPE_NAMES, decode, decode_bytes, raw_bits,
                           unit_in_last_place)

LONG = np.longdouble
ZERO, VECTOR = -1, -2    # in place of row numbers: a row of zeros, and the default vector


@dataclass
class Expected:
    """The correct answer of a query."""

    type: str
    shape: tuple
    missing: int
    values: np.ndarray       # [rows of the result, row elements]
    bounds: np.ndarray       # error bounds, in the same shape; None for integers
    copies: np.ndarray       # [rows of the result] number of the row that is copied, or VECTOR;
                             # -1: computed
    unsure: np.ndarray       # [rows of the result] whether cancellation makes the divisor useless


def bag_positions(query):
    """Returns, for every bag, the positions in `indices` that belong to it, in order."""
    count = len(query.indices)
    if query.layout == 'packed':
        size = query.indices_per_bag
        bags = count // size if size else query.num_bags
        return [range(b * size, (b + 1) * size) for b in range(bags)]
    if query.layout == 'segments':
        bags = [[] for _ in range(query.num_segments)]
        for position, bag in enumerate(query.bounds):
            bags[bag].append(position)
        return bags
    if query.layout is None:
        return [range(count)] if query.num_bags == 1 else [[]] * query.num_bags
    starts = [int(bound) for bound in query.bounds]
    if query.layout == 'lengths':
        starts = [0] + np.cumsum(starts, dtype=np.int64).tolist()
    elif not query.include_last_offset:
        starts.append(count)
    return [range(a, b) for a, b in zip(starts, starts[1:])]


def checked_positions(query):
    """Returns the positions in `indices` that must name rows, in the order of their bags.

    These are the positions in bags, or all positions with NONE or an empty array of offsets.
    """
    if query.reduction == 'none' or (query.layout == 'offsets' and not len(query.bounds)):
        return list(range(len(query.indices)))
    return [int(position) for bag in bag_positions(query) for position in bag]


def wrap(values, type_name):
    """Returns Python ints modulo 2^bits, as values of the type."""
    bits = int(type_name[1:])
    wrapped = values & ((1 << bits) - 1)
    if type_name[0] == 'i':
        wrapped = np.where(wrapped >> (bits - 1) != 0, wrapped - (1 << bits), wrapped)
    return wrapped


def _truncated_quotient(values, count):
    return np.where(values < 0, -(-values // count), values // count)


def _extreme(rows, reduction):
    """Returns the maximum or minimum. Of equal values it keeps the first, and it keeps any NaN."""
    best = rows[0]
    for row in rows[1:]:
        better = row > best if reduction == 'max' else row < best
        best = np.where(better | (row != row), row, best)
    return best


class _Pooling:
    """The computation of one query on one table."""

    def __init__(self, query, table, output_type):
        self.query = query
        self.table = table
        self.type = output_type or table.type
        self.reduction = query.reduction or 'sum'
        self.missing = query.missing or 'error'
        self.eps = LONG(np.finfo('f8' if table.type == 'f64' else 'f4').eps)
        self.tiny = LONG(np.finfo('f8' if table.type == 'f64' else 'f4').smallest_subnormal)
        weighted = query.weights is not None
        self.weights = decode(query.weights, query.weights_type) if weighted else None
        self.missing_count = 0

    def fill(self, bag):
        """Returns a bag's rows, weights and row numbers under its missing policy."""
        rows, weights, numbers = [], [], []
        for position in bag:
            index = int(self.query.indices[position])
            weight = 1 if self.weights is None else self.weights[position]
            row = self.table.row_of(index)
            self.missing_count += row < 0
            if row < 0 and self.missing == 'error':
                raise ValueError('index %d at %d' % (index, position))
            if row < 0 and self.missing == 'skip':
                continue
            if row < 0:
                row = VECTOR if self.missing == 'unknown_row' else ZERO
            rows.append(self.row_values(row))
            weights.append(weight)
            numbers.append(row)
        return rows, weights, numbers

    def row_values(self, number):
        """Returns the values of a row, of zeros or of the default vector."""
        if number == VECTOR:
            return self.table.vector_values
        return self.zero() if number == ZERO else self.table.values[number]

    def empty(self):
        """Returns value, bound and row number of an empty bag."""
        default = self.query.default_index
        if default is None:
            number = ZERO if self.table.vector is None else VECTOR
        elif default == -1 and self.table.keys is None:
            number = ZERO
        else:
            number = self.table.row_of(default)
        return self.row_values(number), self.zero(), number

    def zero(self):
        """Returns a row of +0."""
        return np.zeros_like(self.table.values, shape=self.table.row_elements)

    def pool_integers(self, rows, weights):
        """Pools integers exactly, modulo the range of the type."""
        if self.reduction in ('max', 'min'):
            return _extreme(rows, self.reduction)
        total = sum((row * weight for row, weight in zip(rows, weights)), self.zero())
        if self.reduction == 'mean':
            if self.table.type in ('i64', 'u64'):
                total = wrap(total, self.table.type)
            return _truncated_quotient(total, len(rows))
        return wrap(total, self.table.type)

    def sum_floats(self, rows, weights, numbers):
        """Returns the sum, which starts with -0, and its error bound."""
        total = np.full(self.table.row_elements, LONG('-0.0'))
        size = self.zero()
        for row, weight, number in zip(rows, weights, numbers):
            term = row if number == ZERO else row * LONG(weight)
            total = total + term
            size = size + np.abs(term)
        # Products below the smallest normal number are rounded to a fixed grid.
        grid = np.where(size > 0, self.tiny * len(rows), LONG(0))
        return total, (len(rows) + 4) * self.eps * size + grid

    def divide(self, total, bound, weights):
        """Divides as the reduction requires.

        Returns the value, its bound, and whether the divisor is accurate enough for the bound.
        """
        count = len(weights)
        weights = np.array(weights, LONG)
        if self.reduction == 'sum':
            return total, bound, True
        if self.reduction == 'mean':
            return total / count, np.where(bound > 0, bound / count + self.tiny, bound), True
        if self.reduction == 'sqrtn':
            divisor, size = np.sqrt(np.sum(weights * weights)), LONG(0)
        else:
            divisor, size = np.sum(weights), np.sum(np.abs(weights))
        if divisor == 0:
            return self.zero(), self.zero(), True
        relative = (count + 4) * self.eps * (1 + size / abs(divisor))
        if relative > 0.01:
            return total / divisor, bound, False
        value = total / divisor
        slack = np.where(value == 0, self.zero(), np.abs(value) * relative + self.tiny)
        return value, (bound / abs(divisor)) * (1 + 2 * relative) + slack, True

    def pool(self, bag):
        """Returns value, bound, copied row and whether the bound holds, for one bag."""
        rows, weights, numbers = self.fill(bag)
        if not rows:
            return (*self.empty(), True)
        if not self.table.is_float:
            return self.pool_integers(rows, weights), self.zero(), -1, True
        if self.reduction in ('max', 'min'):
            return _extreme(rows, self.reduction), self.zero(), -1, True
        value, bound, trusted = self.divide(*self.sum_floats(rows, weights, numbers), weights)
        return value, bound, -1, trusted

    def copy(self, position):
        """Returns the values that `pool` returns, for one index of a query with NONE."""
        rows, weights, numbers = self.fill([position])
        if not rows or numbers[0] == ZERO:
            return self.zero(), self.zero(), -1, True
        if not self.table.is_float:
            return wrap(rows[0] * weights[0], self.table.type), self.zero(), -1, True
        if self.weights is None:
            return rows[0], self.zero(), numbers[0], True
        return (*self.sum_floats(rows, weights, numbers), -1, True)

    def run(self):
        """Computes the whole query."""
        if self.reduction == 'none':
            pooled = [self.copy(position) for position in range(len(self.query.indices))]
        else:
            bags = bag_positions(self.query)
            pooled = [self.pool(bag) for bag in bags]
            if not bags:
                self.fill(checked_positions(self.query))
        shape = (len(pooled), self.table.row_elements)
        kind = self.table.values.dtype
        values = np.array([p[0] for p in pooled], kind).reshape(shape)
        bounds = np.array([p[1] for p in pooled], kind).reshape(shape)
        return Expected(
            self.type, (len(pooled), *self.table.dims), self.missing_count, values,
            bounds if self.table.is_float else None, np.array([p[2] for p in pooled], np.int64),
            np.array([not p[3] for p in pooled], bool))


def expect(query, table, output_type=None):
    """Returns the correct answer of `query` on `table`.

    Raises ValueError if an index is missing and the missing policy is 'error'.
    """
    with np.errstate(all='ignore'):
        return _Pooling(query, table, output_type).run()


def _check_copies(expected, table, raw):
    """Checks that copied rows keep their bits, NaNs included."""
    if expected.type == table.storage:
        rows = np.flatnonzero(expected.copies >= 0)
        _check_bits(raw[rows], table.raw_rows[expected.copies[rows]])
    if expected.type == table.type and table.vector is not None:
        rows = np.flatnonzero(expected.copies == VECTOR)
        _check_bits(raw[rows], np.broadcast_to(table.vector, (len(rows), table.row_elements)))


def _check_bits(got, want):
    got, want = raw_bits(got), raw_bits(want)
    if not np.array_equal(got, want):
        raise AssertionError('copied rows differ: %s, expected %s' % (got, want))


def _check_nans(expected, table, raw, values):
    """Checks that NaNs are where they should be, and that computed NaNs are canonical."""
    nan = np.isnan(expected.values)
    if not np.array_equal(nan, np.isnan(values)):
        raise AssertionError('NaN at %s, expected at %s' % (
            np.argwhere(np.isnan(values)).tolist(), np.argwhere(nan).tolist()))
    copied = (expected.copies >= 0) & (expected.type == table.type)
    computed = raw_bits(raw)[nan & ~copied[:, None]]
    if np.any(computed != CANONICAL_NAN[expected.type]):
        raise AssertionError('NaN that is not canonical: %s' % [hex(bits) for bits in computed])


def _check_floats(expected, table, raw, values):
    _check_copies(expected, table, raw)
    sure = ~expected.unsure
    expected = Expected(expected.type, expected.shape, expected.missing, expected.values[sure],
                        expected.bounds[sure], expected.copies[sure], expected.unsure[sure])
    raw, values = raw[sure], values[sure]
    _check_nans(expected, table, raw, values)
    want = expected.values
    largest = LARGEST[expected.type]
    finite = np.isfinite(want)
    bound = np.where(finite, expected.bounds, LONG(0))
    half = unit_in_last_place(np.where(finite, np.abs(want) + bound, LONG(0)), expected.type) / 2
    off = ~(np.abs(values - want) <= bound + half)
    # Infinity is right if it is expected, or if the value is beyond the range of the type.
    infinite = np.isinf(values)
    edge = largest + unit_in_last_place(largest, expected.type) / 2
    off &= ~(infinite & (values == want))
    beyond = np.abs(want) + bound >= edge
    off &= ~(infinite & finite & beyond & (np.sign(values) == np.sign(want)))
    # A zero that is the sum of zeros only must have the right sign.
    exact_zero = (want == 0) & (expected.bounds == 0) & (not table.is_divided)
    off |= exact_zero & (np.signbit(values) != np.signbit(want))
    off &= ~np.isnan(want)
    if np.any(off):
        row, column = np.argwhere(off)[0]
        raise AssertionError('%d values are wrong: [%d][%d] = %r, expected %r (bound %r)' % (
            np.count_nonzero(off), row, column, values[row, column], want[row, column],
            bound[row, column] + half[row, column]))


def check_values(expected, table, type_name, data):
    """Compares the bytes of an answer with the expected values."""
    if type_name != expected.type:
        raise AssertionError('type %s, expected %s' % (type_name, expected.type))
    raw, values = decode_bytes(data, type_name)
    if values.size != expected.values.size:
        raise AssertionError('%d values, expected %d' % (values.size, expected.values.size))
    raw = raw.reshape(expected.values.shape)
    values = values.reshape(expected.values.shape)
    if expected.bounds is None:
        if not np.array_equal(values, expected.values):
            raise AssertionError('values %s, expected %s' % (
                values.tolist(), expected.values.tolist()))
    else:
        with np.errstate(all='ignore'):
            _check_floats(expected, table, raw, values)


def check_result(expected, table, result, query_number=0):
    """Compares one BagResult with the expected answer."""
    if result.query != query_number:
        raise AssertionError('query %d, expected %d' % (result.query, query_number))
    if tuple(result.shape) != expected.shape:
        raise AssertionError('shape %s, expected %s' % (list(result.shape), expected.shape))
    if result.missing != expected.missing:
        raise AssertionError('missing %d, expected %d' % (result.missing, expected.missing))
    check_values(expected, table, TYPE_NAMES.get(result.type, result.type), result.values)
