"""Random lookups in the specification's table with their results.

Tests of clients of other projects use them.
"""

from dataclasses import dataclass
from typing import Optional

import numpy as np

# The same table as in infer_sequence.cc.
ROWS = np.array([[-0.2, -0.6], [-0.1, -0.4], [-1.9, -1.8], [-1.0, 1.5], [0.8, -0.7]], '<f4')


@dataclass
class Lookup:
    """A lookup of bags, given by offsets, with the reduction sum."""

    indices: np.ndarray
    offsets: np.ndarray
    include_last_offset: bool
    default_index: Optional[int]

    def result(self):
        """Returns the correct result, exact to the bit."""
        ends = self.offsets if self.include_last_offset else [*self.offsets, len(self.indices)]
        empty = np.zeros(2, '<f4') if self.default_index in (None, -1) else ROWS[self.default_index]
        bags = [self.indices[first:end] for first, end in zip(ends, ends[1:])]
        sums = [sum(ROWS[bag], np.full(2, -0.0, '<f4')) if len(bag) else empty for bag in bags]
        return np.array(sums, '<f4').reshape(-1, 2)


def random_lookup(rng):
    """Returns a lookup of 1 to 8 bags, some of them empty, with fewer than 20 indices in all."""
    indices = rng.integers(0, len(ROWS), rng.integers(0, 20))
    has_last = bool(rng.integers(2))
    offsets = np.sort(rng.integers(0, len(indices) + 1, rng.integers(1, 9) + has_last))
    default = None if rng.integers(2) else int(rng.integers(-1, len(ROWS)))
    return Lookup(indices, offsets, has_last, default)
