"""The answer to a request and the results in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embag import dtypes, errors
from embag.expected import Expected
from embag.v1 import embedding_bag_pb2 as pb


@dataclass(frozen=True, eq=False)
class Result:
    """The vectors of one query or group.

    - missing: number of indices that name no row
    - missing_positions: uint32, ascending: positions of these indices; empty unless the request
      set report_missing
    - missing_by_query: number of missing indices of each feature of a group, or of each query if
      the request set concat; empty otherwise
    - lengths: int32, of a sequence lookup: number of rows of each bag, padding not counted; of a
      group feature by feature, bag by bag; empty otherwise
    - inverse: uint32 [sum of lengths], with `unique`: the row of `values` for each row of the bags;
      empty otherwise
    - error: error of this query, or None
    """

    missing: int
    missing_positions: NDArray[np.uint32]
    missing_by_query: tuple[int, ...]
    lengths: NDArray[np.int32]
    inverse: NDArray[np.uint32]
    error: errors.EmbagError | None
    array: NDArray[Any] | None

    @property
    def values(self) -> NDArray[Any]:
        """Returns the vectors [bags, trailing dims], read-only: `copy()` them to write.

        Raises `error` if the query failed.
        """
        if self.error is not None:
            raise self.error
        assert self.array is not None
        return self.array


@dataclass(frozen=True, eq=False)
class Answer:
    """The results of a request, in the order of its queries and groups.

    There is one result for all of them if the request set concat. All results are from `version`
    of `model`. `queue_us` and `compute_us` are the microseconds for which the request waited in the
    server and was computed there.
    """

    model: str
    version: int
    results: tuple[Result, ...]
    queue_us: int
    compute_us: int

    @property
    def values(self) -> NDArray[Any]:
        """Returns the vectors of the only result.

        Raises ValueError if there is not exactly one result, and the result's `error` if it has
        one.
        """
        if len(self.results) != 1:
            raise ValueError('the answer has %d results, not one: read `results` instead'
                             % len(self.results))
        return self.results[0].values

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, number: int) -> Result:
        return self.results[number]

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)


def _result(position: int, message: pb.BagResult, expected: Expected) -> Result:
    values, shape = message.values, tuple(message.shape)
    expected.check_result(position, message, shape, len(values))
    if message.error_code:
        error = errors.of_status(message.error_code, message.error_message, expected.places)
        return Result(missing=0, missing_positions=np.empty(0, '<u4'), missing_by_query=(),
                      lengths=np.empty(0, '<i4'), inverse=np.empty(0, '<u4'), error=error,
                      array=None)
    return Result(
        missing=message.missing,
        missing_positions=np.frombuffer(message.missing_positions, '<u4'),
        missing_by_query=tuple(message.missing_by_query),
        lengths=np.frombuffer(message.lengths, '<i4'),
        inverse=np.frombuffer(message.inverse, '<u4'), error=None,
        array=dtypes.array_of(values, message.type, shape))


def of_message(message: pb.LookupResponse, expected: Expected) -> Answer:
    """Returns the answer.

    Raises the server's error, or `Internal` if the answer does not fit the request.
    """
    places = expected.places
    if message.error_code:
        raise errors.of_status(message.error_code, message.error_message, places,
                               message.retry_after_ms)
    expected.check(message)
    results = [_result(position, result, expected)
               for position, result in enumerate(message.results)]
    # Results come in the order of the queries, then of the groups.
    order = (*places.queries, *places.groups)
    if len(results) == len(order):
        results = [result for _, result in sorted(zip(order, results), key=lambda pair: pair[0])]
    return Answer(message.model, message.version, tuple(results), message.queue_us,
                  message.compute_us)
