"""Commands that load, unload and serve versions, called as users call them: by stock grpcio and by
the tool."""

import json
import os
import random
import shutil
import stat
import subprocess
import tempfile
import threading
import time
import unittest

import grpc

import served
from embag.v1 import embedding_bag_pb2 as pb
from embag.v1 import model_admin_pb2 as admin_pb
from embagd_process import wait_until
from rpc import ADMIN, Admin, error_of
from test_versions import SECONDS, VersionsTest, table_of

STATES = pb.ModelVersion.State
COMMANDS_MAX = 32  # EB_BACKPRESSURE_COMMANDS_MAX
# Files are read half a MiB at a time, at this pace: a table of these rows takes four seconds to
# load.
SLOW = ('--load-bytes-per-s', '8MiB')
SLOW_ROWS = 4 << 20
TERABYTE = 1 << 40
RACES = 50


class AdminTest(VersionsTest):
    """A server with a socket for commands, which does not watch the repository."""

    def setUp(self):
        super().setUp()
        self.folder = tempfile.mkdtemp(prefix='embag-test-')
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.socket = os.path.join(self.folder, 'admin.sock')
        self.publish(1)

    def serve(self, *flags):
        super().serve('--admin-listen', 'unix:' + self.socket, *flags)
        self.admin = self.connect()

    def connect(self):
        """Opens another client on the socket."""
        admin = Admin('unix:' + self.socket)
        self.addCleanup(admin.close)
        return admin

    def done(self, method, version, model='m'):
        """Runs a command that must succeed; returns the text of its last message."""
        *before, last = self.admin.command(method, model, version)
        self.assertFalse([p for p in before if p.done])
        self.assertTrue(last.done)
        return last.text

    def refused(self, code, text, method, version, model='m'):
        """Checks that a command fails with this code and text."""
        got_code, got_text = error_of(self.admin.command, method, model, version)
        self.assertEqual(got_code, code, got_text)
        self.assertRegex(got_text, text)

    def tear(self, version):
        """Writes a version whose only file is truncated."""
        self.publish(version)
        with open(self.repository.join('m', str(version), 't.npy'), 'r+b') as file:
            file.truncate(100)

    def tool(self, *words, server=None):
        """Runs `embag models`; returns its exit status and all of its output."""
        ran = subprocess.run(
            [served.EMBAG, 'models', *words, '--server', server or 'unix:' + self.socket],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS,
            check=False)
        return ran.returncode, ran.stdout


class Commands(AdminTest):
    """What each command does, and what it reports if it fails."""

    def test_loads_serves_and_goes_back(self):
        self.serve('--watch', 'off')
        self.publish(2)
        self.assertRegex(self.done('LoadVersion', 2), 'version 2 is served')
        self.assertEqual(self.states(), {2: 'SERVING', 1: 'READY'})
        self.assertRegex(self.done('LoadVersion', 1), 'version 1 is in memory')
        self.publish(3)
        self.assertRegex(self.done('ServeVersion', 1), 'version 1 is served')
        self.assertEqual(self.lookup(), 1)
        self.assertEqual(self.admin.list_versions('m').models[0].commanded_version, 1)
        self.assertRegex(self.done('ServeVersion', 0), 'version 3 is served')
        self.assertEqual(self.lookup(), 3)
        self.assertEqual(self.lookup(version=1), 1)

    def test_keeps_what_a_command_has_loaded(self):
        self.describe('versions: {keep: 1, keep_s: 0}\n')
        self.serve()
        self.publish(2)
        self.wait_served(2)
        self.done('LoadVersion', 1)
        self.publish(3)
        self.wait_served(3)
        wait_until(lambda: self.states() == {3: 'SERVING', 1: 'READY'}, SECONDS, '2 gone')
        held = {v.version: v.held for v in self.admin.list_versions('m').models[0].versions}
        self.assertEqual(held, {3: False, 1: True})
        self.assertEqual(self.lookup(version=1), 1)

    def test_unloads_what_callers_have_pinned(self):
        self.publish(2)
        self.serve('--watch', 'off')
        self.done('LoadVersion', 1)
        self.assertEqual(self.lookup(version=1), 1)
        self.assertRegex(self.done('UnloadVersion', 1), 'version 1 no longer answers requests')
        self.expect_not_found('has no version 1 in memory', version=1)
        self.assertEqual(self.lookup(), 2)
        self.done('LoadVersion', 1)
        self.assertEqual(self.lookup(version=1), 1)

    def test_unloads_neither_what_is_served_nor_what_has_a_label(self):
        self.describe('versions: {labels: [{name: old, version: 1}]}\n')
        self.publish(2)
        self.serve()
        wait_until(lambda: self.states() == {2: 'SERVING', 1: 'READY'}, SECONDS, 'the label')
        denied = grpc.StatusCode.FAILED_PRECONDITION
        self.refused(denied, 'is being served; serve another', 'UnloadVersion', 2)
        self.refused(denied, 'has a label; remove the label from model.yaml', 'UnloadVersion', 1)
        self.done('ServeVersion', 1)
        self.refused(denied, 'is being served', 'UnloadVersion', 1)
        self.assertEqual(self.states(), {2: 'READY', 1: 'SERVING'})

    def test_says_what_is_not_there_or_not_named(self):
        self.serve('--watch', 'off')
        for method in 'LoadVersion', 'ServeVersion', 'UnloadVersion':
            self.refused(grpc.StatusCode.NOT_FOUND, 'no version 9', method, 9)
            self.refused(grpc.StatusCode.NOT_FOUND, 'no model "x"', method, 1, 'x')
            self.refused(grpc.StatusCode.INVALID_ARGUMENT, 'model: no model is named', method, 1,
                         '')
        self.refused(grpc.StatusCode.INVALID_ARGUMENT, 'version: no version is named',
                     'UnloadVersion', 0)
        code, text = error_of(self.admin.list_versions, 'x')
        self.assertEqual((code, text), (grpc.StatusCode.NOT_FOUND, 'no model "x"'))

    def test_says_that_the_repository_cannot_be_read(self):
        self.serve('--watch', 'off')
        hidden = self.repository.path + '.hidden'
        os.rename(self.repository.path, hidden)
        try:
            for version in 2, 0:
                self.refused(grpc.StatusCode.FAILED_PRECONDITION, 'the directory cannot be read',
                             'LoadVersion', version)
            self.assertEqual(self.lookup(), 1)
        finally:
            os.rename(hidden, self.repository.path)
        self.done('LoadVersion', 0)

    def test_unloads_what_is_served_of_a_model_that_was_taken_away(self):
        self.publish(1, 'n')
        self.serve('--watch', 'off')
        self.assertEqual(self.lookup(model='n'), 1)
        self.refused(grpc.StatusCode.FAILED_PRECONDITION, 'is being served',
                     'UnloadVersion', 1, 'n')
        shutil.rmtree(self.repository.join('n'))
        self.done('UnloadVersion', 1, 'n')
        code, _ = error_of(self.lookup, model='n')
        self.assertEqual(code, grpc.StatusCode.NOT_FOUND)

    def test_answers_each_command_of_a_race(self):
        self.publish(2)
        self.serve('--watch', 'off')
        other = self.connect()

        def unload():
            try:
                other.command('UnloadVersion', 'm', 1)
            except grpc.RpcError as error:
                self.assertEqual(error.code(), grpc.StatusCode.NOT_FOUND, error.details())

        for _ in range(RACES):
            unloads = threading.Thread(target=unload)
            unloads.start()
            try:
                self.done('LoadVersion', 1)
            except grpc.RpcError as error:
                self.assertIn('unloaded by another command', error.details())
            unloads.join()

    def test_leaves_the_old_one_where_the_new_one_is_broken(self):
        self.serve('--watch', 'off')
        self.tear(2)
        where = r'^m/2/t\.npy: '
        for method in 'LoadVersion', 'ServeVersion':
            self.refused(grpc.StatusCode.FAILED_PRECONDITION, where, method, 2)
            self.assertEqual(self.lookup(), 1)
        listed = {v.version: v for v in self.admin.list_versions('m').models[0].versions}
        self.assertEqual(listed[2].state, STATES.STATE_FAILED)
        self.assertRegex(listed[2].error, where)
        self.assertIn(self.repository.join('m', '2', 't.npy'), self.server.find('model_failed'))
        shutil.rmtree(self.repository.join('m', '2'))
        self.publish(2)
        self.done('ServeVersion', 2)
        self.assertEqual(self.lookup(), 2)

    def test_says_that_memory_is_too_small(self):
        self.serve('--watch', 'off')
        self.publish(2)
        path = self.repository.join('m', '2', 't.npy')
        with open(path, 'r+b') as file:
            head = file.read(128)
            rows = b'%d, 2' % (TERABYTE // 8)
            grown = head.replace(b'4, 2', rows)
            # The longer text takes the place of padding spaces after it.
            grown = grown.replace(b' ' * (len(grown) - len(head)), b'', 1)
            file.seek(0)
            file.write(grown)
            file.truncate(128 + TERABYTE)  # a hole, which takes no room on the disk
        self.refused(grpc.StatusCode.RESOURCE_EXHAUSTED, 'bytes more memory than is available',
                     'LoadVersion', 2)
        self.assertEqual(self.lookup(), 1)

    def test_lists_what_became_of_each(self):
        self.describe('versions: {labels: [{name: stable, version: 1}]}\n')
        self.tear(3)
        self.publish(2)
        before_ms = time.time() * 1000
        self.serve()
        wait_until(lambda: len(self.states()) == 3, SECONDS, 'three versions')
        model, = self.admin.list_versions().models
        found = {v.version: v for v in model.versions}
        self.assertEqual(model.served_version, 2)
        for version in 1, 2:
            self.assertGreater(found[version].bytes, 0)
            self.assertNotEqual(found[version].digest, 0)
            self.assertTrue(before_ms - 1000 <= found[version].loaded_unix_ms
                            <= time.time() * 1000 + 1000)
            self.assertFalse(found[version].tables)
        self.assertNotEqual(found[1].digest, found[2].digest)
        self.assertEqual(list(found[1].labels), ['stable'])
        self.assertEqual((found[3].state, found[3].bytes), (STATES.STATE_FAILED, 0))
        one = self.admin.list_versions('m', 1).models[0].versions
        self.assertEqual([v.version for v in one], [1])
        self.describe('versions: {serve: first}\n')
        wait_until(lambda: self.admin.list_versions().models[0].config_error, SECONDS, 'the error')
        self.describe('')
        wait_until(lambda: not self.admin.list_versions().models[0].config_error, SECONDS,
                   'the error to go away')


class Calls(AdminTest):
    """Commands as calls: who may make them, how many at once, and how they end."""

    def test_are_for_the_socket(self):
        self.serve()
        self.assertEqual(stat.S_IMODE(os.stat(self.socket).st_mode), 0o600)
        self.assertEqual(self.admin.lookup(pb.LookupRequest(model='m')).version, 1)
        with Admin(self.server.address) as stranger:
            for call in (lambda: stranger.command('LoadVersion', 'm', 1), stranger.list_versions):
                code, text = error_of(call)
                self.assertEqual(code, grpc.StatusCode.PERMISSION_DENIED)
                self.assertIn('the setting admin_listen, or set admin_on_data_port', text)
            code, text = error_of(stranger.command, 'NoSuch', 'm', 1)
            self.assertEqual(code, grpc.StatusCode.UNIMPLEMENTED)
            self.assertIn('embag.v1.ModelAdmin has the methods LoadVersion', text)
        self.server.stop()
        self.assertFalse(os.path.exists(self.socket))
        self.server.is_killed = True  # already stopped

    def test_are_for_the_data_port_where_that_is_allowed(self):
        self.serve('--admin-on-data-port', 'true')
        with Admin(self.server.address) as admin:
            self.assertTrue(admin.command('ServeVersion', 'm', 1)[-1].done)

    def test_tell_how_far_they_are_also_several_at_once(self):
        self.serve('--watch', 'off', *SLOW)
        for version in 2, 3:
            self.publish(version, tables=[table_of(version, rows=SLOW_ROWS)])
        self.describe('versions: {serve: 1}\n')
        told = {}

        def load(name, version):
            told[name] = self.connect().command('LoadVersion', 'm', version)

        threads = [threading.Thread(target=load, args=job)
                   for job in (('a', 2), ('b', 2), ('c', 3))]
        for thread in threads:
            thread.start()
        self.assertEqual(self.lookup(), 1)
        for thread in threads:
            thread.join(SECONDS)
        for progress in told.values():
            self.assertTrue(progress[-1].done)
            self.assertTrue([p for p in progress if 0 < p.done_bytes <= p.total_bytes], progress)
        self.assertEqual(self.states(), {3: 'READY', 2: 'READY', 1: 'SERVING'})

    def test_go_on_when_their_caller_goes_away(self):
        self.serve('--watch', 'off', *SLOW)
        self.publish(2, tables=[table_of(2, rows=SLOW_ROWS)])
        request = admin_pb.VersionRequest(model='m', version=2)
        with Admin('unix:' + self.socket) as caller:
            call = caller.begin('LoadVersion', request)
            next(call)
            wait_until(lambda: self.states().get(2) == 'LOADING', SECONDS, 'version 2 to load')
        code, text = error_of(lambda: list(self.admin.begin('LoadVersion', request, timeout=0.1)))
        self.assertEqual(code, grpc.StatusCode.DEADLINE_EXCEEDED, text)
        self.wait_served(2)
        self.assertEqual(self.lookup(), 2)

    def test_are_bounded_in_number(self):
        self.serve('--watch', 'off', '--loops', '1', *SLOW)
        self.publish(2, tables=[table_of(2, rows=SLOW_ROWS)])
        request = admin_pb.VersionRequest(model='m', version=2)
        calls = [self.admin.begin('LoadVersion', request) for _ in range(COMMANDS_MAX)]
        next(calls[-1])  # the last of them is running
        self.refused(grpc.StatusCode.RESOURCE_EXHAUSTED, '32 commands are running already',
                     'LoadVersion', 1)
        self.assertEqual(len(self.admin.list_versions('m').models), 1)
        self.assertEqual(self.lookup(), 1)
        for call in calls:
            self.assertTrue(list(call)[-1].done)
        self.done('LoadVersion', 1)

    def test_do_not_hold_up_the_end(self):
        self.serve('--watch', 'off', *SLOW)
        self.publish(2, tables=[table_of(2, rows=4 * SLOW_ROWS)])
        call = self.admin.begin('LoadVersion', admin_pb.VersionRequest(model='m', version=2))
        next(call)
        self.client.close()
        self.server.terminate()
        code, text = error_of(list, call)
        self.assertEqual((code, text), (grpc.StatusCode.UNAVAILABLE,
                                        'the server is shutting down'))
        self.admin.close()
        self.server.stop()  # most of the load is still to do
        self.server.is_killed = True

    def test_survive_malformed_messages(self):
        self.serve('--watch', 'off')
        whole = admin_pb.VersionRequest(model='m', version=1).SerializeToString()
        cases = {
            b'\x0a\x05m': grpc.StatusCode.INTERNAL,
            b'\x0a\x01\x00\x10\x01': grpc.StatusCode.INVALID_ARGUMENT,
            b'\x0a\x02\xff\xfe': grpc.StatusCode.INVALID_ARGUMENT,
            b'\x0a\x80\x04' + b'n' * 512: grpc.StatusCode.RESOURCE_EXHAUSTED,
            whole[:-1]: grpc.StatusCode.INTERNAL,
        }
        for method in 'LoadVersion', 'UnloadVersion', 'ServeVersion', 'ListVersions':
            for message, wanted in cases.items():
                code, text = error_of(lambda: list(self.admin.begin(method, message)))
                self.assertEqual(code, wanted, (method, message, text))
            code, _ = error_of(lambda: list(self.admin.channel.stream_stream(ADMIN + method)(
                iter([whole, whole]), timeout=SECONDS)))
            self.assertEqual(code, grpc.StatusCode.UNIMPLEMENTED)
        noise = random.Random(served.SEED)
        for _ in range(served.scaled(200)):
            message = bytes(noise.randrange(256) for _ in range(noise.randrange(20)))
            try:
                list(self.admin.begin('ServeVersion', message))
            except grpc.RpcError:
                pass
        self.assertEqual(self.lookup(), 1)


class Tool(AdminTest):
    """embag models load, unload, serve and status."""

    def test_commands_versions(self):
        self.serve('--watch', 'off')
        self.publish(2)
        self.assertEqual(self.tool('load', 'm', '2'), (0, 'm: version 2 is served\n'))
        status, said = self.tool('status', '--model', 'm')
        self.assertEqual(status, 0)
        self.assertRegex(said, r'^m\n +2 +serving +[\d.]+ [KM]iB  [0-9a-f]{16}  loaded 20\d\d-\d\d-'
                               r'\d\dT\d\d:\d\d:\d\dZ in \d+\.\d s  held by command\n +1 +ready ')
        self.assertEqual(self.tool('serve', 'm', '1'), (0, 'm: version 1 is served\n'))
        self.assertRegex(self.tool('status')[1], '1 +serving .* served by command\n')
        self.assertEqual(self.tool('unload', 'm', '2'),
                         (0, 'm: version 2 no longer answers requests\n'))
        wait_until(lambda: self.states() == {1: 'SERVING'}, SECONDS, 'version 2 to be freed')
        self.assertEqual(self.tool('serve', 'm', '0'), (0, 'm: version 2 is served\n'))

    def test_tells_everything_as_json(self):
        self.describe('versions: {labels: [{name: stable, version: 1}]}\n')
        self.tear(2)
        self.serve()
        wait_until(lambda: len(self.states()) == 2, SECONDS, 'two versions')
        model, = json.loads(self.tool('status', '--json')[1])['models']
        listed, = self.admin.list_versions().models
        self.assertEqual((model['name'], model['served_version'], model['commanded_version']),
                         ('m', 1, 0))
        for version, wanted in zip(model['versions'], listed.versions):
            self.assertEqual(version, {
                'version': wanted.version, 'state': STATES.Name(wanted.state)[6:].lower(),
                'bytes': wanted.bytes, 'digest': '%016x' % wanted.digest,
                'loaded_unix_ms': wanted.loaded_unix_ms, 'load_ms': wanted.load_ms,
                'held': wanted.held, 'labels': list(wanted.labels), 'error': wanted.error})
        self.assertRegex(self.tool('status')[1], r'2 +failed +m/2/t\.npy: ')

    def test_says_why_not(self):
        self.serve('--watch', 'off')
        for words, wanted, text in (
                (('load', 'm', '9'), 1, 'NOT_FOUND: model "m" has no version 9'),
                (('unload', 'm', '1'), 1, 'FAILED_PRECONDITION: version 1 is being served'),
                (('status', '--model', 'x'), 1, 'NOT_FOUND'),
                (('load', 'm', 'one'), 2, 'invalid VERSION "one"'),
                (('load', 'm'), 2, 'VERSION'),
                (('drop', 'm', '1'), 2, 'unknown command "drop"')):
            status, said = self.tool(*words)
            self.assertEqual(status, wanted, said)
            self.assertIn(text, said)
        status, said = self.tool('load', 'm', '1', server=self.server.address)
        self.assertEqual(status, 1)
        self.assertRegex(said, r'PERMISSION_DENIED: .*admin_listen')
        for words in ('load',), ('unload',), ('serve',), ('status',), ():
            status, said = self.tool(*words, '--help')
            self.assertEqual(status, 0)
            self.assertTrue(said.startswith('Usage: embag models '))

    def test_draws_a_bar_on_a_terminal(self):
        self.serve('--watch', 'off', *SLOW)
        self.publish(2, tables=[table_of(2, rows=SLOW_ROWS)])
        outer, inner = os.openpty()
        self.addCleanup(os.close, outer)
        self.addCleanup(os.close, inner)
        ran = subprocess.run(
            [served.EMBAG, 'models', 'load', 'm', '2', '--server', 'unix:' + self.socket],
            stdout=subprocess.DEVNULL, stderr=inner, timeout=SECONDS, check=False)
        self.assertEqual(ran.returncode, 0)
        os.set_blocking(outer, False)
        self.assertRegex(os.read(outer, 65536), rb'\rm \[#+ +\] +\d+ %')
