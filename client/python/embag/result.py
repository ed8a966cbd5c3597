"""The result of one query or group."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from embag import errors

class Result:
    """The vectors of one query or group.

    - values: the vectors [bags, trailing dims], read-only: `copy()` them to write. If the query
      failed, reading them raises `error`
    - missing: number of indices that name no row
    - missing_positions: uint32, ascending: positions of these indices; empty unless the request
      set report_missing
    - missing_by_query: number of missing indices of each feature of a group, or of each query if
      the request set concat; empty otherwise
    - unreached: number of indices left out because their part was not reached; they are not in
      `missing`. 0 unless the request set allow_incomplete
    - lengths: int32, of a sequence lookup: number of rows of each bag, padding not counted; of a
      group feature by feature, bag by bag; empty otherwise
    - inverse: uint32 [sum of lengths], with `unique`: the row of `values` for each row of the bags;
      empty otherwise
    - error: error of this query, or None
    """

    # Most results have nothing but values.
    missing: int = 0
    missing_positions: NDArray[np.uint32] = np.frombuffer(b'', '<u4')
    missing_by_query: tuple[int, ...] = ()
    unreached: int = 0
    lengths: NDArray[np.int32] = np.frombuffer(b'', '<i4')
    inverse: NDArray[np.uint32] = np.frombuffer(b'', '<u4')
    error: errors.EmbagError | None = None

    def __init__(self, values: NDArray[Any]) -> None:
        self.values = values


class FailedResult(Result):
    """The result of a query that failed."""

    def __init__(self, error: errors.EmbagError) -> None:
        self.error = error

    def __getattr__(self, name: str) -> Any:
        # Called for what such a result does not have.
        if name == 'values' and self.error is not None:
            raise self.error
        raise AttributeError(name)
