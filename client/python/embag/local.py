"""Lookups in this process, in the resident tables of a server on the same machine.

    from embag import local

    with local.Tables('/var/lib/embag/resident') as tables:
        vectors = tables.lookup('user_id', [[0, 2], [3, 4]], model='ranking').values

The answers are bit for bit the server's. The directory is the server's `resident_dir`; if the
server runs as another user, it needs `resident_readers: group`. If the server ends, lookups go on.
If the directory is removed and a new server makes it again, lookups use what that server publishes.
Needs libembag_local (Debian package libembag-local0.1), whose functions do the work.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Sequence
from ctypes import POINTER, Structure, byref, c_bool, c_char, c_char_p, c_int, c_int64, c_size_t
from ctypes import c_uint, c_uint32, c_uint64, c_void_p
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from embag import dtypes, errors
from embag.answer import Answer
from embag.request import Query, QueryFields
from embag.result import Result
from embag.typed import Unpack
from embag.v1 import embedding_bag_pb2 as pb

LIBRARY = 'libembag_local.so.0.1'
_RANK_MAX = 9
_TEXT_BYTES = 1024

# The structs of embag.h and embag_types.h. The number in the name of the library stands for their
# layout.


class _Error(Structure):
    _fields_ = [('status', c_int), ('text', c_char * _TEXT_BYTES)]


class _Integers(Structure):
    _fields_ = [('data', c_char_p), ('count', c_size_t), ('width', c_uint)]


class _Sequence(Structure):
    _fields_ = [('max_len', c_uint32), ('keep_first', c_bool), ('pad', c_bool),
                ('unique', c_bool)]


class _Query(Structure):
    _fields_ = [('table', c_char_p), ('reduction', c_int), ('missing', c_int),
                ('indices', _Integers), ('offsets', _Integers), ('lengths', _Integers),
                ('segment_ids', _Integers), ('num_segments', c_uint64),
                ('indices_per_bag', c_uint32), ('num_bags', c_uint64),
                ('include_last_offset', c_bool), ('has_default', c_bool),
                ('default_index', c_int64), ('weights', c_char_p), ('weights_count', c_size_t),
                ('weights_type', c_int), ('sequence', _Sequence), ('has_part', c_bool),
                ('part', c_uint32)]


class _Request(Structure):
    _fields_ = [('model', c_char_p), ('version', c_uint64), ('queries', POINTER(_Query)),
                ('query_count', c_size_t), ('output_type', c_int), ('concat', c_bool),
                ('timeout_us', c_uint64), ('groups', c_void_p), ('group_count', c_size_t),
                ('priority', c_int), ('errors_per_query', c_bool), ('report_missing', c_bool),
                ('version_label', c_char_p), ('traceparent', c_char_p),
                ('allow_incomplete', c_bool)]


class _Result(Structure):
    _fields_ = [('query', c_uint32), ('type', c_int), ('rank', c_uint32),
                ('shape', c_uint64 * _RANK_MAX), ('missing', c_uint64),
                ('missing_by_query', c_void_p), ('values', c_void_p), ('values_bytes', c_size_t),
                ('missing_by_query_count', c_size_t), ('missing_positions', c_void_p),
                ('status', c_int), ('message', c_char_p), ('lengths', c_void_p),
                ('lengths_count', c_size_t), ('inverse', c_void_p), ('inverse_count', c_size_t),
                ('unreached', c_uint64)]


class _Answer(Structure):
    _fields_ = [('model', c_char_p), ('version', c_uint64), ('result_count', c_size_t),
                ('results', POINTER(_Result)), ('queue_us', c_uint32), ('compute_us', c_uint32),
                ('incomplete', c_bool)]


def _load(name: str) -> Any:
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise OSError('%s; install the Debian package libembag-local0.1, or give the path of the '
                      'library as `library`' % error) from None
    # Without these, ctypes would truncate addresses to 32 bits.
    for function, arguments in (('open', [c_char_p, c_void_p, c_void_p]),
                                ('check', [c_void_p, c_void_p]),
                                ('reader_open', [c_void_p, c_void_p, c_void_p]),
                                ('lookup', [c_void_p, c_void_p, c_void_p, c_void_p]),
                                ('reader_close', [c_void_p]), ('close', [c_void_p])):
        getattr(library, 'embag_local_' + function).argtypes = arguments
    return library


def _name(text: str) -> bytes:
    """Returns a name as the library takes it. Raises ValueError if it contains a NUL."""
    if '\0' in text:
        raise ValueError('%r: a name contains no NUL' % text)
    return text.encode()


def _integers(message: pb.BagQuery, field: str) -> _Integers:
    for width, ending in (8, '_i64'), (4, '_i32'):
        data = getattr(message, field + ending)
        if data:
            return _Integers(data, len(data) // width, width)
    return _Integers()


# The array that defines the bags in each layout.
_LAYOUT_FIELDS = {pb.BAG_LAYOUT_OFFSETS: 'offsets', pb.BAG_LAYOUT_LENGTHS: 'lengths',
                  pb.BAG_LAYOUT_SEGMENTS: 'segment_ids'}


def _query_of(query: Query) -> _Query:
    """Returns the query as the library takes it. It keeps the bytes of the arrays."""
    message = query.message
    if message.max_len or message.keep_first or message.pad or message.unique:
        raise errors.Unimplemented('sequence lookups are for a server: max_len, keep_first, pad '
                                   'and unique must be left out')
    out = _Query(
        table=_name(message.table), reduction=message.reduction, missing=message.missing,
        num_segments=message.num_segments, indices_per_bag=message.indices_per_bag,
        num_bags=message.num_bags, include_last_offset=message.include_last_offset,
        has_default=message.HasField('default_index'), default_index=message.default_index)
    for field in 'indices', *_LAYOUT_FIELDS.values():
        setattr(out, field, _integers(message, field))
    # An array without elements has no bytes in the message, but still defines the bags.
    field = _LAYOUT_FIELDS.get(message.layout, '')
    if field and getattr(out, field).width == 0:
        setattr(out, field, _Integers(None, 0, 8))
    if message.weights:
        out.weights = message.weights
        out.weights_count = len(message.weights) // (dtypes.size_of(message.weights_type) or 1)
    out.weights_type = message.weights_type
    return out


def _array(address: int | None, count: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    if not address or count == 0:
        return np.frombuffer(b'', dtype)
    # string_at takes no size of 2 GiB or more.
    data = bytes((c_char * (count * dtype.itemsize)).from_address(address))
    return np.frombuffer(data, dtype)


def _result_of(result: _Result) -> Result:
    """Returns a copy, because the next lookup reuses the library's memory."""
    shape = tuple(result.shape[:result.rank])
    out = Result(_array(result.values, result.values_bytes // (dtypes.size_of(result.type) or 1),
                        dtypes.DTYPES[result.type]).reshape(shape))
    out.missing = result.missing
    if result.missing_positions:
        out.missing_positions = _array(
            result.missing_positions, result.missing, np.dtype('<u4'))
    return out


class Tables:
    """The tables that a server serves from files in its resident_dir, mapped into this process.

    - resident_dir: the server's setting of that name
    - library: path of libembag_local, or its name, which the system's search path finds

    Follows the server: when it serves another version, lookups use that version within a second.
    Any number of threads may look up at the same time. Raises OSError if the library cannot be
    loaded, `FailedPrecondition` if the directory cannot be used, `Unavailable` if the server has
    not served anything yet. An object does not survive fork.
    """

    def __init__(self, resident_dir: str, *, library: str = LIBRARY) -> None:
        self._library = _load(library)
        self._handle = c_void_p()
        self._readers: list[c_void_p] = []  # those that no lookup uses
        self._lock = threading.Lock()  # guards _readers
        self._call('open', os.fsencode(resident_dir), byref(self._handle))

    def __enter__(self) -> Tables:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Unmaps the tables. No other thread may be in a call. May be called twice."""
        with self._lock:
            for reader in self._readers:
                self._library.embag_local_reader_close(reader)
            self._readers.clear()
            self._library.embag_local_close(self._handle)
            self._handle = c_void_p()

    def check(self) -> None:
        """Raises an `EmbagError` if the server serves something that could not be mapped.

        Lookups then still use what was served before, and mapping is tried again every second.
        """
        self._need_open()
        self._call('check', self._handle)

    def lookup(self, asked: str | Query | Sequence[Query], indices: ArrayLike | None = None, *,
               model: str = '', version: int = 0, output_type: str | None = None,
               report_missing: bool = False, **fields: Unpack[QueryFields]) -> Answer:
        """Looks up bags and returns their pooled vectors.

        - asked: name of a table, with `indices` and the fields of a `Query`; or a query, or a
          sequence of queries, which are answered together
        - the rest: see `embag.request.RequestFields`

        Raises what `embag.Client.lookup` raises, with the same texts. Features and groups of
        model.yaml, `concat`, labels and sequence lookups need the server: a feature raises
        `NotFound`, and a sequence lookup `Unimplemented`.
        """
        if isinstance(asked, str):
            if indices is None:
                raise TypeError('a lookup by table name needs indices')
            asked = Query(asked, indices, **fields)
        elif fields or indices is not None:
            raise TypeError('%s: expected in the queries, not as arguments of the lookup'
                            % ', '.join(fields or ['indices']))
        queries = [_query_of(each) for each in ([asked] if isinstance(asked, Query) else asked)]
        request = _Request(
            model=_name(model), version=version, queries=(_Query * len(queries))(*queries),
            query_count=len(queries), report_missing=report_missing,
            output_type=dtypes.number_of('DATA_TYPE_', output_type))
        answer = POINTER(_Answer)()
        reader = self._take_reader()
        try:
            self._call('lookup', reader, byref(request), byref(answer),
                       places=errors.Places(list(range(len(queries))), []))
            found = answer.contents
            results = tuple(_result_of(found.results[i]) for i in range(found.result_count))
            return Answer(found.model.decode(), found.version, results, found.queue_us,
                          found.compute_us)
        finally:
            with self._lock:
                self._readers.append(reader)

    def _need_open(self) -> None:
        if not self._handle:
            raise ValueError('the tables are closed')

    def _take_reader(self) -> c_void_p:
        """Returns a reader for one lookup; there are as many as lookups have run at once."""
        self._need_open()
        with self._lock:
            if self._readers:
                return self._readers.pop()
        reader = c_void_p()
        self._call('reader_open', self._handle, byref(reader))
        return reader

    def _call(self, name: str, *arguments: Any, places: errors.Places | None = None) -> None:
        error = _Error()
        if getattr(self._library, 'embag_local_' + name)(*arguments, byref(error)) != 0:
            raise errors.of_status(error.status, error.text.decode(errors='replace'), places)
