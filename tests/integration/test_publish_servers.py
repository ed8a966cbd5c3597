"""embag publish: a version is loaded on several servers, served on each, and taken back if one of
them fails. Servers that fail at a certain step are played by stock grpcio."""

import concurrent.futures
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import threading
import unittest

import grpc

import served
from embag.v1 import embedding_bag_pb2 as pb
from embag.v1 import model_admin_pb2 as admin_pb
from embagd_process import Embagd, Repository, wait_until
from rpc import ADMIN, Admin
from table_files import write_model
from test_versions import table_of

SECONDS = 120
STATES = pb.ModelVersion.State
SERVE_1 = 'versions: {serve: 1}\n'
# A table of these rows takes eight seconds to load at this pace.
SLOW = ('--load-bytes-per-s', '1MiB')
SLOW_ROWS = 1 << 20


class Server:
    """A server with a repository and a socket for commands, which loads nothing by itself after
    its start."""

    def __init__(self, test, *flags, versions=(1, 2), rows=4, describe=SERVE_1):
        self.repository = Repository()
        test.addCleanup(self.repository.remove)
        self.write('model.yaml', describe)
        for version in versions:
            self.write_version(version, rows if version > 1 else 4)
        self.address = 'unix:' + self.repository.join('.admin.sock')
        self.process = Embagd(self.repository.path, '--watch', 'off', '--admin-listen',
                              self.address, *flags).wait_ready()
        test.addCleanup(self.process.stop)
        self.admin = Admin(self.address)
        test.addCleanup(self.admin.close)

    def write(self, name, text):
        """Writes a file into the model's directory."""
        os.makedirs(self.repository.join('m'), exist_ok=True)
        with open(self.repository.join('m', name), 'w', encoding='utf-8') as file:
            file.write(text)

    def write_version(self, version, rows=4):
        """Writes a version under a hidden name, and renames it into place."""
        hidden = '.%d' % version
        write_model(self.repository.path, 'm', hidden, [table_of(version, rows=rows)])
        os.rename(self.repository.join('m', hidden), self.repository.join('m', str(version)))

    def tear(self, version):
        """Truncates the table of a version."""
        with open(self.repository.join('m', str(version), 't.npy'), 'r+b') as file:
            file.truncate(100)

    @property
    def model(self):
        """What the server says about its model."""
        return self.admin.list_versions('m').models[0]

    @property
    def states(self):
        """States of the versions, by number."""
        return {v.version: STATES.Name(v.state)[6:] for v in self.model.versions}

    @property
    def served(self):
        """The version that is served, and the one that a command serves."""
        model = self.model
        return model.served_version, model.commanded_version


class Player(grpc.GenericRpcHandler):
    """A server of commands that has all versions up to `highest` in memory, and loads `loading` if
    that is higher. `on_command` is called with the version that is to be loaded or served, and may
    raise an error that the caller gets."""

    def __init__(self, test, served_version=1, on_command=lambda version: None, highest=2):
        self.served = served_version
        self.highest = highest
        self.loading = 0
        self.on_command = on_command
        self.commands = []
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        self.server.add_generic_rpc_handlers((self,))
        self.address = '127.0.0.1:%d' % self.server.add_insecure_port('127.0.0.1:0')
        self.server.start()
        test.addCleanup(lambda: self.server.stop(0).wait())

    def service(self, details):
        method = details.method.removeprefix(ADMIN)
        request = admin_pb.VersionRequest.FromString
        if method == 'ListVersions':
            return grpc.unary_unary_rpc_method_handler(
                self.list_versions, request, pb.ListModelsResponse.SerializeToString)
        return grpc.unary_stream_rpc_method_handler(
            lambda asked, context: self.command(method, asked, context), request,
            admin_pb.VersionProgress.SerializeToString)

    def list_versions(self, request, _):
        """Lists the versions."""
        versions = [pb.ModelVersion(version=v, state='STATE_SERVING' if v == self.served
                                    else 'STATE_READY') for v in range(self.highest, 0, -1)]
        if self.loading > self.highest:
            versions.append(pb.ModelVersion(version=self.loading, state='STATE_LOADING'))
        return pb.ListModelsResponse(models=[pb.Model(
            name=request.model, served_version=self.served, versions=versions)])

    def command(self, method, request, context):
        """Notes a command and executes it."""
        self.commands.append((method, request.version))
        try:
            self.on_command(request.version)
        except grpc.RpcError as error:
            context.abort(*error.args)
        self.served = request.version
        yield admin_pb.VersionProgress(
            done=True, text='version %d is served' % request.version)


class PublishTest(unittest.TestCase):
    """Starts the command."""

    def start(self, *servers, version=2, timeout=SECONDS, flags=(), stderr=subprocess.PIPE):
        """Starts a publish to servers, or to addresses."""
        addresses = ','.join(getattr(s, 'address', s) for s in servers)
        # A command that runs in the background, as in a script with &, ignores SIGINT.
        process = subprocess.Popen(
            ['env', '--default-signal=INT,TERM,HUP', served.EMBAG, 'publish', '--servers',
             addresses, '--model', 'm', '--version', str(version), '--timeout', str(timeout),
             *flags],
            stdout=subprocess.PIPE, stderr=stderr, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def finish(self, process, status, said=''):
        """Waits for the end of a publish; checks its exit status. Returns all that it said on
        standard error, which begins with `said`."""
        out, errors = process.communicate(timeout=SECONDS)
        errors = said + (errors or '')
        self.assertEqual(process.returncode, status, errors)
        self.assertEqual(out != '', status == 0, out)
        return errors

    def publish(self, *servers, status=1, **keywords):
        """Runs a publish to its end. Returns what it said on standard error."""
        return self.finish(self.start(*servers, **keywords), status)

    def wait_said(self, process, text):
        """Reads standard error up to a line that has this text. Returns all lines."""
        lines = []
        while not re.search(text, lines[-1] if lines else ''):
            lines.append(process.stderr.readline())
            self.assertTrue(lines[-1], ''.join(lines))
        return ''.join(lines)

    def check_undone(self, errors, back, left=0):
        """Checks the last line: the numbers of servers switched back and not."""
        self.assertTrue(errors.endswith(
            'embag: publish: version 2 is not published: %d servers switched back, %d not undone\n'
            % (back, left)), errors)


class Publishing(PublishTest):
    """What is done where nothing fails."""

    def test_serves_a_version_on_all_servers(self):
        waiting = Server(self, versions=(1,))
        ready = Server(self, versions=(1, 2, 3), describe='versions: {serve: 3}\n')
        serving = Server(self, describe='versions: {serve: 2}\n')
        process = self.start(waiting, ready, ' ' + serving.address + ' ')
        said = self.wait_said(process, r'waiting: model "m" has no version 2')
        waiting.write_version(2)
        out, errors = process.communicate(timeout=SECONDS)
        errors = said + errors
        self.assertEqual((process.returncode, out),
                         (0, 'm: version 2 is served by 3 servers\n'), errors)
        for server in waiting, ready, serving:
            self.assertEqual(server.served, (2, 2))
            self.assertIn('embag: publish: %s: version 2 is served\n' % server.address, errors)
        self.assertIn('%s: version 2 is served already\n' % serving.address, errors)
        self.assertEqual(waiting.states, {2: 'SERVING', 1: 'READY'})
        self.assertEqual(ready.states, {3: 'READY', 2: 'SERVING'})
        self.assertNotIn('\033', errors)
        # The second time nothing changes, and a rollback is a publish of the version before.
        self.publish(waiting, serving, status=0)
        self.publish(waiting, serving, version=1, status=0)
        self.assertEqual([s.served for s in (waiting, ready, serving)], [(1, 1), (2, 2), (1, 1)])

    def test_waits_for_a_slow_load_and_shows_that_on_a_terminal(self):
        fast = Server(self)
        slow = Player(self, highest=1)
        slow.loading = 2
        outer, inner = os.openpty()
        self.addCleanup(os.close, outer)
        self.addCleanup(os.close, inner)
        process = self.start(slow, fast, stderr=inner)
        shown = ''
        while not re.search(r'\r\x1b\[Kembag: publish: 1 of 2 servers have version 2 in memory, '
                            r'\d+ of %d s' % SECONDS, shown):
            shown += os.read(outer, 65536).decode()
        self.assertIn('%s: version 2 is being loaded\r\n' % slow.address, shown)
        self.assertEqual(fast.served, (1, 0))
        slow.highest = 2
        self.finish(process, 0)
        self.assertEqual((slow.commands, fast.served), ([('ServeVersion', 2)], (2, 2)))

    def test_says_how_it_is_used(self):
        for flags, text in (
                ((), '--servers is missing'),
                (('--servers', 'a:1'), '--model is missing'),
                (('--servers', 'a:1', '--model', ''), '--model is missing'),
                (('--servers', 'a:1', '--model', 'm'), '--version is missing'),
                (('--servers', 'a:1', '--model', 'm', '--version', '0'), '--version 0: not in 1..'),
                (('--servers', 'a:1', '--model', 'm', '--version', 'x'), 'not a whole number'),
                (('--timeout', '0'), '--timeout 0: not in 1..604800'),
                (('--timeout', '604801'), '--timeout 604801: not in 1..604800'),
                (('--timeout', '5s'), '--timeout 5s: not a whole number'),
                (('--servers', 'a:1, ,b:1', '--model', 'm', '--version', '2'),
                 '--servers: address 2 is empty'),
                (('--servers', 'a:1,b:1, a:1', '--model', 'm', '--version', '2'),
                 '--servers: address "a:1" occurs twice')):
            ran = subprocess.run([served.EMBAG, 'publish', *flags], capture_output=True, text=True,
                                 timeout=SECONDS, check=False)
            self.assertEqual((ran.returncode, ran.stdout), (2, ''), ran.stderr)
            self.assertIn(text, ran.stderr)
        ran = subprocess.run([served.EMBAG, 'publish', '--help'], capture_output=True, text=True,
                             timeout=SECONDS, check=False)
        self.assertEqual(ran.returncode, 0)
        self.assertIn('This is not atomic', ran.stdout)


class Waiting(PublishTest):
    """Failures before the first server is switched."""

    def test_ends_at_once_where_a_version_cannot_be_loaded(self):
        good, torn = Server(self), Server(self)
        torn.tear(2)
        errors = self.publish(good, torn)
        # The command to load says it, or, if that takes longer than its time, the next list.
        self.assertRegex(errors, r'%s: (FAILED_PRECONDITION|version 2 cannot be loaded): m/2/t\.npy'
                         % torn.address)
        self.check_undone(errors, 0)
        self.assertEqual((good.served, torn.served), ((1, 0), (1, 0)))
        # It is known to be broken now. No server loads anything, and it is not tried again.
        other = Server(self)
        errors = self.publish(other, torn)
        self.assertRegex(errors, r'%s: version 2 cannot be loaded: m/2/t\.npy: ' % torn.address)
        self.check_undone(errors, 0)
        self.assertEqual(other.states, {1: 'SERVING'})

    def test_ends_when_the_time_is_over(self):
        good, absent = Server(self), Server(self, versions=(1,))
        slow = Server(self, *SLOW, rows=SLOW_ROWS)
        errors = self.publish(good, slow, absent, timeout=1)
        for server in slow, absent:
            self.assertIn('%s: does not have version 2 in memory' % server.address, errors)
        self.assertIn('the timeout of 1 s is over', errors)
        self.check_undone(errors, 0)
        self.assertEqual([s.served for s in (good, slow, absent)], [(1, 0)] * 3)

    def test_ends_when_it_is_interrupted(self):
        good, slow = Server(self), Player(self, highest=1)
        slow.loading = 2
        for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
            process = self.start(good, slow)
            said = self.wait_said(process, '%s: version 2 is being loaded' % slow.address)
            process.send_signal(number)
            errors = self.finish(process, 1, said)
            self.assertIn('embag: publish: interrupted\n', errors)
            self.check_undone(errors, 0)
            self.assertEqual((good.served, slow.commands), ((1, 0), []))

    def test_loads_nothing_where_a_server_is_not_there_or_refuses(self):
        good = Server(self)
        with socket.socket() as free:
            free.bind(('127.0.0.1', 0))
            nobody = '127.0.0.1:%d' % free.getsockname()[1]
            errors = self.publish(good, nobody)
        self.assertRegex(errors, '%s: UNAVAILABLE: ' % nobody)
        self.check_undone(errors, 0)
        errors = self.publish(good, good.process.address)
        self.assertRegex(errors, '%s: PERMISSION_DENIED: .*admin_listen' % good.process.address)
        self.check_undone(errors, 0)
        errors = self.publish(good, 'nowhere')
        self.assertIn('nowhere: INVALID_ARGUMENT: invalid address "nowhere"', errors)
        self.assertEqual((good.states, good.served), ({1: 'SERVING'}, (1, 0)))

    def test_sends_the_token_that_admins_have(self):
        good = Server(self)
        rules = good.repository.join('.auth.yaml')
        tokens = {name: good.repository.join('.' + name) for name in ('right', 'wrong')}
        for name, path in tokens.items():
            with open(path, 'w', encoding='utf-8') as file:
                file.write(name + '-token-0123456789')
        digest = hashlib.sha256(b'right-token-0123456789').hexdigest()
        with open(rules, 'w', encoding='utf-8') as file:
            json.dump({'principals': [
                {'name': 'chief', 'admin': True, 'token_sha256': digest}]}, file)
        strict = Server(self, '--auth-file', rules, '--admin-on-data-port', 'true')
        for flags in (), ('--token-file', tokens['wrong']):
            errors = self.publish(good, strict.process.address, flags=flags)
            self.assertIn('%s: UNAUTHENTICATED: ' % strict.process.address, errors)
            self.check_undone(errors, 0)
            self.assertEqual((good.states, strict.states), ({1: 'SERVING'},) * 2)
        self.publish(good, strict.process.address, status=0,
                     flags=('--token-file', tokens['right']))
        self.assertEqual((good.served, strict.served), ((2, 2), (2, 2)))

    def test_takes_back_what_a_server_has_served_as_soon_as_it_was_loaded(self):
        eager = Server(self, versions=(1,), describe='versions: {serve: highest}\n')
        eager.write_version(2)

        def fail(_):
            wait_until(lambda: eager.served == (2, 0), SECONDS, 'version 2 to be served')
            raise grpc.RpcError(grpc.StatusCode.FAILED_PRECONDITION, 'torn')

        failing = Player(self, on_command=fail, highest=1)
        errors = self.publish(eager, failing)
        self.assertIn('%s: FAILED_PRECONDITION: torn\n' % failing.address, errors)
        self.assertIn('%s: version 1 is served again\n' % eager.address, errors)
        self.check_undone(errors, 1)
        self.assertEqual(eager.served, (1, 1))


class Switching(PublishTest):
    """Failures after the first server was switched."""

    def test_goes_back_everywhere_but_on_a_server_that_died(self):
        first = Server(self)
        already = Server(self, describe='versions: {serve: 2}\n')
        dying = Server(self)
        player = Player(self, on_command=lambda version: version == 2 and dying.process.kill())
        last = Server(self)
        errors = self.publish(first, already, player, dying, last)
        self.assertRegex(errors, '%s: UNAVAILABLE: ' % dying.address)
        self.assertIn('%s: version 1 is served again\n' % first.address, errors)
        self.assertIn('%s: not undone: it may serve version 2, and served version 1 before\n'
                      % dying.address, errors)
        self.check_undone(errors, 3, 1)
        self.assertEqual(player.commands, [('ServeVersion', 2), ('ServeVersion', 1)])
        self.assertEqual((first.served, already.served, last.served), ((1, 1), (2, 0), (1, 0)))

    def test_tries_every_undo_though_another_one_fails(self):
        first = Server(self)

        def refuse(version):
            if version == 1:
                raise grpc.RpcError(grpc.StatusCode.FAILED_PRECONDITION, 'no way back')

        def refuse_all(version):
            raise grpc.RpcError(grpc.StatusCode.FAILED_PRECONDITION, 'no to %d' % version)

        stuck, new = Player(self, on_command=refuse), Player(self, served_version=0)
        refusing = Player(self, on_command=refuse_all)
        errors = self.publish(first, new, stuck, refusing)
        self.assertIn('%s: FAILED_PRECONDITION: no to 2\n' % refusing.address, errors)
        self.assertIn('%s: FAILED_PRECONDITION: no way back\n' % stuck.address, errors)
        self.assertIn('%s: not undone: it may serve version 2, and served version 1 before\n'
                      % stuck.address, errors)
        self.assertIn('%s: not undone: it may serve version 2, and served none before\n'
                      % new.address, errors)
        self.check_undone(errors, 1, 2)
        self.assertEqual(first.served, (1, 1))
        self.assertEqual(refusing.commands, [('ServeVersion', 2)])
        self.assertEqual(new.commands, [('ServeVersion', 2)])

    def test_goes_back_when_it_is_interrupted(self):
        first, last = Server(self), Server(self)
        started = threading.Event()

        def interrupt(version):
            if version == 2:
                started.wait(SECONDS)
                process.send_signal(signal.SIGINT)

        player = Player(self, on_command=interrupt)
        process = self.start(first, player, last)
        started.set()
        errors = self.finish(process, 1)
        self.assertIn('embag: publish: interrupted\n', errors)
        self.check_undone(errors, 2)
        self.assertEqual(player.commands, [('ServeVersion', 2), ('ServeVersion', 1)])
        self.assertEqual((first.served, last.served), ((1, 1), (1, 0)))

    def test_goes_back_when_a_server_does_not_answer_in_time(self):
        first = Server(self)
        first.admin.command('LoadVersion', 'm', 2)
        hanging = Player(self, on_command=lambda version: version == 2 and over.wait(SECONDS))
        over = threading.Event()
        self.addCleanup(over.set)
        for timeout in 1, 8, 64, 512:  # A slow machine needs some of it for the steps before.
            errors = self.publish(first, hanging, timeout=timeout)
            if hanging.commands:
                break
        self.assertRegex(errors, '%s: DEADLINE_EXCEEDED' % hanging.address)
        self.check_undone(errors, 2)
        self.assertEqual(first.served, (1, 1))
        self.assertEqual(hanging.commands[-1], ('ServeVersion', 1))


if __name__ == '__main__':
    unittest.main()
