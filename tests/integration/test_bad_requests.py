"""Requests that must be refused, with the right status and a text that names the cause. Afterwards
the same connection must answer, and so must another."""

import re
import unittest

import grpc
import numpy as np

from embag.v1 import embedding_bag_pb2 as pb
from rpc import OPTIONS, Client, as_bytes, error_of
from served import ServedTest

INVALID = 'INVALID_ARGUMENT'
RANGE = 'OUT_OF_RANGE'


def i64(*values):
    """Returns bytes of int64."""
    return np.array(values, '<i8').tobytes()


def i32(*values):
    """Returns bytes of int32."""
    return np.array(values, '<i4').tobytes()


def f32(*values):
    """Returns bytes of float."""
    return np.array(values, '<f4').tobytes()


def query(**fields):
    """Returns a query on the specification's table (5 rows of 2)."""
    return pb.BagQuery(**{'table': 'emb_table', **fields})


def request(*queries, **fields):
    """Returns a request to the specification's model."""
    return pb.LookupRequest(**{'model': 'spec', 'queries': queries, **fields})


GOOD = request(query(indices_i64=i64(0, 2, 3, 4), offsets_i64=i64(0, 2, 2)))


def varint(number):
    """Returns Protobuf's variable-length integer."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out) + bytes([number])


def field(number, data):
    """Returns a length-delimited field, built by hand for bytes that no library would write."""
    return varint(number << 3 | 2) + varint(len(data)) + data


class BadRequest(ServedTest):
    """Each test sends requests that are refused, and then checks that the server still answers."""

    def setUp(self):
        super().setUp()
        self.other = Client(self.server.address)
        self.addCleanup(self.other.close)
        self.want = self.other.lookup(GOOD).results

    def tearDown(self):
        for client in (self.client, self.other):
            self.assertEqual(client.lookup(GOOD).results, self.want)
        super().tearDown()

    def refused(self, code, pattern, message):
        """Checks the refusal of a unary call and on a stream, where the error is an answer and the
        stream continues."""
        got, text = error_of(self.client.lookup, message)
        self.assertEqual(got.name, code, text)
        self.assertRegex(text, pattern)
        if isinstance(message, bytes):
            return
        message.request_id = 77
        bad, good = self.client.stream([message, GOOD])
        self.assertEqual((bad.request_id, bad.error_code), (77, got.value[0]), bad.error_message)
        self.assertRegex(bad.error_message, pattern)
        self.assertEqual((good.error_code, good.results), (0, self.want))

    def query_refused(self, code, pattern, **fields):
        """Checks the query as number 0 and, after a good one, as number 1."""
        named = r'queries\[%d\].*"emb_table".*'
        good = GOOD.queries[0]
        self.refused(code, named % 0 + pattern, request(query(**fields)))
        self.refused(code, named % 1 + pattern, request(good, query(**fields), good))


class BadIndices(BadRequest):
    """Indices, offsets, lengths, segment ids."""

    def test_refuses_an_index_past_the_end(self):
        self.query_refused(RANGE, r'indices\w*\[2\] = 5\b', indices_i64=i64(0, 1, 5),
                           offsets_i64=i64(0))
        self.query_refused(RANGE, r'indices\w*\[0\] = 2147483647\b', indices_i32=i32(2**31 - 1),
                           offsets_i64=i64(0))

    def test_refuses_a_negative_index(self):
        self.query_refused(RANGE, r'indices\w*\[1\] = -1\b', indices_i32=i32(0, -1),
                           offsets_i32=i32(0))
        self.query_refused(RANGE, r'indices\w*\[0\] = -9223372036854775808', indices=[-2**63],
                           offsets=[0])

    def test_refuses_an_index_that_is_a_row_only_modulo_2_32(self):
        self.query_refused(RANGE, r'indices\w*\[0\] = 4294967296\b', indices_i64=i64(2**32),
                           num_bags=1)

    def test_refuses_missing_indices_in_every_layout(self):
        for layout in ({'indices_per_bag': 2}, {'lengths_i32': i32(1, 1)}, {'num_bags': 1},
                       {'segment_ids': [1, 0], 'num_segments': 2}, {'reduction': 7}):
            self.query_refused(RANGE, r'indices\w*\[1\] = 9\b', indices=[4, 9], **layout)

    def test_refuses_what_does_not_go_with_empty_offsets(self):
        def refused(code, pattern, **fields):
            self.query_refused(code, pattern, indices=[0, 1, 5], layout=1, **fields)
        refused(RANGE, r'indices\[2\] = 5 is outside')
        refused(INVALID, r'num_bags is 2, but offsets gives 0', num_bags=2)
        refused(INVALID, r'num_bags is 1, but offsets gives 0', num_bags=1)
        refused(INVALID, r'offsets is empty, but include_last', include_last_offset=True)
        refused(INVALID, r'weights has 4 bytes; expected 12', weights=f32(1), weights_type=1)
        refused(RANGE, r'default_index = 5 is outside', default_index=5)
        self.query_refused(INVALID, r'lengths is empty, but the number of indices is 2',
                           indices=[0, 1], layout=2)
        self.query_refused(INVALID, r'indices need a layout', indices=[0, 1])

    def test_refuses_offsets_that_decrease(self):
        self.query_refused(INVALID, r'offsets\w*\[2\] = 1 .*offsets\w*\[1\] = 2',
                           indices_i64=i64(0, 1, 2), offsets_i64=i64(0, 2, 1))

    def test_refuses_an_offset_past_the_end(self):
        self.query_refused(INVALID, r'offsets\w*\[1\] = 4\b', indices_i64=i64(0, 1, 2),
                           offsets_i32=i32(0, 4))
        self.query_refused(INVALID, r'offsets\w*\[1\] = 4\b', indices_i64=i64(0, 1, 2),
                           offsets_i32=i32(0, 4), include_last_offset=True)

    def test_refuses_a_negative_offset(self):
        self.query_refused(INVALID, r'offsets\w*\[0\] = -1\b', indices_i64=i64(0, 1, 2),
                           offsets_i64=i64(-1, 2))

    def test_refuses_byte_counts_that_are_no_multiple(self):
        self.query_refused(INVALID, r'offsets\w* has', indices_i64=i64(0),
                           offsets_i64=i64(0, 1)[:-1])
        self.query_refused(INVALID, r'offsets\w* has', indices_i64=i64(0), offsets_i32=b'\0\0\0')
        self.query_refused(INVALID, r'indices\w* has', indices_i64=i64(0)[:7], offsets_i64=i64(0))
        self.query_refused(INVALID, r'indices\w* has', indices_i32=b'\0', offsets_i64=i64(0))
        self.query_refused(INVALID, r'lengths\w* has', indices_i64=i64(0),
                           lengths_i32=b'\1\0\0\0\0')
        self.query_refused(INVALID, r'segment_ids\w* has', indices_i64=i64(0), num_segments=1,
                           segment_ids_i64=b'\0' * 9)

    def test_refuses_lengths_that_do_not_add_up(self):
        for lengths in ((1, 1), (2, 2), (0,)):
            self.query_refused(INVALID, r'length', indices=[0, 1, 2], lengths_i32=i32(*lengths))

    def test_refuses_a_negative_length(self):
        self.query_refused(INVALID, r'lengths\w*\[1\] = -1\b', indices=[0, 1, 2],
                           lengths_i64=i64(1, -1))

    def test_refuses_lengths_whose_sum_overflows(self):
        self.query_refused(INVALID, r'length', indices=[0, 1],
                           lengths_i64=i64(2**63 - 1, 2**63 - 1, 4))

    def test_refuses_a_segment_id_out_of_range(self):
        for value in (3, -1, 2**31 - 1):
            self.query_refused(RANGE, r'segment_ids\w*\[1\] = %d\b' % value, indices=[0, 1],
                               segment_ids_i32=i32(0, value), num_segments=3)

    def test_refuses_another_number_of_segment_ids_than_indices(self):
        for ids in ([0], [0, 0, 0]):
            self.query_refused(INVALID, r'segment_ids', indices=[0, 1], segment_ids=ids,
                               num_segments=1)

    def test_refuses_packed_indices_that_do_not_fill_a_bag(self):
        self.query_refused(INVALID, r'indices', indices=[0, 1, 2], indices_per_bag=2)

    def test_refuses_indices_without_a_layout(self):
        self.query_refused(INVALID, r'', indices=[0, 1, 2])
        self.query_refused(INVALID, r'', indices=[0, 1, 2], num_bags=2)

    def test_refuses_num_bags_that_disagrees(self):
        for layout in ({'offsets': [0, 1, 2]}, {'lengths_i32': i32(1, 1, 1)},
                       {'indices_per_bag': 1},
                       {'segment_ids': [0, 1, 2], 'num_segments': 3},
                       {'offsets': [0, 1, 2, 3], 'include_last_offset': True}):
            for bags in (1, 2, 4, 2**63):
                self.query_refused(INVALID, r'num_bags', indices=[0, 1, 2], num_bags=bags, **layout)

    def test_refuses_two_forms_of_one_array(self):
        for fields in ({'indices_i32': i32(0), 'indices_i64': i64(0)},
                       {'indices_i32': i32(0), 'indices': [0]},
                       {'indices_i64': i64(0), 'indices': [0]}):
            self.query_refused(INVALID, r'indices', offsets=[0], **fields)
        for fields in ({'offsets_i32': i32(0), 'offsets_i64': i64(0)},
                       {'offsets_i32': i32(0), 'offsets': [0]}):
            self.query_refused(INVALID, r'offsets', indices=[0], **fields)
        self.query_refused(INVALID, r'lengths', indices=[0], lengths_i32=i32(1), lengths_i64=i64(1))
        self.query_refused(INVALID, r'segment_ids', indices=[0], segment_ids_i32=i32(0),
                           segment_ids=[0], num_segments=1)

    def test_refuses_two_layouts(self):
        layouts = [{'offsets': [0, 1]}, {'lengths_i32': i32(1, 1)}, {'indices_per_bag': 1},
                   {'segment_ids': [0, 1], 'num_segments': 2}]
        for number, one in enumerate(layouts):
            for two in layouts[number + 1:]:
                self.query_refused(INVALID, r'', indices=[0, 1], **one, **two)

    def test_refuses_a_layout_that_contradicts_its_fields(self):
        for layout in (2, 3, 4):
            self.query_refused(INVALID, r'layout', indices=[0, 1], offsets=[0], layout=layout)
        self.query_refused(INVALID, r'', indices=[0, 1], lengths_i32=i32(2),
                           include_last_offset=True)

    def test_refuses_include_last_offset_without_an_offset(self):
        self.query_refused(INVALID, r'offsets', include_last_offset=True, layout=1)


class BadValues(BadRequest):
    """Weights, defaults, enums, output types, names."""

    def test_refuses_weights_of_the_wrong_length(self):
        for count in (1, 3):
            self.query_refused(INVALID, r'weights', indices=[0, 1], offsets=[0], weights_type=1,
                               weights=f32(*[1] * count))
            self.query_refused(INVALID, r'weights', indices=[0, 1], offsets=[0],
                               weights_f32=[1.0] * count)
        self.query_refused(INVALID, r'weights', indices=[0, 1], offsets=[0], weights_type=1,
                           weights=f32(1, 1)[:-1])

    def test_refuses_weights_if_the_reduction_has_none(self):
        for reduction, name in ((2, 'MEAN'), (5, 'MAX'), (6, 'MIN')):
            self.query_refused(INVALID, r'weights.*' + name, indices=[0, 1], offsets=[0],
                               weights_f32=[1, 1], reduction=reduction)

    def test_refuses_weights_of_another_type(self):
        for number in range(2, 13):
            size = {2: 8, 11: 8, 12: 8, 3: 2, 4: 2, 7: 2, 8: 2, 5: 1, 6: 1}.get(number, 4)
            self.query_refused(INVALID, r'weights', indices=[0, 1], offsets=[0],
                               weights=bytes(2 * size), weights_type=number)

    def test_refuses_float_weights_for_integer_tables(self):
        bad = request(pb.BagQuery(table='i32_40', indices=[0], offsets=[0], weights_f32=[1]),
                      model='every')
        self.refused(INVALID, r'queries\[0\] "i32_40".*weights', bad)

    def test_refuses_weights_in_two_forms(self):
        self.query_refused(INVALID, r'weights', indices=[0], offsets=[0], weights=f32(1),
                           weights_type=1, weights_f32=[1])

    def test_refuses_float_reductions_of_integer_tables(self):
        for reduction in (3, 4):
            bad = request(pb.BagQuery(table='u8_40', indices=[0], offsets=[0], reduction=reduction),
                          model='every')
            self.refused(INVALID, r'queries\[0\] "u8_40"', bad)

    def test_refuses_a_default_row_out_of_range(self):
        for value in (5, -2, 2**63 - 1, -2**63):
            self.query_refused(RANGE, r'default_index.*%d\b' % value, indices=[0], offsets=[0],
                               default_index=value)

    def test_checks_the_default_row_where_nothing_is_pooled(self):
        self.query_refused(RANGE, r'default_index', indices=[0], reduction=7, default_index=5)
        self.query_refused(RANGE, r'default_index', default_index=5)

    def test_refuses_unknown_enum_values(self):
        for name in ('reduction', 'missing', 'layout'):
            for value in (99, 8, -1):
                self.query_refused(INVALID, r'%s.*%d\b' % (name, value), indices=[0], offsets=[0],
                                   **{name: value})
        self.query_refused(INVALID, r'weights_type.*13\b', indices=[0], offsets=[0],
                           weights=f32(1), weights_type=13)
        self.refused(INVALID, r'output_type.*13\b', request(output_type=13))

    def test_refuses_the_unknown_row_of_a_table_that_has_none(self):
        got, text = error_of(self.client.lookup, request(
            query(indices=[9], offsets=[0], missing=4)))
        self.assertIn(got.name, (INVALID, 'UNIMPLEMENTED', 'FAILED_PRECONDITION'), text)
        self.assertRegex(text, r'queries\[0\] "emb_table".*(?i:unknown)')

    def test_refuses_output_types_that_are_not_allowed(self):
        good = {'indices': [0], 'offsets': [0]}
        for number in (2, 5, 9, 12):
            self.refused(INVALID, r'output_type', request(query(**good), output_type=number))
        for number in (1, 10, 11):
            self.refused(INVALID, r'output_type', request(
                pb.BagQuery(table='i32_40', **good), model='every', output_type=number))

    def test_refuses_unequal_concat(self):
        one = query(indices=[0, 1], offsets=[0, 1])
        two = query(indices=[0, 1], offsets=[0])
        self.refused(INVALID, r'concat', request(one, two, concat=True))
        none = query(indices=[0, 1], reduction=7)
        self.refused(INVALID, r'concat', request(one, none, concat=True))
        table = {'indices': [0, 1], 'offsets': [0]}
        self.refused(INVALID, r'concat', request(
            pb.BagQuery(table='f32_40', **table), pb.BagQuery(table='f64_40', **table),
            model='every', concat=True))
        self.refused(INVALID, r'concat', request(
            pb.BagQuery(table='i32_40', **table), model='every', concat=True))

    def test_names_the_first_error(self):
        sizes = query(indices_i64=i64(9)[:-1], offsets=[0])
        values = query(indices=[9], offsets=[7])
        index = query(indices=[9], offsets=[0])
        name = pb.BagQuery(table='nowhere', indices=[9], offsets=[7])
        good = GOOD.queries[0]
        self.refused(RANGE, r'queries\[1\]', request(good, index, values, sizes, name))
        self.refused(INVALID, r'queries\[0\].*offsets', request(values, index))
        both = query(indices=[9, 9], offsets=[0, 7], weights_f32=[1])
        self.refused(INVALID, r'queries\[0\].*weights', request(both))

    def test_refuses_what_is_not_built_by_name(self):
        fields = {'unnormalized': True, 'min_sequence': 1, 'shard_epoch': 1}
        for name, value in fields.items():
            self.refused('UNIMPLEMENTED', r'\b%s\b' % name, request(**{name: value}))


    def test_refuses_no_trace_but_one_that_is_too_long(self):
        for text in '', 'x', '00-1-1-00', 'x' * 255:
            self.assertEqual(self.client.lookup(request(GOOD.queries[0], traceparent=text)).version,
                             1)
        self.refused('RESOURCE_EXHAUSTED', r'traceparent', request(traceparent='x' * 256))


class BadNames(BadRequest):
    """Models, versions and tables that do not exist, and invalid names."""

    def test_does_not_find_unknown_names(self):
        self.refused('NOT_FOUND', r'"nowhere"', request(model='nowhere'))
        self.refused('NOT_FOUND', r'"spec".*\b2\b', request(version=2))
        self.refused('NOT_FOUND', r'"spec".*"stable"', request(version_label='stable'))
        self.refused(INVALID, r'version_label', request(version=1, version_label='stable'))
        self.refused('NOT_FOUND', r'queries\[1\] "nowhere"', request(
            GOOD.queries[0], query(table='nowhere', indices=[0], offsets=[0])))

    def test_does_not_guess_among_several_models(self):
        got, text = error_of(self.client.lookup, request(model=''))
        self.assertIn(got.name, ('NOT_FOUND', INVALID), text)

    def test_refuses_an_empty_table_name(self):
        self.refused(INVALID, r'queries\[0\].*table', request(query(table='')))

    def test_refuses_names_of_64_kib(self):
        long = 'n' * 65536
        for bad in (request(model=long), request(query(table=long, indices=[0], offsets=[0]))):
            got, text = error_of(self.client.lookup, bad)
            self.assertIn(got.name, ('RESOURCE_EXHAUSTED', INVALID), text)
            self.assertLess(len(text), 1025)

    def test_a_name_at_the_limit_is_only_unknown(self):
        self.refused('NOT_FOUND', r'n', request(model='n' * 255))
        got, _ = error_of(self.client.lookup, request(model='n' * 256))
        self.assertEqual(got.name, 'RESOURCE_EXHAUSTED')

    def test_refuses_nul_and_bad_utf8_in_names(self):
        for name in (b'emb\0table', b'\0', b'emb\xff', b'\xc0\x80', b'\xed\xa0\x80', b'\xf5\x80',
                     b'\xe2\x82', b'\xf4\x90\x80\x80'):
            bag = field(1, name) + field(4, i64(0)) + field(7, i64(0))
            self.refused(INVALID, r'table', field(2, b'spec') + field(4, bag))
            self.refused(INVALID, r'model', field(2, name))

    def test_quotes_odd_names_as_they_are(self):
        for name in ('%41', 'a"b', 'grüße', '\u2028', 'a\nb', 'a\tb'):
            self.refused('NOT_FOUND', re.escape(name), request(model=name))


class BadMessages(BadRequest):
    """Bytes that are not a message, and calls that are malformed."""

    def test_refuses_every_truncation(self):
        whole = as_bytes(GOOD)
        for cut in range(1, len(whole)):
            try:
                pb.LookupRequest.FromString(whole[:cut])
            except Exception:  # protobuf itself rejects the prefix
                got, _ = error_of(self.client.lookup, whole[:cut])
                self.assertEqual(got.name, 'INTERNAL', cut)

    def test_refuses_garbage(self):
        rng = np.random.default_rng(7)
        for size in (1, 2, 3, 10, 100, 1000, 100000):
            got, _ = error_of(self.client.lookup, b'\xff' * size)
            self.assertEqual(got.name, 'INTERNAL')
            got, text = error_of(self.client.lookup, rng.bytes(size))
            self.assertEqual(got.name, 'INTERNAL', text)

    def test_refuses_what_no_encoder_writes(self):
        bad = {
            'field number 0': b'\x02\x01x',
            'group': b'\x13\x14',
            'end of a group alone': b'\x14',
            'varint of 11 bytes': b'\x08' + b'\xff' * 10 + b'\x01',
            'wire type 6': b'\x0e\x01',
            'length past the end': b'\x12\x7fspec',
            'length of 2^63': b'\x12' + b'\xff' * 8 + b'\x7f',
            'number as bytes': field(1, b'x'),
            'string as number': b'\x10\x01',
            'query cut short': field(4, b'\x0a\x7f'),
        }
        for what, data in bad.items():
            got, _ = error_of(self.client.lookup, data)
            self.assertEqual(got.name, 'INTERNAL', what)

    def test_survives_deep_nesting_and_many_fields(self):
        nested = b''
        for _ in range(400):
            nested = field(4, nested)
        for data, code in ((nested, 'NOT_FOUND'),
                           (b'\x98\x06\x01' * 100000, 'NOT_FOUND'),
                           (field(4, b'') * 5000, 'RESOURCE_EXHAUSTED'),
                           (b'\x0b' * 70000, 'INTERNAL')):
            with self.subTest(data[:4]):
                got, text = error_of(self.client.lookup, data)
                self.assertEqual(got.name, code, text)

    def test_refuses_more_queries_than_allowed(self):
        got, text = error_of(self.client.lookup, request(*[query()] * 4097))
        self.assertEqual(got.name, 'RESOURCE_EXHAUSTED', text)
        self.assertRegex(text, r'queries')
        self.assertEqual(len(self.client.lookup(request(*[query()] * 4096)).results), 4096)

    def test_refuses_a_message_over_the_limit(self):
        got, text = error_of(self.client.lookup, request(query(indices_i32=bytes(16 << 20))))
        self.assertEqual(got.name, 'RESOURCE_EXHAUSTED', text)
        self.assertRegex(text, r'16777216')

    def test_undecodable_bytes_end_a_stream(self):
        for data in (b'\xff\xff', b'\x0b', as_bytes(GOOD)[:-1]):
            answers = self.client.stream([GOOD, data])
            self.assertEqual(next(answers).results, self.want)
            got, _ = error_of(next, answers)
            self.assertEqual(got.name, 'INTERNAL')

    def test_a_bad_name_does_not_end_a_stream(self):
        bad = b'\x08\x05' + field(2, b'\0')
        answers = list(self.client.stream([bad, GOOD]))
        self.assertEqual([a.error_code for a in answers], [3, 0])
        self.assertEqual(answers[0].request_id, 5)

    def test_knows_its_methods(self):
        for path in ('/embag.v1.EmbeddingBag/Nothing', '/embag.v1.Nothing/Lookup', '/x', '/',
                     '/embag.v1.EmbeddingBag/lookup', '/embag.v1.EmbeddingBag/Lookup/'):
            got, text = error_of(self.client.channel.unary_unary(path), b'', timeout=10)
            self.assertEqual(got.name, 'UNIMPLEMENTED', text)

    def test_refuses_none_or_several_messages_in_a_unary_call(self):
        for messages in ([], [GOOD, GOOD], [GOOD] * 5):
            got, text = error_of(self.client.messages_as_unary, messages)
            self.assertEqual(got.name, 'UNIMPLEMENTED', text)

    def test_refuses_messages_that_are_compressed_otherwise_than_with_gzip(self):
        big = request(query(indices_i64=i64(*[1] * 1000), offsets=[0]))
        with Client(self.server.address, OPTIONS, grpc.Compression.Deflate) as client:
            got, text = error_of(client.lookup, big)
            self.assertEqual(got.name, 'UNIMPLEMENTED', text)

    def test_ends_a_call_at_its_deadline(self):
        slow = request(pb.BagQuery(table='large', indices_i32=bytes(4000000), num_bags=1),
                       model='wide')
        # grpcio 1.51 may reset a call that it has not begun, which closes the connection.
        with Client(self.server.address) as client:
            got, _ = error_of(client.lookup, slow, timeout=0.001)
            self.assertEqual(got.name, 'DEADLINE_EXCEEDED')


if __name__ == '__main__':
    unittest.main()
