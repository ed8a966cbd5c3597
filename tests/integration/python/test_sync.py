"""embag-sync: which files are copied, what is kept and removed, and what an end at any time
leaves."""

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import unittest
from unittest import mock

import numpy as np
import xxhash

import served
from embagd_process import Embagd, wait_until
from rpc import Client, pb
from sync_run import PARTS, SyncTest, command, files_below, part_folder, read

SECONDS = 30
# Copies until it gets SIGTERM, at the n-th line that the main thread runs in threading.
SIGNALLED = r'''
import signal, sys, threading
from embag.sync import cli

def trace(frame, event, _):
    global left
    if frame.f_code.co_filename != threading.__file__:
        return None
    if event == 'line' and signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        left -= 1
        if left == 0:
            signal.raise_signal(signal.SIGTERM)
    return trace

left = int(sys.argv[1])
sys.settrace(trace)
sys.exit(cli.main(sys.argv[2:]))
'''
# Copies a prepared directory again and again. The n-th copy is killed at its n-th change of the
# disk, which must leave whole versions only; then it is copied to the end.
KILLED = r'''
import hashlib, json, os, shutil, signal, sys
sys.path.insert(0, sys.argv[4])
from embag.sync import cli, download
from sync_run import files_below

source, prepared, copy = sys.argv[1:4]
allowed = json.loads(sys.argv[5])    # by version: digests of the files it may have
always = json.loads(sys.argv[6])     # versions that must be there at any time
download._CHUNK_BYTES = 400000
CHANGES = {'os.rename', 'os.link', 'os.mkdir', 'os.remove', 'os.rmdir', 'os.truncate'}
write = download._write

def run(limit):
    """Runs embag-sync in a process that ends at its change number `limit`."""
    pid = os.fork()
    if pid == 0:
        count = 0
        def step():
            nonlocal count
            count += 1
            if count == limit:
                os.kill(os.getpid(), signal.SIGKILL)
        def watch(event, arguments):
            if event in CHANGES or event == 'open' and arguments[2] & (os.O_WRONLY | os.O_RDWR):
                step()
        def write_half(file, data):
            write(file, data[:len(data) // 2])
            step()
            write(file, data[len(data) // 2:])
        sys.addaudithook(watch)
        download._write = write_half
        sys.stdout = open(os.devnull, 'w')
        os._exit(cli.main([source, copy, '--part', '1/3', '--grace', '0', '--connections', '2']))
    return os.waitpid(pid, 0)[1]

def check(is_end):
    for name in os.listdir(os.path.join(copy, 'm')):
        if name.isdecimal():
            found = {path: hashlib.sha256(data).hexdigest() for path, data in
                     files_below(os.path.join(copy, 'm', name)).items()}
            assert found in allowed[name], (limit, name, sorted(found))
            if is_end:
                assert found == allowed[name][-1], (limit, name)
    have = set(filter(str.isdecimal, os.listdir(os.path.join(copy, 'm'))))
    assert set(always) <= have, (limit, have)
    if is_end:
        assert have == {'1', '2', '4'}, (limit, have)
        assert not os.path.exists(os.path.join(copy, 'm', 'model.yaml')), limit
        left = [os.path.join(at, name) for part in ('new', 'old') for at, _, names in
                os.walk(os.path.join(copy, '.embag-sync', part)) for name in names]
        assert not left, left

def take(source, target):
    """Links a table, which is never written in place, and copies other files."""
    (os.link if source.endswith('.embag') else shutil.copy2)(source, target)

limit, status = 0, None
while status != 0:
    limit += 1
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(prepared, copy, copy_function=take)
    status = run(limit)
    assert status in (0, signal.SIGKILL), status
    check(False)
    assert run(0) == 0
    check(True)
print(limit)
'''
# Copies its first argument to its second one. Prints the most KiB by which memory grew.
MEASURED = '''
import resource, sys
from embag.sync.cli import main
main([sys.argv[1], sys.argv[2], '--grace', '5'])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert main([sys.argv[1], sys.argv[3]]) == 0
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
'''


class Files(SyncTest):
    """What a directory has after a copy."""

    def setUp(self):
        super().setUp()
        self.write_version(1)

    def test_a_part_server_gets_its_part(self):
        for part in range(PARTS):
            self.assertIn('1 versions copied', self.syncs('--part', '%d/3' % part, to=str(part)))
            self.assert_part(1, part, to=str(part))
            self.assertIn('0 versions copied, 1 were there',
                          self.syncs('--part', '%d/3' % part, to=str(part)))
        self.assertTrue(os.path.exists(self.join('1', 'm', '1', part_folder(1), 'whole.embag')))

    def test_the_host_name_tells_the_part(self):
        from embag.sync.version_files import Role, parse_part
        for host, text, part in (('embag-part-7', 'hostname/3', 1), ('e-0.svc.x1', 'hostname/3', 0),
                                 ('a-999999999', 'hostname/4096', 999999999 % 4096)):
            self.assertEqual(parse_part(text, host), Role(part, int(text.split('/')[1])))
        self.assertEqual(parse_part('2/3', 'a1'), Role(2, 3))
        for host, text in (('embag', 'hostname/3'), ('a1234567890', 'hostname/3'), ('a1', '3/3'),
                           ('a1', '0/0'), ('a1', '0/4097'), ('a1', 'x/3'), ('a1', '1'),
                           ('a1', '-1/3'), ('a1', 'host/3')):
            with self.assertRaises(ValueError, msg=(host, text)):
                parse_part(text, host)
        self.refuses('--part', '3/3', because='expected K from 0 to 2', status=2)

    def test_a_router_gets_manifests_and_the_tables_placed_everywhere(self):
        self.write_config('versions: {serve: highest}\n')
        self.syncs('--router')
        version = self.join('source', 'm', '1')
        self.assertEqual(files_below(self.join('copy')), {
            'm/model.yaml': b'versions: {serve: highest}\n',
            'm/1/manifest.yaml': read(version, 'manifest.yaml'),
            'm/1/small.embag': read(version, 'small.embag')})

    def test_a_whole_server_gets_versions_without_parts(self):
        shutil.copytree(self.join('whole', 'm', '1'), self.join('source', 'm', '2'))
        self.assertIn('0 versions copied', self.syncs())     # without a manifest it does not exist
        subprocess.run([served.EMBAG, 'manifest', self.join('source', 'm', '2')], check=True,
                       capture_output=True, timeout=60)
        self.syncs()
        self.assertEqual(files_below(self.join('copy', 'm', '2')),
                         files_below(self.join('source', 'm', '2')))
        self.assertEqual(self.versions(), ['2'])
        for role in (('--part', '0/3'), ('--router',)):
            self.syncs(*role, to=role[0])
            self.assertEqual(self.versions(role[0]), ['1'])
        # A file that changed without a new size is found by its digest.
        path = self.join('source', 'm', '2', 'small.npy')
        with open(path, 'r+b') as file:
            file.seek(-1, os.SEEK_END)
            file.write(b'?')
        self.refuses(because='small.npy: has the digest', to='other')
        self.assertEqual(self.versions('other'), [])

    def test_versions_in_other_numbers_of_parts_do_not_exist(self):
        self.write_version(2, parts=2)
        self.syncs('--part', '1/3')
        self.assertEqual(self.versions(), ['1'])
        self.syncs('--part', '1/2', to='two')
        self.assertEqual(self.versions('two'), ['2'])
        self.syncs('--router', to='router')
        self.assertEqual(self.versions('router'), ['1', '2'])

    def test_files_that_did_not_change_are_linked(self):
        self.syncs('--part', '1/3')
        self.write_version(2)
        self.assertIn('copied, 2 files of 3', self.syncs('--part', '1/3'))
        self.assert_part(2, 1)
        first, second = (os.stat(self.join('copy', 'm', number, part_folder(1), 'same.embag'))
                         for number in '12')
        self.assertEqual(first.st_ino, second.st_ino)

    def test_versions_and_models_are_chosen(self):
        for number in (2, 3, 4):
            shutil.copytree(self.join('source', 'm', '1'), self.join('source', 'm', str(number)))
        shutil.copytree(self.join('source', 'm'), self.join('source', 'other'))
        self.write_config('versions: {serve: 1, labels: [{name: a, version: 9}]}\n')
        self.syncs('--part', '0/3', '--versions', '2', '--model', 'm')
        self.assertEqual(self.versions(), ['1', '3', '4'])
        self.assertEqual(self.versions(model='other'), [])
        self.refuses('--part', '0/3', '--model', 'm', '--model', 'none', because='no model none')
        for name in ('a/b', '', '.a', 'a\n', 'a' * 256):
            self.refuses('--model', name, status=2, because=(
                '"%.80s"' % name, 'expected the name of a model: from 1 to 255 bytes of UTF-8, '
                'without slashes and control characters, and no dot at the start'))
        self.refuses('--part', '0/3', '--model', 'a' * 255, because='no model aaa')

    def test_numbers_are_checked(self):
        for option, text, expected in (
                ('--every', 'x', 'seconds from 1 to 10000000'),
                ('--every', '0.9', 'seconds from 1 to 10000000'),
                ('--grace', 'nan', 'seconds from 0 to 10000000'),
                ('--grace', '10000000.1', 'seconds from 0 to 10000000'),
                ('--versions', '1000001', 'a number from 0 to 1000000'),
                ('--connections', '0', 'a number from 1 to 64'),
                ('--connections', '65', 'a number from 1 to 64')):
            self.refuses('%s=%s' % (option, text), status=2,
                         because='argument %s: "%s": expected %s' % (option, text, expected))
        self.syncs('--part', '0/3', '--grace', '10000000', '--versions', '1000000',
                   '--connections', '64')

    def test_the_help_says_what_exit_statuses_mean(self):
        said = ' '.join(self.run_sync('--help').stdout.split())
        self.assertIn('exit status: 0 if everything was copied or, with --until-present, if there '
                      'is a version to start with; 1 otherwise; 2 for a wrong command line; 130, '
                      '143 and 129 after Ctrl-C, SIGTERM and SIGHUP', said)
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
            with subprocess.Popen(
                    command(self.url, self.join('copy'), '--part', '0/3', '--every', '100'),
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as sync:
                line = sync.stdout.readline()
                sync.send_signal(number)
                self.assertEqual(sync.wait(SECONDS), status)
            self.assertIn('copying for part 0/3 every 100 s', line)

    def test_a_signal_ends_it_whenever_it_comes(self):
        self.syncs('--part', '0/3')
        for line in range(1, 200, 7):
            done = subprocess.run(
                [sys.executable, '-I', '-B', '-c', SIGNALLED, str(line), self.url,
                 self.join('copy'), '--part', '0/3', '--every', '1'],
                capture_output=True, text=True, timeout=SECONDS, check=False)
            self.assertEqual((done.returncode, done.stderr), (143, ''))

    def test_versions_that_are_gone_are_removed_after_the_grace(self):
        self.write_version(2)
        self.write_version(5, model='other')
        self.syncs('--part', '0/3')
        shutil.rmtree(self.join('source', 'm', '1'))
        shutil.rmtree(self.join('source', 'other'))
        self.assertIn('0 removed', self.syncs('--part', '0/3', '--grace', '100'))
        self.assertEqual(self.versions(), ['1', '2'])
        marker = self.join('copy', '.embag-sync', 'copied', 'm', '1')
        with open(marker, 'w', encoding='utf-8') as file:
            file.write('%.6f' % (time.time() - 99))
        self.assertIn('0 removed', self.syncs('--part', '0/3', '--grace', '100'))
        self.assertIn('1 removed', self.syncs('--part', '0/3', '--grace', '98'))
        self.assertEqual(self.versions(), ['2'])
        self.assertIn('1 removed', self.syncs('--part', '0/3', '--grace', '0'))
        self.assertEqual(sorted(os.listdir(self.join('copy'))), ['.embag-sync', 'm'])

    def test_a_version_that_comes_back_stays(self):
        self.write_version(2)
        self.syncs('--part', '0/3')
        os.rename(self.join('source', 'm', '1'), self.join('away'))
        self.syncs('--part', '0/3')
        os.rename(self.join('away'), self.join('source', 'm', '1'))
        self.syncs('--part', '0/3', '--grace', '0')
        shutil.rmtree(self.join('source', 'm', '1'))
        self.assertIn('0 removed', self.syncs('--part', '0/3', '--grace', '100'))
        self.assertEqual(self.versions(), ['1', '2'])

    def test_an_empty_source_removes_nothing(self):
        self.syncs('--part', '0/3')
        shutil.rmtree(self.join('source'))
        self.refuses('--part', '0/3', '--grace', '0', because=self.url + (
            ': has no models; expected MODEL/VERSION/manifest.yaml below it\n'))
        self.assertEqual(self.versions(), ['1'])

    def test_a_copied_model_yaml_is_removed_when_the_store_no_longer_has_it(self):
        config = self.join('copy', 'm', 'model.yaml')
        self.write_config('versions: {serve: 1}\n')
        self.syncs('--part', '0/3')
        os.rename(self.join('source'), self.join('away'))
        self.refuses('--part', '0/3', because='has no models')      # nobody knows what it has
        self.assertTrue(os.path.exists(config))
        os.rename(self.join('away'), self.join('source'))
        os.unlink(self.join('source', 'm', 'model.yaml'))
        self.assertIn('m/model.yaml: removed\n', self.syncs('--part', '0/3'))
        self.assertFalse(os.path.exists(config))
        self.assertEqual(self.versions(), ['1'])
        # One that others wrote stays, until the store has one again.
        with open(config, 'w', encoding='utf-8') as file:
            file.write('versions: {serve: highest}\n')
        self.assertNotIn('model.yaml', self.syncs('--part', '0/3'))
        self.assertEqual(read(config), b'versions: {serve: highest}\n')
        self.write_config('versions: {keep: 2}\n')
        self.syncs('--part', '0/3')
        os.unlink(self.join('source', 'm', 'model.yaml'))
        self.syncs('--part', '0/3')
        self.assertFalse(os.path.exists(config))

    def test_a_copied_model_yaml_that_was_changed_by_hand_is_not_removed(self):
        self.write_version(1, model='other')
        edited = b'versions: {serve: 1, keep: 4}\n'
        for model in ('m', 'other'):
            self.write_config('versions: {serve: 1}\n', model=model)
        self.syncs('--part', '0/3')
        for model in ('m', 'other'):
            with open(self.join('copy', model, 'model.yaml'), 'wb') as file:
                file.write(edited)
        os.unlink(self.join('source', 'm', 'model.yaml'))
        shutil.rmtree(self.join('source', 'other'))
        said = self.syncs('--part', '0/3', '--grace', '0')
        for model in ('m', 'other'):
            self.assertIn('%s/model.yaml: kept, because it was changed after it was copied\n'
                          % model, said)
            self.assertEqual(read(self.join('copy', model, 'model.yaml')), edited)
        # From now on it is one that others wrote.
        self.assertNotIn('model.yaml', self.syncs('--part', '0/3', '--grace', '0'))
        self.write_config('versions: {keep: 3}\n')
        self.syncs('--part', '0/3')
        self.assertEqual(read(self.join('copy', 'm', 'model.yaml')), b'versions: {keep: 3}\n')
        # One that was changed by hand, and then has what the store has, is a copy again.
        for path in ('copy', 'source'):
            self.write_config('versions: {keep: 5}\n', out=path)
        self.syncs('--part', '0/3')
        os.unlink(self.join('source', 'm', 'model.yaml'))
        self.assertIn('m/model.yaml: removed\n', self.syncs('--part', '0/3'))
        self.assertFalse(os.path.exists(self.join('copy', 'm', 'model.yaml')))

    def test_the_model_yaml_of_a_model_that_is_gone_goes_with_its_last_copied_version(self):
        self.write_version(1, model='other')
        for model in ('m', 'other'):
            self.write_config('versions: {serve: highest}\n', model=model)
        self.syncs('--part', '0/3')
        shutil.copytree(self.join('source', 'm', '1'), self.join('copy', 'm', '7'))
        shutil.copytree(self.join('source', 'm', '1'), self.join('copy', 'other', '7'))
        shutil.rmtree(self.join('source', 'm'))
        os.mkdir(self.join('source', 'm'))      # as between two steps of a removal
        self.syncs('--part', '0/3')
        self.assertEqual(sorted(os.listdir(self.join('copy', 'm'))), ['1', '7', 'model.yaml'])
        os.rmdir(self.join('source', 'm'))
        self.syncs('--part', '0/3')
        self.assertEqual(sorted(os.listdir(self.join('copy', 'm'))), ['1', '7', 'model.yaml'])
        self.syncs('--part', '0/3', '--grace', '0')
        self.assertEqual(os.listdir(self.join('copy', 'm')), ['7'])
        # The model.yaml that others wrote stays.
        shutil.copytree(self.join('source', 'other'), self.join('source', 'third'))
        os.unlink(self.join('source', 'third', 'model.yaml'))
        self.syncs('--part', '0/3')
        shutil.copy(self.join('source', 'other', 'model.yaml'), self.join('copy', 'third'))
        shutil.rmtree(self.join('source', 'third'))
        self.syncs('--part', '0/3', '--grace', '0')
        self.assertEqual(os.listdir(self.join('copy', 'third')), ['model.yaml'])

    def test_a_file_that_vanishes_while_its_folder_is_listed_removes_nothing(self):
        from embag.sync import stores
        self.write_version(2)
        self.syncs('--part', '0/3')
        scandir, vanishing = os.scandir, self.join('source', 'm', '.model.yaml.swp')

        @contextlib.contextmanager
        def scan(folder):
            with scandir(folder) as entries:
                listed = list(entries)
            for entry in listed:
                if entry.path == vanishing:
                    os.unlink(vanishing)
            yield listed

        with open(vanishing, 'wb'), mock.patch.object(stores.os, 'scandir', scan):
            self.assertIn('2 were there, 0 removed', self.syncs('--part', '0/3', '--grace', '0'))
        self.assertFalse(os.path.exists(vanishing))
        self.assertEqual(self.versions(), ['1', '2'])

    def test_an_init_container_waits_for_a_version_or_takes_those_that_are_there(self):
        os.rename(self.join('source'), self.join('away'))
        with subprocess.Popen(
                command(self.url, self.join('copy'), '--part', '0/3', '--until-present'),
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as sync:
            self.assertIn('has no models', sync.stdout.readline())
            os.makedirs(self.join('source', 'm', '1'))
            self.assertTrue(any('waiting for a version in the source' in line
                                for line in sync.stdout))
            os.rename(self.join('away', 'm', '1'), self.join('source', 'm', '1'))
            sync.stdout.read()
            self.assertEqual(sync.wait(SECONDS), 0)
        self.assert_part(1, 0)
        shutil.rmtree(self.join('source'))
        done = self.run_sync('--part', '0/3', '--grace', '0', '--until-present')
        self.assertEqual(done.returncode, 0)
        self.assertIn('below it\nembag-sync: continuing with the versions that are already here\n',
                      done.stderr)
        self.refuses('--part', '0/3', '--until-present', '--every', '1',
                     because='cannot be combined', status=2)

    def test_an_init_container_waits_if_its_server_cannot_use_the_versions_that_are_there(self):
        from embag.sync.errors import Stopped
        from embag.sync.mirror import Mirror
        self.write_version(2, parts=2)
        self.syncs('--part', '1/3')

        def waits(*options, to='copy'):
            with mock.patch.object(Mirror, 'pause', side_effect=Stopped):
                done = self.run_sync(*options, '--until-present', to=to)
            self.assertIn(done.returncode, (0, 128), done.stderr)
            return done.returncode == 128

        # The store has no version in 4 parts, and the copy has one in 3.
        self.assertTrue(waits('--part', '1/4'))
        self.assertTrue(waits('--part', '1/4', '--model', 'm'))
        os.rename(self.join('source'), self.join('away'))
        # The store is away, and the copy has part 1.
        self.assertFalse(waits('--part', '1/3'))
        self.assertFalse(waits('--part', '1/3', '--model', 'm'))
        self.assertTrue(waits('--part', '1/3', '--model', 'm', '--model', 'other'))
        for role in (('--part', '0/3'), ('--part', '1/2'), ('--router',), ()):
            self.assertTrue(waits(*role), role)
            self.assertTrue(waits(*role, '--model', 'm'), role)
        os.unlink(self.join('copy', 'm', '1', part_folder(1), 'rows.embag'))
        self.assertTrue(waits('--part', '1/3'))
        with open(self.join('copy', 'm', '1', 'manifest.yaml'), 'ab') as file:
            file.write(b'[')
        self.assertTrue(waits('--part', '1/3'))
        # A version that others wrote needs no manifest, but only if it has no parts.
        shutil.copytree(self.join('whole', 'm', '1'), self.join('own', 'm', '1'))
        self.assertFalse(waits('--model', 'm', to='own'))
        for role in (('--part', '1/3'), ('--router',)):
            self.assertTrue(waits('--model', 'm', *role, to='own'), role)

    def test_versions_of_others_are_kept(self):
        self.write_version(2)
        shutil.copytree(self.join('source', 'm', '1'), self.join('copy', 'm', '7'))
        shutil.copytree(self.join('source', 'm', '1'), self.join('copy', 'm', '1'))
        shutil.copytree(self.join('source', 'm', '1'), self.join('copy', 'm', '2'))
        self.refuses('--part', '0/3', '--grace', '0',
                     because='m/2, and was not copied by embag-sync; remove it, or copy to another '
                             'directory\n')
        self.assertEqual(self.versions(), ['1', '2', '7'])

    def test_a_version_that_was_replaced_is_replaced(self):
        self.syncs('--part', '1/3')
        before = self.part_files(1, 1)
        shutil.rmtree(self.join('source', 'm', '1'))
        shutil.rmtree(self.join('whole'))
        self.write_version(1)
        self.assertNotEqual(before, self.part_files(1, 1))
        self.syncs('--part', '1/3')
        self.assert_part(1, 1)

    def test_files_that_were_lost_are_copied_again(self):
        self.syncs('--part', '1/3')
        os.unlink(self.join('copy', 'm', '1', part_folder(1), 'rows.embag'))
        self.assertIn('copied, 1 files of 3', self.syncs('--part', '1/3'))
        self.assert_part(1, 1)


class Delays(unittest.TestCase):
    """How long a copy waits after failures."""

    def test_the_delay_doubles_up_to_half_a_minute(self):
        from embag.sync.errors import delay_s
        for failures, most in ((1, 0.5), (2, 1), (6, 16), (7, 30), (1024, 30), (1025, 30),
                               (10**9, 30)):
            self.assertLessEqual(most / 2, delay_s(failures))
            self.assertLessEqual(delay_s(failures), most)


class Errors(SyncTest):
    """Sources that are wrong, damaged or away."""

    def setUp(self):
        super().setUp()
        self.write_version(1)
        self.path = self.join('source', 'm', '1', part_folder(1), 'rows.embag')

    def change(self, offset, data):
        """Overwrites bytes of a file in the source."""
        with open(self.path, 'r+b') as file:
            file.seek(offset)
            file.write(data)

    def test_damaged_files_are_not_copied(self):
        from embag.sync import download, errors
        size = os.path.getsize(self.path)
        good = read(self.path)
        for offset, data, said in (
                (0, b'x', 'rows.embag: is not a packed table'),
                (8, b'12345678', 'rows.embag: has the digest 3837363534333231, but the manifest'),
                (20, b'\xff', 'the head is damaged'), (600, b'\xff\xff', 'the head is damaged'),
                (144, b'\x01\x02', 'which cannot be'), (152, b'\xff\xff', 'its header says'),
                (size - 1, bytes([good[-1] ^ 1]), 'are damaged')):
            self.change(offset, data)
            with mock.patch.object(errors, 'delay_s', lambda failures: 0), \
                    mock.patch.object(download, 'delay_s', lambda failures: 0):
                self.refuses('--part', '1/3', because=said)
            self.assertEqual(self.versions(), [])
            self.change(0, good)
        os.truncate(self.path, size - 1)
        self.refuses('--part', '1/3', because='but its header says %d' % size)
        os.unlink(self.path)
        self.refuses('--part', '1/3', because='rows.embag: is missing, but the manifest names it')
        self.syncs('--part', '0/3')     # into the same directory: its part is whole

    def test_a_copy_goes_on_after_the_last_good_block(self):
        from embag.sync.download import Download
        from embag.sync.stores import DirectoryStore
        from embag.sync.version_files import VersionFile
        partial, opened = self.join('partial'), []
        data = read(self.path)
        file = VersionFile('rows.embag', int.from_bytes(data[8:16], 'little'), None)

        class Store(DirectoryStore):
            """Notes where copies begin."""

            def open(self, path, offset):
                opened.append(offset)
                return super().open(path, offset)

        head = int.from_bytes(data[144:152], 'little')
        self.assertGreater(len(data), head + 1)
        for have, begin in (
                (data[:head + 1000], head), (data[:head - 1], 0), (b'x' * 9000, 0), (b'', 0),
                (data[:-1] + bytes([data[-1] ^ 1]), head), (data, len(data)),
                (data + b'more', len(data))):
            with open(partial, 'wb') as out:
                out.write(have)
            opened.clear()
            Download(Store(os.path.dirname(self.path)), 'rows.embag', len(data), file).run(
                partial, self.join('target'), threading.Event(), lambda size: None)
            self.assertEqual(read(self.join('target')), data)
            self.assertEqual(opened, [begin] if begin < len(data) else [], len(have))

    def test_errors_of_the_store_keep_what_was_copied(self):
        from embag.sync import SyncError, download
        from embag.sync.local_repository import LocalRepository
        from embag.sync.mirror import Mirror, Options
        from embag.sync.stores import DirectoryStore
        from embag.sync.version_files import Role
        self.write_version(2, count=60000)
        wanted = os.path.join('m', '2', part_folder(1), 'rows.embag')
        data = read(self.join('source', wanted))
        head = int.from_bytes(data[144:152], 'little')
        kept = head + (3 << 20)
        self.assertGreater(len(data), kept + 1000)
        opened, said = [], []

        class Store(DirectoryStore):
            """Ends the first connection after 3 blocks and a bit, and refuses the second one."""

            @contextlib.contextmanager
            def open(self, path, offset):
                with super().open(path, offset) as reader:
                    if path == wanted:
                        opened.append(offset)
                        self.limit(reader)
                    yield reader

            def limit(self, reader):
                """Makes a reader of the table fail."""
                if len(opened) == 2:
                    raise SyncError('ExpiredToken: The provided token has expired.')
                left, take = kept + 1000, reader.read

                def read_some(count):
                    nonlocal left
                    if left == 0:
                        raise SyncError('the connection was lost', is_transient=True)
                    some = take(min(count, left))
                    left -= len(some)
                    return some
                if len(opened) == 1:
                    reader.read = read_some

        local = LocalRepository(self.join('copy'))
        self.addCleanup(local.close)
        mirror = Mirror(Store(self.url), local, Options(Role(1, 3), connections=1),
                        lambda text, is_error: said.append(text))
        with mock.patch.object(download, 'delay_s', lambda failures: 0):
            self.assertEqual(mirror.run_round().problems, 1)
        self.assertIn('ExpiredToken', said[-1])
        self.assertEqual(opened, [0, kept])
        stage = self.join('copy', '.embag-sync', 'new', 'm', '2')
        # The file after it may have been begun.
        partials = [read(stage, name) for name in os.listdir(stage) if name.startswith('.')]
        self.assertTrue(data[:kept] in partials, [len(each) for each in partials])
        self.assertEqual(mirror.run_round().problems, 0)
        self.assertEqual(opened, [0, kept, kept])
        self.assert_part(2, 1)

    def test_a_plain_file_is_copied_in_place_of_a_longer_one(self):
        from embag.sync.download import Download
        from embag.sync.stores import DirectoryStore
        from embag.sync.version_files import VersionFile
        data = b'0123456789'
        with open(self.join('t.npy'), 'wb') as out:
            out.write(data)
        with open(self.join('partial'), 'wb') as out:
            out.write(data + b'more')
        file = VersionFile('t.npy', xxhash.xxh3_64_intdigest(data), len(data))
        Download(DirectoryStore(self.folder), 't.npy', len(data), file).run(
            self.join('partial'), self.join('target'), threading.Event(), lambda size: None)
        self.assertEqual(read(self.join('target')), data)

    def test_manifests_that_are_not_valid_are_named_and_others_go_on(self):
        path = self.join('source', 'm', '2', 'manifest.yaml')
        good = read(self.join('source', 'm', '1', 'manifest.yaml')).decode()
        os.mkdir(os.path.dirname(path))
        for text, said in (
                ('', 'expected a map'), ('[', 'manifest.yaml: while parsing'),
                ('a: &a [*a]\n', 'recursive node'), ('a: 1\n', 'format: None'),
                ('\x00', 'manifest.yaml: '),
                (good.replace('parts: 3', 'parts: 4097'), 'parts: 4097'),
                (good.replace('format: 1', 'format: 2'), 'format: 2'),
                (good.replace('"rows"', '"../rows"'), "tables[0].name: '../rows'"),
                (good.replace('"rows"', '"same"'), 'a file is listed twice'),
                (good.replace('placement: whole', 'placement: here'), "placement: 'here'"),
                (good.replace('part: 1', 'part: 3'), 'part: 3; expected a number from 0 to 2'),
                (re.sub(r'digests: \["\w+", ', 'digests: [', good), 'expected a list of 3'),
                (re.sub(r'digests: \["\w+"', 'digests: ["x"', good), 'expected 16 hex digits'),
                ('format: 1\nparts: 3\ntables: []\n', 'tables: expected a list')):
            with open(path, 'w', encoding='utf-8') as file:
                file.write(text)
            self.refuses('--part', '1/3', '--grace', '0', because=said)
            self.assertEqual(self.versions(), ['1'])

    def test_an_error_of_one_model_does_not_stop_the_others(self):
        from embag.sync import SyncError
        from embag.sync.stores import DirectoryStore
        for model in ('a', 'b'):
            self.write_version(1, model=model)
        for model in ('gone', 'm'):
            self.write_version(5, model=model)
        self.syncs('--part', '1/3')
        shutil.rmtree(self.join('source', 'gone'))
        shutil.rmtree(self.join('source', 'm', '5'))
        with open(self.join('source', 'a', 'model.yaml'), 'wb') as file:
            file.truncate((16 << 20) + 1)
        self.write_version(2, model='a')
        self.write_version(2)
        shutil.rmtree(self.join('source', 'a', '1'))
        list_all = DirectoryStore.list

        def list_some(store, path):
            if path == 'b':
                raise SyncError('b: AccessDenied')
            return list_all(store, path)

        with mock.patch.object(DirectoryStore, 'list', list_some):
            self.refuses('--part', '1/3', '--grace', '0', because=(
                'a/model.yaml: has 16777217 bytes, expected at most 16777216\n',
                'embag-sync: b: AccessDenied\n'))
        # The model.yaml that cannot be read may name version 1.
        self.assertEqual(self.versions(model='a'), ['1', '2'])
        self.assertEqual(self.versions(model='b'), ['1'])
        self.assertEqual(self.versions(), ['1', '2'])
        self.assertFalse(os.path.exists(self.join('copy', 'gone')))
        # One that is no YAML may name it too.
        self.write_config('[', model='a')
        self.refuses('--part', '1/3', '--grace', '0', because='a/model.yaml: while parsing')
        self.assertEqual(self.versions(model='a'), ['1', '2'])
        self.write_config('', model='a')
        self.assertIn('1 removed', self.syncs('--part', '1/3', '--grace', '0'))

    def test_an_error_of_the_disk_does_not_stop_the_others(self):
        from embag.sync import download
        from embag.sync.local_repository import LocalRepository
        self.write_version(1, model='n')
        self.syncs('--part', '1/3')
        for number in (2, 3):
            self.write_version(number)
            self.write_version(number, model='n')
        shutil.rmtree(self.join('source', 'm', '1'))
        shutil.rmtree(self.join('source', 'n', '1'))
        write, let_go = download._write, LocalRepository.let_go

        def write_some(file, data):
            if '/new/m/2/' in os.readlink('/proc/self/fd/%d' % file.fileno()):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            write(file, data)

        def let_some_go(local, model, *rest):
            if model == 'm':
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), 'm/1')
            return let_go(local, model, *rest)

        with mock.patch.object(download, '_write', write_some), \
                mock.patch.object(LocalRepository, 'let_go', let_some_go):
            self.refuses('--part', '1/3', '--grace', '0', because=(
                'source/m/2: No space left on device\n', ': m/1: Device or resource busy\n'))
        self.assertEqual(self.versions(), ['1', '3'])
        self.assertEqual(self.versions(model='n'), ['2', '3'])
        self.assertIn('1 versions copied, 3 were there, 1 removed',
                      self.syncs('--part', '1/3', '--grace', '0'))

    def test_the_url_of_a_model_is_refused(self):
        self.syncs('--part', '1/3')
        self.url = self.join('source', 'm')
        self.refuses('--part', '1/3', '--grace', '0', because=self.url + (
            ': has no models; expected MODEL/VERSION/manifest.yaml below it\n'))
        self.assertEqual(self.versions(), ['1'])

    def test_a_plain_file_with_another_digest_is_downloaded_once(self):
        from embag.sync.local_repository import LocalRepository
        from embag.sync.mirror import Mirror, Options
        from embag.sync.stores import DirectoryStore
        version, said, opened = self.join('plain', 'm', '1'), [], []
        shutil.copytree(self.join('whole', 'm', '1'), version)
        subprocess.run([served.EMBAG, 'manifest', version], check=True, capture_output=True,
                       timeout=60)
        path = os.path.join(version, 'rows.npy')
        good = read(path)
        self.assertGreater(len(good), 1 << 20)

        class Store(DirectoryStore):
            """Notes how many bytes of the table are read."""

            @contextlib.contextmanager
            def open(self, path, offset):
                with super().open(path, offset) as reader:
                    take = reader.read

                    def count(wanted):
                        data = take(wanted)
                        if path.endswith('rows.npy'):
                            opened.append(len(data))
                        return data
                    reader.read = count
                    yield reader

        local = LocalRepository(self.join('copy'))
        self.addCleanup(local.close)
        mirror = Mirror(Store(self.join('plain')), local, Options(),
                        lambda text, is_error: said.append(text))
        for change in (b'?', b'!'):
            with open(path, 'r+b') as file:
                file.seek(-1, os.SEEK_END)
                file.write(change)
            for total in (len(good), 0):
                opened.clear()
                self.assertEqual(mirror.run_round().problems, 1)
                self.assertIn('m/1/rows.npy: has the digest', said[-1])
                self.assertEqual(sum(opened), total)
        with open(path, 'wb') as file:
            file.write(good)
        self.assertEqual(mirror.run_round().problems, 0)
        self.assertEqual(self.versions(), ['1'])

    def test_a_large_manifest_is_refused(self):
        os.mkdir(self.join('source', 'm', '2'))
        with open(self.join('source', 'm', '2', 'manifest.yaml'), 'wb') as file:
            file.truncate((16 << 20) + 1)
        self.refuses('--part', '1/3', because='expected at most 16777216')

    def test_sources_that_cannot_be_read_are_refused(self):
        self.url = 'http://host/x'
        self.refuses(because='invalid source "http://host/x": expected s3://BUCKET/PREFIX')
        self.url = 'file://' + self.join('source')
        self.syncs('--part', '1/3')

    def test_one_process_at_a_time_has_the_directory(self):
        from embag.sync.local_repository import LocalRepository
        local = LocalRepository(self.join('copy'))
        self.refuses('--part', '1/3', because='another embag-sync copies to this directory')
        local.close()
        self.syncs('--part', '1/3')

    def test_a_full_disk_is_told_before_anything_is_copied(self):
        room = os.statvfs(self.folder)
        few = os.statvfs_result((*room[:4], (1 << 20) // room.f_frsize, *room[5:]))
        count = sum(len(data) for path, data in self.part_files(1, 1).items()
                    if path.endswith('.embag'))
        with mock.patch.object(os, 'statvfs', lambda path: few):
            self.refuses('--part', '1/3', because='new/m/1: needs %d bytes, but only 1048576 are '
                         'free; free some space or lower --versions\n' % (count + (1 << 20)))
        self.syncs('--part', '1/3')


class Ends(SyncTest):
    """Copies that are stopped or killed, and those beside a server."""

    def test_a_kill_at_any_point_leaves_whole_versions(self):
        for number in (1, 3, 4):
            self.write_version(number)
        self.write_config('versions: {serve: highest}\n')
        self.syncs('--part', '1/3', to='prepared')
        os.unlink(self.join('source', 'm', 'model.yaml'))

        def digests(number):
            return {path: hashlib.sha256(data).hexdigest()
                    for path, data in self.part_files(number, 1).items()}
        allowed = {'1': [digests(1)], '3': [digests(3)], '4': [digests(4)]}
        # Version 2 is new, 3 is gone, 4 was replaced; the lookups of 1 go on.
        self.write_version(2)
        for number in (3, 4):
            shutil.rmtree(self.join('source', 'm', str(number)))
        shutil.rmtree(self.join('whole', 'm', '4'))
        self.write_version(4)
        allowed['2'] = [digests(2)]
        allowed['4'].append(digests(4))
        done = subprocess.run(
            [sys.executable, '-I', '-B', '-c', KILLED, self.url, self.join('prepared'),
             self.join('copy'), os.path.dirname(sys.modules['sync_run'].__file__),
             json.dumps(allowed), json.dumps(['1'])],
            capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        self.assertGreater(int(done.stdout), 40)

    def test_a_stop_at_any_line_is_not_lost(self):
        from embag.sync import SyncError, mirror as module
        from embag.sync.errors import Stopped
        from embag.sync.local_repository import LocalRepository
        from embag.sync.stores import DirectoryStore
        from embag.sync.version_files import Role
        self.write_version(1)

        class Store(DirectoryStore):
            """Has all manifests, but no tables."""

            def open(self, path, offset):
                if path.endswith('.embag'):
                    raise SyncError('AccessDenied: Access Denied')
                return super().open(path, offset)

        local = LocalRepository(self.join('copy'))
        self.addCleanup(local.close)
        self.addCleanup(sys.settrace, sys.gettrace())
        limit, is_at_end = 0, False
        while not is_at_end:
            limit += 1
            mirror = module.Mirror(Store(self.url), local, module.Options(Role(1, 3)),
                                   lambda text, is_error: None)
            left = limit

            def step(frame, event, argument):
                """Stops as a signal handler would, before the line number `limit`."""
                nonlocal left
                if frame.f_code.co_filename != module.__file__:
                    return None
                left -= event == 'line'
                if event == 'line' and left == 0:
                    mirror.stop()
                return step

            sys.settrace(step)
            try:
                mirror.run_round()
                is_at_end = left > 0
            except Stopped:
                pass
            finally:
                sys.settrace(None)
            if not is_at_end:
                with self.assertRaises(Stopped, msg='line %d' % limit):
                    mirror.pause(0)
        self.assertGreater(limit, 100)

    def test_memory_does_not_grow_with_the_files(self):
        self.write_version(1)
        path = self.join('large', 'm', '1')
        os.makedirs(path)
        with open(os.path.join(path, 't.npy'), 'wb') as file:
            file.truncate(256 << 20)
        digest = xxhash.xxh3_64()
        for _ in range(256):
            digest.update(bytes(1 << 20))
        with open(os.path.join(path, 'manifest.yaml'), 'w', encoding='utf-8') as file:
            file.write('format: 1\nparts: 1\nfiles:\n  - {name: t.npy, bytes: %d, xxh3_64: "%s"}\n'
                       % (256 << 20, digest.hexdigest()))
        done = subprocess.run(
            [sys.executable, '-I', '-B', '-c', MEASURED, self.join('large'), self.join('one'),
             self.join('two')], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLess(int(done.stdout.splitlines()[-1]), 8 << 10)

    def test_a_sidecar_feeds_a_part_server(self):
        self.write_version(1)
        self.syncs('--part', '1/3')
        with subprocess.Popen(
                command(self.url, self.join('copy'), '--part', '1/3', '--every', '1', '--grace',
                        '0'), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as sync:
            server = Embagd(self.join('copy'), '--part', '1/3').wait_ready()
            self.addCleanup(server.stop)
            client = Client(server.address)
            self.addCleanup(client.close)

            def answer():
                return client.lookup(pb.LookupRequest(queries=[pb.BagQuery(
                    table='rows', indices=[0, 5], num_bags=1, part=2)]))
            for number in (1, 2, 3):
                if number > 1:
                    self.write_version(number)
                wait_until(lambda wanted=number: answer().version == wanted, SECONDS,
                           'version %d' % number)
                np.testing.assert_array_equal(
                    np.frombuffer(answer().results[0].values, '<f4'),
                    self.rows[number][1::PARTS][[0, 5]].sum(0))
            # The source is away for a while.
            os.rename(self.join('source'), self.join('away'))
            line = next(line for line in sync.stdout if 'has no models' in line)
            self.assertIn(self.url, line)
            os.rename(self.join('away'), self.join('source'))
            shutil.rmtree(self.join('source', 'm', '1'))
            wait_until(lambda: self.versions() == ['2', '3'], SECONDS, 'the removal of version 1')
            sync.send_signal(signal.SIGTERM)
            self.assertEqual(sync.wait(SECONDS), 143)
        self.assertFalse(server.find('version_changed'))
        self.assertFalse(server.find('model_failed'))
