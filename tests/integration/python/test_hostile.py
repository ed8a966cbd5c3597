"""Answers of a broken or hostile server. Whatever it sends, a call either raises an EmbagError or
returns exactly what was requested."""

import asyncio
import concurrent.futures
import struct
import unittest

import grpc
import numpy as np

import embag
from embag import aio
from embag.v1 import embedding_bag_pb2 as pb
from test_collection import Jagged

SERVICE = 'embag.v1.EmbeddingBag'
F32, F16, I64 = pb.DATA_TYPE_F32, pb.DATA_TYPE_F16, pb.DATA_TYPE_I64
SIZES = {F32: 4, F16: 2, I64: 8}
MANY = '9' * 5000  # more digits than int() accepts


def result(*shape, number=0, data_type=F32, values=None, **fields):
    """Returns a result of zeros that fill the shape, unless values are given."""
    if values is None:
        values = bytes(int(np.prod(shape)) * SIZES[data_type])
    return pb.BagResult(query=number, type=data_type, shape=shape, values=values, **fields)


def response(*results, **fields):
    """Returns an answer of version 1."""
    return pb.LookupResponse(results=results, **{'version': 1, **fields})


def positions(*places):
    """Returns missing positions as they are encoded on the wire."""
    return struct.pack('<%dI' % len(places), *places)


class Scripted:
    """A server that answers every call with `reply`: a message, bytes, an empty tuple for no
    answer, or whatever a function of the context returns. GetModel is answered with `model`. A
    stream's answers carry the request's number; before and after each come answers that nobody
    requested."""

    def __init__(self):
        self.reply = self.model = None
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        unary = grpc.unary_stream_rpc_method_handler(self.answer)
        handlers = {
            'Lookup': unary, 'ListModels': unary, 'GetServer': unary,
            'GetModel': grpc.unary_unary_rpc_method_handler(
                lambda _, context: self.model.SerializeToString()),
            'LookupStream': grpc.stream_stream_rpc_method_handler(
                self.stream, pb.LookupRequest.FromString),
        }
        self.server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, handlers),))
        self.address = '127.0.0.1:%d' % self.server.add_insecure_port('127.0.0.1:0')
        self.server.start()

    def answer(self, _, context):
        """Answers a unary call."""
        replies = self.reply(context) if callable(self.reply) else self.reply
        for reply in replies if isinstance(replies, tuple) else (replies,):
            yield reply if isinstance(reply, bytes) else reply.SerializeToString()

    def stream(self, requests, _):
        """Handles LookupStream."""
        for request in requests:
            if isinstance(self.reply, bytes):
                yield self.reply
                continue
            numbers = (0, 2**64 - 1, request.request_id, request.request_id, request.request_id - 1)
            for number in numbers:
                message = pb.LookupResponse()
                message.CopyFrom(self.reply)
                message.request_id = number
                yield message.SerializeToString()

    def stop(self):
        """Stops the server."""
        self.server.stop(0).wait()


INDICES = np.array([0, 2, 3, 4])
BAGS = embag.Query('t', INDICES, offsets=[0, 2, 2], reduction='sum')
OWN = embag.Query('t', INDICES, offsets=[0, 2, 2])
ROWS = embag.Query('t', INDICES, reduction='none')
GROUP = embag.Group(['a', 'b'], INDICES, [[1, 1], [0, 2]])
EMPTY = embag.Query('t', [], lengths=[], reduction='sum')
NAMED = embag.Group('g', INDICES, [[1, 1], [0, 2]])
POSITIONS = {'report_missing': True}
CONCAT = {'concat': True}
INCOMPLETE = {'allow_incomplete': True}

# Requests, their options, and answers to them that must be accepted.
TAKEN = [
    ([BAGS], {}, response(result(3, 2))),
    ([BAGS], {}, response(result(3))),
    ([BAGS], {}, response(result(3, 1, 1, 1, 1, 1, 1, 1))),
    ([BAGS], {'output_type': 'f16'}, response(result(3, 2, data_type=F16))),
    ([BAGS], {'version': 7}, response(result(3, 2), version=7)),
    ([BAGS], {}, response(result(3, 2, missing=4))),
    ([BAGS], POSITIONS, response(result(3, 2, missing=2, missing_positions=positions(0, 3)))),
    ([OWN], {}, response(result(3, 2))),
    ([OWN], {}, response(result(4, 2))),
    ([ROWS], {}, response(result(4, 2))),
    ([BAGS, BAGS], {}, response(result(3, 2), result(3, 9, number=1))),
    ([BAGS, BAGS], CONCAT, response(result(3, 2, missing_by_query=[0, 0]))),
    ([BAGS, BAGS], {**CONCAT, **POSITIONS},
     response(result(3, 2, missing=3, missing_by_query=[1, 2],
                     missing_positions=positions(3, 0, 1)))),
    ([GROUP, BAGS], {}, response(result(3, 2),
                                 result(2, 2, number=1, missing_by_query=[0, 0]))),
    ([NAMED], {}, response(result(2, 2, missing=4, missing_by_query=[1, 3, 0]))),
    ([BAGS], INCOMPLETE, response(result(3, 2, missing=1, unreached=3), incomplete=True)),
    ([BAGS], INCOMPLETE, response(result(3, 2))),
    ([BAGS, BAGS], {**CONCAT, **INCOMPLETE},
     response(result(3, 2, missing_by_query=[0, 0], unreached=8), incomplete=True)),
    ([], {}, response()),
    ([], CONCAT, response()),
]

# The same with answers that must be rejected, and a pattern for the error.
REFUSED = [
    ([BAGS], {}, response(result(1, 2)),
     r'results\[0\]: shape \[1, 2\] has 1 bags, the request has 3'),
    ([BAGS], {}, response(result(1000, 2)), 'has 1000 bags, the request has 3'),
    ([BAGS], {}, response(result(0, 2)), 'has 0 bags, the request has 3'),
    ([BAGS], {}, response(result(values=bytes(4))), 'shape of 0 dims'),
    ([BAGS], {}, response(result(*[1] * 8)), 'has 1 bags, the request has 3'),
    ([BAGS], {}, response(result(3, *[1] * 9)), 'shape of 10 dims'),
    ([BAGS], {}, response(result(3, *[1] * 100)), 'shape of 101 dims'),
    ([BAGS], {}, response(result(4, 2)), 'has 4 bags, the request has 3'),
    ([OWN], {}, response(result(2, 2)), 'has 2 rows, the request has 3 bags of 4 indices'),
    ([ROWS], {}, response(result(3, 2)), 'has 3 rows, the request has 4 indices'),
    ([BAGS], {}, response(result(3, 0)), 'rows without values'),
    ([BAGS], {}, response(result(3, 2, values=bytes(23))), 'needs 24 bytes, but there are 23'),
    ([BAGS], {}, response(result(3, 2, values=b'')), 'needs 24 bytes, but there are 0'),
    ([BAGS], {}, response(result(3, 2**64 - 1, values=b'')), 'needs 221360928884514619380 bytes'),
    ([BAGS], {}, response(result(3, 2**62, 4, values=b'')), 'but there are 0'),
    ([BAGS], {}, response(result(3, 2**63, 2, values=b'')), 'but there are 0'),
    ([BAGS], {}, response(result(2**64 - 1, 2, values=b'')), 'the request has 3'),
    ([EMPTY], {}, response(result(0, 2**63, values=b'')), 'larger than an array can be'),
    ([EMPTY], {}, response(result(0, 2**40, 2**40, values=b'')), 'larger than an array can be'),
    ([EMPTY], {}, response(result(0, 0, values=b'')), 'rows without values'),
    ([EMPTY], {}, response(result(0, 2, values=b'x')), 'needs 0 bytes, but there are 1'),
    ([BAGS], {}, response(result(3, 2**64 - 1, 0, values=b'')), 'larger than an array'),
    ([BAGS], {}, response(result(3, 2, data_type=99, values=bytes(24))), 'install a newer version'),
    ([BAGS], {}, response(result(3, 2, data_type=0, values=bytes(24))), 'values of type 0'),
    ([BAGS], {'output_type': 'f16'}, response(result(3, 2)), 'are F32, the request asks for F16'),
    ([BAGS], {'version': 7}, response(result(3, 2)), 'it is from version 1'),
    ([BAGS], {}, response(result(3, 2), version=0), 'it is from version 0'),
    ([BAGS], {}, response(result(3, 2), more=True), 'more is set'),
    ([BAGS], {}, response(result(3, 2, unreached=1), incomplete=True),
     'it is incomplete, but the request does not allow that'),
    ([BAGS], {}, response(result(3, 2, unreached=1)), '1 indices were not reached, but'),
    ([BAGS], INCOMPLETE, response(result(3, 2, unreached=1)), 'but incomplete is not set'),
    ([BAGS], INCOMPLETE, response(result(3, 2, unreached=5), incomplete=True),
     '5 indices were not reached and 0 are missing, the request has 4'),
    ([BAGS], INCOMPLETE, response(result(3, 2, missing=2, unreached=3), incomplete=True),
     '3 indices were not reached and 2 are missing'),
    ([BAGS], {}, response(), '0 results, the request has 1 queries and 0 groups'),
    ([BAGS], {}, response(result(3, 2), result(3, 2, number=1)), '2 results'),
    ([], {}, response(result(3, 2)), '1 results, the request has 0 queries'),
    ([BAGS, BAGS], {}, response(result(3, 2), result(3, 2)),
     r'results\[1\]: it belongs to query 0'),
    ([BAGS, BAGS], {}, response(result(3, 2, number=1), result(3, 2)), 'it belongs to query 1'),
    ([BAGS], {}, response(result(3, 2, number=2**32 - 1)), 'it belongs to query 4294967295'),
    ([BAGS], {}, response(pb.BagResult(error_code=5)), 'error 5, but the request does not allow'),
    ([BAGS], {**CONCAT, 'errors_per_query': True}, response(pb.BagResult(error_code=5)),
     'error 5, but'),
    ([BAGS], {}, response(result(3, 2, missing=5)), '5 indices are missing, the request has 4'),
    ([BAGS], {}, response(result(3, 2, missing=2**64 - 1)), 'the request has 4'),
    ([BAGS], {}, response(result(3, 2, missing_by_query=[0])), '1 counts of missing indices'),
    ([BAGS], {}, response(result(3, 2, missing=1, missing_positions=positions(0))), 'has 4 bytes'),
    ([BAGS], POSITIONS, response(result(3, 2, missing=1)), 'has 0 bytes, not 4'),
    ([BAGS], POSITIONS, response(result(3, 2, missing=1, missing_positions=bytes(3))), '3 bytes'),
    ([BAGS], POSITIONS, response(result(3, 2, missing=1, missing_positions=positions(4))),
     'do not ascend within 4'),
    ([BAGS], POSITIONS, response(result(3, 2, missing=2, missing_positions=positions(1, 1))),
     'do not ascend'),
    ([BAGS], POSITIONS, response(result(3, 2, missing=1, missing_positions=positions(2**32 - 1))),
     'do not ascend'),
    ([BAGS, BAGS], CONCAT, response(result(3, 2)), '0 counts of missing indices'),
    ([BAGS, BAGS], CONCAT, response(result(4, 2, missing_by_query=[0, 0])), 'the request has 3'),
    ([BAGS, BAGS], CONCAT, response(result(3, 1, missing_by_query=[0, 0])), '2 vectors side'),
    ([BAGS, BAGS], CONCAT, response(result(3, missing_by_query=[0, 0])), '2 vectors side'),
    ([BAGS, BAGS], CONCAT, response(result(3, 2, data_type=I64, missing_by_query=[0, 0])),
     'must be floating-point'),
    ([BAGS, BAGS], CONCAT, response(result(3, 2, missing=3, missing_by_query=[1, 1])),
     '3 indices are missing, but the counts of its queries or features add up to 2'),
    ([BAGS, BAGS], CONCAT, response(result(3, 2, missing=5, missing_by_query=[0, 5])),
     '5 indices are missing, the request has 4'),
    ([BAGS, BAGS], {**CONCAT, **POSITIONS},
     response(result(3, 2, missing=2, missing_by_query=[1, 1],
                     missing_positions=positions(3, 4))), 'do not ascend within 4'),
    ([GROUP], {}, response(result(3, 2, missing_by_query=[0, 0])), 'has 3 bags, the request has 2'),
    ([GROUP], {}, response(result(2, missing_by_query=[0, 0])), '2 vectors side by side'),
    ([GROUP], {}, response(result(2, 1, missing_by_query=[0, 0])), '2 vectors side by side'),
    ([GROUP], {}, response(result(2, 2, 2, missing_by_query=[0, 0])), '2 vectors side by side'),
    ([GROUP], {}, response(result(2, 2, missing_by_query=[0])), '1 counts of missing indices'),
    ([GROUP], {}, response(result(2, 2, missing_by_query=[2**64 - 1, 1])),
     'but the counts of its queries or features add up to'),
    ([NAMED], {}, response(result(1, 2)), 'has 1 bags, the request has 2'),
    ([NAMED], {}, response(result(2, 2, missing=1)),
     'but the counts of its queries or features add up to 0'),
]


class HostileTest(unittest.TestCase):
    """Tests with a server whose answers the test writes."""

    def setUp(self):
        self.server = Scripted()
        self.addCleanup(self.server.stop)
        self.client = embag.Client(self.server.address, timeout=60)
        self.addCleanup(self.client.close)

    def outcomes(self, asked, fields):
        """Makes one request in every possible way; returns for each an answer or the error
        raised."""
        found = []
        try:
            found.append(self.client.lookup(asked, **fields))
        except Exception as error:
            found.append(error)
        with self.client.stream() as stream:
            future = stream.submit(asked, **fields)
            found.append(future.exception(60) or future.result())

        async def ask():
            async with aio.Client(self.server.address, timeout=60) as client:
                async with client.stream() as stream:
                    calls = client.lookup(asked, **fields), stream.submit(asked, **fields)
                    return await asyncio.gather(*calls, return_exceptions=True)
        return found + asyncio.run(ask())


class Answers(HostileTest):
    """Answers to lookups."""

    def test_those_that_fit_are_taken(self):
        for asked, fields, self.server.reply in TAKEN:
            for outcome in self.outcomes(asked, fields):
                with self.subTest(str(self.server.reply)):
                    self.assertIsInstance(outcome, embag.Answer)
                    for each in outcome:
                        self.assertGreater(each.values.size, 0)

    def test_those_that_do_not_fit_are_internal(self):
        for asked, fields, self.server.reply, text in REFUSED:
            for outcome in self.outcomes(asked, fields):
                with self.subTest(text):
                    self.assertIsInstance(outcome, embag.Internal)
                    self.assertRegex(str(outcome), text)

    def test_bags_of_every_layout(self):
        ids = np.arange(6)
        layouts = [({'offsets': [0, 1, 5, 6], 'include_last_offset': True}, 3),
                   ({'offsets': np.array([0, 1], 'i4')}, 2), ({'lengths': [1, 1, 1, 1, 2]}, 5),
                   ({'segment_ids': [0, 0, 0, 0, 0, 8], 'num_segments': 9}, 9),
                   ({'num_bags': 1}, 1)]
        queries = [(embag.Query('t', ids, reduction='max', **fields), bags)
                   for fields, bags in layouts]
        queries += [(embag.Query('t', ids.reshape(2, 3), reduction='sum'), 2),
                    (embag.Query('t', np.zeros((0, 3), 'i8'), reduction='sum'), 0),
                    (embag.Query('t', np.zeros((4, 0), 'i8'), reduction='sum'), 4),
                    (embag.Query('t', [], reduction='sum'), 0),
                    (embag.Query('t', [], reduction='sum', num_segments=4), 4),
                    (embag.Query('t', [], reduction='sum', offsets=[], num_bags=5), 5),
                    (embag.Query('t', [], reduction='sum', lengths=[]), 0),
                    (embag.Query('t', ids, reduction='none'), 6)]
        for query, bags in queries:
            for answered in range(11):
                self.server.reply = response(result(answered, 2))
                with self.subTest(query.message, answered=answered):
                    if answered == bags:
                        self.client.lookup(query)
                    else:
                        with self.assertRaises(embag.Internal):
                            self.client.lookup(query)

    def test_bytes_that_are_no_message(self):
        for self.server.reply in b'\xff', b'\x12\x02\xc3\x28', b'\x22\xff\xff\xff\xff\x0f':
            for outcome in self.outcomes([BAGS], {}):
                with self.subTest(self.server.reply):
                    self.assertIsInstance(outcome, embag.Internal)

    def test_errors_are_those_of_the_server(self):
        for code, kind, number in ((5, embag.NotFound, 5), (6, embag.EmbagError, 6),
                                   (16, embag.Unauthenticated, 16), (17, embag.EmbagError, 2),
                                   (2**32 - 1, embag.EmbagError, 2)):
            self.server.reply = response(
                error_code=code, error_message='queries[%s]: no' % MANY, retry_after_ms=2**32 - 1)
            for outcome in self.outcomes([BAGS], {}):
                self.assertIs(type(outcome), kind)
                self.assertEqual((outcome.code, outcome.query), (number, None))

    def test_errors_of_one_query(self):
        for code, number in (5, 5), (2**32 - 1, 2):
            self.server.reply = response(pb.BagResult(
                error_code=code, error_message='queries[7]: no', type=99, shape=[2**63],
                values=b'x', missing_positions=b'xyz'))
            for outcome in self.outcomes([BAGS], {'errors_per_query': True}):
                self.assertEqual((outcome[0].error.code, outcome[0].error.query), (number, None))
                with self.assertRaises(embag.EmbagError):
                    print(outcome.values)

    def test_a_stream_outlives_an_answer_that_does_not_fit(self):
        with self.client.stream() as stream:
            self.server.reply = response(result(1, 2))
            self.assertIsInstance(stream.submit([BAGS]).exception(60), embag.Internal)
            self.server.reply = response(result(3, 2))
            self.assertEqual(stream.submit([BAGS]).result(60).values.shape, (3, 2))


class Calls(HostileTest):
    """Calls that end without a message, and malformed numbers in their trailers and texts."""

    def unary_calls(self):
        """Returns the unary calls of the blocking client."""
        return (lambda: self.client.lookup([BAGS]), self.client.models, self.client.server)

    def test_ok_without_a_message(self):
        async def ask(method):
            async with aio.Client(self.server.address, timeout=60) as client:
                await getattr(client, method)(*[[BAGS]][:method == 'lookup'])
        self.server.reply = ()
        for call in self.unary_calls():
            with self.assertRaises(embag.Internal):
                call()
        for method in 'lookup', 'models', 'server':
            with self.subTest(method), self.assertRaises(embag.Internal):
                asyncio.run(ask(method))

    def test_numbers_in_trailers_and_texts(self):
        for wait in MANY, '-1', '1.5', ' ':
            def refuse(context, wait=wait):
                context.set_trailing_metadata((('grpc-retry-pushback-ms', wait),))
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, 'groups[%s]: full' % ('9' * 999))
            self.server.reply = refuse
            for call in self.unary_calls():
                with self.assertRaises(embag.ResourceExhausted) as caught:
                    call()
                self.assertIsNone(caught.exception.retry_after)
                self.assertIsNone(caught.exception.query)


def described(*tables, version=1, features=()):
    """Returns a model of that version; the tables are given as (name, columns)."""
    return pb.Model(name='m', served_version=version, versions=[pb.ModelVersion(
        version=version, tables=[pb.Table(name=name, shape=[columns], type=F32)
                                 for name, columns in tables],
        features=[pb.Feature(name=name, table=table) for name, table in features])])


class Twins(HostileTest):
    """The functions modelled on TorchRec's and TensorFlow's."""

    def vectors(self, model):
        """Makes the requests of a collection of two keys, from 2 bags of 5 columns, with both
        clients; returns the vectors or errors."""
        self.server.reply = response(result(2, 5, missing_by_query=[0, 0]))
        self.server.model = model
        jagged = Jagged(['a', 'b'], np.ones((2, 2), 'i4'), np.zeros(4, 'i8'))
        found = []
        try:
            found.append(embag.RemoteEmbeddingBagCollection(self.client, ['a', 'b'])(jagged))
        except Exception as error:
            found.append(error)

        async def ask():
            async with aio.Client(self.server.address, timeout=60) as client:
                collection = aio.RemoteEmbeddingBagCollection(client, ['a', 'b'])
                return await asyncio.gather(collection(jagged), return_exceptions=True)
        return found + asyncio.run(ask())

    def test_a_collection_of_what_the_model_describes(self):
        for outcome in self.vectors(described(('a', 2), ('t', 3), features=[('b', 't')])):
            self.assertEqual(outcome.length_per_key(), [2, 3])

    def test_a_collection_of_something_else(self):
        for model in (pb.Model(), described(('a', 2)), described(('a', 2), ('b', 2)),
                      described(('a', 2), ('b', 3), version=2), described(('a', 2**63), ('b', 3)),
                      described(('a', 2), features=[('b', 'nothing')])):
            for outcome in self.vectors(model):
                with self.subTest(model):
                    self.assertIsInstance(outcome, embag.Internal)

    def test_rows_of_a_sparse_tensor(self):
        class Sparse:
            """A stand-in for a SparseTensor."""

            indices, values, dense_shape = np.array([[0, 0], [2, 0]]), np.array([1, 2]), [3, 1]
        for shape, is_good in ((3, 2), True), ((2, 2), False), ((4, 2), False), ((3,), True):
            self.server.reply = response(result(*shape))
            with self.subTest(shape):
                if is_good:
                    self.assertEqual(
                        embag.embedding_lookup_sparse(self.client, 't', Sparse).shape, shape)
                else:
                    with self.assertRaises(embag.Internal):
                        embag.embedding_lookup_sparse(self.client, 't', Sparse)
        Sparse.dense_shape = [2, 1]
        self.server.reply = response(result(2, 2))
        with self.assertRaises(embag.Internal):
            embag.embedding_lookup_sparse(self.client, 't', Sparse)
        # Before the client sends weights, it requests the table's type.
        Sparse.dense_shape = [3, 1]
        self.server.reply, weights = response(result(3, 2)), Sparse()
        weights.values = np.ones(2)
        for self.server.model in pb.Model(), described(features=[('t', 'nothing')]):
            self.assertEqual(embag.embedding_lookup_sparse(
                self.client, 't', Sparse, weights).shape, (3, 2))
