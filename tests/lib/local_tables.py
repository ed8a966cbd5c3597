"""Calls libembag_local: lookups in this process, in a server's resident tables."""

import ctypes
import os
from ctypes import POINTER, Structure, byref, c_bool, c_char, c_char_p, c_int, c_int64, c_size_t
from ctypes import c_uint32, c_uint64, c_uint, c_void_p

import numpy as np

import embagd_process
import served
from bag_query import MISSING, REDUCTIONS
from element_types import TYPE_NUMBERS

RANK_MAX = 9
TEXT_BYTES = 1024


class Error(Structure):
    """struct embag_error"""

    _fields_ = [('status', c_int), ('text', c_char * TEXT_BYTES)]


class Integers(Structure):
    """struct embag_integers"""

    _fields_ = [('data', c_void_p), ('count', c_size_t), ('width', c_uint)]


class Sequence(Structure):
    """struct embag_sequence"""

    _fields_ = [('max_len', c_uint32), ('keep_first', c_bool), ('pad', c_bool),
                ('unique', c_bool)]


class LocalQuery(Structure):
    """struct embag_query"""

    _fields_ = [('table', c_char_p), ('reduction', c_int), ('missing', c_int),
                ('indices', Integers), ('offsets', Integers), ('lengths', Integers),
                ('segment_ids', Integers), ('num_segments', c_uint64),
                ('indices_per_bag', c_uint32), ('num_bags', c_uint64),
                ('include_last_offset', c_bool), ('has_default', c_bool),
                ('default_index', c_int64), ('weights', c_void_p), ('weights_count', c_size_t),
                ('weights_type', c_int), ('sequence', Sequence), ('has_part', c_bool),
                ('part', c_uint32)]


class Request(Structure):
    """struct embag_request"""

    _fields_ = [('model', c_char_p), ('version', c_uint64), ('queries', POINTER(LocalQuery)),
                ('query_count', c_size_t), ('output_type', c_int), ('concat', c_bool),
                ('timeout_us', c_uint64), ('groups', c_void_p), ('group_count', c_size_t),
                ('priority', c_int), ('errors_per_query', c_bool), ('report_missing', c_bool),
                ('version_label', c_char_p), ('traceparent', c_char_p),
                ('allow_incomplete', c_bool)]


class LocalResult(Structure):
    """struct embag_result"""

    _fields_ = [('query', c_uint32), ('type', c_int), ('rank', c_uint32),
                ('shape', c_uint64 * RANK_MAX), ('missing', c_uint64),
                ('missing_by_query', c_void_p), ('values', c_void_p), ('values_bytes', c_size_t),
                ('missing_by_query_count', c_size_t), ('missing_positions', POINTER(c_uint32)),
                ('status', c_int), ('message', c_char_p), ('lengths', c_void_p),
                ('lengths_count', c_size_t), ('inverse', c_void_p), ('inverse_count', c_size_t),
                ('unreached', c_uint64)]


class LocalAnswer(Structure):
    """struct embag_answer"""

    _fields_ = [('model', c_char_p), ('version', c_uint64), ('result_count', c_size_t),
                ('results', POINTER(LocalResult)), ('queue_us', c_uint32),
                ('compute_us', c_uint32), ('incomplete', c_bool)]


class LocalError(Exception):
    """A status other than EMBAG_OK."""

    def __init__(self, error):
        super().__init__(error.text.decode())
        self.status = error.status


def skip_reason():
    """Returns why libembag_local cannot be tested here, or None."""
    if embagd_process.SANITIZE:
        return 'this interpreter cannot load a library of a sanitized build'
    return None if os.path.isdir('/dev/shm') else 'there is no tmpfs at /dev/shm'


def _integers(array, form, kept):
    """Returns an array as the library takes it, and keeps its memory in `kept`."""
    kept.append(np.ascontiguousarray(array, '<i4' if form == 'i32' else '<i8'))
    return Integers(kept[-1].ctypes.data, kept[-1].size, kept[-1].itemsize)


def _query_of(query, kept):
    """Returns a bag_query.Query as the library takes it."""
    out = LocalQuery(
        table=query.table.encode(), reduction=REDUCTIONS.get(query.reduction, 0),
        missing=MISSING.get(query.missing, 0),
        indices=_integers(query.indices, query.index_form, kept), num_bags=query.num_bags,
        include_last_offset=query.include_last_offset, num_segments=query.num_segments)
    if query.layout == 'packed':
        out.indices_per_bag = query.indices_per_bag
    elif query.layout is not None:
        field = {'segments': 'segment_ids'}.get(query.layout, query.layout)
        setattr(out, field, _integers(query.bounds, query.bounds_form, kept))
    if query.default_index is not None:
        out.has_default, out.default_index = True, query.default_index
    if query.weights is not None:
        kept.append(np.ascontiguousarray(query.weights))
        out.weights, out.weights_count = kept[-1].ctypes.data, len(query.weights)
        out.weights_type = TYPE_NUMBERS[query.weights_type]
    return out


class LocalTables:
    """A handle with one reader."""

    def __init__(self, directory):
        self.library = ctypes.CDLL(os.path.join(served.BUILD, 'libembag_local.so'))
        self.handle, self.reader, self.error = c_void_p(), c_void_p(), Error()
        self._call('embag_local_open', directory.encode(), byref(self.handle))
        self._call('embag_local_reader_open', self.handle, byref(self.reader))

    def _call(self, name, *arguments):
        if getattr(self.library, name)(*arguments, byref(self.error)) != 0:
            raise LocalError(self.error)

    def close(self):
        """Closes both."""
        self.library.embag_local_reader_close(self.reader)
        self.library.embag_local_close(self.handle)

    def lookup(self, model, queries, version=0, output=None):
        """Returns the version, and for each query its values, shape, type and missing positions."""
        kept, answer = [], POINTER(LocalAnswer)()
        array = (LocalQuery * len(queries))(*(_query_of(query, kept) for query in queries))
        request = Request(model=model.encode(), version=version, queries=array,
                          query_count=len(queries), output_type=TYPE_NUMBERS.get(output, 0),
                          report_missing=True)
        self._call('embag_local_lookup', self.reader, byref(request), byref(answer))
        results = []
        for number in range(answer.contents.result_count):
            result = answer.contents.results[number]
            results.append((
                ctypes.string_at(result.values, result.values_bytes),
                list(result.shape[:result.rank]), result.type,
                [result.missing_positions[i] for i in range(result.missing)]))
        return answer.contents.version, results
