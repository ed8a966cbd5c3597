"""The Open Inference Protocol: it answers with the same bytes as Lookup for the same bags, and
errors name their cause."""

import os
import unittest

import grpc
import numpy as np

import infer
import served
from bag_query import to_message
from element_types import FLOAT_TYPES, TYPE_NAMES, TYPE_NUMBERS, raw_bits
from embag.v1 import embedding_bag_pb2 as pb
from infer import DATATYPES, Inference
from inference import open_inference_pb2 as oip
from random_query import random_query
from rpc import error_of
from served import SEED, OwnServerTest, ServedTest, scaled, spec_table
from table_files import Table

REQUESTS = 1500
INVALID, NOT_FOUND, EXHAUSTED, OUT_OF_RANGE, INTERNAL, LATE = (
    'INVALID_ARGUMENT', 'NOT_FOUND', 'RESOURCE_EXHAUSTED', 'OUT_OF_RANGE', 'INTERNAL',
    'DEADLINE_EXCEEDED')
OUTPUTS = ('f32', 'f16', 'bf16')


def tensor_of(answer, number=0):
    """Returns name, datatype, shape, bytes and missing indices of an output."""
    output = answer.outputs[number]
    missing = output.parameters['missing'].int64_param if 'missing' in output.parameters else 0
    return (output.name, output.datatype, list(output.shape),
            answer.raw_output_contents[number], missing)


def add_query(inference, query, table):
    """Adds a query of lib/bag_query.py as tensors. Returns false if tensors cannot express its
    layout."""
    width = {'i32': 'i4'}.get(query.index_form, 'i8')
    parameters = {key: value for key, value in (
        ('reduction', query.reduction), ('missing', query.missing),
        ('default_index', query.default_index)) if value is not None}
    indices, weights = query.indices, query.weights
    if query.layout == 'packed' and query.indices_per_bag:
        indices = indices.reshape(-1, query.indices_per_bag)
    elif query.layout != 'offsets' and query.reduction != 'none':
        return False
    inference.indices(table.name, indices, width, **parameters)
    if query.layout == 'offsets':
        inference.offsets(table.name, query.bounds, {'i32': 'i4'}.get(query.bounds_form, 'i8'),
                          include_last_offset=query.include_last_offset)
    if weights is not None and len(weights) == indices.size:
        inference.weights(table.name, weights.reshape(indices.shape), query.weights_type)
    return True


class InferTest(ServedTest):
    """Compares the protocol with Lookup, on tables of every type."""

    def expect(self, inference, code, *parts):
        """Checks that the inference fails with this code, and with a text that contains the parts
        in this order."""
        status, text = error_of(inference.ask, self.client)
        self.assertEqual(status.name, code, text)
        at = 0
        for part in parts:
            at = text.find(part, at)
            self.assertGreaterEqual(at, 0, '%r is not in %r' % (part, text))

    def expect_same(self, query, table, output):
        """Checks that lookup and inference have the same outcome. Returns whether tensors can
        express the query."""
        parameters = {'output_type': output} if output else {}
        inference = Inference('every', **parameters)
        if not add_query(inference, query, table):
            return False
        request = pb.LookupRequest(model='every', queries=[to_message(query)],
                                   output_type=TYPE_NUMBERS.get(output, 0))
        try:
            result = self.client.lookup(request).results[0]
        except grpc.RpcError as error:
            self.expect(inference, error.code().name, error.details().split('": ', 1)[1])
            return True
        self.assertEqual(
            tensor_of(inference.ask(self.client)),
            (table.name + '.pooled', DATATYPES[TYPE_NAMES[result.type]], list(result.shape),
             result.values, result.missing))
        return True

    def test_the_same_bags_give_the_same_bytes(self):
        rng = np.random.default_rng([SEED, 81])
        tables = list(self.tables['every'].values())
        count, seen = 0, set()
        while count < scaled(REQUESTS):
            table = tables[int(rng.integers(len(tables)))]
            query = random_query(rng, table)
            output = None
            if table.type in FLOAT_TYPES and rng.random() < 0.5:
                output = str(rng.choice(OUTPUTS))
            if self.expect_same(query, table, output):
                count += 1
                seen.add((table.type, query.layout))
        if not served.QUICK:
            self.assertEqual({kind for kind, _ in seen}, set(DATATYPES))
            self.assertLessEqual({'offsets', 'packed'}, {layout for _, layout in seen})

    def test_many_tables_are_one_call(self):
        rng = np.random.default_rng([SEED, 82])
        names = ['t%02d' % n for n in range(26)]
        ids = {name: rng.integers(0, 50, (3, 4)) for name in names}
        # All indices, then all offsets: a table's inputs need not be adjacent.
        inference, request = Inference('wide', reduction='mean'), pb.LookupRequest(model='wide')
        for name in names:
            inference.indices(name, ids[name].ravel())
            request.queries.add(table=name, indices=ids[name].ravel().tolist(), offsets=[0, 4, 8],
                                reduction=pb.REDUCTION_MEAN)
        for name in names:
            inference.offsets(name, [0, 4, 8], 'i4')
        answer, results = inference.ask(self.client), self.client.lookup(request).results
        self.assertEqual([output.name for output in answer.outputs],
                         [name + '.pooled' for name in names])
        self.assertEqual(list(answer.raw_output_contents), [result.values for result in results])

    def test_outputs_select_and_order(self):
        def ask(*outputs):
            inference = Inference('wide').indices('t03', [[1, 2]]).indices('t00', [[3], [4]])
            for name in outputs:
                inference.output(name)
            answer = inference.ask(self.client)
            return {output.name: contents for output, contents in
                    zip(answer.outputs, answer.raw_output_contents)}
        both = ask()
        self.assertEqual(list(both), ['t03.pooled', 't00.pooled'])
        self.assertEqual(list(ask('t00.pooled', 't03.pooled').items()), list(both.items())[::-1])
        self.assertEqual(ask('t00.pooled'), {'t00.pooled': both['t00.pooled']})

    def test_an_output_has_its_own_type(self):
        inference = Inference('wide', output_type='f16')
        inference.indices('t00', [[1]]).indices('t01', [[1]])
        inference.output('t01.pooled').output('t00.pooled', output_type='bf16')
        self.assertEqual([output.datatype for output in inference.ask(self.client).outputs],
                         ['FP16', 'BF16'])

    def test_a_model_of_one_table_needs_no_names(self):
        inference = Inference('spec').indices('', [0, 2, 3, 4]).offsets('', [0, 2, 2])
        inference.weights('', np.array([0.5, 1, 1, 2], '<f4'))
        named = Inference('spec').indices('emb_table', [0, 2, 3, 4])
        named.offsets('emb_table', [0, 2, 2])
        named.weights('emb_table', np.array([0.5, 1, 1, 2], '<f4'))
        short, long = inference.ask(self.client), named.ask(self.client)
        self.assertEqual(tensor_of(short)[1:], tensor_of(long)[1:])
        self.assertEqual(tensor_of(short)[0], 'pooled')
        self.assertEqual(tensor_of(long)[0], 'emb_table.pooled')
        mixed = Inference('spec').indices('', [[0]]).output('emb_table.pooled')
        self.assertEqual(tensor_of(mixed.ask(self.client))[0], 'emb_table.pooled')
        self.expect(Inference('wide').indices('', [[0]]), INVALID, 'the table may be left out')
        self.expect(Inference('spec').indices('', [[0]]).indices('emb_table', [[0]]), INVALID,
                    '"emb_table": indices is given twice')

    def test_typed_contents_are_as_raw_ones(self):
        def ask(is_typed, width, weights):
            inference = Inference('every', is_typed=is_typed)
            inference.indices('f64_23x7', [-1, 2, 3, 4], width, missing='skip')
            inference.offsets('f64_23x7', [0, 2, 2], width)
            if weights:
                inference.weights('f64_23x7', np.array([0.5, 1, -1, 2], '<f8'), 'f64')
            return tensor_of(inference.ask(self.client))
        for width in ('i8', 'i4'):
            for weights in (False, True):
                self.assertEqual(ask(True, width, weights), ask(False, width, weights))
        self.assertEqual(ask(True, 'i8', True)[4], 1)
        singles = np.array([[0.5, 1]], '<f4')
        self.assertEqual(
            *(tensor_of(Inference('spec', is_typed=is_typed).indices('', [[1, 2]])
                        .weights('', singles).ask(self.client)) for is_typed in (False, True)))

    def test_empty_bags_and_no_bags(self):
        def shape(indices, offsets=None):
            inference = Inference('spec').indices('', np.array(indices).reshape(np.shape(indices)))
            if offsets is not None:
                inference.offsets('', offsets)
            answer = inference.ask(self.client)
            self.assertEqual(len(answer.raw_output_contents), 1)
            return list(answer.outputs[0].shape), answer.raw_output_contents[0]
        self.assertEqual(shape(np.zeros((3, 0))), ([3, 2], bytes(24)))
        self.assertEqual(shape(np.zeros((0, 3))), ([0, 2], b''))
        self.assertEqual(shape([], [0, 0]), ([2, 2], bytes(16)))
        self.assertEqual(shape([], []), ([0, 2], b''))
        self.assertEqual(shape([1, 2], []), ([0, 2], b''))
        self.expect(Inference('spec').indices('', [1, 5]).offsets('', []), OUT_OF_RANGE,
                    'indices[1] = 5')

    def test_what_an_answer_says_beside_its_tensors(self):
        inference = Inference('every', '3').indices('f32_40', [[1]])
        inference.request.id = 'run 5, \u00e9'
        answer = inference.ask(self.client)
        self.assertEqual((answer.model_name, answer.model_version, answer.id),
                         ('every', '3', 'run 5, \u00e9'))
        self.assertEqual(tensor_of(answer)[2], [1])

    def test_the_request_of_each_client(self):
        """The requests that tritonclient and perf_analyzer make before they infer."""
        def ask(method, **fields):
            return infer.call(self.client, method, getattr(oip, method + 'Request')(**fields))
        self.assertTrue(ask('ServerLive').live)
        self.assertTrue(ask('ServerReady').ready)
        for name, version, ready in (('spec', '', True), ('spec', '1', True), ('spec', '2', False),
                                     ('none', '', False), ('', '', False)):
            self.assertEqual(ask('ModelReady', name=name, version=version).ready, ready)
        server = ask('ServerMetadata')
        self.assertEqual((server.name, list(server.extensions)),
                         ('embag', ['model_configuration']))
        self.assertEqual(server.version, self.client.get_server().version)
        model = ask('ModelMetadata', name='spec')
        self.assertEqual((model.name, list(model.versions), model.platform),
                         ('spec', ['1'], 'embag'))
        self.assertEqual(
            [(tensor.name, tensor.datatype, list(tensor.shape)) for tensor in
             [*model.inputs, *model.outputs]],
            [('emb_table.indices', 'INT64', [-1]), ('emb_table.offsets', 'INT64', [-1]),
             ('emb_table.per_sample_weights', 'FP32', [-1]), ('emb_table.pooled', 'FP32', [-1, 2])])
        config = ask('ModelConfig', name='spec').config
        self.assertEqual((config.name, config.platform, config.backend, config.max_batch_size),
                         ('spec', 'embag', 'embag', 0))
        self.assertEqual(
            [(tensor.name, oip.DataType.Name(tensor.data_type), list(tensor.dims))
             for tensor in [*config.input, *config.output]],
            [(tensor.name, 'TYPE_' + tensor.datatype, list(tensor.shape)) for tensor in
             [*model.inputs, *model.outputs]])
        self.assertTrue(all(tensor.optional for tensor in config.input))
        answer = Inference('spec').indices('emb_table', [[0, 1]]).ask(self.client)
        self.assertEqual(answer.outputs[0].name, model.outputs[0].name)

    def test_metadata_of_every_table(self):
        def ask(method):
            return infer.call(
                self.client, method, getattr(oip, method + 'Request')(name='every', version='3'))
        outputs = {tensor.name: tensor for tensor in ask('ModelMetadata').outputs}
        configured = {tensor.name: tensor for tensor in ask('ModelConfig').config.output}
        self.assertEqual(len(outputs), len(self.tables['every']))
        for name, table in self.tables['every'].items():
            output = outputs[name + '.pooled']
            self.assertEqual(output.datatype, DATATYPES[table.type])
            self.assertEqual(list(output.shape), [-1, *table.raw.shape[1:]])
            number = configured[name + '.pooled'].data_type
            self.assertEqual(oip.DataType.Name(number), 'TYPE_' + output.datatype)

    def test_refuses_what_metadata_cannot_be_of(self):
        for method in ('ModelMetadata', 'ModelConfig'):
            for name, version, code, part in (
                    ('none', '', NOT_FOUND, 'no model "none"'),
                    ('', '', NOT_FOUND, 'model is empty'),
                    ('spec', '2', NOT_FOUND, 'has no version 2'),
                    ('spec', 'latest', INVALID, 'invalid version "latest"'),
                    ('spec', '0', INVALID, 'invalid version "0"'),
                    ('spec', str(2**64), INVALID, 'invalid version'),
                    ('n' * 256, '', EXHAUSTED, 'is longer than a name may be')):
                request = getattr(oip, method + 'Request')(name=name, version=version)
                status, text = error_of(infer.call, self.client, method, request)
                self.assertEqual(status.name, code)
                self.assertIn(part, text)

    def test_refuses_invalid_tensors(self):
        def one(name='t00.indices', datatype='INT64', array=np.zeros((1, 1), '<i8')):
            return Inference('wide').input(name, array, datatype)
        called = 'expected a name TABLE.indices'
        self.expect(one('t00'), INVALID, 'inputs[0] "t00"', called)
        self.expect(one('.indices'), INVALID, called)
        self.expect(one('t00.pooled'), INVALID, called)
        self.expect(one('t00indices'), INVALID, called)
        self.expect(one(datatype='FP32'), INVALID,
                    '"FP32" is not accepted here: expected INT64 or INT32')
        self.expect(one(datatype=''), INVALID, '"" is not accepted here')
        self.expect(one(array=np.zeros((1, 1, 1), '<i8')), INVALID, 'shape has 3 dimensions')
        self.expect(one(array=np.zeros((), '<i8')), INVALID, 'shape has 0 dimensions')
        self.expect(one(array=np.zeros((1, 1), '<i4')), INVALID,
                    'contents have 4 bytes; shape needs 1 elements of 8')
        self.expect(one('t00.per_sample_weights', 'BYTES'), INVALID, '"BYTES" is not accepted here')
        self.expect(one('t00.offsets'), INVALID, 'shape has 2 dimensions; expected 1')
        negative = one()
        negative.request.inputs[0].shape[0] = -1
        self.expect(negative, INVALID, 'shape[0] = -1 is not a valid size')
        self.expect(one('nothing.indices'), NOT_FOUND, '"nothing": model "wide" version 1 has no')
        self.expect(Inference('wide'), INVALID, 'there are no inputs')

    def test_refuses_tensors_that_do_not_go_together(self):
        def wide():
            return Inference('wide').indices('t00', [1, 2])
        self.expect(wide(), INVALID, '"t00": indices of one dimension need offsets')
        self.expect(Inference('wide').indices('t00', [[1]]).offsets('t00', [0]), INVALID,
                    'packed bags, which have no offsets')
        self.expect(Inference('wide').offsets('t00', [0]), INVALID,
                    '"t00": its indices are missing')
        self.expect(wide().offsets('t00', [0]).offsets('t00', [0]), INVALID,
                    'offsets is given twice')
        weights = np.ones((1, 2), '<f4')
        self.expect(wide().offsets('t00', [0]).weights('t00', weights), INVALID,
                    'per_sample_weights does not have the shape of indices')
        self.expect(wide().offsets('t00', [1, 0]), INVALID,
                    '"t00": offsets[1] = 0 is less than offsets[0] = 1')
        self.expect(wide().offsets('t00', [0, 3]), INVALID, 'offsets[1] = 3')
        self.expect(Inference('wide').indices('t00', [[1, 50]]), OUT_OF_RANGE,
                    '"t00": indices[1] = 50')
        self.expect(Inference('wide', reduction='mean').indices('t00', [[1, 2]])
                    .weights('t00', weights), INVALID, 'weights are not allowed with MEAN')
        half = np.ones((1, 2), '<f2')
        self.expect(Inference('wide').indices('t00', [[1, 2]]).weights('t00', half, 'f16'), INVALID,
                    'weights_type f16 cannot be used with a table of f32')

    def test_refuses_invalid_outputs(self):
        def wide(*outputs):
            inference = Inference('wide').indices('t00', [[1]])
            for name in outputs:
                inference.output(name)
            return inference
        self.expect(wide('t00'), INVALID, 'outputs[0] "t00"', 'expected a name TABLE.pooled')
        self.expect(wide('t00.pooled', 't01.pooled'), INVALID, '"t01"', 'it has no inputs')
        self.expect(wide('t99.pooled'), NOT_FOUND, '"t99"')
        self.expect(wide('t00.pooled', 't00.pooled'), INVALID, '"t00"', 'requested twice')

    def test_refuses_invalid_parameters(self):
        def wide(**parameters):
            return Inference('wide', **parameters).indices('t00', [[1]])
        self.expect(wide(average=1), INVALID, 'parameter "average" is not accepted here; '
                    'expected one of reduction, missing, output_type, default_index, '
                    'include_last_offset, timeout, '
                    'priority, sequence_id')
        words = 'parameter "reduction" must be a string, one of sum, mean, weighted_mean, sqrtn, ' \
                'max, min, none'
        for value in ('SUM', 'unspecified', '', 'average', 1, True, 1.5):
            self.expect(wide(reduction=value), INVALID, words)
        self.expect(wide(missing='ignore'), INVALID, 'one of error, skip, zero, unknown_row')
        self.expect(wide(output_type='FP16'), INVALID, 'one of f32, f64, f16, bf16, i8')
        self.expect(wide(output_type='f64'), INVALID, 'output_type f64 cannot be used with')
        self.expect(wide(timeout=-1), INVALID, '"timeout" must be an integer of at least 0')
        self.expect(wide(timeout='1'), INVALID, '"timeout" must be an integer of at least 0')
        self.expect(Inference('wide').indices('t00', [[1]], timeout=1), INVALID, 'inputs[0]',
                    '"timeout" is not accepted here; expected one of reduction, missing, default')
        self.expect(Inference('wide').indices('t00', [[1]], default_index='1'), INVALID,
                    'parameter "default_index" must be an integer')
        self.expect(Inference('wide').indices('t00', [[1]], default_index=50), OUT_OF_RANGE,
                    'default_index = 50')
        self.expect(wide().output('t00.pooled', reduction='sum'), INVALID,
                    'outputs[0] "t00.pooled": parameter "reduction" is not accepted here')
        valueless = wide()
        valueless.request.parameters['missing'].SetInParent()
        self.expect(valueless, INVALID, 'parameter "missing" must be a string')

    def test_keeps_no_state_between_requests(self):
        def wide(**parameters):
            return Inference('wide', **parameters).indices('t00', [[1]])
        for none in (0, ''):
            told = wide(sequence_id=none, sequence_start=False, sequence_end=False)
            self.assertEqual(told.ask(self.client), wide().ask(self.client))
        why = 'sequences are not supported, since requests are independent'
        for parameters in ({'sequence_id': 7}, {'sequence_id': 'a'}, {'sequence_start': True},
                           {'sequence_end': True}):
            self.expect(wide(**parameters), INVALID, why)

    def test_options_for_all_tables(self):
        """A tensor's own parameter overrides the request's, which overrides the model's."""
        def ask(own=None, last=None, **parameters):
            inference = Inference('wide', **parameters)
            inference.indices('t00', [4, 5], **({} if own is None else {'default_index': own}))
            inference.offsets('t00', [0, 0, 2],
                              **({} if last is None else {'include_last_offset': last}))
            inference.indices('t01', [[], []])
            answer = inference.ask(self.client)
            return [raw_bits(np.frombuffer(contents, '<f4').reshape(list(output.shape))).tolist()
                    for output, contents in zip(answer.outputs, answer.raw_output_contents)]
        rows = {name: raw_bits(self.tables['wide'][name].raw).tolist() for name in ('t00', 't01')}
        empty = {name: np.zeros_like(rows[name][0]).tolist() for name in rows}
        both = ask(reduction='max')[0][1]
        self.assertEqual(ask(reduction='max'),
                         [[empty['t00'], both, empty['t00']], [empty['t01']] * 2])
        self.assertEqual(ask(reduction='max', default_index=3),
                         [[rows['t00'][3], both, rows['t00'][3]], [rows['t01'][3]] * 2])
        self.assertEqual(ask(reduction='max', default_index=3, own=7, include_last_offset=True),
                         [[rows['t00'][7], both], [rows['t01'][3]] * 2])
        self.assertEqual(ask(reduction='max', default_index=3, own=-1, include_last_offset=True,
                             last=False),
                         [[empty['t00'], both, empty['t00']], [rows['t01'][3]] * 2])
        self.expect(Inference('wide', default_index=50).indices('t00', [[1]]), OUT_OF_RANGE,
                    '"t00"', 'default_index = 50')

    def test_priorities_are_tritons(self):
        plain = Inference('wide').indices('t00', [[1]]).ask(self.client)
        for priority in (0, 1, 2):
            asked = Inference('wide').indices('t00', [[1]])
            asked.request.parameters['priority'].uint64_param = priority
            self.assertEqual(asked.ask(self.client), plain)
        self.expect(Inference('wide', priority=3).indices('t00', [[1]]), INVALID,
                    'parameter "priority" must be 0 or 1 (interactive) or 2')

    def test_takes_what_clients_of_kserve_say_of_binary_data(self):
        ids = np.array([[0, 2], [3, 4]], '<i8')
        weights = np.array([[1, 2], [3, 4]], '<f4')
        told = Inference('spec', binary_data_output=True)
        told.input('indices', ids, binary_data_size=ids.nbytes)
        told.input('per_sample_weights', weights, 'FP32', binary_data_size=weights.nbytes)
        told.output('pooled', binary_data=True)
        plain = Inference('spec').indices('', ids).weights('', weights).output('pooled')
        self.assertEqual(told.ask(self.client), plain.ask(self.client))
        self.expect(Inference('spec').input('indices', ids, binary_data_size=31), INVALID,
                    'inputs[0] "indices": parameter "binary_data_size" is 31, but '
                    'raw_input_contents has 32 bytes for it')
        self.expect(Inference('spec').input('indices', ids, binary_data_size='32'), INVALID,
                    'parameter "binary_data_size" must be an int64')
        self.expect(Inference('spec').indices('', ids).output('pooled', binary_data=1), INVALID,
                    'parameter "binary_data" must be a boolean')

    def test_passes_over_parameters_that_are_tritons_own(self):
        plain = Inference('wide').indices('t00', [[1]]).ask(self.client)
        told = Inference('wide', triton_enable_empty_final_response=True).indices('t00', [[1]])
        self.assertEqual(told.ask(self.client), plain)

    def test_refuses_contents_that_do_not_fit(self):
        inference = Inference('wide').indices('t00', [[1]])
        inference.request.raw_input_contents.append(b'')
        self.expect(inference, INVALID, 'raw_input_contents has 2 elements for 1 inputs')
        inference = Inference('wide').indices('t00', [[1]])
        inference.request.inputs[0].contents.int64_contents.append(1)
        self.expect(inference, INVALID, 'forms of the same array')
        inference = Inference('wide', is_typed=True).indices('t00', [[1]])
        inference.request.inputs[0].contents.int_contents.append(1)
        self.expect(inference, INVALID, 'contents must be int64_contents (INT64)')
        inference = Inference('wide', is_typed=True).indices('t00', [[1, 2]])
        del inference.request.inputs[0].contents.int64_contents[1]
        self.expect(inference, INVALID, 'contents have 8 bytes; shape needs 2 elements')

    def test_versions_are_numbers(self):
        for version, code, part in (('4', NOT_FOUND, 'model "every" has no version 4 in memory'),
                                    ('stable', INVALID, 'expected a number of at least 1')):
            inference = Inference('every', version).indices('f32_40', [[1]])
            self.expect(inference, code, part)
        self.expect(Inference('none').indices('t', [[1]]), NOT_FOUND, 'no model "none"')

    def test_a_deadline_that_is_over_before_it_begins(self):
        inference = Inference('wide', timeout=1).indices('t00', [[1]])
        self.expect(inference, LATE)
        self.assertTrue(Inference('wide', timeout=0).indices('t00', [[1]]).ask(self.client))

    def test_bytes_that_are_no_message(self):
        whole = Inference('wide').indices('t00', [[1]]).request.SerializeToString()
        for bad in (whole[:-1], b'\xff' + whole, whole + b'\x2a\x05ab'):
            status, _ = error_of(infer.call_bytes, self.client, 'ModelInfer', bad)
            self.assertEqual(status.name, INTERNAL)
        for method in ('ServerLive', 'ServerReady', 'ServerMetadata', 'ModelReady'):
            status, _ = error_of(infer.call_bytes, self.client, method, b'\x0a')
            self.assertEqual(status.name, INTERNAL)
        status, text = error_of(
            infer.call_bytes, self.client, 'ModelInfer', whole + b'\x0a\x01\xff')
        self.assertEqual(status.name, INVALID)
        self.assertIn('ModelInferRequest.model_name is not UTF-8', text)


class OwnInferTest(OwnServerTest):
    """Servers with their own settings and models."""

    def refused(self, client, inference, part):
        """Checks for RESOURCE_EXHAUSTED with this text."""
        status, text = error_of(inference.ask, client)
        self.assertEqual(status.name, EXHAUSTED, text)
        self.assertIn(part, text)

    def test_the_limits_of_a_lookup_hold(self):
        client = self.connect(self.serve(
            '--queries-max', '3', '--indices-max', '6', '--bags-max', '4', '--name-bytes-max', '16',
            tables=[Table.of_values('t%d' % n, 'f32', [[1.0]] * 9) for n in range(5)]))

        def tables(count):
            inference = Inference('spec')
            for n in range(count):
                inference.indices('t%d' % n, [[n]])
            return inference
        self.assertEqual(len(tables(3).ask(client).outputs), 3)
        self.refused(client, tables(4), 'inputs of 4 tables are more than a request may have, 3')
        three = Inference('spec')
        for n in range(3):
            three.indices('t%d' % n, [1]).offsets('t%d' % n, [0])
            three.weights('t%d' % n, np.ones(1, '<f4'))
        self.assertEqual(len(three.ask(client).outputs), 3)
        self.refused(client, three.indices('t3', [[1]]), '10 inputs and 0 outputs; a request may')
        self.assertTrue(Inference('spec').indices('t0', [[1] * 6]).ask(client))
        self.refused(client, Inference('spec').indices('t0', [[1] * 7]), 'indices_max')
        self.assertTrue(Inference('spec').indices('t0', [[]] * 4).ask(client))
        self.refused(client, Inference('spec').indices('t0', [[]] * 5), 'bags_max')
        status, _ = error_of(Inference('spec').indices('n' * 16, [[1]]).ask, client)
        self.assertEqual(status.name, NOT_FOUND)
        self.refused(client, Inference('spec').indices('n' * 17, [[1]]), 'a name that is too long')
        self.refused(client, Inference('n' * 17).indices('t0', [[1]]), 'model_name is too long')

    def test_features_are_tensors_too(self):
        os.makedirs(self.repository.join('spec'))
        with open(self.repository.join('spec', 'model.yaml'), 'w', encoding='utf-8') as file:
            file.write('features:\n'
                       '- {name: clicks, table: emb_table, reduction: mean, missing: skip,\n'
                       '   default_index: 4, max_ids: 2}\n')
        client = self.connect(self.serve())
        model = infer.call(client, 'ModelMetadata', oip.ModelMetadataRequest())
        self.assertEqual([tensor.name for tensor in model.inputs], [
            name + suffix for name in ('emb_table', 'clicks')
            for suffix in ('.indices', '.offsets', '.per_sample_weights')])
        answer = Inference('').indices('clicks', [0, 9, 1]).offsets('clicks', [0, 2, 3]).ask(client)
        values = np.frombuffer(answer.raw_output_contents[0], '<f4').reshape(3, 2)
        rows = spec_table().raw
        np.testing.assert_array_equal(raw_bits(values), raw_bits(rows[[0, 1, 4]]))
        self.assertEqual(tensor_of(answer)[4], 1)
        # The model has one table, regardless of its features.
        self.assertTrue(Inference('').indices('', [[0, 1, 2]]).ask(client))
        status, text = error_of(Inference('').indices('clicks', [[0, 1, 2]]).ask, client)
        self.assertEqual(status.name, INVALID)
        self.assertIn('"clicks"', text)


if __name__ == '__main__':
    unittest.main()
