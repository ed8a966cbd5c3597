"""Tables in resident files: restarts, two servers, damage, full file systems, no repository."""

import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest

import numpy as np
import xxhash

import bag_model
import served
from bag_query import Query, to_message
from embagd_process import Embagd, wait_until
from embag.v1 import embedding_bag_pb2 as pb
from http_peer import Metrics
from served import SEED, OwnServerTest
from table_files import Table, write_model
from tmpfs_directory import make_tmpfs_directory

ROWS = 60000  # of 64 f32: 15 MB, so that the table has a file of its own
SECONDS = 30
PAGE = 2 << 20
SMALL_PAGE = os.sysconf('SC_PAGESIZE')
OTHER_USER = 12345
KILLS = 200 if os.environ.get('EMBAG_LONG') else 20


def fields_of(line):
    """Returns a log line's keys and values."""
    return dict(re.findall(r'(\w+)=("[^"]*"|\S+)', line))


class Resident(OwnServerTest):
    """A large table, a keyed one, and two small ones, in /dev/shm."""

    def setUp(self):
        super().setUp()
        self.directory = make_tmpfs_directory(self)
        rng = np.random.default_rng([SEED, 61])
        self.tables = [
            Table.of_values('large', 'f32', rng.normal(size=(ROWS, 64))),
            Table.of_values('small', 'f32', rng.normal(size=(100, 16))),
            Table.of_values('tiny', 'f32', rng.normal(size=(3, 4)))]

    # ---- helpers

    def start(self, *flags, **keywords):
        """Starts a server whose tables are resident, and waits until it is ready."""
        return self.serve('--resident-dir', self.directory, '--resident-small-pages', 'allow',
                          *flags, tables=self.tables, **keywords)

    def files(self):
        """Returns the names of the directory, without the count of short starts."""
        return [name for name in self.all_files() if not name.startswith('short-')]

    def all_files(self):
        """Returns the names of the directory."""
        return sorted(os.listdir(os.path.join(self.directory, 'embag')))

    def path(self, suffix):
        """Returns the path of the only file whose name ends in `suffix`."""
        name, = (name for name in self.files() if name.endswith(suffix))
        return os.path.join(self.directory, 'embag', name)

    def check_answers(self, server, tables=None):
        """Compares lookups in all tables with the values that were written."""
        client = self.connect(server)
        for table in tables or self.tables:
            rows = table.raw.shape[0]
            ids = np.arange(0, rows, max(1, rows // 3000))[:rows - rows % 3]
            ids = ids[:len(ids) - len(ids) % 3]
            query = Query(table.name, ids, layout='packed', indices_per_bag=3)
            answer = client.lookup(pb.LookupRequest(model='spec', queries=[to_message(query)]))
            bag_model.check_result(
                bag_model.expect(query, table), table, answer.results[0], 0)

    def digest_of(self, server):
        """Returns the digest of the served version."""
        return self.connect(server).get_model('spec').versions[0].digest

    def adopted(self, server):
        """Returns how many bytes the server took from files that were there."""
        return int(fields_of(server.find('model_loaded')).get('adopted_bytes', '0'))

    # ---- restarts

    def test_a_restart_takes_the_tables_that_are_there(self):
        server = self.start()
        self.assertEqual(self.adopted(server), 0)
        self.check_answers(server)
        digest = self.digest_of(server)
        names = self.files()
        self.assertEqual([name[-2:] for name in names if '.' in name].count('.t'), 1)
        self.assertEqual([name[-2:] for name in names if '.' in name].count('.s'), 1)
        server.stop()
        self.assertEqual(self.files(), names)
        server = self.start()
        self.assertGreater(self.adopted(server), ROWS * 256)
        self.assertEqual(self.digest_of(server), digest)
        self.check_answers(server)
        self.assertEqual(self.files(), names)

    def test_metrics_tell_what_became_of_the_tables(self):
        for outcome in 'written', 'adopted':
            server = self.start(http='127.0.0.1:0')
            metrics = Metrics(server)
            for name in 'adopted', 'written', 'rejected', 'full', 'small_pages', 'failed':
                self.assertEqual(metrics.get('embag_resident_tables_total', outcome=name),
                                 len(self.tables) if name == outcome else 0, name)
            self.assertEqual(metrics.get('embag_resident_owner'), 1)
            self.assertEqual(metrics.get('embag_resident_served_complete'), 1)
            self.assertEqual(metrics.get('embag_resident_bytes', state='mapped'), sum(
                os.path.getsize(self.path(suffix)) for suffix in ('.t', '.s')))
            self.assertEqual(metrics.get('embag_resident_bytes', state='unused'), 0)
            self.assertGreater(metrics.get('embag_resident_free_bytes'), 0)
            self.assertGreater(metrics.get('embag_start_seconds', phase='adopt'), 0)
            loaded = int(fields_of(server.find('model_loaded'))['resident_bytes'])
            for labels in {}, {'backing': 'tmpfs'}:
                self.assertEqual(metrics.sum('embag_table_memory_bytes', **labels), loaded)
            self.assertLess(int(fields_of(server.find('ready'))['start_ms']), SECONDS * 1000)
            server.stop()

    def test_a_new_version_replaces_the_files(self):
        server = self.start('--watch', 'off')
        before = [name for name in self.files() if '.' in name]
        rng = np.random.default_rng([SEED, 62])
        self.tables[0] = Table.of_values('large', 'f32', rng.normal(size=(ROWS, 64)))
        write_model(self.repository.path, 'spec', 2, self.tables)
        with open(self.repository.join('spec', 'model.yaml'), 'w', encoding='utf-8') as file:
            file.write('versions: {keep: 1, keep_s: 0}\n')
        subprocess.run([served.EMBAG, 'models', 'load', 'spec', '2', '--server', server.address],
                       check=False, capture_output=True, timeout=60)
        server.stop()
        server = self.start()
        self.check_answers(server)
        now = [name for name in self.files() if '.' in name]
        self.assertFalse(set(before) & set(now))
        self.assertEqual(len(now), 2)

    def test_a_kill_at_a_random_time_leaves_nothing_wrong(self):
        seed = random.Random(SEED)
        for _ in range(KILLS):
            server = Embagd(
                self.repository_with_tables(), '--resident-dir', self.directory,
                '--resident-small-pages', 'allow', '--load-threads', '2')
            time.sleep(seed.uniform(0, 0.12))
            server.kill()
        server = self.start()
        self.check_answers(server)
        self.assertFalse([name for name in self.files() if name.startswith('tmp-')])
        self.assertEqual(len([name for name in self.files() if '.' in name]), 2)

    def test_short_starts_end_the_trust_in_the_files(self):
        self.start().stop()
        for starts, reason in (2, 'all rows are checked'), (3, 'all tables are loaded again'):
            if starts == 2:
                self.start().kill()
            server = self.start()
            self.assertIn('starts=%d' % starts, server.find('resident_distrusted'))
            self.assertIn(reason, server.find('resident_distrusted'))
            self.assertEqual(self.adopted(server) > 0, starts == 2)
            self.check_answers(server)
            if starts == 2:
                server.kill()
        server.stop()
        self.assertEqual(self.files(), self.all_files())

    def repository_with_tables(self):
        """Returns the path of the repository, which holds the tables."""
        if not os.path.exists(self.repository.join('spec', '1')):
            write_model(self.repository.path, 'spec', 1, self.tables)
        return self.repository.path

    # ---- files that were written to in place

    def write_in_place(self, place):
        """Writes other values to a table's file, which keeps its size and time."""
        old = self.tables[place]
        new = self.tables[place] = Table.of_values(old.name, 'f32', old.values + 1)
        path = self.repository.join('spec', '1', old.name + '.npy')
        before = os.stat(path)
        with open(path, 'r+b') as file:
            file.seek(before.st_size - new.raw.nbytes)
            file.write(new.raw.tobytes())
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def loads(self, server):
        """Returns the log lines of the versions that were loaded."""
        return [line for line in server.lines if 'event=model_loaded' in line]

    def test_a_table_that_differs_from_its_file_is_loaded_again(self):
        self.start().stop()
        names = self.files()
        for place, suffix in (0, '.t'), (2, '.s'):
            old_file = os.stat(self.path(suffix)).st_ino
            self.write_in_place(place)
            server = self.start()
            self.assertGreater(self.adopted(server), ROWS * 256)
            wait_until(lambda: len(self.loads(server)) == 2, SECONDS, 'the second load')
            told = fields_of(server.find('resident_differs'))
            self.assertEqual(
                (told['model'], told['version'], told['table'], told['file'], told['source']),
                ('spec', '1', self.tables[place].name, os.path.basename(self.path(suffix)),
                 self.repository.join('spec', '1')))
            self.assertEqual(sum('event=resident_differs' in line for line in server.lines), 1)
            wait_until(lambda: server.find('model_freed'), SECONDS, 'the old tables to be freed')
            self.check_answers(server)
            self.assertNotEqual(os.stat(self.path(suffix)).st_ino, old_file)
            server.stop()
            self.assertEqual(self.files(), names)
        self.check_compared(self.start('--log-level', 'debug'))

    def check_compared(self, server):
        """Waits until the tables were compared with their files, and nothing differed."""
        wait_until(lambda: server.find('resident_compared'), SECONDS, 'event=resident_compared')
        self.assertEqual(fields_of(server.find('resident_compared'))['tables'],
                         str(len(self.tables)))
        self.assertEqual(len(self.loads(server)), 1)
        for event in 'resident_differs', 'resident_uncompared':
            self.assertIsNone(server.find(event))
        self.check_answers(server)

    def test_a_guest_compares_its_tables_when_it_becomes_the_owner(self):
        owner = self.start('--log-level', 'debug')
        guest = self.start('--watch-poll-ms', '100', '--log-level', 'debug')
        self.assertGreater(self.adopted(guest), ROWS * 256)
        self.assertIsNone(guest.find('resident_compared'))
        self.assertIsNone(owner.find('resident_compared'))
        owner.kill()
        self.check_compared(guest)
        self.assertIsNotNone(guest.find('resident_owned'))

    def test_tables_are_not_compared_with_files_that_are_away(self):
        owner = self.start()
        guest = self.start('--watch-poll-ms', '100')
        tables = list(self.tables)
        self.write_in_place(0)
        away = self.repository.path + '.away'
        os.rename(self.repository.path, away)
        try:
            owner.kill()
            wait_until(lambda: guest.find('resident_uncompared'), SECONDS,
                       'event=resident_uncompared')
            self.assertIsNone(guest.find('resident_differs'))
            self.check_answers(guest, tables)
        finally:
            os.rename(away, self.repository.path)

    def test_tables_of_the_record_are_compared_when_the_repository_is_back(self):
        self.start().stop()
        self.move_away()
        server = self.start_away('--watch-poll-ms', '100', '--log-level', 'debug')
        self.assertIsNone(server.find('resident_compared'))
        self.move_back()
        self.check_compared(server)
        server.stop()
        tables = list(self.tables)
        self.write_in_place(0)
        self.move_away()
        server = self.start_away('--watch-poll-ms', '100')
        self.check_answers(server, tables)
        self.move_back()
        wait_until(lambda: len(self.loads(server)) == 2, SECONDS, 'the second load')
        told = fields_of(server.find('resident_differs'))
        self.assertEqual((told['model'], told['version'], told['table']), ('spec', '1', 'large'))
        wait_until(lambda: server.find('model_freed'), SECONDS, 'the old tables to be freed')
        self.check_answers(server)

    # ---- two servers

    def test_a_guest_serves_the_same_files_and_becomes_owner(self):
        owner = self.start()
        self.assertIn('role=owner', owner.find('resident_opened'))
        names = self.files()
        guest = self.start('--watch-poll-ms', '100')
        self.assertIn('role=guest', guest.find('resident_opened'))
        self.assertGreater(self.adopted(guest), ROWS * 256)
        self.check_answers(guest)
        self.assertEqual(self.files(), names)
        owner.kill()
        wait_until(lambda: guest.find('resident_owned'), SECONDS, 'event=resident_owned')
        self.check_answers(guest)
        self.assertEqual(self.files(), names)

    def test_a_guest_that_does_not_watch_becomes_owner_too(self):
        owner = self.start()
        guest = self.start('--watch', 'off', http='127.0.0.1:0')
        self.assertEqual(Metrics(guest).get('embag_resident_owner'), 0)
        owner.kill()
        wait_until(lambda: guest.find('resident_owned'), SECONDS, 'event=resident_owned')
        wait_until(lambda: Metrics(guest).get('embag_resident_owner') == 1, SECONDS, 'the metric')
        self.assertEqual(Metrics(guest).get('embag_resident_served_complete'), 1)
        self.check_answers(guest)

    def test_who_becomes_owner_records_no_file_that_is_gone(self):
        owner = self.start()
        guest = self.start('--watch-poll-ms', '100')
        self.assertGreater(self.adopted(guest), ROWS * 256)
        os.remove(self.path('.t'))
        owner.kill()
        wait_until(lambda: guest.find('resident_owned'), SECONDS, 'event=resident_owned')

        def record():
            with open(os.path.join(self.directory, 'embag', 'served'), encoding='utf-8') as file:
                return json.loads(file.read().splitlines()[1])['models'][0]['versions'][0]
        wait_until(lambda: not record()['is_complete'], SECONDS, 'a record without that file')
        self.assertEqual([table['name'] for table in record()['tables']], ['small', 'tiny'])
        self.check_answers(guest)

    def mode_of(self, *names):
        """Returns the mode of a name in the directory, or of the directory itself."""
        return os.stat(os.path.join(self.directory, 'embag', *names)).st_mode & 0o7777

    def test_a_guest_leaves_the_modes_until_it_is_the_owner(self):
        owner = self.start('--resident-readers', 'group')
        self.assertIsNone(owner.find('resident_readers_differ'))
        guest = self.start('--watch-poll-ms', '100')
        self.assertIn('level=warn', guest.find('resident_readers_differ'))
        self.assertEqual(self.mode_of(), 0o750)
        owner.kill()
        wait_until(lambda: guest.find('resident_owned'), SECONDS, 'event=resident_owned')
        self.assertEqual(self.mode_of(), 0o700)

    def test_files_that_are_there_get_the_readers_of_the_setting(self):
        self.start().stop()
        for readers, mode in ('group', 0o440), ('user', 0o400):
            server = self.start('--resident-readers', readers)
            self.assertGreater(self.adopted(server), ROWS * 256)
            for suffix in '.t', '.s', 'served':
                self.assertEqual(self.mode_of(self.path(suffix)), mode)
            server.stop()

    def test_a_guest_without_files_loads_for_itself(self):
        owner = self.start()
        for name in self.files():
            if '.' in name:
                os.remove(os.path.join(self.directory, 'embag', name))
        guest = self.start()
        self.assertEqual(self.adopted(guest), 0)
        self.check_answers(guest)
        self.check_answers(owner)
        self.assertFalse([name for name in self.files() if '.' in name])

    # ---- embag resident

    def resident(self, task, status=0):
        """Runs embag resident on the directory. Returns its output and errors."""
        done = subprocess.run([served.EMBAG, 'resident', task, self.directory],
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout + done.stderr

    def test_the_command_lists_checks_and_deletes_files(self):
        server = self.start()
        told = self.resident('list')
        for part in ('large  F32(60000, 64)', 'tiny', 'model spec version 1, served: 3 tables',
                     '2 files', ' 0 damaged'):
            self.assertIn(part.lower(), told.lower())
        self.assertIn(' 0 damaged', self.resident('check'))
        self.assertIn('a server uses it', self.resident('clean', status=1))
        self.check_answers(server)
        server.stop()
        path = self.path('.t')
        os.chmod(path, 0o600)
        with open(path, 'r+b') as file:
            file.seek(9000001)
            byte = file.read(1)
            file.seek(9000001)
            file.write(bytes([byte[0] ^ 16]))
        os.chmod(path, 0o400)
        self.assertIn('differ from their hash', self.resident('check', status=1))
        self.assertIn('bytes deleted', self.resident('clean'))
        self.assertFalse([name for name in self.files() if '.' in name])
        self.assertIn('0 files', self.resident('list'))
        self.resident('nonsense', status=2)

    def test_the_command_cleans_no_directory_that_it_would_have_to_make(self):
        self.assertIn('it cannot be opened', self.resident('clean', status=1))
        self.assertEqual(os.listdir(self.directory), [])

    @unittest.skipIf(os.geteuid() != 0, 'only root can become another user')
    def test_the_command_tells_files_that_it_may_not_read_from_damaged_ones(self):
        self.start('--resident-readers', 'group').stop()
        os.chmod(self.directory, 0o755)
        os.chmod(os.path.join(self.directory, 'embag'), 0o755)
        with tempfile.TemporaryDirectory(dir='/dev/shm') as place:
            os.chmod(place, 0o755)
            command = shutil.copy(served.EMBAG, place)
            done = subprocess.run([command, 'resident', 'check', self.directory],
                                  user=OTHER_USER, group=OTHER_USER, extra_groups=[],
                                  capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn('it cannot be opened: Permission denied', done.stderr)
        self.assertIn(' 0 damaged, 2 not read', done.stdout)

    # ---- no repository

    def test_serves_what_was_served_without_the_repository(self):
        server = self.start()
        digest = self.digest_of(server)
        server.stop()
        away = self.repository.path + '.away'
        os.rename(self.repository.path, away)
        server = Embagd(self.repository.path, '--resident-dir', self.directory,
                               '--watch-poll-ms', '100')
        self.addCleanup(server.kill)
        try:
            server.wait_ready()
            self.assertIsNotNone(server.find('serving_from_resident'))
            self.check_answers(server)
            self.assertEqual(self.digest_of(server), digest)
        finally:
            os.rename(away, self.repository.path)
        self.check_answers(server)

    def test_without_record_and_repository_the_start_fails(self):
        os.rename(self.repository.path, self.repository.path + '.away')
        self.addCleanup(shutil.rmtree, self.repository.path + '.away')
        server = Embagd(self.repository.path, '--resident-dir', self.directory)
        self.assertEqual(server.wait(SECONDS), 1)
        self.assertIn('resident_not_served', server.log)
        os.mkdir(self.repository.path)

    def move_away(self):
        """Moves the repository away, at the latest until the end of the test."""
        os.rename(self.repository.path, self.repository.path + '.away')
        self.addCleanup(self.move_back)

    def move_back(self):
        """Moves the repository back, if it is away."""
        if not os.path.exists(self.repository.path):
            os.rename(self.repository.path + '.away', self.repository.path)

    def start_away(self, *flags):
        """Starts a server without the repository, which serves from the record."""
        server = Embagd(self.repository.path, '--resident-dir', self.directory,
                        '--resident-small-pages', 'allow', *flags, http='127.0.0.1:0')
        self.addCleanup(server.stop)
        server.wait_ready()
        self.assertIsNotNone(server.find('serving_from_resident'))
        return server

    def record(self):
        """Returns the recorded versions, and whether they are complete, by model."""
        with open(os.path.join(self.directory, 'embag', 'served'), encoding='utf-8') as file:
            models = json.loads(file.read().splitlines()[1])['models']
        return {model['name']: [(int(version['version']), version['is_complete'])
                                for version in model['versions']] for model in models}

    def wait_repository(self, server, readable):
        """Waits until the server reports whether it can read the repository."""
        wait_until(lambda: Metrics(server).get('embag_repository_readable') == readable, SECONDS,
                   'embag_repository_readable %d' % readable)

    def test_without_the_repository_no_version_of_the_record_is_lost(self):
        canary = [Table.of_values(table.name, 'f32', table.values + 1) for table in self.tables]
        write_model(self.repository_with_tables(), 'spec', 2, canary)
        with open(self.repository.join('spec', 'model.yaml'), 'w', encoding='utf-8') as file:
            file.write('versions: {serve: 1, labels: [{name: canary, version: 2}]}\n')
        self.start().stop()
        names = self.files()
        versions = {'spec': [(1, True), (2, True)]}
        self.assertEqual(self.record(), versions)
        self.move_away()
        server = self.start_away('--watch-poll-ms', '100')
        self.wait_repository(server, 0)
        self.assertEqual(Metrics(server).get('embag_resident_served_complete'), 1)
        self.assertEqual(Metrics(server).get('embag_resident_tables_total', outcome='adopted'),
                         len(self.tables) + len(canary))
        self.assertIsNone(server.find('resident_swept'))
        self.assertEqual((self.files(), self.record()), (names, versions))
        self.check_answers(server)
        query = Query('tiny', np.arange(3), layout='packed', indices_per_bag=1)
        answer = self.connect(server).lookup(pb.LookupRequest(
            model='spec', version_label='canary', queries=[to_message(query)]))
        bag_model.check_result(
            bag_model.expect(query, canary[2]), canary[2], answer.results[0], 0)
        self.move_back()
        self.wait_repository(server, 1)
        self.check_answers(server)
        self.assertEqual((self.files(), self.record()), (names, versions))

    def test_without_the_repository_an_incomplete_model_is_told_and_kept(self):
        write_model(self.repository_with_tables(), 'half', 1, self.tables[:1])
        self.start().stop()
        names = self.files()
        self.forget_tables('half')
        record = self.record()
        self.assertEqual(record, {'half': [(1, False)], 'spec': [(1, True)]})
        self.move_away()
        server = self.start_away('--watch-poll-ms', '100')
        told = fields_of(server.find('resident_model_unserved'))
        self.assertEqual((told['level'], told['model'], told['version']), ('error', 'half', '1'))
        self.assertEqual(sum('event=resident_model_unserved' in line for line in server.lines), 1)
        self.assertEqual(Metrics(server).get('embag_resident_served_complete'), 0)
        self.assertIsNone(server.find('resident_swept'))
        self.assertEqual((self.files(), self.record()), (names, record))
        self.check_answers(server)
        self.move_back()
        self.wait_both_recorded(server)

    def test_without_the_repository_a_model_yaml_that_is_not_valid_stops_no_other(self):
        write_model(self.repository_with_tables(), 'half', 1, self.tables[:1])
        self.start().stop()
        names = self.files()
        self.change_record('half', model_yaml='versions: {serve: none}\n')
        self.move_away()
        server = self.start_away('--watch-poll-ms', '100')
        told = fields_of(server.find('resident_model_unserved'))
        self.assertEqual((told['level'], told['model'], told['version']), ('error', 'half', '1'))
        self.assertIn('model.yaml as recorded', told['reason'])
        self.assertEqual(sum('event=resident_model_unserved' in line for line in server.lines), 1)
        self.assertEqual(Metrics(server).get('embag_resident_served_complete'), 0)
        self.assertEqual(self.files(), names)
        self.check_answers(server)
        self.move_back()
        self.wait_both_recorded(server)
        self.assertEqual(self.files(), names)

    def wait_both_recorded(self, server):
        """Waits until both models are recorded completely, and the server says so."""
        both = {'half': [(1, True)], 'spec': [(1, True)]}
        wait_until(lambda: self.record() == both, SECONDS, 'the record of both models')
        wait_until(lambda: Metrics(server).get('embag_resident_served_complete') == 1, SECONDS,
                   'embag_resident_served_complete to be 1')

    def forget_tables(self, name):
        """Makes the recorded version of a model one whose tables are in ordinary memory."""
        self.change_record(name, is_complete=False, tables=[])

    def change_record(self, name, **members):
        """Changes members of the recorded version of a model."""
        path = os.path.join(self.directory, 'embag', 'served')
        with open(path, encoding='utf-8') as file:
            record = json.loads(file.read().splitlines()[1])
        for model in record['models']:
            if model['name'] == name:
                model['versions'][0].update(members)
        text = json.dumps(record, separators=(',', ':'), ensure_ascii=False).encode()
        os.chmod(path, 0o600)
        with open(path, 'wb') as file:
            file.write(b'embag served 1 %d %016x\n' % (len(text), xxhash.xxh3_64_intdigest(text)))
            file.write(text)
        os.chmod(path, 0o400)

    def test_without_the_repository_a_lost_file_deletes_no_other(self):
        write_model(self.repository_with_tables(), 'other', 1, self.tables[1:])
        self.start().stop()
        os.remove(self.path('.t'))
        names = self.files()
        record = self.record()
        self.move_away()
        server = self.start_away()
        self.assertIn('the file is missing', server.find('model_unserved'))
        self.assertEqual(Metrics(server).get('embag_resident_served_complete'), 0)
        self.assertEqual((self.files(), self.record()), (names, record))

    def test_looks_for_the_repository_even_with_watch_off(self):
        self.start().stop()
        self.move_away()
        server = self.start_away('--watch', 'off', '--watch-poll-ms', '100')
        self.assertEqual(Metrics(server).get('embag_repository_readable'), 0)
        write_model(self.repository.path + '.away', 'new', 1, self.tables[2:])
        self.move_back()
        wait_until(lambda: 'new' in self.record(), SECONDS, 'the new model')
        self.assertEqual(Metrics(server).get('embag_repository_readable'), 1)
        self.check_answers(server)

    # ---- damage

    def expect_rejected(self, reason, *flags):
        """Starts a server, which must reject one file and still answer correctly."""
        server = self.start(*flags)
        self.assertIn(reason, server.find('resident_rejected'))
        self.check_answers(server)
        server.stop()
        server = self.start(*flags)
        self.assertIsNone(server.find('resident_rejected'))
        server.stop()

    def test_a_truncated_file_is_loaded_again(self):
        self.start().stop()
        for size in 0, PAGE, PAGE + 1:
            os.chmod(self.path('.t'), 0o600)
            os.truncate(self.path('.t'), size)
            os.chmod(self.path('.t'), 0o400)
            self.expect_rejected('truncated' if size != PAGE else 'footer')

    def test_a_flipped_row_is_found_by_a_full_check(self):
        self.start().stop()
        path = self.path('.t')
        os.chmod(path, 0o600)
        with open(path, 'r+b') as file:
            file.seek(5000003)
            byte = file.read(1)
            file.seek(5000003)
            file.write(bytes([byte[0] ^ 4]))
        os.chmod(path, 0o400)
        self.expect_rejected('differ from their hash', '--resident-verify', 'full')

    def test_other_kinds_of_files_are_rejected(self):
        self.start().stop()
        path = self.path('.t')
        other = os.path.join(self.directory, 'other')
        os.rename(path, other)
        os.symlink(other, path)
        self.expect_rejected('cannot be opened')
        os.remove(path)
        os.mkfifo(path)
        self.expect_rejected('not a regular file')

    def give_layout(self, path, layout):
        """Makes a file one of another layout version, as another build would write it."""
        os.chmod(path, 0o600)
        with open(path, 'r+b') as file:
            size = file.seek(-32, os.SEEK_END) + 32
            trailer = bytearray(file.read())
            footer_bytes, = struct.unpack_from('<I', trailer, 8)
            file.seek(size - footer_bytes)
            body = file.read(footer_bytes - len(trailer))
            struct.pack_into('<I', trailer, 12, layout)
            digest = xxhash.xxh3_64_intdigest(
                bytes(trailer[8:]), xxhash.xxh3_64_intdigest(body))
            struct.pack_into('<Q', trailer, 0, digest)
            file.seek(size - len(trailer))
            file.write(trailer)
        os.chmod(path, 0o400)

    def test_a_file_of_another_layout_is_loaded_again(self):
        self.start().stop()
        self.give_layout(self.path('.t'), 2)
        self.expect_rejected('it was made by a version of embag with another layout')

    def test_files_of_another_build_go_when_the_tables_are_served(self):
        self.start().stop()
        names = self.files()
        for suffix in '.t', '.s':    # Another layout has other source keys, too.
            path = self.path(suffix)
            self.give_layout(path, 2)
            os.rename(path, os.path.join(os.path.dirname(path), '0123456789abcdef' + suffix))
        server = self.start()
        self.assertEqual(self.adopted(server), 0)
        self.assertIsNone(server.find('resident_rejected'))
        self.assertGreater(int(fields_of(server.find('resident_swept'))['bytes']), ROWS * 256)
        self.assertEqual(self.files(), names)
        self.check_answers(server)

    @unittest.skipIf(os.geteuid() != 0, 'only root can give a file to another user')
    def test_a_file_of_another_user_is_loaded_again(self):
        self.start().stop()
        os.chown(self.path('.t'), OTHER_USER, -1)
        self.expect_rejected('it belongs to another user')

    def test_a_directory_in_the_place_of_a_file_is_told_and_left(self):
        self.start().stop()
        path = self.path('.t')
        os.remove(path)
        os.mkdir(path)
        server = self.start()
        self.assertIn('not a regular file', server.find('resident_rejected'))
        self.assertIn('cannot be renamed', server.find('resident_failed'))
        self.assertTrue(os.path.isdir(path))
        self.check_answers(server)

    def test_other_names_are_left_alone_and_unfinished_files_are_deleted(self):
        self.start().stop()
        names = self.files()
        inside = os.path.join(self.directory, 'embag')
        os.symlink('/', os.path.join(inside, 'link'))
        os.mkfifo(os.path.join(inside, 'pipe'))
        os.mkdir(os.path.join(inside, 'directory'))
        os.mkfifo(os.path.join(inside, 'tmp-0'))
        os.symlink(self.path('.t'), os.path.join(inside, 'tmp-1'))
        server = self.start()
        self.assertGreater(self.adopted(server), ROWS * 256)
        self.assertEqual(self.files(), sorted([*names, 'link', 'pipe', 'directory']))
        self.check_answers(server)

    def expect_no_start(self, text):
        """Starts a server on the directory, which must refuse to start and say why."""
        server = Embagd(self.repository_with_tables(), '--resident-dir', self.directory)
        self.assertIn(text, server.start_fails(SECONDS))

    def test_a_lock_that_is_a_symlink_is_refused(self):
        self.start().stop()
        lock = os.path.join(self.directory, 'embag', 'lock')
        os.remove(lock)
        os.symlink(os.path.join(self.directory, 'other'), lock)
        self.expect_no_start('lock cannot be opened')
        self.assertFalse(os.path.exists(os.path.join(self.directory, 'other')))

    def test_a_record_that_is_a_pipe_is_not_waited_for(self):
        self.start().stop()
        served_path = os.path.join(self.directory, 'embag', 'served')
        os.remove(served_path)
        os.mkfifo(served_path)
        os.rename(self.repository.path, self.repository.path + '.away')
        self.addCleanup(os.rename, self.repository.path + '.away', self.repository.path)
        server = Embagd(self.repository.path, '--resident-dir', self.directory)
        server.start_fails(SECONDS)
        self.assertIn('not a regular file', server.find('resident_not_served'))

    @unittest.skipIf(os.geteuid() != 0, 'only root can give a directory to another user')
    def test_a_directory_of_another_user_is_refused(self):
        os.mkdir(os.path.join(self.directory, 'embag'), 0o700)
        os.chown(os.path.join(self.directory, 'embag'), OTHER_USER, -1)
        self.expect_no_start('it belongs to user %d, and this process runs as user 0' % OTHER_USER)

    def test_a_directory_of_someone_else_is_refused(self):
        os.mkdir(os.path.join(self.directory, 'embag'), 0o777)
        os.chmod(os.path.join(self.directory, 'embag'), 0o777)
        server = Embagd(
            self.repository_with_tables(), '--resident-dir', self.directory)
        self.assertEqual(server.wait(SECONDS), 1)
        self.assertIn('others may write', server.find('start_failed'))

    def test_another_file_system_is_refused(self):
        with tempfile.TemporaryDirectory(dir=self.repository.path) as directory:
            server = Embagd(self.repository_with_tables(), '--resident-dir', directory)
            code = server.wait(SECONDS) if 'start_failed' in str(
                wait_until(lambda: server.find('start_failed') or server.find('ready'), SECONDS,
                           'a start')) else None
            if code is None:
                server.stop()
                self.skipTest('the repository is in a tmpfs too')
            self.assertIn('not in a tmpfs', server.find('start_failed'))

    # ---- file systems without room

    def mount(self, kind, options):
        """Mounts a file system, which becomes the directory of the servers that start later."""
        self.directory = tempfile.mkdtemp(prefix='embag-test-')
        self.addCleanup(os.rmdir, self.directory)
        mounted = subprocess.run(
            ['mount', '-t', kind, '-o', options + ',mode=0700', 'none', self.directory],
            check=False, capture_output=True)
        if mounted.returncode != 0:
            self.skipTest('a %s cannot be mounted here' % kind)
        self.addCleanup(subprocess.run, ['umount', '-l', self.directory], check=True)

    def measure(self):
        """Returns the bytes of the files for the small tables and for the large one."""
        self.start().stop()
        return os.path.getsize(self.path('.s')), os.path.getsize(self.path('.t'))

    def expect_full(self, server):
        """Checks that a table has found no room, and that the server still answers. Returns
        the bytes that the table's file needs, and those that are free."""
        told = re.search(r'a file of (\d+) bytes does not fit, (\d+) bytes are free',
                         server.find('resident_full'))
        self.assertFalse([name for name in self.files() if name.startswith('tmp-')])
        self.check_answers(server)
        return int(told.group(1)), int(told.group(2))

    def test_a_full_file_system_leaves_tables_in_ordinary_memory(self):
        small, large = self.measure()
        for missing in SMALL_PAGE, large // 2, large:
            self.mount('tmpfs', 'huge=never,size=%d' % (small + large - missing))
            server = self.start()
            self.assertEqual(self.expect_full(server), (large, large - missing))
            self.assertEqual([name[-2:] for name in self.files() if '.' in name], ['.s'])
            server.stop()

    def test_a_full_file_system_of_huge_pages_leaves_tables_in_ordinary_memory(self):
        small, large = self.measure()
        self.mount('tmpfs', 'huge=always,size=%d' % (small + large - PAGE))
        wanted, free = self.expect_full(self.start())
        self.assertEqual(wanted, large)
        self.assertLess(free, large)

    def test_tables_fill_the_file_system(self):
        self.mount('tmpfs', 'huge=never,size=%d' % sum(self.measure()))
        server = self.start()
        self.assertIsNone(server.find('resident_full'))
        self.assertIn('No space left on device', server.find('resident_unrecorded'))
        self.check_answers(server)
        server.stop()
        server = self.start()
        self.assertGreater(self.adopted(server), ROWS * 256)
        self.check_answers(server)

    def test_a_file_system_without_room_for_names(self):
        # The root, `embag`, `lock` and the count of short starts.
        self.mount('tmpfs', 'nr_inodes=4')
        server = self.start()
        self.assertIn('No space left on device', server.find('resident_failed'))
        self.assertIn('No space left on device', server.find('resident_unrecorded'))
        self.check_answers(server)

    def test_a_pool_without_room_leaves_tables_in_ordinary_memory(self):
        small, large = self.measure()
        self.mount('hugetlbfs', 'pagesize=2M,size=%d' % (small + large - PAGE))
        wanted, free = self.expect_full(self.start())
        self.assertIn(wanted, (small, large))    # The system's pool may have no pages at all.
        self.assertLess(free, wanted)


if __name__ == '__main__':
    unittest.main()
