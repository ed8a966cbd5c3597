"""Sends the specification's examples over the network, in every form that the protocol has."""

import unittest

import numpy as np

from bag_query import FORMS, Query, to_message
from element_types import TYPE_NUMBERS, encode
from embag.v1 import embedding_bag_pb2 as pb
from served import ServedTest, spec_cases


def _of_offsets(case):
    """Yields offsets without and with the last one, lengths and segment ids."""
    offsets = np.array(case['offsets'])
    ends = np.append(offsets, len(case['indices']))
    yield {'layout': 'offsets', 'bounds': offsets}
    yield {'layout': 'offsets', 'bounds': ends, 'include_last_offset': True}
    yield {'layout': 'lengths', 'bounds': np.diff(ends)}
    yield {'layout': 'segments', 'bounds': np.repeat(np.arange(len(offsets)), np.diff(ends)),
           'num_segments': len(offsets)}


def _of_packed(case):
    bags, size = np.array(case['indices']).shape
    yield {'layout': 'packed', 'indices_per_bag': size}
    yield {'layout': 'offsets', 'bounds': np.arange(bags) * size}
    yield {'layout': 'lengths', 'bounds': np.full(bags, size)}


def _of_segments(case):
    ids, bags = np.array(case['segment_ids']), case['num_segments']
    counts = np.bincount(ids, minlength=bags)
    yield {'layout': 'segments', 'bounds': ids, 'num_segments': bags}
    yield {'layout': 'lengths', 'bounds': counts}
    yield {'layout': 'offsets', 'bounds': np.cumsum(counts) - counts}


def layouts(case):
    """Returns all layouts that are equivalent to the case's."""
    if 'offsets' in case:
        return list(_of_offsets(case))
    return list(_of_segments(case) if 'segment_ids' in case else _of_packed(case))


def queries(case):
    """Yields the case in every equivalent form."""
    indices = np.array(case['indices'], np.int64).ravel()
    weights = None
    if case['weights'] is not None:
        weights = encode(np.ravel(case['weights']), 'f32')
    for layout in layouts(case):
        for form in FORMS:
            for bounds_form in FORMS[:2] if layout['layout'] == 'lengths' else FORMS:
                for said in (False, True):
                    yield Query('emb_table', indices, reduction=case['reduction'],
                                default_index=case.get('default_index'), weights=weights,
                                repeated_weights=said, index_form=form, bounds_form=bounds_form,
                                say_layout=said, say_num_bags=said, **layout)


class SpecExamples(ServedTest):
    """Tests of the specification's examples. _add_tests adds one for each case."""

    def check(self, case):
        """Checks the answers to one case in all its forms."""
        want = np.array(case['expected'])
        slack = case['tolerance']['abs'] + case['tolerance']['rel'] * np.abs(want)
        for query in queries(case):
            answer = self.client.lookup(pb.LookupRequest(
                model='spec', queries=[to_message(query, len(want))]))
            result, = answer.results
            self.assertEqual(list(result.shape), list(want.shape), query)
            self.assertEqual(result.type, TYPE_NUMBERS[case['dtype']])
            got = np.frombuffer(result.values, '<f4').reshape(want.shape)
            self.assertTrue(np.all(np.abs(got - want) <= slack), '%s: %s' % (query, got))


def _add_tests():
    for case in spec_cases():
        name = 'test_' + ''.join(c if c.isalnum() else '_' for c in case['name'])
        setattr(SpecExamples, name, lambda self, case=case: self.check(case))


_add_tests()

if __name__ == '__main__':
    unittest.main()
