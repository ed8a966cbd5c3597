"""Runs the commands of deploy/OPERATIONS.md as they are printed, and checks its tables."""

import json
import os
import re
import shlex
import shutil
import subprocess
import unittest
import urllib.request

import numpy as np

import guide
import served
from embagd_process import Repository
from served import OwnServerTest

ADDRESS = '127.0.0.1:8600'
HTTP = '127.0.0.1:8601'
MODELS, STAGING = '/var/lib/embag/models', '/var/lib/embag/staging'
SOCKET = '/run/embag/admin.sock'
COMMAND_SECONDS = 120
ROWS = 50000
PAGE = 2 << 20
SHELL = 'sh'
# Commands of the guide that other tests run.
RUN_ELSEWHERE = ('apt-get install', 'systemctl', 'journalctl', 'embag models status',
                 'embag publish', 'embag split', 'embagd --model-repository /var/lib/embag/parts',
                 'sed -i', 'embag resident list', 'install -D', 'podman build',
                 'podman run', 'helm install', 'deploy/install-packages.sh', 'deploy/release.sh',
                 'cd build/0.1.0 && sha256sum')


def document():
    """Returns the guide."""
    return guide.read('deploy', 'OPERATIONS.md')


def rows_of_table(section, columns):
    """Returns the rows of a section's tables that have this many columns, except table heads."""
    rows = [[cell.strip() for cell in line.strip('|\n').split('|')]
            for line in re.findall(r'^\|.*\|$', guide.section(document(), section), re.M)]
    return [row for row in rows if len(row) == columns and not set(row[0]) <= set('- ')]


class Commands(OwnServerTest):
    """Runs the commands in the guide's order, against one server."""

    def make_model(self, *arguments):
        """Writes the model that the guide assumes to exist."""
        subprocess.run([served.EMBAG, 'make-model', *arguments, self.repository.path], check=True,
                       capture_output=True, timeout=COMMAND_SECONDS)

    def start(self):
        """Starts the server with the guide's settings, but addresses of its own."""
        line, = (block for block in guide.blocks(document(), SHELL) if block.word == 'serve')
        text = line.text.replace('\\\n', ' ').replace(MODELS, '-').replace(SOCKET, self.socket)
        words = shlex.split(text)
        flags = dict(zip(words[1::2], words[2::2]))
        self.assertEqual(flags.pop('--listen'), ADDRESS)
        self.assertEqual(flags.pop('--model-repository'), '-')
        self.assertEqual(flags.pop('--http-listen'), HTTP)
        return self.serve(*(word for flag in flags.items() for word in flag),
                          http='127.0.0.1:0')

    def test_succeed(self):
        self.make_model('--workload', 'dlrm-v2', '--scale', '20000')
        self.socket = self.repository.join('.admin.sock')
        server = self.start()
        places = {ADDRESS: server.address, MODELS: self.repository.path, SOCKET: self.socket,
                  STAGING: self.repository.join('.staging'),
                  HTTP: '127.0.0.1:%d' % server.http_port}
        folder = Repository()
        self.addCleanup(folder.remove)
        environment = {**os.environ, 'PATH': served.BUILD + ':' + os.environ['PATH']}
        commands = [block for block in guide.blocks(document(), SHELL) if not block.word]
        self.assertTrue(commands)
        for block in commands:
            text = block.text
            for printed, ours in places.items():
                text = text.replace(printed, ours)
            done = subprocess.run(['bash', '-euo', 'pipefail', '-c', text], cwd=folder.path,
                                  env=environment, stdout=subprocess.PIPE, check=False,
                                  stderr=subprocess.STDOUT, timeout=COMMAND_SECONDS)
            self.assertEqual(done.returncode, 0, text + done.stdout.decode())


class Metrics(OwnServerTest):
    """The expressions of the guide, compared with the metrics that a server exports."""

    def setUp(self):
        super().setUp()
        self.expressions = [expression.replace('\\|', '|')
                            for row in rows_of_table('Monitoring', 3)[1:]
                            for expression in re.findall(r'`([^`]+)`', row[1])]
        self.assertGreater(len(self.expressions), 15)

    def told(self, *flags):
        """Returns the names of a server's metrics."""
        server = self.serve(*flags, http='127.0.0.1:0')
        with urllib.request.urlopen('http://127.0.0.1:%d/metrics' % server.http_port,
                                    timeout=COMMAND_SECONDS) as answer:
            return set(re.findall(r'^# TYPE (\w+)', answer.read().decode(), re.M))

    def test_name_what_there_is(self):
        told = self.told()
        of_routers = self.told('--route', 'unix:' + self.repository.join('.nobody')) - told
        self.assertGreater(len(of_routers), 15)
        self.assertTrue(all(name.startswith('embag_route_') for name in of_routers), of_routers)
        told |= of_routers
        named = set(re.findall(r'\bembag_\w+|\bprocess_\w+_\w+', ' '.join(self.expressions)))
        named.update(re.findall(r'`(embag_\w+)`', document()))
        # A histogram has several series.
        self.assertLessEqual({re.sub('_(bucket|sum|count)$', '', name) for name in named}, told)

    @unittest.skipUnless(shutil.which('promtool'), 'promtool is not installed')
    def test_are_understood_by_prometheus(self):
        rules = {'groups': [{'name': 'guide', 'rules': [
            {'record': 'guide:%d' % number, 'expr': expression}
            for number, expression in enumerate(self.expressions)]}]}
        path = self.repository.join('rules.yaml')
        with open(path, 'w', encoding='utf-8') as file:
            json.dump(rules, file)
        done = subprocess.run(['promtool', 'check', 'rules', path], capture_output=True, text=True,
                              timeout=COMMAND_SECONDS, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Elsewhere(unittest.TestCase):
    """Commands that need another machine. The files, units and settings that they name must
    exist."""

    def setUp(self):
        self.text = ''.join(block.text for block in guide.blocks(document(), SHELL)
                            if block.word == 'elsewhere')
        self.assertTrue(self.text)

    def test_are_run_by_tests_or_named_as_not_run(self):
        told = re.search(r'are\s+not\s+run\s+because.*?exist:\s+(.*?)\.\n\n', document(), re.S)[1]
        not_run = tuple(re.findall(r'`([^`]+)`', told))
        text = re.sub(r'^(?:EMBAG_\w+=\S+ )+', '', self.text.replace('\\\n', ''), flags=re.M)
        left = [line for line in text.splitlines() if not line.startswith(RUN_ELSEWHERE)]
        for line in left:
            self.assertTrue(line.startswith(not_run), line)
        for name in not_run:
            self.assertTrue([line for line in left if line.startswith(name)], name)

    def test_are_commands_of_a_shell(self):
        subprocess.run(['bash', '-n', '-c', self.text], check=True, timeout=COMMAND_SECONDS)

    def test_name_files_that_are_there(self):
        for path in re.findall(r'\bdeploy/[\w./-]+', self.text + document()):
            self.assertTrue(os.path.exists(os.path.join(served.SOURCE, path.rstrip('.'))), path)

    def test_name_units_and_packages_that_are_made(self):
        units = set(re.findall(r'(?:systemctl .* |journalctl -u )([a-z.-]+)$', self.text, re.M))
        self.assertLessEqual({'embagd', 'var-lib-embag-resident.mount'}, units)
        for unit in units:
            guide.read('deploy', 'systemd', unit if '.' in unit else unit + '.service')
        made = guide.read('deploy', 'package.cmake')
        for package in re.findall(r'([a-z-]+)_\*\.deb', self.text):
            self.assertIn('PACKAGE_NAME %s)' % package, made)
        self.assertIn('/etc/embag', made)

    def test_give_settings_that_are_known(self):
        values = guide.read('deploy', 'helm', 'embag', 'values.yaml')
        for setting in re.findall(r"--set '?(\S+)=", self.text):
            at = -1
            # The values have a list, but not the members of its elements.
            for key in setting.split('[')[0].split('.'):
                at = values.find('\n%s%s:' % ('  ' if at >= 0 else '', key), at + 1)
                self.assertGreaterEqual(at, 0, setting)
        told = subprocess.run([os.path.join(served.BUILD, 'embagd'), '--help'], check=True,
                              capture_output=True, text=True, timeout=COMMAND_SECONDS).stdout
        for name in re.findall(r'-e EMBAG_(\w+)=', self.text):
            self.assertIn('--%s ' % name.lower().replace('_', '-'), told)


class Tables(unittest.TestCase):
    """The guide's tables of settings and sizes."""

    def test_limits_are_those_of_the_server(self):
        listed = re.findall(r'^ +X\((\w+), (LIVE|START), (\d+),',
                            guide.read('server', 'base', 'limits.h'), re.M)
        told = [(name.strip('`'), changes.upper(), default)
                for name, default, changes, _ in rows_of_table('Limits', 4) if name.startswith('`')]
        self.assertEqual(told, listed)

    def test_known_limits_say_since_when_and_what_is_planned(self):
        rows = re.findall(r'^\|.*\|$', guide.section(document(), 'Known limits'), re.M)
        limits = [row for row in rows_of_table('Known limits', 4) if row[0] != 'Limit']
        heads = rows.count('| Limit | What happens at it, or a workaround | Since | Planned |')
        self.assertEqual(len(limits), len(rows) - 2 * heads)
        for limit, _, since, planned in limits:
            self.assertRegex(since, r'^0\.\d+$', limit)
            self.assertRegex(planned, r'^(after )?0\.\d+\b|^no plan$', limit)

    def test_settings_are_known(self):
        told = subprocess.run([os.path.join(served.BUILD, 'embagd'), '--help'], check=True,
                              capture_output=True, text=True, timeout=COMMAND_SECONDS).stdout
        for flag in re.findall(r'embagd[^\n]*?(--[a-z-]+)', document()):
            self.assertTrue(flag in told, flag)

    def test_events_are_logged_by_the_server(self):
        sources = ''
        for folder, _, files in os.walk(os.path.join(served.SOURCE, 'server')):
            for name in files:
                if name.endswith('.c'):
                    sources += guide.read(folder, name)
        told = set(re.findall(r'event=([a-z_]+)', document()))
        told.update(name for row in rows_of_table('Logs', 2)
                    for name in re.findall(r'`([a-z_]+)`', row[0]))
        self.assertGreater(len(told), 10)
        for event in sorted(told):
            self.assertIn('"%s"' % event, sources)

    def test_rows_take_as_much_memory_as_is_said(self):
        folder = Repository()
        self.addCleanup(folder.remove)
        _, *sizes = [row for row in rows_of_table('Sizing', 4) if row[1].isdigit()]
        self.assertEqual(len(sizes), 7)
        for storage, *bytes_of_row, _ in sizes:
            for columns, told in zip((64, 128), bytes_of_row):
                source, packed = folder.join('t.npy'), folder.join('t.embag')
                np.save(source, np.random.default_rng(1).normal(size=(ROWS, columns)).astype('<f4'))
                as_stored = () if storage == 'f32' else ('--storage', storage)
                for words in ('pack', *as_stored, source, packed), ('check', packed):
                    output = subprocess.run(
                        [served.EMBAG, *words], check=True, capture_output=True, text=True,
                        timeout=COMMAND_SECONDS).stdout
                taken = int(re.search(r'(\d+) bytes of memory', output).group(1))
                # A table of less than 2 MiB takes its own size.
                whole = -(-ROWS * int(told) // PAGE) * PAGE
                self.assertIn(taken, (whole, ROWS * int(told)), (storage, columns))
                os.remove(packed)


class Comparison(unittest.TestCase):
    """Checks of tests/bench/COMPARISON.md."""

    def test_has_figures_that_were_measured(self):
        text = guide.read('tests', 'bench', 'COMPARISON.md')
        measured = re.sub(r'[ ,]', '', guide.read('tests', 'bench', 'RESULTS.md'))
        for heading in "A service of one's own in C++", 'Redis':
            part = text.split('### %s\n' % heading, 1)[1].split('\n#')[0]
            cells = [cell for row in re.findall(r'^\|.*\|$', part, re.M)[2:]
                     for cell in row.split('|')[2:-1]]
            self.assertTrue(cells)
            for cell in cells:
                self.assertIn(re.sub(r'[ ,k]|us', '', cell), measured, cell)


if __name__ == '__main__':
    unittest.main()
