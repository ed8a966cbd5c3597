"""The server's counters of its tables, compared with a second count of the requests; and the rows
that it reports as hot."""

import collections
import json
import os
import unittest

import numpy as np

from bag_model import bag_positions, checked_positions
from bag_query import Query, to_message
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import Embagd, wait_until
from http_peer import Metrics, fetch
from jagged import random_jagged
from random_query import random_query, random_tables
from rpc import Client
from served import SEED, OwnServerTest, scaled
from table_files import Table, write_model

TOTALS = ('embag_bags_total', 'embag_rows_touched_total')
COUNTS = ('embag_table_bags_total', 'embag_table_rows_touched_total', 'embag_missing_total')
CONNECTIONS = 4      # on two loops
RELOAD_SECONDS = 60
HOT_SECONDS = 60     # until samples arrive; an idle server samples its first requests in full
HOT_ROWS = 100
YAML = '''tables:
- {name: dense}
- {name: keyed}
features:
- {name: around, table: dense, id_map: modulo}
- {name: some, table: keyed, missing: skip}
'''


def count_query(query, table):
    """Returns the numbers of a query's bags, of its indices, and of its checked indices that name
    no row."""
    named = query.indices[checked_positions(query)]
    missing = sum(not 0 <= index < table.rows for index in named.tolist())
    bags = len(query.indices) if query.reduction == 'none' else len(bag_positions(query))
    return np.array([bags, len(query.indices), missing])


class CountTest(OwnServerTest):
    """Keeps the expected counts by model and table."""

    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng([SEED, 81])
        self.expected = collections.defaultdict(lambda: np.zeros(3, np.int64))

    def serve_repository(self, *flags):
        """Starts a server with a port for operators."""
        server = Embagd(self.repository.path, '--loops', '2', *flags, http='127.0.0.1:0')
        self.addCleanup(server.stop)
        return server.wait_ready()

    def clients(self, server):
        """Opens several clients, which are closed at the end of the test."""
        clients = [Client(server.address) for _ in range(CONNECTIONS)]
        for client in clients:
            self.addCleanup(client.close)
        return clients

    def expect(self, model, queries, tables):
        """Counts queries that are answered."""
        for query in queries:
            self.expected[model, query.table] += count_query(query, tables[query.table])

    def check(self, server):
        """Checks that the server counted exactly these requests."""
        metrics = Metrics(server)
        counted = {}
        for (name, *labels), value in metrics.samples.items():
            if name in COUNTS:
                labels = dict(labels)
                key = labels['model'], labels['table']
                counted.setdefault(key, np.zeros(3, np.int64))[COUNTS.index(name)] = value
        for key in sorted({*counted, *self.expected}):
            got, want = counted.get(key, np.zeros(3)), self.expected[key]
            self.assertEqual(got.tolist(), want.tolist(), 'seed %d, %s' % (SEED, key))
        totals = [metrics.get(name) for name in TOTALS]
        self.assertEqual(totals, [metrics.sum(name) for name in COUNTS[:2]], 'seed %d' % SEED)


class Differential(CountTest):
    """Random requests."""

    def setUp(self):
        super().setUp()
        every = random_tables(self.rng)
        self.tables = {'every': {t.name: t for t in every},
                       'third': {t.name: t for t in every[::3]}}
        for model, tables in self.tables.items():
            write_model(self.repository.path, model, 1, list(tables.values()))

    def make(self):
        """Returns some queries on the tables of a model."""
        model = str(self.rng.choice(list(self.tables)))
        tables = self.tables[model]
        names = self.rng.choice(list(tables), self.rng.integers(1, 6))
        return model, [random_query(self.rng, tables[name]) for name in names]

    def test_counts_calls(self):
        server = self.serve_repository()
        clients = self.clients(server)
        for number in range(scaled(800)):
            model, queries = self.make()
            clients[number % CONNECTIONS].lookup(pb.LookupRequest(
                model=model, queries=map(to_message, queries), report_missing=number % 2))
            self.expect(model, queries, self.tables[model])
        self.check(server)

    def test_counts_streams_by_the_executor_and_in_parts(self):
        server = self.serve_repository('--inline-below-us', '0')
        for number, client in enumerate(self.clients(server)):
            requests = []
            for request_id in range(1, scaled(200) + 1):
                model, queries = self.make()
                requests.append(pb.LookupRequest(
                    request_id=request_id, model=model, queries=map(to_message, queries),
                    partial=number % 2))
                self.expect(model, queries, self.tables[model])
            answers = [a for a in client.stream(requests) if not a.more]
            self.assertEqual([a.error_code for a in answers], [0] * len(requests))
        self.check(server)

    def test_counts_those_queries_that_do_not_fail(self):
        server = self.serve_repository()
        clients = self.clients(server)
        bad = [Query('none', np.array([0]), num_bags=1),
               Query('f32_40', np.array([3, 99]), num_bags=1)]
        for number in range(scaled(400)):
            model, queries = self.make()
            model, wrong = 'every', bad[number % 2]
            asked = [wrong, *queries] if number % 3 else [*queries, wrong]
            request = pb.LookupRequest(model=model, queries=map(to_message, asked))
            with self.assertRaises(Exception):
                clients[number % CONNECTIONS].lookup(request)
            request.errors_per_query = True
            results = clients[number % CONNECTIONS].lookup(request).results
            self.assertEqual(sum(result.error_code != 0 for result in results), 1)
            self.expect(model, queries, self.tables[model])
        self.check(server)

    def test_counts_groups_by_their_features(self):
        server = self.serve_repository()
        clients = self.clients(server)
        tables = self.tables['every']
        features = ['f32_64x16', 'f32_23x7', 'f32_64x16']
        for number in range(scaled(400)):
            jagged = random_jagged(self.rng, tables, features, bags=int(self.rng.integers(0, 6)),
                                   missing=('skip', 'zero')[number % 2])
            away = self.rng.random(len(jagged.values)) < 0.3
            jagged.values[away] = self.rng.choice([-1, 10**6], away.sum())
            clients[number % CONNECTIONS].lookup(
                pb.LookupRequest(model='every', groups=[jagged.group()]))
            self.expect('every', jagged.queries(), tables)
        self.check(server)


class Versions(CountTest):
    """Counters continue across versions."""

    def test_goes_on_counting_in_the_next_version(self):
        table = Table.of_values('a', 'f32', [[1], [2], [3]])
        write_model(self.repository.path, 'm', 1, [table])
        server = self.serve_repository('--watch', 'poll', '--watch-poll-ms', '100')
        client = self.clients(server)[0]
        query = Query('a', np.array([0, 2, 7]), num_bags=1, missing='skip')
        request = pb.LookupRequest(model='m', queries=[to_message(query)])
        for version in (1, 2, 3):
            self.assertEqual(client.lookup(request).version, version)
            self.expect('m', [query], {'a': table})
            self.check(server)
            aside = self.repository.join('.aside')
            write_model(aside, 'm', version + 1, [table])
            os.rename(os.path.join(aside, 'm', str(version + 1)),
                      self.repository.join('m', str(version + 1)))
            # A request for a version that does not exist is counted nowhere.
            named = pb.LookupRequest(model='m', version=version + 1, queries=request.queries)

            def is_there():
                try:
                    return client.lookup(named)
                except Exception:    # pylint: disable=broad-except
                    return None

            wait_until(is_there, RELOAD_SECONDS, 'version %d' % (version + 1))
            self.expect('m', [query], {'a': table})


class HotRows(CountTest):
    """Hot rows of a dense and a keyed table."""

    def setUp(self):
        super().setUp()
        directory = self.repository.join('m', '1')
        os.makedirs(directory)
        self.keys = self.rng.choice(2**62, HOT_ROWS, replace=False).astype('<i8') - 2**61
        rows = np.zeros((HOT_ROWS, 4), '<f4')
        for name, array in (('dense', rows), ('keyed', rows), ('keyed.keys', self.keys)):
            np.save(os.path.join(directory, name + '.npy'), array)
        with open(self.repository.join('m', 'model.yaml'), 'w', encoding='utf-8') as file:
            file.write(YAML)
        self.server = self.serve_repository()
        self.client = self.clients(self.server)[0]

    def ask(self, table, ids):
        """Looks up one bag of these ids."""
        query = Query(table, np.array(ids, np.int64), num_bags=1, missing=None)
        query.missing = None if table == 'around' else 'skip'
        self.client.lookup(pb.LookupRequest(model='m', queries=[to_message(query)]))

    def hot(self, table):
        """Returns (id, share) of the hot rows, the hottest first."""
        told = json.loads(fetch(self.server, '/status.json')[2])
        found, = [t for t in told['tables'] if (t['model'], t['table']) == ('m', table)]
        return [(int(row), share) for row, share in found['hot']]

    def check(self, feature, table, ids, hot):
        """Looks up these ids: half of the time the first, a quarter the second, an eighth the
        third. `hot` are the three that must be reported."""
        def is_told():
            self.ask(feature, np.repeat(ids[:3], (8, 4, 2)).tolist() + [ids[3], ids[4]])
            rows = self.hot(table)
            return len(rows) >= 3 and [row for row, _ in rows[:3]] == hot and rows
        rows = wait_until(is_told, HOT_SECONDS, 'hot rows of ' + table)
        for (_, share), want in zip(rows, (0.5, 0.25, 0.125)):
            self.assertTrue(0.6 * want < share < 1.6 * want, rows)
        self.assertTrue(all(a[1] >= b[1] for a, b in zip(rows, rows[1:])), rows)

    def test_tells_keys_as_they_are_sent(self):
        keys = self.keys[[7, 3, 99, 0, 50]].tolist()
        self.check('some', 'keyed', keys, keys[:3])

    def test_tells_rows_that_ids_are_mapped_to(self):
        self.check('around', 'dense', [-1, HOT_ROWS + 5, 3 * HOT_ROWS, 17, 18], [99, 5, 0])

    def test_tells_nothing_of_what_names_no_row(self):
        for _ in range(10):
            self.ask('dense', [-1, HOT_ROWS, 10**12] * 10)
            self.ask('some', [1, 2, 3] * 10)
        self.assertEqual((self.hot('dense'), self.hot('keyed')), ([], []))


if __name__ == '__main__':
    unittest.main()
