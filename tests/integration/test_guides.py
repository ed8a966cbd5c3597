"""Builds and runs the programs of client/CLIENTS.md as they are printed there."""

import json
import os
import re
import shutil
import subprocess
import unittest

import grpc

import embagd_process
import guide
import served
from busy_once import BusyOnce
from certificates import HERE, Authority
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import Embagd, Repository, wait_until
from served import OwnServerTest
from table_files import write_model

ADDRESS = '127.0.0.1:8600'
LARGE_SCALE = '20000'
BUILD_SECONDS = 400
RUN_SECONDS = 120
LOOKUPS = 100
PAUSE_MS = 400
TOKEN = 'a-token-of-the-guide'
AUTH = 'principals: [{name: guide, token_file: token, models: ["*"]}]\n'


class Checkout:
    """The files of a checkout that the guide uses. They are copied, so that no build writes to this
    checkout."""

    def __init__(self, path):
        self.path = path
        for folder in 'proto', 'client', os.path.join('tests', 'integration', 'java'):
            shutil.copytree(os.path.join(served.SOURCE, folder), os.path.join(path, folder))
        os.mkdir(os.path.join(path, 'build'))
        os.symlink(served.BUILD, os.path.join(path, 'build', 'release'))


class Guide:
    """One section's programs, in a temporary directory."""

    def __init__(self, heading, checkout):
        self.blocks = guide.blocks(guide.section(guide.read('client', 'CLIENTS.md'), heading))
        self.folder = Repository()
        self.environment = {**os.environ, 'EMBAG': checkout.path,
                            'PATH': os.environ['PATH'] + ':/usr/local/go/bin'}
        for block in self.blocks:
            if block.language != 'sh':
                path = self.folder.join(block.word)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, 'w', encoding='utf-8') as file:
                    file.write(block.text)

    def shell(self, commands, seconds):
        """Runs the commands; returns the exit status and all output."""
        done = subprocess.run(['bash', '-euo', 'pipefail', '-c', commands], cwd=self.folder.path,
                              env=self.environment, stdout=subprocess.PIPE, check=False,
                              stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=seconds)
        return done.returncode, done.stdout.decode('utf-8', 'replace')

    def fetch(self):
        """Downloads the dependencies; returns None, or why they are not available."""
        for block in self.blocks:
            if block.word == 'fetch':
                status, output = self.shell(block.text, BUILD_SECONDS)
                if status != 0:
                    return (output.strip() or 'no answer').splitlines()[-1]
        return None

    def commands(self):
        """Returns the commands of the last block: all before the last one, and the last one."""
        text = [block.text for block in self.blocks if block.language == 'sh'][-1]
        return re.fullmatch(r'(.*^)?(\S.*(?:\n +.*)*)\n', text, re.M | re.S).groups()


def numbers(text):
    """Returns the numbers in a program's output."""
    return [float(number) for number in re.findall(r'-?\d+(?:\.\d+)?(?:e-?\d+)?', text)]


class Clients(OwnServerTest):
    """Each section, with its own servers."""

    def setUp(self):
        super().setUp()
        for arguments in (('--example', 'spec'),
                          ('--workload', 'dlrm-v2', '--scale', LARGE_SCALE)):
            subprocess.run([served.EMBAG, 'make-model', *arguments, self.repository.path],
                           check=True, capture_output=True, timeout=RUN_SECONDS)
        self.unix = 'unix:' + self.repository.join('.socket')
        self.server = self.serve(listen=('127.0.0.1:0', self.unix))
        self.checkout = Checkout(self.repository.join('.checkout'))
        intro = guide.read('client', 'CLIENTS.md').split('\n## ')[0]
        self.expected = guide.blocks(intro, 'text')[0].text

    def check_output(self, status, output):
        """Checks that the output is the one that the guide gives for all programs."""
        self.assertEqual(status, 0, output)
        lines = [line for line in output.splitlines() if re.match(r'-?\d', line)]
        found, expected = numbers('\n'.join(lines)), numbers(self.expected)
        self.assertEqual(len(found), len(expected), output)
        for one, other in zip(found, expected):
            self.assertAlmostEqual(one, other, 5, output)

    def build(self, heading, *tools):
        """Builds the section's program; skips the test if a tool or dependency is not available."""
        program = Guide(heading, self.checkout)
        self.addCleanup(program.folder.remove)
        path = program.environment['PATH']
        missing = [tool for tool in tools if not shutil.which(tool, path=path)]
        why = missing[0] + ' is not installed' if missing else program.fetch()
        if why:
            name = re.sub(r'[^a-z]+', '-', heading.lower()).strip('-')
            print('\nguide-%s: skipped, %s' % (name, why))
            self.skipTest(why)
        prepare, self.command = program.commands()
        prepare = prepare or ''
        if embagd_process.SANITIZE:
            prepare = re.sub('^cc ', 'cc -fsanitize=%s ' % embagd_process.SANITIZE, prepare)
        status, output = program.shell(prepare, BUILD_SECONDS)
        self.assertEqual(status, 0, output)
        return program

    def run_at(self, program, *arguments):
        """Runs the program with another address than the printed one."""
        command = self.command.replace(ADDRESS, ' '.join(arguments))
        self.assertNotEqual(command, self.command)
        return program.shell(command, RUN_SECONDS)

    def serve_securely(self):
        """Starts a server that requires TLS, a client certificate and a token; returns TARGET CA
        CERT KEY TOKEN."""
        authority = Authority()
        self.addCleanup(authority.remove)
        authority.issue('server', names=HERE)
        authority.issue('client')
        authority.write('token', TOKEN + '\n')
        path = authority.path
        server = self.serve('--tls-cert', path('server.pem'), '--tls-key', path('server.key'),
                            '--tls-client-ca', path('ca.pem'),
                            '--auth-file', authority.write('auth.yaml', AUTH))
        return ['localhost:%d' % server.port,
                *map(path, ('ca.pem', 'client.pem', 'client.key', 'token'))]

    def check_busy(self, program):
        """Checks that the program retries after the pause that the server requests, and not
        earlier."""
        busy = BusyOnce(self.server.address, PAUSE_MS)
        self.addCleanup(busy.stop)
        self.check_output(*self.run_at(program, '127.0.0.1:%d' % busy.port))
        self.assertEqual(len(busy.times), 3)
        self.assertGreaterEqual(busy.times[1] - busy.times[0], PAUSE_MS / 1000 * 0.95)

    def check_program(self, program, unix=True):
        """Checks the program over every transport, and with one refusal."""
        self.check_output(*self.run_at(program, self.server.address))
        if unix:
            self.check_output(*self.run_at(program, self.unix))
        self.check_output(*self.run_at(program, *self.serve_securely()))
        self.check_busy(program)

    def need_time(self):
        """Skips tests that take long or download from a registry."""
        if served.QUICK:
            self.skipTest('not in a quick run')

    def test_python(self):
        self.check_program(self.build('Python', 'protoc'))

    def test_c(self):
        self.check_program(self.build('C', 'cc'))

    def test_python_package(self):
        self.need_time()
        program = self.build('The Python package', 'protoc')
        self.check_output(*self.run_at(program, self.server.address))
        self.check_output(*self.run_at(program, self.unix))

    def test_cpp(self):
        self.need_time()
        self.check_program(self.build('C++', 'c++', 'grpc_cpp_plugin'))

    def test_go(self):
        self.need_time()
        self.check_program(self.build('Go', 'go', 'protoc'))

    def test_java(self):
        self.need_time()
        self.check_program(self.build('Java', 'javac', 'mvn'), unix=False)

    def test_node(self):
        self.need_time()
        self.check_program(self.build('Node.js', 'node', 'npm'))

    def test_grpcurl(self):
        self.need_time()
        program = self.build('Without a program', 'go')
        status, output = self.run_at(program, self.server.address)
        self.assertEqual(status, 0, output)
        self.assertIn('"version": "1"', output)


class SeveralServers(OwnServerTest):
    """Two servers, one of which has the requested model."""

    def setUp(self):
        super().setUp()
        with_model = self.serve()
        elsewhere = Repository()
        self.addCleanup(elsewhere.remove)
        write_model(elsewhere.path, 'another', 1, [served.spec_table()])
        without = Embagd(elsewhere.path)
        self.addCleanup(without.stop)
        without.wait_ready()
        self.target = 'ipv4:%s,%s' % (with_model.address, without.address)

    def lookups(self, **more):
        """Yields the status of each lookup, with a service configuration extended by `more`."""
        config = {'loadBalancingConfig': [{'round_robin': {}}], **more}
        query = pb.BagQuery(table='emb_table', indices=[0], num_bags=1)
        request = pb.LookupRequest(model='spec', queries=[query]).SerializeToString()
        with grpc.insecure_channel(
                self.target, [('grpc.service_config', json.dumps(config)),
                              ('grpc.use_local_subchannel_pool', 1)]) as channel:
            lookup = channel.unary_unary('/embag.v1.EmbeddingBag/Lookup')
            for _ in range(LOOKUPS):
                yield lookup.future(request, timeout=RUN_SECONDS).code()

    def test_are_left_out_that_do_not_serve_the_model(self):
        codes, seen = grpc.StatusCode, set()
        wait_until(lambda: seen.update(self.lookups()) or len(seen) == 2, RUN_SECONDS,
                   'lookups to reach both')
        self.assertEqual(seen, {codes.OK, codes.NOT_FOUND})
        found = re.search(r'`("healthCheckConfig": .*?)` in', guide.read('client', 'CLIENTS.md'))
        watched = json.loads('{%s}' % found.group(1))
        watched['healthCheckConfig']['serviceName'] = 'spec'
        self.assertEqual(set(self.lookups(**watched)), {codes.OK})


class Sections(unittest.TestCase):
    """The sections of the client guide."""

    def test_none_has_commands_that_no_test_runs(self):
        text = guide.read('client', 'CLIENTS.md')
        tested = {'Python', 'The Python package', 'C', 'C++', 'Go', 'Java', 'Node.js',
                  'Without a program', 'A service configuration'}     # run by balance.py
        with_commands = {heading for heading, part in guide.sections(text).items()
                         if guide.blocks(part)}
        self.assertEqual(with_commands, tested)


if __name__ == '__main__':
    unittest.main()
