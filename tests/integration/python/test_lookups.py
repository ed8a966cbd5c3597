"""embag.Client: the arrays that it takes and those that it returns."""

import numpy as np

import embag
import served
from bag_query import LAYOUTS, to_message
from element_types import INTEGER_TYPES, RAW_TYPES
from embag.v1 import embedding_bag_pb2 as pb
from package_test import PackageTest
from random_query import random_query
from served import SEED, SPEC_TABLE, scaled


def as_query(query, **more):
    """Converts a query of the tests to one of the package, with further fields."""
    fields = more | {name: getattr(query, name) for name in (
        'reduction', 'missing', 'num_bags', 'default_index', 'include_last_offset')}
    indices = query.indices.astype('<i4' if query.index_form == 'i32' else '<i8')
    if query.layout == 'packed':
        indices = indices.reshape(query.num_bags if query.indices_per_bag == 0 else -1,
                                  query.indices_per_bag)
        del fields['num_bags']
    elif query.layout:
        fields['segment_ids' if query.layout == 'segments' else query.layout] = query.bounds
        fields['num_segments'] = query.num_segments
    if query.weights is not None:
        bf16 = query.weights_type == 'bf16'
        fields['weights'] = query.weights.view(embag.BFLOAT16) if bf16 else query.weights
    return embag.Query(query.table, indices, **fields)


def needs_ml_dtypes(query):
    """Returns whether the type of the query's weights exists only in the package ml_dtypes."""
    has_bf16 = query.weights is not None and query.weights_type == 'bf16'
    return has_bf16 and embag.BFLOAT16 == np.uint16


class Values(PackageTest):
    """Arrays as input and output."""

    def test_rows_of_every_type_come_back_to_the_bit(self):
        types = set()
        for table in self.tables['every'].values():
            answer = self.embag.lookup(table.name, np.arange(table.rows), model='every',
                                       reduction='none')
            values = answer.values
            self.assertEqual(values.shape, (table.rows, *table.dims))
            expected = embag.BFLOAT16 if table.type == 'bf16' else np.dtype(RAW_TYPES[table.type])
            self.assertEqual(values.dtype, expected)
            if table.type == table.storage:
                self.assertEqual(values.tobytes(), table.raw.tobytes(), table.name)
            else:
                np.testing.assert_array_equal(values.reshape(table.values.shape),
                                              table.values.astype(values.dtype))
            types.add(table.type)
        self.assertEqual(len(types), 12)

    def test_random_lookups_are_what_their_messages_are(self):
        rng = np.random.default_rng(SEED)
        tables = list(self.tables['every'].values())
        layouts = set()
        for _ in range(scaled(2000)):
            table = tables[rng.integers(len(tables))]
            query = random_query(rng, table)
            if needs_ml_dtypes(query):
                continue
            layouts.add(query.layout)
            message = pb.LookupRequest(model='every', queries=[to_message(query)])
            want = self.client.lookup(message).results[0]
            got = self.embag.lookup(as_query(query), model='every')[0]
            self.assertEqual((list(got.values.shape), got.values.tobytes(), got.missing),
                             (list(want.shape), want.values, want.missing), query)
        self.assertLessEqual({*LAYOUTS, None}, layouts)

    def test_indices_of_every_kind_of_integer(self):
        want = np.array(SPEC_TABLE, 'f4')[[4, 1]]
        kinds = [[4, 1], (4, 1), np.array([4, 9, 1])[::2], np.array([4, 1], '>i4')]
        kinds += [np.array([4, 1], RAW_TYPES[name]) for name in INTEGER_TYPES]
        for indices in kinds:
            values = self.look_up('emb_table', indices, offsets=[0, 1]).values
            np.testing.assert_array_equal(values, want)
        for name in INTEGER_TYPES:
            values = self.look_up('emb_table', [4, 1], lengths=np.array([1, 1], RAW_TYPES[name]))
            np.testing.assert_array_equal(values.values, want)

    def test_unsigned_keys_are_twos_complement(self):
        query = embag.Query('t', np.array([2**64 - 1], np.uint64), num_bags=1)
        self.assertEqual(query.message.indices_i64, b'\xff' * 8)

    def test_nothing_is_an_array_too(self):
        for fields in ({'offsets': []}, {'lengths': []}, {'segment_ids': [], 'num_segments': 0}):
            values = self.look_up('emb_table', [], **fields).values
            self.assertEqual((values.shape, values.dtype), ((0, 2), np.float32))
        self.assertEqual(self.look_up('emb_table', [4, 0], offsets=[]).values.shape, (0, 2))
        self.assertEqual(self.look_up('emb_table', np.zeros((3, 0), int)).values.tolist(),
                         [[0, 0]] * 3)
        self.assertEqual(self.look_up('emb_table', np.zeros((0, 3), int)).values.shape, (0, 2))
        self.assertEqual(len(self.look_up([])), 0)

    def test_output_types(self):
        for name, dtype in ('f32', 'f4'), ('f16', 'f2'), ('bf16', embag.BFLOAT16):
            values = self.look_up('emb_table', [3], num_bags=1, output_type=name).values
            self.assertEqual(values.dtype, np.dtype(dtype))
        self.assertEqual(values.view('<u2').tolist(), [[0xbf80, 0x3fc0]])

    def test_results_are_views_that_cannot_be_written(self):
        values = self.look_up('emb_table', [0], num_bags=1).values
        self.assertFalse(values.flags.owndata)
        with self.assertRaises(ValueError):
            values[0] = 1

    def test_an_answer_of_many_megabytes(self):
        large = self.tables['wide']['large']
        values = self.embag.lookup('large', np.arange(large.rows), reduction='none',
                                   model='wide').values
        self.assertEqual(values.tobytes(), large.raw.tobytes())


    def test_options_of_grpc_override_the_packages(self):
        with embag.Client(self.server.address,
                          options=[('grpc.max_receive_message_length', 100)]) as client:
            with self.assertRaises(embag.ResourceExhausted):
                client.lookup('emb_table', [0] * 100, reduction='none', model='spec')


class Requests(PackageTest):
    """Several queries and groups, and options that apply to all of them."""

    def test_results_lie_as_they_were_asked(self):
        group = embag.Group(['t00', 't01'], [1, 2, 3], [[1, 0], [1, 1]])
        asked = [group, embag.Query('t02', [5], num_bags=1), group,
                 embag.Query('narrow', [6], num_bags=1)]
        answer = self.embag.lookup(asked, model='wide')
        self.assertEqual([result.values.shape for result in answer],
                         [(2, 256), (1, 128), (2, 256), (1, 1)])
        rows = {name: self.tables['wide'][name].raw for name in ('t00', 't01', 't02', 'narrow')}
        np.testing.assert_array_equal(answer[0].values, np.block(
            [[rows['t00'][1], rows['t01'][2]], [rows['t00'][1] * 0, rows['t01'][3]]]))
        np.testing.assert_array_equal(answer[1].values[0], rows['t02'][5])
        np.testing.assert_array_equal(answer[3].values[0], rows['narrow'][6])
        self.assertEqual((answer.model, answer.version), ('wide', 1))

    def test_a_query_may_be_asked_again(self):
        query = embag.Query('emb_table', [[0, 1]])
        answer = self.look_up([query, query])
        np.testing.assert_array_equal(answer[0].values, answer[1].values)
        np.testing.assert_array_equal(answer[0].values, self.look_up(query).values)

    def test_side_by_side(self):
        queries = [embag.Query('t0%d' % n, [[n]]) for n in range(3)]
        answer = self.embag.lookup(queries, model='wide', concat=True)
        rows = [self.tables['wide']['t0%d' % n].raw[n] for n in range(3)]
        np.testing.assert_array_equal(answer.values, [np.concatenate(rows)])
        self.assertEqual(answer[0].missing_by_query, (0, 0, 0))

    def test_says_what_is_missing(self):
        result = self.look_up('emb_table', [0, 7, 1, -1], offsets=[0, 2], missing='skip',
                              report_missing=True)[0]
        self.assertEqual((result.missing, result.missing_positions.tolist()), (2, [1, 3]))
        np.testing.assert_array_equal(result.values, np.array(SPEC_TABLE[:2], 'f4'))

    def test_weights(self):
        for weights in [2.0, 0.5], np.array([2, .5], 'f4'), np.array([[2, 0, .5]], 'f4')[0, ::2]:
            values = self.look_up('emb_table', [3, 4], num_bags=1, weights=weights).values
            want = np.float32(2) * np.float32([-1, 1.5]) + np.float32(.5) * np.float32([.8, -.7])
            np.testing.assert_allclose(values[0], want, rtol=1e-6)

    def test_no_weights_are_for_no_indices_only(self):
        for weights in [], np.zeros(0, 'f4'):
            values = self.look_up('emb_table', [], offsets=[0], weights=weights).values
            self.assertEqual(values.tolist(), [[0, 0]])
            group = embag.Group(['t00'], [], [[0]], weights=weights)
            self.assertFalse(self.embag.lookup(group, model='wide').values.any())
            with self.assertRaisesRegex(embag.InvalidArgument, 'weights'):
                self.look_up('emb_table', [3, 4], num_bags=1, weights=weights)
            with self.assertRaisesRegex(embag.InvalidArgument, 'weights'):
                group = embag.Group(['t00'], [3], [[1]], weights=weights)
                self.embag.lookup(group, model='wide')

    def test_a_version(self):
        self.assertEqual(self.look_up('emb_table', [0], num_bags=1, version=1).version, 1)
        with self.assertRaises(embag.NotFound):
            self.look_up('emb_table', [0], num_bags=1, version=2)
        with self.assertRaises(embag.NotFound):
            self.look_up('emb_table', [0], num_bags=1, version_label='canary')

    def test_describes_models_and_the_server(self):
        self.assertEqual([model.name for model in self.embag.models()],
                         ['every', 'packed', 'spec', 'wide'])
        model = self.embag.model('spec')
        table = model.versions[0].tables[0]
        self.assertEqual((table.name, table.rows, list(table.shape)), ('emb_table', 5, [2]))
        limits = {limit.name: limit.value for limit in self.embag.server().limits}
        self.assertEqual(limits['queries_max'], 4096)

    def test_a_unix_socket(self):
        with embag.Client(served.shared('unix')) as client:
            self.assertEqual(client.lookup('emb_table', [0], num_bags=1, model='spec').version, 1)


class Errors(PackageTest):
    """Calls that raise."""

    def fails(self, kind, *arguments, **fields):
        """Returns the exception that a lookup raises."""
        with self.assertRaises(kind) as caught:
            self.look_up(*arguments, **fields)
        return caught.exception

    def test_every_kind_has_its_class(self):
        error = self.fails(embag.OutOfRange, 'emb_table', [0, 5], num_bags=1)
        self.assertIsInstance(error, IndexError)
        self.assertRegex(str(error), r'^queries\[0\] "emb_table": indices\w*\[1\] = 5')
        self.assertEqual((error.code, error.query, error.retry_after), (11, 0, None))
        error = self.fails(embag.InvalidArgument, 'emb_table', [0, 1], offsets=[1, 0])
        self.assertIsInstance(error, ValueError)
        self.assertEqual(error.code, 3)
        error = self.fails(embag.NotFound, 'nothing', [0], num_bags=1)
        self.assertIsInstance(error, LookupError)
        self.fails(embag.ResourceExhausted, 'emb_table', np.zeros(4_000_001, 'i4'), num_bags=1)

    def test_names_the_query_as_it_was_asked(self):
        good, bad = embag.Query('t00', [0], num_bags=1), embag.Query('t00', [-1], num_bags=1)
        group, bad_group = (embag.Group(['t01'], [n], [[1]]) for n in (0, -1))
        for asked, place in ([group, good, bad], 2), ([bad_group, good], 0), ([good, bad_group], 1):
            with self.assertRaises(embag.OutOfRange) as caught:
                self.embag.lookup(asked, model='wide')
            self.assertEqual(caught.exception.query, place, caught.exception)

    def test_one_by_one(self):
        asked = [embag.Query('emb_table', [row], num_bags=1) for row in (5, 3)]
        answer = self.look_up(asked, errors_per_query=True)
        self.assertIsNone(answer[1].error)
        np.testing.assert_array_equal(answer[1].values[0], SPEC_TABLE[3])
        self.assertIsInstance(answer[0].error, embag.OutOfRange)
        self.assertEqual(answer[0].error.query, 0)
        with self.assertRaises(embag.OutOfRange):
            print(answer[0].values)
        with self.assertRaisesRegex(ValueError, '2 results'):
            print(answer.values)

    def test_what_cannot_be_said_is_not_sent(self):
        self.fails(TypeError, 'emb_table')
        self.fails(TypeError, 'emb_table', [0.5], num_bags=1)
        self.fails(TypeError, 'emb_table', [True], num_bags=1)
        self.fails(TypeError, 'emb_table', [0], num_bags=1, weights=np.array(['x']))
        self.fails(TypeError, 'emb_table', [0], num_bags=1, colour='red')
        self.fails(TypeError, embag.Query('emb_table', [0], num_bags=1), offsets=[0])
        self.fails(ValueError, 'emb_table', [0], offsets=[0], lengths=[1])
        self.fails(ValueError, 'emb_table', [[0]], offsets=[0])
        self.fails(ValueError, 'emb_table', [[[0]]])
        self.fails(ValueError, 'emb_table', [0], num_bags=1, reduction='median')
        self.fails(ValueError, 'emb_table', [0], num_bags=1, output_type='f8')
        with self.assertRaises(ValueError):
            embag.Group(['t00'], [0], [1])

    def test_bags_that_are_said_twice_are_as_many(self):
        packed = self.look_up('emb_table', [[0, 1], [2, 3]], num_bags=2)
        self.assertEqual(packed.values.shape, (2, 2))
        self.fails(ValueError, 'emb_table', [[0, 1], [2, 3]], num_bags=1)
        self.fails(ValueError, 'emb_table', np.zeros((0, 3), int), num_bags=3)
        self.assertEqual(embag.Group(['t00'], [0, 1], [[1, 1]], bags=2).message.bags, 2)
        with self.assertRaisesRegex(ValueError, 'bags is 1'):
            embag.Group(['t00', 't01'], [0, 1], [[1, 1]], bags=1)

    def test_lengths_that_do_not_fit_are_not_cut_off(self):
        for length in -1, 2**31, 2**32 + 1, 1 - 2**32, 2**64 - 1:
            with self.assertRaisesRegex(ValueError, r'lengths\[1\] = %d: ' % length):
                sizes = np.array([[1, length]], np.int64 if length < 2**63 else np.uint64)
                embag.Group(['t00'], [0, 1], sizes)
        for length in -1, -128, -2**31:
            sizes = np.zeros((3, 4), np.int32)
            sizes[2, 1] = length
            for array, place in (sizes, 9), (sizes.T, 5), (sizes[2:, 1:2], 0):
                with self.assertRaisesRegex(ValueError, r'lengths\[%d\] = %d: ' % (place, length)):
                    embag.Group(['t00'], [], array)
        for lengths in [[2**31 - 1, 0]], np.array([[2**31 - 1, 0]], np.uint64), [2**31 - 1, 0]:
            group = embag.Group(['t00'], [0], lengths, bags=2)
            self.assertEqual(group.message.lengths_i32, b'\xff\xff\xff\x7f' + bytes(4))

    def test_unsigned_bounds_are_not_taken_for_others(self):
        for name in 'offsets', 'lengths', 'segment_ids':
            for most in 2**32 - 1, 2**64 - 1:
                bounds = np.array([0, most], np.uint32 if most < 2**32 else np.uint64)
                count = 0 if name != 'segment_ids' else 2
                with self.assertRaises((embag.InvalidArgument, embag.OutOfRange)):
                    self.look_up('emb_table', [0, 1], num_segments=count, **{name: bounds})

    def test_a_closed_client(self):
        self.embag.close()
        self.fails(ValueError, 'emb_table', [0], num_bags=1)
