"""Checks that an answer fits its request. The server is not trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

import numpy as np

from embag import dtypes, errors
from embag.sequences import Sequence as Rows
from embag.v1 import embedding_bag_pb2 as pb

# The server's limit on the dims of an array, with one more for padding.
_RANK_MAX = 9


class Extent(NamedTuple):
    """The facts about one query or group that the checks use.

    - bags: number of bags
    - indices: number of indices of a query, or of values of a group
    - reduction: number of the enum
    - features: number of a group's features, 0 if the model lists them; None for a query
    - rows: fields of a sequence lookup
    """

    bags: int
    indices: int
    reduction: int
    features: int | None = None
    rows: Rows = Rows()

    def is_sequence(self, lengths: bytes) -> bool:
        """Returns whether a result is that of a sequence lookup, given its lengths.

        Of a group that names no reduction, only they tell.
        """
        if self.features is None or self.rows != Rows():
            return self.rows != Rows()
        return self.reduction == pb.REDUCTION_NONE or (
            self.reduction == pb.REDUCTION_UNSPECIFIED and (lengths != b'' or self.bags == 0))

    def has_rows(self, count: int, is_joined: bool) -> bool:
        """Returns whether the first dim of the result may be `count`.

        A request that names no reduction uses the feature's, which may be 'none'.
        """
        if count == self.bags and (is_joined or self.reduction != pb.REDUCTION_NONE):
            return True
        return (count == self.indices and not is_joined
                and self.reduction in (pb.REDUCTION_UNSPECIFIED, pb.REDUCTION_NONE))

    def says(self, is_joined: bool) -> tuple[str, str]:
        """Returns the unit of the first dim, and the requested number, as texts for an error."""
        if is_joined or self.reduction not in (pb.REDUCTION_UNSPECIFIED, pb.REDUCTION_NONE):
            return 'bags', str(self.bags)
        if self.reduction == pb.REDUCTION_NONE:
            return 'rows', '%d indices' % self.indices
        return 'rows', '%d bags of %d indices' % (self.bags, self.indices)


def refuse(text: str) -> NoReturn:
    """Raises `Internal` for an answer that does not fit the request."""
    raise errors.Internal('the answer does not fit the request: ' + text)


def _refuse_result(position: int, text: str) -> NoReturn:
    refuse('results[%d]: %s' % (position, text))


@dataclass(frozen=True)
class Expected:
    """The facts about a whole request that the checks use.

    - places: positions of the queries and groups in the caller's arguments
    - extents: those of the queries, then those of the groups
    - the rest: fields of the request
    """

    places: errors.Places
    extents: tuple[Extent, ...]
    version: int
    output_type: int
    concat: bool
    errors_per_query: bool
    report_missing: bool

    def check(self, message: pb.LookupResponse) -> None:
        """Checks the answer as a whole."""
        if message.more:
            refuse('more is set, but the request takes one message')
        if message.version == 0 or self.version not in (0, message.version):
            refuse('it is from version %d, the request names %s'
                   % (message.version, self.version or 'none'))
        count = min(len(self.extents), 1) if self.concat else len(self.extents)
        if len(message.results) != count:
            refuse('%d results, the request has %d queries and %d groups%s' % (
                len(message.results), len(self.places.queries), len(self.places.groups),
                ' and sets concat, which asks for one result' if self.concat else ''))

    def check_result(self, position: int, message: pb.BagResult, shape: tuple[int, ...],
                     value_bytes: int) -> None:
        """Checks one result, given its shape and number of bytes."""
        if message.query != position:
            _refuse_result(position, 'it belongs to query %d' % message.query)
        if message.error_code:
            if self.concat or not self.errors_per_query:
                _refuse_result(position, 'error %d, but the request does not allow errors of '
                               'single results' % message.error_code)
            return
        # With concat, and for a group, a result has several vectors side by side.
        is_joined = self.concat or self.extents[position].features is not None
        self._check_type(position, is_joined, message.type)
        if not self.concat and self.extents[position].is_sequence(message.lengths):
            self._check_sequence(position, message, shape)
        else:
            self._check_shape(position, is_joined, shape)
            if message.lengths or message.inverse:
                _refuse_result(position, 'it has lengths or inverse, but the request does not ask '
                               'for sequences')
        wanted = math.prod(shape) * (dtypes.size_of(message.type) or 0)
        if wanted != value_bytes:
            _refuse_result(position, 'shape %s of %s needs %d bytes, but there are %d' % (
                list(shape), dtypes.name_of(message.type), wanted, value_bytes))
        self._check_missing(position, is_joined, message)

    def _check_type(self, position: int, is_joined: bool, number: int) -> None:
        if dtypes.size_of(number) is None:
            _refuse_result(position, 'values of type %d, which this version of the package does '
                           'not know: install a newer version' % number)
        if self.output_type not in (pb.DATA_TYPE_UNSPECIFIED, number):
            _refuse_result(position, 'values are %s, the request asks for %s' % (
                dtypes.name_of(number), dtypes.name_of(self.output_type)))
        if is_joined and number not in dtypes.FLOATS:
            _refuse_result(position, 'values are %s, but vectors side by side must be '
                           'floating-point' % dtypes.name_of(number))

    def _check_shape(self, position: int, is_joined: bool, shape: tuple[int, ...]) -> None:
        extent = self.extents[position]
        if not 1 <= len(shape) <= _RANK_MAX:
            _refuse_result(position, 'shape of %d dims, not 1 to %d' % (len(shape), _RANK_MAX))
        if not extent.has_rows(shape[0], is_joined):
            what, asked = extent.says(is_joined)
            _refuse_result(position, 'shape %s has %d %s, the request has %s'
                           % (list(shape), shape[0], what, asked))
        if 0 in shape[1:]:
            _refuse_result(position, 'shape %s has rows without values' % list(shape))
        if is_joined:
            columns = len(self.extents) if self.concat else extent.features or 0
            if len(shape) != 2 or shape[1] < columns:
                _refuse_result(position, 'shape %s is not that of %d vectors side by side'
                               % (list(shape), columns))

    def _check_sequence(self, position: int, message: pb.BagResult,
                        shape: tuple[int, ...]) -> None:
        bags, indices, _, features, rows = self.extents[position]
        if features is not None:
            bags *= features or len(message.missing_by_query)
        rank = 2 + rows.pad
        if features is not None and len(shape) != rank or not 1 <= len(shape) <= _RANK_MAX:
            _refuse_result(position, 'shape of %d dims, not %s' % (
                len(shape), '1 to %d' % _RANK_MAX if features is None else rank))
        if 0 in shape[1:]:
            _refuse_result(position, 'shape %s has rows without values' % list(shape))
        try:
            rows.check(shape, message.lengths, message.inverse, bags, indices)
        except ValueError as error:
            _refuse_result(position, str(error))

    def _parts(self, position: int, message: pb.BagResult) -> Sequence[tuple[int, int]]:
        """Returns pairs of the number of missing indices and of all indices.

        There is one pair for each query of a concat result, or one for the group.
        """
        extent, counts = self.extents[position], message.missing_by_query
        wanted = len(self.extents) if self.concat else extent.features or len(counts)
        if len(counts) != wanted:
            _refuse_result(position, '%d counts of missing indices, the request needs %d'
                           % (len(counts), wanted))
        if sum(counts) != message.missing:
            _refuse_result(position, '%d indices are missing, but the counts of its queries or '
                           'features add up to %d' % (message.missing, sum(counts)))
        if self.concat:
            return list(zip(counts, (each.indices for each in self.extents)))
        return [(message.missing, extent.indices)]

    def _check_missing(self, position: int, is_joined: bool, message: pb.BagResult) -> None:
        if is_joined:
            parts = self._parts(position, message)
        elif message.missing_by_query:
            _refuse_result(position, '%d counts of missing indices, the request wants 0'
                           % len(message.missing_by_query))
        else:
            parts = [(message.missing, self.extents[position].indices)]
        for missing, indices in parts:
            if missing > indices:
                _refuse_result(position, '%d indices are missing, the request has %d'
                               % (missing, indices))
        wanted = 4 * message.missing if self.report_missing else 0
        if len(message.missing_positions) != wanted:
            _refuse_result(position, 'missing_positions has %d bytes, not %d'
                           % (len(message.missing_positions), wanted))
        if wanted:
            self._check_positions(position, parts, message.missing_positions)

    @staticmethod
    def _check_positions(position: int, parts: Sequence[tuple[int, int]], data: bytes) -> None:
        """Checks that the positions of each part ascend and are within its indices."""
        places, begin = np.frombuffer(data, '<u4').astype('i8'), 0
        for missing, indices in parts:
            run = places[begin:begin + missing]
            begin += missing
            if run.size and ((np.diff(run) <= 0).any() or run[-1] >= indices):
                _refuse_result(position, 'missing_positions do not ascend within %d indices'
                               % indices)
