"""Features and groups of a model.yaml: requested by name, with their own defaults, with mapped ids
and bounded bags."""

import json
import os
import subprocess
import unittest

import numpy as np

import served
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import Embagd
from rpc import error_of
from served import SEED, OwnServerTest

INVALID, NOT_FOUND, EXHAUSTED, OUT_OF_RANGE = (
    'INVALID_ARGUMENT', 'NOT_FOUND', 'RESOURCE_EXHAUSTED', 'OUT_OF_RANGE')
POLICIES = ('error', 'skip', 'zero', 'unknown_row')
DENSE_ROWS, KEYED_ROWS, DIM, UNKNOWN = 97, 50, 4, 7
WORD = 2**64

MODEL = '''
tables:
- {name: dense, unknown_row: 7}
- {name: keyed, unknown_row: 7}
features:
- {name: dense_error, table: dense, missing: error}
- {name: dense_skip, table: dense, missing: skip, default_index: 11}
- {name: dense_zero, table: dense, missing: zero}
- {name: dense_unknown_row, table: dense, missing: unknown_row}
- {name: keyed_error, table: keyed, missing: error}
- {name: keyed_skip, table: keyed, missing: skip, default_index: %(default_key)d}
- {name: keyed_zero, table: keyed, missing: zero}
- {name: keyed_unknown_row, table: keyed, missing: unknown_row}
- {name: around, table: dense, id_map: modulo, default_index: 96}
- {name: hashed, table: dense, id_map: hash_modulo, seed: 42}
- {name: hashed_plainly, table: dense, id_map: hash_modulo}
- {name: highest, table: dense, reduction: max}
- {name: average, table: keyed, reduction: mean, missing: skip}
- {name: short, table: dense, max_ids: 3, missing: skip}
groups:
- {name: ranking, features: [keyed_skip, hashed, dense_zero, average]}
- {name: alone, features: [highest]}
'''


def mix(x):
    """Computes splitmix64's step as kernels/id_map.h defines it."""
    x = (x + 0x9E3779B97F4A7C15) % WORD
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % WORD
    x = (x ^ x >> 27) * 0x94D049BB133111EB % WORD
    return x ^ x >> 31


MAPS = {
    'around': lambda i: i % DENSE_ROWS,
    'hashed': lambda i: mix(i % WORD ^ mix(42)) % DENSE_ROWS,
    'hashed_plainly': lambda i: mix(i % WORD ^ mix(0)) % DENSE_ROWS,
}


def integers(values, width='<i8'):
    """Encodes an array as on the wire."""
    return np.array(values, width).tobytes()


def refused(call, code, *parts):
    """Checks that the call fails with this code, and with a text that contains the parts in this
    order."""
    status, text = error_of(call)
    assert status.name == code, '%s: %s' % (status.name, text)
    at = 0
    for part in parts:
        at = text.find(part, at)
        assert at >= 0, '%r is not in %r' % (part, text)


class FeatureTest(OwnServerTest):
    """A dense and a keyed table of small whole numbers, whose sums are exact in any order."""

    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng([SEED, 71])
        directory = self.repository.join('m', '4')
        os.makedirs(directory)
        dense = self.rng.integers(-99, 100, (DENSE_ROWS, DIM)).astype('<f4')
        keyed = self.rng.integers(-99, 100, (KEYED_ROWS, DIM)).astype('<f4')
        keys = self.rng.choice(10**6, KEYED_ROWS, replace=False).astype('<i8') - 5 * 10**5
        for name, array in (('dense', dense), ('plain', dense), ('keyed', keyed),
                            ('keyed.keys', keys)):
            np.save(os.path.join(directory, name + '.npy'), array)
        self.rows = {'dense': dict(enumerate(dense)), 'keyed': dict(zip(keys.tolist(), keyed))}
        self.unknown = {'dense': dense[UNKNOWN], 'keyed': keyed[UNKNOWN]}
        self.default_key = int(keys[3])
        self.describe(MODEL % {'default_key': self.default_key})
        self.server = Embagd(self.repository.path, '--queries-max', '40')
        self.addCleanup(self.server.stop)
        self.client = self.connect(self.server.wait_ready())

    def describe(self, yaml):
        """Writes the model.yaml."""
        with open(self.repository.join('m', 'model.yaml'), 'w', encoding='utf-8') as file:
            file.write(yaml)

    def query(self, table, bags, **fields):
        """Returns a query of bags of ids."""
        lengths = [len(bag) for bag in bags]
        ids = [i for bag in bags for i in bag]
        return pb.BagQuery(table=table, indices_i64=integers(ids), lengths_i64=integers(lengths),
                           **fields)

    def ask(self, table, bags, report=False, **fields):
        """Returns the result of one query, and its values."""
        request = pb.LookupRequest(model='m', queries=[self.query(table, bags, **fields)],
                                   report_missing=report)
        result, = self.client.lookup(request).results
        return result, np.frombuffer(result.values, '<f4').reshape(result.shape)

    def found(self, table, bag, missing):
        """Returns the rows of a bag, and how many ids were missing."""
        rows = [self.rows[table].get(i) for i in bag]
        gone = sum(row is None for row in rows)
        instead = {'skip': [], 'zero': [np.zeros(DIM, 'f4')],
                   'unknown_row': [self.unknown[table]]}.get(missing)
        return [r for row in rows for r in ([row] if row is not None else instead)], gone

    def some_bags(self, table):
        """Returns bags, some of whose ids are missing."""
        there = [[int(i) for i in self.rng.choice(sorted(self.rows[table]), count)]
                 for count in (3, 1, 6)]
        gone = [-1 - 10**6, 10**6, 2**40]
        return [there[0] + gone[:1], there[1], gone[:2], gone[2:] + there[2]]


class Features(FeatureTest):
    """Queries that name a feature."""

    def check_policy(self, table, name, policy, **fields):
        """Checks sums, counts and positions."""
        bags = self.some_bags(table)
        found = [self.found(table, bag, policy) for bag in bags]
        result, values = self.ask(name, bags, report=True, **fields)
        zero = np.zeros(DIM, 'f4')
        want = [sum(rows, zero) if rows else self.default(table, name) for rows, _ in found]
        np.testing.assert_array_equal(values, want, '%s %s' % (name, policy))
        ids = [i for bag in bags for i in bag]
        positions = [at for at, i in enumerate(ids) if i not in self.rows[table]]
        self.assertEqual(result.missing, sum(gone for _, gone in found), name)
        self.assertEqual(np.frombuffer(result.missing_positions, '<u4').tolist(), positions)

    def default(self, table, name):
        """Returns the expected value of an empty bag."""
        defaults = {'dense_skip': 11, 'keyed_skip': self.default_key}
        return self.rows[table][defaults[name]] if name in defaults else np.zeros(DIM, 'f4')

    def test_every_policy_as_a_default(self):
        for table in ('dense', 'keyed'):
            for missing in POLICIES[1:]:
                self.check_policy(table, '%s_%s' % (table, missing), missing)

    def test_the_requests_own_policy_wins(self):
        for table in ('dense', 'keyed'):
            for own in POLICIES:
                for missing in POLICIES[1:]:
                    self.check_policy(table, '%s_%s' % (table, own), missing,
                                      missing='MISSING_' + missing.upper())
                refused(lambda: self.ask('%s_%s' % (table, own), [[10**6]],
                                         missing='MISSING_ERROR'),
                        OUT_OF_RANGE, 'queries[0] "%s_%s": indices[0] = 1000000' % (table, own))

    def test_an_error_by_default_names_the_feature(self):
        for name in ('dense_error', 'keyed_error', 'highest'):
            refused(lambda: self.ask(name, [[], [10**6 + 1]]), OUT_OF_RANGE,
                    'queries[0] "%s": indices[0] = 1000001' % name)

    def test_no_row_for_unknown_ids(self):
        refused(lambda: self.ask('plain', [[0]], missing='MISSING_UNKNOWN_ROW'), INVALID,
                'queries[0] "plain": missing is UNKNOWN_ROW, but the table has no row')

    def test_defaults_of_empty_bags(self):
        for name, table, default in (('dense_skip', 'dense', 11), ('around', 'dense', 96),
                                     ('keyed_skip', 'keyed', self.default_key)):
            _, values = self.ask(name, [[], []])
            np.testing.assert_array_equal(values, [self.rows[table][default]] * 2, name)
            other = sorted(self.rows[table])[1]
            _, values = self.ask(name, [[]], default_index=other)
            np.testing.assert_array_equal(values[0], self.rows[table][other], name)
        for name in ('dense_skip', 'around'):
            _, values = self.ask(name, [[]], default_index=-1)
            np.testing.assert_array_equal(values, np.zeros((1, DIM)))
        _, values = self.ask('hashed', [[]])
        np.testing.assert_array_equal(values, np.zeros((1, DIM)))

    def test_reductions(self):
        ids = sorted(self.rows['keyed'])[:4]
        rows = [self.rows['keyed'][i] for i in ids]
        _, values = self.ask('average', [ids + [10**6]])
        np.testing.assert_array_equal(values[0], sum(rows) / np.float32(4))
        _, values = self.ask('average', [ids], reduction='REDUCTION_SUM')
        np.testing.assert_array_equal(values[0], sum(rows))
        _, values = self.ask('highest', [[1, 2, 3]])
        np.testing.assert_array_equal(
            values[0], np.max([self.rows['dense'][i] for i in (1, 2, 3)], axis=0))
        refused(lambda: self.ask('average', [ids], weights=integers([1] * 4, '<f4'),
                                 weights_type=1), INVALID, 'queries[0] "average": ', 'weights')

    def test_mapped_ids(self):
        ids = [0, 1, 96, 97, -1, -97, -98, 2**31 - 1, -2**31, 12345]
        wide = ids + [2**63 - 1, -2**63, 2**40 + 1]
        for name, row_of in MAPS.items():
            for form, some in (('indices_i64', wide), ('indices_i32', ids), ('indices', wide)):
                query = pb.BagQuery(table=name, reduction='REDUCTION_NONE',
                                    missing='MISSING_ERROR')
                if form == 'indices':
                    query.indices.extend(some)
                else:
                    setattr(query, form, integers(some, {'i64': '<i8', 'i32': '<i4'}[form[-3:]]))
                request = pb.LookupRequest(model='m', queries=[query], report_missing=True)
                result, = self.client.lookup(request).results
                want = [self.rows['dense'][row_of(i)] for i in some]
                np.testing.assert_array_equal(
                    np.frombuffer(result.values, '<f4').reshape(-1, DIM), want, name + form)
                self.assertEqual((result.missing, result.missing_positions), (0, b''))

    def test_a_default_is_not_mapped(self):
        refused(lambda: self.ask('around', [[0]], default_index=97), OUT_OF_RANGE,
                'queries[0] "around": default_index = 97')

    def test_longest_bag(self):
        layouts = {
            'offsets': lambda n: {'offsets_i64': integers([0, n])},
            'lengths': lambda n: {'lengths_i32': integers([n, 1], '<i4')},
            'packed': lambda n: {'indices_per_bag': n},
            'segments': lambda n: {'segment_ids_i64': integers([2] * n + [0]), 'num_segments': 3},
            'one bag': lambda n: {'num_bags': 1},
        }
        for layout, fields in layouts.items():
            others = layout in ('lengths', 'segments', 'offsets')

            def ask(length):
                query = pb.BagQuery(table='short', indices_i64=integers([999] * (length + others)),
                                    **fields(length))
                return self.client.lookup(pb.LookupRequest(model='m', queries=[query]))
            self.assertEqual(ask(3).results[0].missing, 3 + others, layout)
            refused(lambda: ask(4), INVALID, 'queries[0] "short": bag ',
                    'has 4 indices, more than max_ids = 3')

    def test_a_long_bag_comes_before_its_ids(self):
        refused(lambda: self.ask('short', [[0], [999] * 4], missing='MISSING_ERROR'), INVALID,
                'bag 1 has 4 indices')
        refused(lambda: self.ask('short', [[0], [999] * 3], missing='MISSING_ERROR'), OUT_OF_RANGE,
                'indices[1] = 999')

    def test_wrong_names(self):
        for name in ('nothing', 'ranking', 'dense_', ''):
            code = NOT_FOUND if name else INVALID
            status, text = error_of(self.ask, name, [[0]])
            self.assertIn(status.name, (code, NOT_FOUND), text)
        refused(lambda: self.ask('nothing', [[0]]), NOT_FOUND, 'queries[0] "nothing": model "m" '
                'version 4 has no table or feature of that name')

    def test_tables_and_features_in_one_request(self):
        queries = [self.query(name, [[1, 2]]) for name in ('dense', 'dense_skip', 'highest')]
        answer = self.client.lookup(pb.LookupRequest(model='m', queries=queries))
        values = [np.frombuffer(result.values, '<f4') for result in answer.results]
        rows = [self.rows['dense'][i] for i in (1, 2)]
        np.testing.assert_array_equal(values, [sum(rows), sum(rows), np.maximum(*rows)])
        joined, = self.client.lookup(
            pb.LookupRequest(model='m', queries=queries, concat=True)).results
        np.testing.assert_array_equal(np.frombuffer(joined.values, '<f4'), np.concatenate(values))


class NamedGroups(FeatureTest):
    """Groups that are named."""

    FEATURES = ('keyed_skip', 'hashed', 'dense_zero', 'average')

    def setUp(self):
        super().setUp()
        key = sorted(self.rows['keyed'])[9]
        self.bags = [[key, 10**6], [], [2**50], [-3, 4], [999], [5, 6], [key], [10**6]]

    def group(self, **fields):
        """Returns the same bags for a named group, or for another list of features."""
        lengths = [len(bag) for bag in self.bags]
        ids = [i for bag in self.bags for i in bag]
        fields = fields or {'name': 'ranking'}
        return pb.FeatureGroup(bags=2, values_i64=integers(ids),
                               lengths_i32=integers(lengths, '<i4'), **fields)

    def ask_group(self, group, **fields):
        """Returns the result of one group."""
        result, = self.client.lookup(
            pb.LookupRequest(model='m', groups=[group], report_missing=True, **fields)).results
        return result

    def test_is_its_features_in_their_order(self):
        named = self.ask_group(self.group())
        self.assertEqual(named, self.ask_group(self.group(features=self.FEATURES)))
        self.assertEqual(list(named.shape), [2, 4 * DIM])
        self.assertEqual(list(named.missing_by_query), [1, 0, 1, 1])
        values = np.frombuffer(named.values, '<f4').reshape(2, 4, DIM)
        for i, name in enumerate(self.FEATURES):
            _, alone = self.ask(name, self.bags[2 * i:2 * i + 2])
            np.testing.assert_array_equal(values[:, i], alone, name)

    def test_its_own_word_wins(self):
        group = self.group()
        group.missing = pb.MISSING_ERROR
        refused(lambda: self.ask_group(group), OUT_OF_RANGE,
                'groups[0].features[0] "keyed_skip": ', '= 1000000')
        group.missing = pb.MISSING_ZERO
        group.reduction = pb.REDUCTION_SUM
        values = np.frombuffer(self.ask_group(group).values, '<f4').reshape(2, 4, DIM)
        for i, name in enumerate(self.FEATURES):
            _, alone = self.ask(name, self.bags[2 * i:2 * i + 2], missing='MISSING_ZERO',
                                reduction='REDUCTION_SUM')
            np.testing.assert_array_equal(values[:, i], alone, name)

    def test_on_a_stream(self):
        request = pb.LookupRequest(request_id=5, model='m', groups=[self.group()],
                                   queries=[self.query('hashed', [[1], [2]])])
        answer, = self.client.stream([request])
        self.assertEqual(answer.error_code, 0, answer.error_message)
        self.assertEqual(answer.results[1].values, self.ask_group(self.group()).values)
        request.groups[0].name = 'nobody'
        answer, = self.client.stream([request])
        self.assertEqual(answer.error_code, 5)
        self.assertIn('groups[0] "nobody"', answer.error_message)

    def test_wrong_names(self):
        for name in ('nothing', 'dense', 'highest'):
            refused(lambda: self.ask_group(self.group(name=name)), NOT_FOUND,
                    'groups[0] "%s": model "m" version 4 has no group of that name' % name)
        refused(lambda: self.ask_group(self.group(features=['ranking'])), NOT_FOUND,
                'groups[0].features[0] "ranking"')
        refused(lambda: self.ask_group(self.group(name='ranking', features=['dense'])), INVALID,
                'groups[0] "ranking": name and features are forms of the same list')
        refused(lambda: self.ask_group(self.group(name='alone')), INVALID,
                'groups[0] "alone": lengths_i32 has 8 entries, but 1 features of 2 bags need 2')

    def test_errors_of_one_group(self):
        groups = [self.group(name='nothing'), self.group(), self.group(name='alone')]
        answer = self.client.lookup(
            pb.LookupRequest(model='m', groups=groups, errors_per_query=True))
        self.assertEqual([result.error_code for result in answer.results], [5, 0, 3])
        self.assertEqual(answer.results[1].values, self.ask_group(self.group()).values)

    def test_its_features_count_as_queries(self):
        full = pb.LookupRequest(model='m', groups=[self.group()] * 10)
        self.assertEqual(len(self.client.lookup(full).results), 10)
        full.queries.append(self.query('dense', [[0]]))
        refused(lambda: self.client.lookup(full), EXHAUSTED,
                '41 queries and features of groups; a request may have at most 40')


class Descriptions(FeatureTest):
    """Features as the server and the tools describe them."""

    def run_tool(self, *words):
        """Returns the standard output of `embag`."""
        return subprocess.run([served.EMBAG, *words, '--server', self.server.address], check=True,
                              timeout=60, stdout=subprocess.PIPE, text=True).stdout

    def test_get_model(self):
        version, = self.client.get_model('m').versions
        features = {feature.name: feature for feature in version.features}
        self.assertEqual(list(features), sorted(features))
        self.assertEqual(len(features), 14)
        hashed = pb.Feature(name='hashed', table='dense', reduction='REDUCTION_SUM',
                            missing='MISSING_ERROR', id_map='hash_modulo', seed=42)
        self.assertEqual(features['hashed'], hashed)
        skip = pb.Feature(name='keyed_skip', table='keyed', reduction='REDUCTION_SUM',
                          missing='MISSING_SKIP', id_map='none', default_index=self.default_key)
        self.assertEqual(features['keyed_skip'], skip)
        self.assertEqual(features['short'].max_ids, 3)
        self.assertEqual(features['highest'].WhichOneof('default_row'), None)
        groups = {group.name: list(group.features) for group in version.groups}
        self.assertEqual(groups, {'ranking': list(NamedGroups.FEATURES), 'alone': ['highest']})
        tables = {table.name: table for table in version.tables}
        self.assertEqual(tables['dense'].unknown_row, UNKNOWN)
        self.assertEqual(tables['plain'].WhichOneof('unknown'), None)
        self.assertEqual(tables['plain'].missing, pb.MISSING_ERROR)
        self.assertEqual([tables[name].keyed for name in ('dense', 'keyed')], [False, True])

    def test_the_tool_lists_features(self):
        text = self.run_tool('models', '--features')
        self.assertIn('m version 4 (serving)\n', text)
        self.assertIn('  feature hashed: table dense, reduction SUM, missing ERROR, '
                      'id_map hash_modulo (seed 42)\n', text)
        self.assertIn('  feature short: table dense, reduction SUM, missing SKIP, id_map none, '
                      'max_ids 3\n', text)
        self.assertIn('  group ranking: keyed_skip, hashed, dense_zero, average\n', text)
        model, = json.loads(self.run_tool('models', '--json'))['models']
        version, = model['versions']
        self.assertEqual(version['groups'][1],
                         {'name': 'ranking', 'features': list(NamedGroups.FEATURES)})
        features = {feature['name']: feature for feature in version['features']}
        self.assertEqual(features['around']['default_index'], 96)
        self.assertNotIn('default_index', features['hashed'])
        self.assertEqual(features['hashed']['id_map'], 'hash_modulo')
        self.assertEqual(features['average']['reduction'], 'MEAN')

    def test_the_tool_looks_features_up(self):
        text = self.run_tool('lookup', '--table', 'around', '--indices', '98,-1', '--offsets', '0',
                             '--json')
        result, = json.loads(text)['results']
        want = self.rows['dense'][1] + self.rows['dense'][96]
        self.assertEqual(np.array(result['values'], 'f4').ravel().tolist(), want.tolist())


    def test_embag_load_asks_for_a_group(self):
        text = subprocess.run(
            [os.path.join(served.BUILD, 'embag-load'), '--server', self.server.address, '--group',
             'alone', '--bags', '3', '--indices-per-bag', '5', '--requests', '8', '--duration',
             '0.2', '--warmup', '0', '--json'],
            check=True, timeout=60, stdout=subprocess.PIPE, text=True).stdout
        figures = json.loads(text)
        self.assertGreater(figures['answers'], 0)
        self.assertEqual((figures['errors'], figures['errors_by_code']), (0, {}))
        self.assertEqual(figures['answer_bytes'], 3 * DIM * 4)


class BrokenFeatures(OwnServerTest):
    """The start fails with a line that names the feature, its value and the error."""

    def test_what_does_not_fit_the_tables(self):
        cases = {
            'features: [{name: f, table: nowhere}]':
                r"model\.yaml: feature 'f': table 'nowhere' is not in this version",
            'features: [{name: f, table: emb_table, default_index: 5}]':
                r"feature 'f': default_index 5 is neither one of the 5 rows",
            'features: [{name: f, table: emb_table, missing: unknown_row}]':
                r"feature 'f': missing: unknown_row needs an unknown_row of table 'emb_table'",
            'features: [{name: emb_table, table: emb_table}]':
                r"feature 'emb_table' has the name of a table",
            'features: [{name: f, table: emb_table}, '
            '{name: n, table: emb_table, reduction: none}]\n'
            'groups: [{name: g, features: [f, n]}]':
                r"group 'g': only one of features 'f' and 'n' has the reduction NONE",
        }
        served.write_model(self.repository.path, 'spec', 1, [served.spec_table()])
        for yaml, pattern in cases.items():
            with open(self.repository.join('spec', 'model.yaml'), 'w', encoding='utf-8') as file:
                file.write(yaml)
            server = Embagd(self.repository.path)
            self.addCleanup(server.kill)
            self.assertRegex(server.start_fails(), pattern)


if __name__ == '__main__':
    unittest.main()
