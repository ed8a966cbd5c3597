"""The answer to a request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray

from embag import errors
from embag.expected import Expected, refuse
from embag.result import Result
from embag.v1 import embedding_bag_pb2 as pb

class Answer:
    """The results of a request, in the order of its queries and groups.

    There is one result for all of them if the request set concat. All results are from `version`
    of `model`. `queue_us` and `compute_us` are the microseconds for which the request waited in the
    server and was computed there. `incomplete` says whether a router left out rows whose part it
    could not reach, those of indices or default rows, which happens only if the request set
    allow_incomplete.
    """

    __slots__ = ('compute_us', 'incomplete', 'model', 'queue_us', 'results', 'version')

    def __init__(self, model: str, version: int, results: tuple[Result, ...], queue_us: int,
                 compute_us: int, incomplete: bool = False) -> None:
        self.model = model
        self.version = version
        self.results = results
        self.queue_us = queue_us
        self.compute_us = compute_us
        self.incomplete = incomplete

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


def of_message(message: pb.LookupResponse, expected: Expected) -> Answer:
    """Returns the answer.

    Raises the server's error, or `Internal` if the answer does not fit the request.
    """
    places = expected.places
    if message.error_code:
        raise errors.of_status(message.error_code, message.error_message, places,
                               message.retry_after_ms)
    messages = message.results
    expected.check(message, len(messages))
    results = expected.results(messages)
    if not message.incomplete and any(result.unreached for result in results):
        refuse('results have unreached indices, but incomplete is not set')
    # Results come in the order of the queries, then of the groups.
    if places.queries and places.groups:
        order = (*places.queries, *places.groups)
        results = [result for _, result in sorted(zip(order, results), key=lambda pair: pair[0])]
    return Answer(message.model, message.version, tuple(results), message.queue_us,
                  message.compute_us, message.incomplete)
