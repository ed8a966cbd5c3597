"""Sequence lookups of the package: against stock messages, and answers of a hostile server."""

import dataclasses
import struct

import numpy as np

import embag
import sequence_model
from bag_query import to_message
from embag.v1 import embedding_bag_pb2 as pb
from package_test import PackageTest
from random_query import random_query
from served import SEED, scaled
from test_hostile import HostileTest, response, result
from test_lookups import as_query, needs_ml_dtypes


def ints(*numbers):
    """Returns int32 numbers as they are encoded on the wire."""
    return struct.pack('<%di' % len(numbers), *numbers)


def uints(*numbers):
    """Returns uint32 numbers as they are encoded on the wire."""
    return struct.pack('<%dI' % len(numbers), *numbers)


INDICES = np.array([0, 2, 3, 4])


def query(**fields):
    """Returns a query of four indices in bags of two, none and two."""
    return embag.Query('t', INDICES, lengths=[2, 0, 2], reduction='none', **fields)


def group(**fields):
    """Returns a group of four values in two bags of two features."""
    return embag.Group(['a', 'b'], INDICES, [[1, 1], [0, 2]], reduction='none', **fields)


def of_group(*shape, **fields):
    """Returns a group's result."""
    return result(*shape, missing_by_query=[0, 0], **fields)


OWN = embag.Group(['a', 'b'], INDICES, [[1, 1], [0, 2]])

TAKEN = [
    (query(max_len=2), result(4, 2, lengths=ints(2, 0, 2))),
    (query(max_len=9), result(1, lengths=ints(0, 0, 1))),
    (query(max_len=2, pad=True), result(3, 2, 5, lengths=ints(2, 0, 1))),
    (query(max_len=2, pad=True), result(3, 2, lengths=ints(2, 0, 1))),
    (query(unique=True), result(2, 2, lengths=ints(2, 0, 2), inverse=uints(0, 1, 1, 0))),
    (group(), of_group(4, 2, lengths=ints(1, 1, 0, 2))),
    (group(), of_group(4, 1, lengths=ints(1, 1, 0, 2))),
    (group(max_len=3, pad=True), of_group(4, 3, 1, lengths=ints(1, 1, 0, 2))),
    (group(unique=True), of_group(1, 1, lengths=ints(1, 1, 0, 2), inverse=uints(0, 0, 0, 0))),
    (OWN, of_group(4, 1, lengths=ints(1, 1, 0, 2))),
    (OWN, of_group(2, 2)),
]

REFUSED = [
    (query(max_len=1), result(2, 2, lengths=ints(2, 0, 0)), 'lengths from 0 to 2.*max_len 1'),
    (query(max_len=9), result(2, 2, lengths=ints(-1, 0, 3)), 'lengths from -1 to 3'),
    (query(max_len=9), result(5, 2, lengths=ints(5, 0, 0)), 'add up to 5, the request has 4'),
    (query(max_len=9), result(4, 2, lengths=ints(2, 2)), 'lengths has 8 bytes, 3 bags need 12'),
    (query(max_len=9), result(4, 2), 'lengths has 0 bytes'),
    (query(max_len=9), result(4, 2, lengths=bytes(11)), 'lengths has 11 bytes'),
    (query(max_len=9), result(3, 2, lengths=ints(2, 0, 2)), r'begins with \[3\].* give \[4\]'),
    (query(max_len=9), result(4, 2, lengths=ints(2, 0, 2), inverse=uints(0, 1, 2, 3)),
     'it has inverse'),
    (query(max_len=9), result(4, 0, lengths=ints(2, 0, 2)), 'rows without values'),
    (query(max_len=9), result(4, 2, lengths=ints(2, 0, 2), values=bytes(31)), 'needs 32 bytes'),
    (query(max_len=2, pad=True), result(4, 2, lengths=ints(2, 0, 2)), r'give \[3, 2\]'),
    (query(max_len=2, pad=True), result(3, lengths=ints(2, 0, 2)), r'give \[3, 2\]'),
    (query(max_len=2, pad=True), result(3, 1, 2, lengths=ints(2, 0, 2)), r'give \[3, 2\]'),
    (query(unique=True), result(2, 2, lengths=ints(2, 0, 2), inverse=uints(0, 2, 1, 0)),
     'inverse names a row before'),
    (query(unique=True), result(2, 2, lengths=ints(2, 0, 2), inverse=uints(1, 0, 1, 0)),
     'inverse names a row before'),
    (query(unique=True), result(2, 2, lengths=ints(2, 0, 2), inverse=uints(0, 2**32 - 1, 0, 0)),
     'inverse names a row before'),
    (query(unique=True), result(3, 2, lengths=ints(2, 0, 2), inverse=uints(0, 1, 1, 0)),
     r'give \[2\]'),
    (query(unique=True), result(2, 2, lengths=ints(2, 0, 2), inverse=uints(0, 1)), '8 bytes'),
    (query(unique=True), result(4, 2, lengths=ints(2, 0, 2)), 'inverse has 0 bytes'),
    (query(), result(4, 2, lengths=ints(2, 0, 2)), 'does not ask for sequences'),
    (query(), result(4, 2, inverse=uints(0)), 'does not ask for sequences'),
    (group(), of_group(1, 1, lengths=ints(1, 0)), 'lengths has 8 bytes, 4 bags need 16'),
    (group(), of_group(4, lengths=ints(1, 1, 0, 2)), 'shape of 1 dims, not 2'),
    (group(max_len=3, pad=True), of_group(4, 3, lengths=ints(1, 1, 0, 2)), '2 dims, not 3'),
    (OWN, of_group(2, 1), '2 vectors side by side'),
]


class Answers(HostileTest):
    """Lists that fit the request, and lists that do not."""

    def test_those_that_fit_are_taken(self):
        for asked, message, in TAKEN:
            self.server.reply = response(message)
            for outcome in self.outcomes([asked], {}):
                with self.subTest(str(message)):
                    self.assertIsInstance(outcome, embag.Answer)
                    self.assertEqual(outcome[0].lengths.tobytes(), message.lengths)
                    self.assertEqual(outcome[0].inverse.tobytes(), message.inverse)
                    self.assertEqual(outcome[0].lengths.dtype, np.dtype('i4'))
                    self.assertEqual(outcome[0].inverse.dtype, np.dtype('u4'))

    def test_those_that_do_not_fit_are_internal(self):
        for asked, message, text in REFUSED:
            self.server.reply = response(message)
            for outcome in self.outcomes([asked], {}):
                with self.subTest(text):
                    self.assertIsInstance(outcome, embag.Internal)
                    self.assertRegex(str(outcome), text)


class Sequences(PackageTest):
    """Arrays as input and output."""

    def test_random_lookups_are_what_their_messages_are(self):
        rng = np.random.default_rng([SEED, 63])
        tables = list(self.tables['every'].values())
        for _ in range(scaled(1000)):
            asked = random_query(rng, tables[rng.integers(len(tables))])
            if asked.reduction == 'none' or needs_ml_dtypes(asked):
                continue
            asked = dataclasses.replace(asked, reduction='none')
            sequence = sequence_model.random_sequence(rng, asked.weights is not None)
            message = to_message(asked)
            sequence.set(message)
            want = self.client.lookup(pb.LookupRequest(model='every', queries=[message])).results[0]
            got = self.embag.lookup(
                as_query(asked, **dataclasses.asdict(sequence)), model='every')[0]
            self.assertEqual(
                (list(got.values.shape), got.values.tobytes(), got.missing, got.lengths.tobytes(),
                 got.inverse.tobytes()),
                (list(want.shape), want.values, want.missing, want.lengths, want.inverse), asked)

    def test_unique_rows_and_their_inverse_are_the_rows(self):
        rows = np.array([3, 1, 3, 0, 1])
        plain = self.look_up('emb_table', rows, reduction='none').values
        unique = self.look_up('emb_table', rows, num_bags=1, reduction='none', unique=True)[0]
        self.assertEqual(unique.values.shape, (3, 2))
        np.testing.assert_array_equal(unique.values[unique.inverse], plain)

    def test_a_group_of_sequences(self):
        asked = embag.Group(['emb_table', 'emb_table'], [3, 1, 0, 2, 4], [[2, 0], [1, 2]],
                            reduction='none', max_len=1, keep_first=True)
        found, = self.embag.lookup([asked], model='spec')
        want = self.look_up('emb_table', [3, 0, 2], reduction='none').values
        np.testing.assert_array_equal(found.values, want)
        self.assertEqual(found.lengths.tolist(), [1, 0, 1, 1])

    def test_lists_of_other_results_are_empty(self):
        found = self.look_up('emb_table', [1], num_bags=1)[0]
        self.assertEqual((found.lengths.size, found.inverse.size), (0, 0))
