"""What is answered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embag import dtypes, errors
from embag.v1 import embedding_bag_pb2 as pb


@dataclass(frozen=True, eq=False)
class Result:
    """The vectors of one query or group.

    `missing` counts the indices that named no row, `missing_positions` (uint32, ascending; empty
    unless report_missing was asked for) says where they stand, and `missing_by_query`, of a group
    and with concat, counts those of each feature or query. `error` is what was wrong with the
    query, None where nothing was.
    """

    missing: int
    missing_positions: NDArray[np.uint32]
    missing_by_query: tuple[int, ...]
    error: errors.EmbagError | None
    array: NDArray[Any] | None

    @property
    def values(self) -> NDArray[Any]:
        """[bags, trailing dims], read-only: `copy()` it to write. Raises `error` where there is
        one."""
        if self.error is not None:
            raise self.error
        assert self.array is not None
        return self.array


@dataclass(frozen=True, eq=False)
class Answer:
    """The results, in the order of what was asked; with concat one for all.

    All of them are of one `version` of `model`. `queue_us` and `compute_us` are the microseconds
    that the request waited in the server, and was computed.
    """

    model: str
    version: int
    results: tuple[Result, ...]
    queue_us: int
    compute_us: int

    @property
    def values(self) -> NDArray[Any]:
        """Of the only result. ValueError: there are more."""
        if len(self.results) != 1:
            raise ValueError('%d results, not one: take them from `results`' % len(self.results))
        return self.results[0].values

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, number: int) -> Result:
        return self.results[number]

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)


def _result(message: pb.BagResult, places: errors.Places) -> Result:
    error = array = None
    if message.error_code:
        error = errors.of_status(message.error_code, message.error_message, places)
    else:
        array = dtypes.array_of(message.values, message.type, tuple(message.shape))
    return Result(
        missing=message.missing, missing_by_query=tuple(message.missing_by_query), error=error,
        missing_positions=np.frombuffer(message.missing_positions, '<u4'), array=array)


def of_message(message: pb.LookupResponse, places: errors.Places) -> Answer:
    """The answer to what was asked at `places`. Raises `Internal` where it cannot be read."""
    try:
        results = [_result(result, places) for result in message.results]
    except (ValueError, OverflowError) as error:
        raise errors.Internal('the answer cannot be read: %s' % error) from error
    # Results come in the order of the queries, then of the groups.
    order = (*places.queries, *places.groups)
    if len(results) == len(order):
        results = [result for _, result in sorted(zip(order, results), key=lambda pair: pair[0])]
    return Answer(message.model, message.version, tuple(results), message.queue_us,
                  message.compute_us)
