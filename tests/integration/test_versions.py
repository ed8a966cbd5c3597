"""Versions are published, served and removed while a server runs. No client sees an error, or parts
of two versions."""

import json
import os
import re
import shutil
import subprocess
import time
import unittest
import urllib.request

import grpc
import numpy as np

import embagd_process
import served
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import Embagd, Repository, wait_until
from rpc import Client, Requests, error_of
from table_files import Table, write_model

SECONDS = 300
SWAPS = 30
MODELS = 100
MODEL_TABLES = 10
WIDE_TABLES = 1000
STATES = pb.ModelVersion.State


def table_of(value, name='t', rows=4):
    """Returns a table whose elements all name their version."""
    return Table.of_values(name, 'f32', np.full((rows, 2), value))


def request(model='m', tables=('t',), **fields):
    """Returns a request for one row of each table."""
    queries = [pb.BagQuery(table=t, indices=[0], offsets=[0]) for t in tables]
    return pb.LookupRequest(model=model, queries=queries, **fields)


def first_values(answer):
    """Returns the first element of each result."""
    return [np.frombuffer(r.values, '<f4')[0] for r in answer.results]


def resident(server):
    """Returns the resident bytes of the process."""
    with open('/proc/%d/statm' % server.pid, encoding='utf-8') as file:
        return int(file.read().split()[1]) * os.sysconf('SC_PAGESIZE')


class VersionsTest(unittest.TestCase):
    """A repository that the test changes. The elements of its tables are their version's number."""

    def setUp(self):
        self.repository = Repository()
        self.addCleanup(self.repository.remove)

    def publish(self, version, model='m', tables=None):
        """Publishes a version as a writer should: fills a directory under another name, then
        renames it."""
        hidden = '.%d.new' % version
        write_model(self.repository.path, model, hidden, tables or [table_of(version)])
        os.rename(self.repository.join(model, hidden), self.repository.join(model, str(version)))

    def describe(self, text, model='m'):
        """Writes model.yaml atomically."""
        os.makedirs(self.repository.join(model), exist_ok=True)
        with open(self.repository.join(model, '.yaml'), 'w', encoding='utf-8') as file:
            file.write(text)
        os.rename(self.repository.join(model, '.yaml'), self.repository.join(model, 'model.yaml'))

    def serve(self, *flags, **keywords):
        """Starts a server, which is stopped and checked at the end of the test, and a client."""
        self.server = Embagd(self.repository.path, *flags, **keywords)
        self.addCleanup(self.server.stop)
        self.server.wait_ready()
        self.client = Client(self.server.address)
        self.addCleanup(self.client.close)

    def states(self, model='m'):
        """Returns the states of a model's versions, by number; empty if there is no such model."""
        found = [m for m in self.client.list_models().models if m.name == model]
        return {v.version: STATES.Name(v.state)[6:] for v in found[0].versions} if found else {}

    def served(self, model='m'):
        """Returns the version that answers requests without a version."""
        return next((m.served_version for m in self.client.list_models().models
                     if m.name == model), 0)

    def wait_served(self, version, model='m'):
        """Waits until the version is served."""
        wait_until(lambda: self.served(model) == version, SECONDS, '%d served' % version)

    def lookup(self, **fields):
        """Returns version and value of an answer, which must agree."""
        answer = self.client.lookup(request(**fields))
        self.assertEqual(first_values(answer), [answer.version])
        return answer.version

    def expect_not_found(self, text, **fields):
        """Checks that the request fails with NOT_FOUND."""
        code, got = error_of(self.client.lookup, request(**fields))
        self.assertEqual(code, grpc.StatusCode.NOT_FOUND)
        self.assertRegex(got, text)


class Versions(VersionsTest):
    """Tests with one model at a time."""

    def test_serves_a_new_version_and_answers_pins_to_the_one_before(self):
        self.publish(1)
        self.serve()
        self.assertEqual(self.lookup(), 1)
        self.publish(2)
        self.wait_served(2)
        self.assertEqual(self.lookup(), 2)
        self.assertEqual(self.lookup(version=1), 1)
        self.assertEqual(self.states(), {2: 'SERVING', 1: 'READY'})

    def test_finds_features_that_a_group_names_again_in_each_version(self):
        """The same list of features, in request after request over one connection, while the
        versions change and each has other tables."""
        features = ['t', 'u']

        def ask(**fields):
            group = pb.FeatureGroup(features=features, bags=1, values_i64=b'\0' * 16,
                                    lengths_i32=b'\1\0\0\0' * 2)
            return self.client.lookup(pb.LookupRequest(model='m', groups=[group], **fields))

        def values(**fields):
            answer = ask(**fields)
            return np.frombuffer(answer.results[0].values, '<f4')[::2].tolist()

        self.publish(1, tables=[table_of(1), table_of(10, 'u')])
        self.serve('--loops', '1')
        for _ in range(3):
            self.assertEqual(values(), [1, 10])
        self.publish(2, tables=[table_of(20, 'u'), table_of(2), table_of(7, 'a')])
        self.wait_served(2)
        for _ in range(3):
            self.assertEqual(values(), [2, 20])
            self.assertEqual(values(version=1), [1, 10])
        self.publish(3, tables=[table_of(3)])
        self.wait_served(3)
        for _ in range(2):
            code, text = error_of(ask)
            self.assertEqual(code, grpc.StatusCode.NOT_FOUND)
            self.assertIn('features[1] "u"', text)
        self.assertEqual(values(version=2), [2, 20])
        features[1] = 't'
        self.assertEqual(values(), [3, 3])

    def test_serves_beside_models_that_are_not_whole(self):
        self.publish(1)
        os.makedirs(self.repository.join('half', '.1'))
        os.symlink('loop', self.repository.join('loop'))
        self.describe('versions: {serve: 9}\n', 'other')
        self.publish(12, 'other')
        self.serve()
        self.assertEqual(self.lookup(), 1)
        self.assertEqual(self.lookup(model='m'), 1)
        self.assertRegex(self.server.find('model_unserved'), 'half')
        self.publish(2)
        self.wait_served(2)
        self.publish(1, 'half')
        self.wait_served(1, 'half')
        self.describe('', 'other')
        self.wait_served(12, 'other')

    def test_serves_what_was_written_in_place_when_it_is_whole(self):
        self.publish(1)
        self.serve('--watch-poll-ms', '100')
        write_model(self.repository.path, 'm', '.2', [table_of(2)])
        with open(self.repository.join('m', '.2', 't.npy'), 'r+b') as file:
            whole = file.read()
            file.truncate(100)
        os.rename(self.repository.join('m', '.2'), self.repository.join('m', '2'))
        wait_until(lambda: self.states().get(2) == 'FAILED', SECONDS, 'the failure')
        with open(self.repository.join('m', '2', 't.npy'), 'r+b') as file:
            file.write(whole)
        self.wait_served(2)

    def test_drops_the_one_before_when_its_time_is_over(self):
        self.describe('versions: {keep: 1, keep_s: 1}\n')
        self.publish(1)
        self.serve('--pin-ttl-s', '0')
        self.publish(2)
        self.wait_served(2)
        self.assertEqual(self.lookup(version=1), 1)
        wait_until(lambda: self.states() == {2: 'SERVING'}, SECONDS, 'version 1 gone')
        self.expect_not_found('has no version 1 in memory', version=1)
        self.assertTrue(self.server.find('model_freed'))

    def test_keeps_a_version_while_requests_name_it(self):
        self.describe('versions: {keep: 1, keep_s: 0}\n')
        self.publish(1)
        self.serve('--pin-ttl-s', '2', '--watch-poll-ms', '100')
        self.assertEqual(self.lookup(version=1), 1)
        for version in (2, 3):    # Nobody names version 2.
            self.publish(version)
            self.wait_served(version)
        over = time.monotonic() + 6
        while time.monotonic() < over:
            self.assertEqual(self.lookup(version=1), 1)
            self.assertEqual(self.lookup(), 3)
        self.assertEqual(self.states().pop(1), 'READY')
        named = time.monotonic()
        wait_until(lambda: self.states() == {3: 'SERVING'}, SECONDS, 'version 1 gone')
        self.assertGreater(time.monotonic() - named, 1.9)
        self.assertIn('version=2', self.server.find('model_freed'))

    def test_loads_nothing_because_a_request_names_it(self):
        self.publish(1)
        self.publish(2)
        self.serve('--watch-poll-ms', '100')
        self.expect_not_found('has no version 1 in memory', version=1)
        self.publish(3)
        self.wait_served(3)
        self.expect_not_found('has no version 1 in memory', version=1)
        self.assertEqual(self.states(), {3: 'SERVING', 2: 'READY'})

    def test_keeps_a_bounded_number_of_versions_that_come_fast(self):
        self.publish(1)
        self.serve('--kept-versions-max', '4', http='127.0.0.1:0')
        for version in range(2, 51):
            self.publish(version)
            self.wait_served(version)
        wait_until(lambda: 'RETIRED' not in self.states().values(), SECONDS, 'freed versions')
        self.assertEqual(self.states(), {50: 'SERVING', **dict.fromkeys(range(46, 50), 'READY')})
        self.assertEqual(self.lookup(version=46), 46)
        self.expect_not_found('has no version 45 in memory', version=45)
        self.assertRegex(self.server.find('version_evicted'),
                         r'level=warn .*version=1 setting=kept_versions_max')
        with urllib.request.urlopen('http://127.0.0.1:%d/metrics' % self.server.http_port) as page:
            metrics = page.read().decode()
        self.assertIn('embag_model_versions_kept 4\n', metrics)
        self.assertIn('embag_model_versions_evicted_total 45\n', metrics)

    def test_a_stream_goes_on_where_a_version_is_evicted(self):
        self.publish(1)
        self.serve('--kept-bytes-max', '1')
        requests = Requests()
        answers = self.client.stream(requests)
        requests.put(request())
        self.assertEqual(next(answers).version, 1)
        for version in (2, 3):
            self.publish(version)
            self.wait_served(version)
        self.assertRegex(self.server.find('version_evicted'), 'version=1 setting=kept_bytes_max')
        self.assertEqual(self.lookup(version=2), 2)
        requests.put(request())
        self.assertEqual(next(answers).version, 3)
        requests.end()

    def test_leaves_the_old_one_where_the_new_one_fails(self):
        self.publish(1)
        self.serve()
        hidden = write_model(self.repository.path, 'm', '.2.new', [table_of(2)])
        with open(os.path.join(hidden, 't.npy'), 'r+b') as file:
            file.truncate(100)
        os.rename(hidden, self.repository.join('m', '2'))
        wait_until(lambda: self.states().get(2) == 'FAILED', SECONDS, 'version 2 to fail')
        self.assertEqual(self.lookup(), 1)
        self.assertRegex(self.server.find('model_failed'), r'version=2 .*/m/2/t\.npy')
        model = self.client.get_model('m', 2)
        self.assertRegex(model.versions[0].error, r'^m/2/t\.npy: ')
        self.assertNotIn(self.repository.path, str(self.client.list_models()))
        # A new directory in its place is a new attempt.
        shutil.rmtree(self.repository.join('m', '2'))
        self.publish(2)
        self.wait_served(2)

    def test_answers_by_label(self):
        self.describe('versions: {serve: 2, labels: [{name: stable, version: 2}]}\n')
        self.publish(1)
        self.publish(2)
        self.serve()
        self.publish(3)
        self.describe('versions: {serve: 2, labels: [{name: stable, version: 2}, '
                      '{name: canary, version: 3}]}\n')
        wait_until(lambda: self.states() == {3: 'READY', 2: 'SERVING'}, SECONDS, 'the canary')
        self.assertEqual(self.lookup(), 2)
        self.assertEqual(self.lookup(version_label='stable'), 2)
        self.assertEqual(self.lookup(version_label='canary'), 3)
        self.expect_not_found('no version with the label "old"', version_label='old')
        labels = {v.version: list(v.labels) for v in self.client.get_model('m').versions}
        self.assertEqual(labels, {3: ['canary'], 2: ['stable']})
        shown = subprocess.run([served.EMBAG, 'models', '--server', self.server.address],
                               check=True, capture_output=True, text=True, timeout=SECONDS).stdout
        self.assertRegex(shown, r'm +3 +ready \(canary\)')
        self.assertRegex(shown, r'm +2 +serving \(stable\)')
        tool = subprocess.run(
            [served.EMBAG, 'lookup', '--server', self.server.address, '--model', 'm', '--table',
             't', '--indices', '0', '--offsets', '0', '--label', 'canary'],
            check=True, capture_output=True, text=True, timeout=SECONDS).stdout
        self.assertIn('version 3', tool)

    def test_moves_a_label_when_its_version_is_in_memory(self):
        self.describe('versions: {labels: [{name: stable, version: 1}]}\n')
        self.publish(1)
        # The file of 4 MiB takes four seconds at 1 MiB/s.
        self.serve('--load-bytes-per-s', '1MiB')
        self.publish(2, tables=[table_of(2, rows=524288)])
        self.describe('versions: {labels: [{name: stable, version: 2}]}\n')
        seen = []
        wait_until(lambda: seen.append(self.lookup(version_label='stable')) or seen[-1] == 2,
                   SECONDS, 'the label to move')
        self.assertEqual(seen, sorted(seen))

    def test_goes_back_though_a_version_is_being_loaded(self):
        self.publish(1)
        self.publish(2)
        self.describe('versions: {labels: [{name: old, version: 1}]}\n')
        # The file of 100 MiB takes 100 seconds at 1 MiB/s.
        self.serve('--load-bytes-per-s', '1MiB')
        self.publish(3, tables=[table_of(3, rows=13107200)])
        wait_until(lambda: self.states().get(3) == 'LOADING', SECONDS, 'version 3 to load')
        self.describe('versions: {serve: 1}\n')
        wait_until(lambda: self.states() == {1: 'SERVING', 2: 'READY'}, SECONDS,
                   'version 1 served, and the load of 3 cancelled')

    def test_passes_over_a_second_directory_of_a_version(self):
        self.describe('versions: {keep_s: 0}\n')
        self.publish(7)
        self.serve()
        os.mkdir(self.repository.join('m', '07'))
        wait_until(lambda: self.server.find('model_failed'), SECONDS, 'the error')
        self.publish(6)
        self.publish(1, 'n')
        self.wait_served(1, 'n')
        self.assertEqual(self.lookup(), 7)

    def test_goes_back_by_model_yaml_and_passes_over_a_broken_one(self):
        self.publish(1)
        self.publish(2)
        self.serve()
        self.describe('versions: {serve: 1}\n')
        self.wait_served(1)
        self.describe('versions: {serve: first}\n')
        wait_until(lambda: self.server.find('model_config_failed'), SECONDS, 'the error')
        self.assertEqual(self.lookup(), 1)
        self.describe('versions: {serve: highest}\n')
        self.wait_served(2)

    def test_goes_back_when_a_version_is_taken_away(self):
        self.publish(1)
        self.publish(2)
        self.serve()
        shutil.rmtree(self.repository.join('m', '2'))
        self.wait_served(1)
        self.assertEqual(self.lookup(version=2), 2)

    def test_follows_models_that_come_and_go(self):
        self.publish(1)
        self.serve()
        self.expect_not_found('no model "n"', model='n')
        self.describe('versions: {keep_s: 0}\n', model='n')
        self.publish(7, model='n')
        self.wait_served(7, model='n')
        self.assertEqual(self.lookup(model='n'), 7)
        shutil.rmtree(self.repository.join('n'))
        wait_until(lambda: self.states('n') == {}, SECONDS, 'model n gone')
        self.expect_not_found('no model "n"', model='n')
        # If everything vanishes at once, the repository is most likely unavailable, and nothing is
        # unloaded.
        os.rename(self.repository.join('m'), self.repository.join('.m'))
        wait_until(lambda: self.server.find('repository_unreadable'), SECONDS, 'the error')
        self.assertEqual(self.lookup(), 1)

    def test_polls_when_the_watch_is_set_to_poll(self):
        self.publish(1)
        self.serve('--watch', 'poll', '--watch-poll-ms', '100')
        self.publish(2)
        self.wait_served(2)

    def test_notices_nothing_when_the_watch_is_off(self):
        self.publish(1)
        self.serve('--watch', 'off', '--watch-poll-ms', '100')
        self.publish(2)
        time.sleep(1)  # Nothing happens, and there is no event to wait for.
        self.assertEqual(self.states(), {1: 'SERVING'})

    def test_sees_one_version_in_all_queries_while_versions_change(self):
        names = ['t%d' % n for n in range(50)]
        self.describe('versions: {keep: 1, keep_s: 0}\n')
        self.publish(1, tables=[table_of(1, name) for name in names])
        self.serve()
        requests = Requests()
        answers = self.client.stream(requests)
        asked, seen = 0, set()
        for version in range(2, 8):
            self.publish(version, tables=[table_of(version, name) for name in names])
            while version not in seen:
                asked += 1
                requests.put(request(tables=names, request_id=asked))
                answer = next(answers)
                self.assertEqual(answer.error_code, 0, answer.error_message)
                self.assertEqual(set(first_values(answer)), {answer.version})
                seen.add(answer.version)
        requests.end()

    def test_many_models_and_many_tables(self):
        models = ['m%02d' % n for n in range(MODELS)]
        names = ['t%d' % n for n in range(MODEL_TABLES)]
        wide = ['t%03d' % n for n in range(WIDE_TABLES)]
        for model in models:
            self.publish(1, model, [table_of(1, name) for name in names])
        self.publish(1, 'wide', [table_of(1, name) for name in wide])
        self.serve()
        self.publish(2, 'm57', [table_of(2, name) for name in names])
        self.publish(2, 'wide', [table_of(2, name) for name in wide])
        self.wait_served(2, 'm57')
        self.wait_served(2, 'wide')
        self.assertEqual(first_values(self.client.lookup(request('m57', names))),
                         [2] * MODEL_TABLES)
        self.assertEqual(first_values(self.client.lookup(request('wide', wide))),
                         [2] * WIDE_TABLES)
        self.assertEqual(first_values(self.client.lookup(request('m99', names))),
                         [1] * MODEL_TABLES)


def wait_memory(condition, what):
    """Waits until the server's memory is as `condition` says. Skipped with a sanitizer, which
    retains freed memory."""
    if not embagd_process.SANITIZE:
        wait_until(condition, SECONDS, what)


class Sharing(VersionsTest):
    """Versions of ten large tables; each new version changes one table."""

    NAMES = ['t%d' % n for n in range(10)]
    ROWS = 2 << 20
    BYTES = ROWS * 8  # of one table

    def tables(self, changed):
        """Returns the tables: all elements are 1, except in the last."""
        values = [1] * 9 + [changed]
        return [table_of(v, n, self.ROWS) for v, n in zip(values, self.NAMES)]

    def values(self, **fields):
        """Returns the values in the tables."""
        return first_values(self.client.lookup(request(tables=self.NAMES, **fields)))

    def waits_for_shared(self, version, count):
        """Waits until the version's latest log line says that it shares this many tables."""
        line = r'event=model_loaded model=m version=%d .*shared_bytes=(\d+)' % version
        wait_until(lambda: re.findall(line, self.server.log)[-1:] == [str(count * self.BYTES)],
                   SECONDS, '%d tables of version %d shared' % (count, version))

    def test_loads_what_has_changed_and_shares_the_rest(self):
        self.publish(1, tables=self.tables(1))
        self.serve('--pin-ttl-s', '0')
        before = resident(self.server)
        self.publish(2, tables=self.tables(2))
        self.wait_served(2)
        self.waits_for_shared(2, 9)
        wait_memory(lambda: resident(self.server) - before < 2.5 * self.BYTES, 'one table more')
        self.assertEqual(self.values(), [1] * 9 + [2])
        self.assertEqual(self.values(version=1), [1] * 10)
        new, old = [[t.digest for t in v.tables] for v in self.client.get_model('m').versions]
        self.assertEqual([a == b for a, b in zip(new, old)], [True] * 9 + [False])
        self.describe('versions: {keep: 1, keep_s: 0}\n')
        wait_until(lambda: self.server.find('model_freed'), SECONDS, 'version 1 gone')
        self.assertEqual(self.values(), [1] * 9 + [2])
        wait_memory(lambda: resident(self.server) - before < self.BYTES / 2,
                    'the memory of the table that is gone')
        # A version of links to files that are already in memory.
        os.mkdir(self.repository.join('m', '.3.new'))
        for name in self.NAMES:
            os.link(self.repository.join('m', '2', name + '.npy'),
                    self.repository.join('m', '.3.new', name + '.npy'))
        os.rename(self.repository.join('m', '.3.new'), self.repository.join('m', '3'))
        self.wait_served(3)
        self.waits_for_shared(3, 10)
        # Goes back to a version that had been unloaded.
        self.describe('versions: {serve: 1, keep: 1, keep_s: 0}\n')
        self.wait_served(1)
        self.waits_for_shared(1, 9)
        self.assertEqual(self.values(), [1] * 10)


class Crashes(VersionsTest):
    """Servers and writers that are killed half-way."""

    def restart(self):
        """Kills the server and starts another one."""
        self.server.kill()
        self.client.close()
        self.serve()

    def test_serves_the_last_good_one_after_a_writer_was_killed(self):
        self.publish(1)
        self.serve()
        # One version is written in place, against the rule.
        write_model(self.repository.path, 'm', '.3.new', [table_of(3)])
        torn = write_model(self.repository.path, 'm', 2, [table_of(2, rows=1000)])
        with open(os.path.join(torn, 't.npy'), 'r+b') as file:
            file.truncate(200)
        self.restart()
        self.assertEqual(self.lookup(), 1)
        self.assertEqual(self.states(), {2: 'FAILED', 1: 'SERVING'})

    def test_serves_only_whole_files_after_a_packer_was_killed(self):
        self.publish(1)
        source = self.repository.join('.rows.npy')
        np.save(source, np.full((1 << 20, 16), 1, '<f4'))
        version = self.repository.join('m', '1')
        packer = subprocess.Popen([served.EMBAG, 'pack', '--storage', 'int4', source,
                                   os.path.join(version, 'big.embag')], stdout=subprocess.PIPE)
        wait_until(lambda: len(os.listdir(version)) > 1, SECONDS, 'the packer to write')
        packer.kill()
        packer.communicate()
        whole = {'t', 'big'} if os.path.exists(os.path.join(version, 'big.embag')) else {'t'}
        self.serve()
        described, = self.client.get_model('m').versions
        self.assertEqual({t.name for t in described.tables}, whole)
        self.assertEqual(self.lookup(), 1)

    def test_serves_a_whole_version_after_a_kill_while_it_was_loaded(self):
        self.publish(1)
        # The file of 10 MiB takes ten seconds at 1 MiB/s.
        self.serve('--load-bytes-per-s', '1MiB')
        self.publish(2, tables=[table_of(2, rows=1310720)])
        wait_until(lambda: self.states().get(2) == 'LOADING', SECONDS, 'version 2 to load')
        self.assertEqual(self.lookup(), 1)
        self.restart()
        self.assertEqual(self.lookup(), 2)

    def test_ends_at_once_though_a_version_is_being_loaded(self):
        self.publish(1)
        self.serve('--load-bytes-per-s', '1MiB')
        self.publish(2, tables=[table_of(2, rows=13107200)])
        wait_until(lambda: self.states().get(2) == 'LOADING', SECONDS, 'version 2 to load')
        self.client.close()
        self.server.stop()  # 100 s of the load remain.


class Swaps(unittest.TestCase):
    """New versions one after the other, under a load that verifies every answer."""

    def test_nobody_notices(self):
        repository = Repository()
        self.addCleanup(repository.remove)
        self.write(repository, 1)
        with open(repository.join('dlrm-v2', 'model.yaml'), 'w', encoding='utf-8') as file:
            file.write('versions: {keep: 1, keep_s: 0}\n')
        server = Embagd(repository.path).wait_ready()
        self.addCleanup(server.stop)
        load = subprocess.Popen(
            [os.path.join(served.BUILD, 'embag-load'), '--server', server.address, '--workload',
             'dlrm-v2', '--verify', '--requests', '64', '--rate', '200', '--connections', '2',
             '--duration', '3600', '--timeout-us', '60000000', '--json'],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: load.poll() is None and load.kill())
        while 'of 3600 s: 0/s' in (line := load.stderr.readline()) or 'computing' in line:
            pass  # until answers have arrived
        with Client(server.address) as client:
            self.swap(repository, client, 2)
            before = resident(server)
            for version in range(3, served.scaled(SWAPS) + 3):
                self.swap(repository, client, version)
            self.assertIsNone(load.poll())
            # The latest unloaded version has been freed, or will be soon.
            wait_memory(lambda: resident(server) < before * 1.1 + (4 << 20),
                        'the memory of versions that are gone')
        load.terminate()
        figures = json.loads(load.communicate(timeout=SECONDS)[0])
        self.assertGreater(figures['answers'], served.scaled(SWAPS))
        self.assertEqual((figures['errors'], figures['wrong']), (0, 0), figures)

    @staticmethod
    def write(repository, version):
        """Writes a version of some 20 MiB."""
        subprocess.run([served.EMBAG, 'make-model', '--workload', 'dlrm-v2', '--scale', '5000',
                        '--version', str(version), repository.path],
                       check=True, capture_output=True, timeout=SECONDS)

    def swap(self, repository, client, version):
        """Writes a version and waits until it is the only one served."""
        self.write(repository, version)
        wait_until(lambda: [(v.version, v.state) for v in client.get_model('dlrm-v2').versions]
                   == [(version, STATES.STATE_SERVING)], SECONDS, 'version %d alone' % version)
        shutil.rmtree(repository.join('dlrm-v2', str(version - 1)))
