"""Sequence lookups: the rows of bags that are not pooled, and the check of what comes back."""

from __future__ import annotations

from collections.abc import Sequence as Items
from typing import Any, NamedTuple

import numpy as np

class Sequence(NamedTuple):
    """The fields that make a query with 'none' a sequence lookup. A group with 'none' always is.

    - max_len: most rows of a bag, of which a longer one keeps the last; 0: no limit
    - keep_first: whether a longer bag keeps its first rows instead
    - pad: whether zeros fill every bag up to max_len rows
    - unique: whether each row comes once, with an inverse
    """

    max_len: int = 0
    keep_first: bool = False
    pad: bool = False
    unique: bool = False

    def fields(self) -> dict[str, Any]:
        """Returns the fields of a BagQuery or FeatureGroup that are set."""
        return {name: value for name, value in self._asdict().items() if value}

    def check(self, shape: Items[int], lengths: bytes, inverse: bytes, bags: int,
              indices: int) -> None:
        """Checks shape, lengths and inverse of a result.

        `bags` is the number of bags, of all features together, and `indices` that of indices.
        Raises ValueError with what does not fit the request.
        """
        if len(lengths) != 4 * bags:
            raise ValueError('lengths has %d bytes, %d bags need %d'
                             % (len(lengths), bags, 4 * bags))
        sizes = np.frombuffer(lengths, '<i4')
        if sizes.size and (sizes.min() < 0 or self.max_len and sizes.max() > self.max_len):
            raise ValueError('lengths from %d to %d, the request has max_len %d'
                             % (sizes.min(), sizes.max(), self.max_len))
        kept = int(sizes.sum(dtype='i8'))
        if kept > indices:
            raise ValueError('lengths add up to %d, the request has %d indices' % (kept, indices))
        rows = _check_inverse(inverse, kept) if self.unique else kept
        if not self.unique and inverse:
            raise ValueError('it has inverse, but the request does not ask for unique rows')
        wanted = [bags, self.max_len] if self.pad else [rows]
        if list(shape[:len(wanted)]) != wanted:
            raise ValueError('shape %s begins with %s, the request and the lengths give %s'
                             % (list(shape), list(shape[:len(wanted)]), wanted))


def _check_inverse(inverse: bytes, kept: int) -> int:
    """Returns how many rows `inverse` names. It names each of them first after all before it."""
    if len(inverse) != 4 * kept:
        raise ValueError('inverse has %d bytes, a sum of lengths of %d needs %d'
                         % (len(inverse), kept, 4 * kept))
    if not kept:
        return 0
    numbers = np.frombuffer(inverse, '<u4').astype('i8')
    # The largest number so far rises from -1 by steps of at most 1.
    highest = np.maximum.accumulate(numbers)
    if (np.diff(highest, prepend=-1) > 1).any():
        raise ValueError('inverse names a row before those that come before it')
    return int(highest[-1]) + 1
