"""Requests as the package encodes them, compared with the messages that protobuf makes."""

import unittest

import numpy as np

import embag
from embag.request import Request
from embag.v1 import embedding_bag_pb2 as pb
from embag.wire import varint

# Numbers of bytes whose lengths take one byte more than those before them.
SIZES = (0, 1, 127, 128, 16383, 16384, 2**21 - 1, 2**21)


def decoded(asked, **fields):
    """Returns the message that a request is encoded as."""
    return pb.LookupRequest.FromString(Request(asked, None, fields).data)


class Encoding(unittest.TestCase):
    """Bytes of requests, without a server."""

    def test_lengths_are_those_of_protobuf(self):
        for number in (*SIZES, 2**28 - 1, 2**28, 2**32 - 1, 2**32, 2**63):
            whole = pb.BagResult(missing=number).SerializeToString()
            self.assertEqual(whole[1:] or b'\0', varint(number))

    def test_arrays_of_every_length(self):
        for size in SIZES:
            for dtype in '<i4', '<i8':
                indices = np.arange(size // int(dtype[-1]), dtype=dtype)
                query = embag.Query('t', indices, reduction='sum', num_bags=1)
                want = pb.BagQuery(table='t', reduction=pb.REDUCTION_SUM, num_bags=1, **{
                    'indices_i' + {'4': '32', '8': '64'}[dtype[-1]]: indices.tobytes()})
                self.assertEqual(query.message, want)
                self.assertEqual(decoded(query, model='m'),
                                 pb.LookupRequest(model='m', queries=[want]))

    def test_names_of_every_length(self):
        for size in 1, 127, 128, 255:
            name = 'n' * size
            self.assertEqual(embag.Query(name, [1], num_bags=1).message.table, name)
            self.assertEqual(embag.Group([name], [1], [[1]]).message.features, [name])

    def test_every_field_of_a_query(self):
        query = embag.Query('t', [1, 2], offsets=np.array([0, 1, 2], 'i4'), weights=[0.5, 2.0],
                            include_last_offset=True, reduction='weighted_mean', missing='skip',
                            default_index=0, num_bags=2)
        self.assertEqual(query.message, pb.BagQuery(
            table='t', indices_i64=np.array([1, 2]).tobytes(), num_bags=2,
            offsets_i32=np.array([0, 1, 2], 'i4').tobytes(), include_last_offset=True,
            weights=np.array([0.5, 2], 'f4').tobytes(), weights_type=pb.DATA_TYPE_F32,
            layout=pb.BAG_LAYOUT_OFFSETS, reduction=pb.REDUCTION_WEIGHTED_MEAN,
            missing=pb.MISSING_SKIP, default_index=0))
        segments = embag.Query('t', [1], segment_ids=[3], num_segments=4).message
        self.assertEqual((segments.num_segments, segments.layout), (4, pb.BAG_LAYOUT_SEGMENTS))
        packed = embag.Query('t', [[1, 2], [3, 4], [5, 6]]).message
        self.assertEqual((packed.num_bags, packed.indices_per_bag, packed.layout),
                         (3, 2, pb.BAG_LAYOUT_PACKED))

    def test_every_field_of_a_group_and_of_a_request(self):
        group = embag.Group(['a', 'b'], [7, 8], [[1], [1]], weights=[1.0, 2.0], reduction='sum',
                            missing='zero')
        want = pb.FeatureGroup(
            features=['a', 'b'], bags=1, values_i64=np.array([7, 8]).tobytes(),
            lengths_i32=np.ones(2, 'i4').tobytes(), weights=np.array([1, 2], 'f4').tobytes(),
            weights_type=pb.DATA_TYPE_F32, reduction=pb.REDUCTION_SUM, missing=pb.MISSING_ZERO)
        query = embag.Query('t', [1], num_bags=1)
        fields = {'model': 'm', 'version': 3, 'version_label': 'l', 'errors_per_query': True,
                  'report_missing': True, 'allow_incomplete': True, 'priority': 1,
                  'traceparent': '00-1'}
        self.assertEqual(
            decoded([group, query, group], output_type='f16', concat=False, **fields),
            pb.LookupRequest(queries=[query.message], groups=[want, want],
                             output_type=pb.DATA_TYPE_F16, **fields))
        self.assertEqual(embag.Group('g', [], [[], []]).message, pb.FeatureGroup(name='g'))

    def test_what_is_neither_a_query_nor_a_group(self):
        with self.assertRaisesRegex(TypeError, "'t', at position 1, is neither a Query nor"):
            Request([embag.Query('t', [1], num_bags=1), 't'], None, {})
