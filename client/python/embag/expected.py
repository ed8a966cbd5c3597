"""Checks that an answer fits its request. The server is not trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, NoReturn, Optional

import numpy as np
from numpy.typing import NDArray

from embag import dtypes, errors
from embag.result import FailedResult, Result
from embag.sequences import Sequence as Rows
from embag.v1 import embedding_bag_pb2 as pb

# The server's limit on the dims of an array, with one more for padding.
_RANK_MAX = 9
# Plain numbers: reading a name of the messages takes longer than the check that needs it.
_UNSPECIFIED, _NONE = int(pb.REDUCTION_UNSPECIFIED), int(pb.REDUCTION_NONE)

# The facts about one query or group that the checks use: number of bags; number of indices, or of a
# group's values; number of the reduction; number of a group's features, 0 if the model lists them,
# None for a query; fields of a sequence lookup, or None.
Extent = tuple[int, int, int, Optional[int], Optional[Rows]]


def refuse(text: str) -> NoReturn:
    """Raises `Internal` for an answer that does not fit the request."""
    raise errors.Internal('the answer does not fit the request: ' + text)


def _refuse_result(position: int, text: str) -> NoReturn:
    refuse('results[%d]: %s' % (position, text))


def _refuse_size(position: int, shape: Sequence[int], number: int, value_bytes: int) -> NoReturn:
    wanted = math.prod(shape) * (dtypes.size_of(number) or 0)
    if wanted == value_bytes:
        _refuse_result(position, 'shape %s of %s is larger than an array can be'
                       % (shape, dtypes.name_of(number)))
    _refuse_result(position, 'shape %s of %s needs %d bytes, but there are %d'
                   % (shape, dtypes.name_of(number), wanted, value_bytes))


class Facts(NamedTuple):
    """The fields of a request that the checks use."""

    version: int
    output_type: int
    concat: bool
    errors_per_query: bool
    report_missing: bool
    allow_incomplete: bool


class Expected:
    """The facts about a whole request that the checks use.

    - places: positions of the queries and groups in the caller's arguments
    - extents: those of the queries, then those of the groups
    """

    __slots__ = ('_facts', 'extents', 'places')

    def __init__(self, places: errors.Places, extents: Sequence[Extent], facts: Facts) -> None:
        self.places = places
        self.extents = extents
        self._facts = facts

    def check(self, message: pb.LookupResponse, result_count: int) -> None:
        """Checks the answer as a whole."""
        if message.more:
            refuse('more is set, but the request takes one message')
        wanted, concat = self._facts.version, self._facts.concat
        version = message.version
        if version == 0 or wanted and wanted != version:
            refuse('it is from version %d, the request names %s' % (version, wanted or 'none'))
        count = min(len(self.extents), 1) if concat else len(self.extents)
        if result_count != count:
            refuse('%d results, the request has %d queries and %d groups%s' % (
                result_count, len(self.places.queries), len(self.places.groups),
                ' and sets concat, which asks for one result' if concat else ''))
        if message.incomplete and not self._facts.allow_incomplete:
            refuse('it is incomplete, but the request does not allow that')

    def results(self, messages: Sequence[pb.BagResult]) -> list[Result]:
        """Checks the results of an answer, and returns them.

        A request may have thousands of queries. So a result of a query, without an error and
        without missing indices, is checked here without further calls, and each field is read once.
        """
        output_type, concat = self._facts.output_type, self._facts.concat
        extents = self.extents
        results = []
        for position, message in enumerate(messages):
            if message.query != position:
                _refuse_result(position, 'it belongs to query %d' % message.query)
            if message.error_code:
                results.append(self._failed(position, message))
                continue
            bags, indices, reduction, features, sequence = extents[position]
            # With concat, and for a group, a result has several vectors side by side.
            is_joined = concat or features is not None
            number, shape, values = message.type, message.shape[:], message.values
            dtype = dtypes.DTYPES.get(number)
            if dtype is None or output_type and output_type != number:
                self._refuse_type(position, number)
            if not 1 <= len(shape) <= _RANK_MAX:
                _refuse_result(position, 'shape of %d dims, not 1 to %d' % (len(shape), _RANK_MAX))
            rows = shape[0]
            if is_joined:
                self._check_joined(position, message, number, shape)
            elif sequence is not None:
                self._check_sequence(position, message, shape)
            # A request that names no reduction uses the feature's, which may be 'none'.
            elif (rows != bags or reduction == _NONE) and (
                    rows != indices or reduction not in (_UNSPECIFIED, _NONE)):
                self._refuse_rows(position, shape, is_joined)
            try:
                array = np.ndarray(shape, dtype, values)
            except (OverflowError, TypeError, ValueError):
                # The shape needs more bytes than there are, or than NumPy can count.
                _refuse_size(position, shape, number, len(values))
            if array.nbytes != len(values):
                _refuse_size(position, shape, number, len(values))
            if not values and 0 in shape[1:]:
                _refuse_result(position, 'shape %s has rows without values' % shape)
            result = Result(array)
            results.append(result)
            if (message.missing or message.missing_by_query or message.missing_positions
                    or is_joined):
                self._add_missing(position, message, result)
            if message.lengths or message.inverse:
                self._add_lists(position, message, result)
            if message.unreached:
                self._add_unreached(position, message.unreached, result)
        return results

    def _refuse_rows(self, position: int, shape: Sequence[int], is_joined: bool) -> NoReturn:
        bags, indices, reduction, _, _ = self.extents[position]
        what, asked = 'rows', '%d bags of %d indices' % (bags, indices)
        if is_joined or reduction not in (_UNSPECIFIED, _NONE):
            what, asked = 'bags', str(bags)
        elif reduction == _NONE:
            asked = '%d indices' % indices
        _refuse_result(position, 'shape %s has %d %s, the request has %s'
                       % (shape, shape[0], what, asked))

    def _failed(self, position: int, message: pb.BagResult) -> Result:
        """Returns the result of a query that failed."""
        if self._facts.concat or not self._facts.errors_per_query:
            _refuse_result(position, 'error %d, but the request does not allow errors of single '
                           'results' % message.error_code)
        return FailedResult(errors.of_status(message.error_code, message.error_message,
                                             self.places))

    def _refuse_type(self, position: int, number: int) -> NoReturn:
        if dtypes.size_of(number) is None:
            _refuse_result(position, 'values of type %d, which this version of the package does '
                           'not know: install a newer version' % number)
        _refuse_result(position, 'values are %s, the request asks for %s' % (
            dtypes.name_of(number), dtypes.name_of(self._facts.output_type)))

    def _check_joined(self, position: int, message: pb.BagResult, number: int,
                      shape: Sequence[int]) -> None:
        """Checks the type and the shape of several vectors side by side, or of a group's rows."""
        if number not in dtypes.FLOATS:
            _refuse_result(position, 'values are %s, but vectors side by side must be '
                           'floating-point' % dtypes.name_of(number))
        if self._is_sequence(position, message.lengths):
            self._check_sequence(position, message, shape)
            return
        if shape[0] != self.extents[position][0]:
            self._refuse_rows(position, shape, True)
        columns = (len(self.extents) if self._facts.concat
                   else self.extents[position][3] or 0)
        if len(shape) != 2 or shape[1] < columns:
            _refuse_result(position, 'shape %s is not that of %d vectors side by side'
                           % (shape, columns))

    def _is_sequence(self, position: int, lengths: bytes) -> bool:
        """Returns whether a result is that of a sequence lookup, given its lengths.

        Of a group that names no reduction, only they tell.
        """
        bags, _, reduction, features, sequence = self.extents[position]
        if self._facts.concat:
            return False
        if features is None or sequence is not None:
            return sequence is not None
        return reduction == _NONE or reduction == _UNSPECIFIED and (lengths != b'' or bags == 0)

    def _check_sequence(self, position: int, message: pb.BagResult, shape: Sequence[int]) -> None:
        bags, indices, _, features, sequence = self.extents[position]
        fields = sequence or Rows()
        if features is not None:
            bags *= features or len(message.missing_by_query)
            if len(shape) != 2 + fields.pad:
                _refuse_result(position, 'shape of %d dims, not %d'
                               % (len(shape), 2 + fields.pad))
        try:
            fields.check(shape, message.lengths, message.inverse, bags, indices)
        except ValueError as error:
            _refuse_result(position, str(error))

    def _add_lists(self, position: int, message: pb.BagResult, result: Result) -> None:
        """Adds the lists of a sequence lookup, which are checked already, to a result."""
        if not self._is_sequence(position, message.lengths):
            _refuse_result(position, 'it has lengths or inverse, but the request does not ask for '
                           'sequences')
        result.lengths = np.frombuffer(message.lengths, '<i4')
        result.inverse = np.frombuffer(message.inverse, '<u4')

    def _parts(self, position: int, missing: int,
               counts: tuple[int, ...]) -> Sequence[tuple[int, int]]:
        """Returns pairs of the number of missing indices and of all indices.

        There is one pair for each query of a concat result, or one for the query or group.
        """
        _, indices, _, features, _ = self.extents[position]
        if not self._facts.concat and features is None:
            if counts:
                _refuse_result(position, '%d counts of missing indices, the request wants 0'
                               % len(counts))
            return [(missing, indices)]
        wanted = len(self.extents) if self._facts.concat else features or len(counts)
        if len(counts) != wanted:
            _refuse_result(position, '%d counts of missing indices, the request needs %d'
                           % (len(counts), wanted))
        if sum(counts) != missing:
            _refuse_result(position, '%d indices are missing, but the counts of its queries or '
                           'features add up to %d' % (missing, sum(counts)))
        if self._facts.concat:
            return [(count, extent[1]) for count, extent in zip(counts, self.extents)]
        return [(missing, indices)]

    def _add_missing(self, position: int, message: pb.BagResult, result: Result) -> None:
        """Checks the missing indices of a result, and adds them to it."""
        result.missing = message.missing
        result.missing_by_query = tuple(message.missing_by_query)
        parts = self._parts(position, result.missing, result.missing_by_query)
        for missing, indices in parts:
            if missing > indices:
                _refuse_result(position, '%d indices are missing, the request has %d'
                               % (missing, indices))
        wanted = 4 * result.missing if self._facts.report_missing else 0
        data = message.missing_positions
        if len(data) != wanted:
            _refuse_result(position, 'missing_positions has %d bytes, not %d'
                           % (len(data), wanted))
        if wanted:
            result.missing_positions = np.frombuffer(data, '<u4')
            self._check_positions(position, parts, result.missing_positions)

    def _add_unreached(self, position: int, unreached: int, result: Result) -> None:
        """Checks the number of unreached indices of a result, and adds it."""
        if not self._facts.allow_incomplete:
            _refuse_result(position, '%d indices were not reached, but the request does not allow '
                           'that' % unreached)
        extents = self.extents if self._facts.concat else (self.extents[position],)
        indices = sum(extent[1] for extent in extents)
        if result.missing + unreached > indices:
            _refuse_result(position, '%d indices were not reached and %d are missing, the request '
                           'has %d' % (unreached, result.missing, indices))
        result.unreached = unreached

    @staticmethod
    def _check_positions(position: int, parts: Sequence[tuple[int, int]],
                         found: NDArray[np.uint32]) -> None:
        """Checks that the positions of each part ascend and are within its indices."""
        places, begin = found.astype('i8'), 0
        for missing, indices in parts:
            run = places[begin:begin + missing]
            begin += missing
            if run.size and ((np.diff(run) <= 0).any() or run[-1] >= indices):
                _refuse_result(position, 'missing_positions do not ascend within %d indices'
                               % indices)
