"""embag.catalogue: what it reads from a model's description."""

import unittest

import numpy as np

from embag import catalogue
from embag.v1 import embedding_bag_pb2 as pb


class DefaultVectors(unittest.TestCase):
    """Tables as a server describes them."""

    def test_has_the_type_and_the_shape_of_a_row(self):
        values = np.arange(6, dtype='<f2')
        table = pb.Table(type=pb.DATA_TYPE_F16, shape=[2, 3], default_vector=values.tobytes())
        got = catalogue.default_vector(table)
        self.assertEqual(got.dtype, np.dtype('<f2'))
        np.testing.assert_array_equal(got, values.reshape(2, 3))

    def test_is_a_single_value_for_rows_of_one(self):
        table = pb.Table(type=pb.DATA_TYPE_I8, default_vector=b'\xfe')
        self.assertEqual(catalogue.default_vector(table).tolist(), -2)

    def test_is_none_without_one(self):
        self.assertIsNone(catalogue.default_vector(pb.Table(type=pb.DATA_TYPE_F32, shape=[4])))
