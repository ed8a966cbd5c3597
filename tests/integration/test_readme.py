"""Runs the lookups of the README and the commands of MODELS.md and LOAD.md as they are printed
there."""

import os
import re
import shlex
import shutil
import subprocess
import unittest

import numpy as np

import embagd_process
import guide
import served
from embagd_process import Repository, wait_until
from served import OwnServerTest
from table_files import Table, write_model, write_npy, write_safetensors
from test_versions import VersionsTest, table_of

SECTION = 'A first lookup'
LOAD_SECTION = 'Putting load on a server'
COMMANDS_SECTION = 'Commands'
ADDRESS = '127.0.0.1:8600'
FIRST_BAG = -2.1, -2.4  # rows 0 and 2 of the specification's table


def readme_section(heading):
    """Returns the text under a heading of the README."""
    return guide.section(guide.read('README.md'), heading)


def load_section():
    """Returns LOAD.md's section on the load generator."""
    return guide.section(guide.read('client', 'cli', 'LOAD.md'), LOAD_SECTION)


def models_section(heading):
    """Returns the text under a heading of MODELS.md."""
    return guide.section(guide.read('server', 'models', 'MODELS.md'), heading)


def blocks(section, language):
    """Returns the texts of the fenced blocks in a language."""
    return [block.text for block in guide.blocks(section, language)]


def quickstart_programs():
    """Returns the names of the files that the quickstart builds."""
    with open(os.path.join(served.SOURCE, 'deploy', 'quickstart.sh'), encoding='utf-8') as file:
        targets = re.search(r'cmake --build "\$build" --target (.+)$', file.read(), re.M)
    names = set(targets.group(1).split())
    for target in tuple(names):
        # The name of a target may differ from that of its file; then the target is a phony one with
        # the file as its input.
        query = subprocess.run(['ninja', '-C', served.BUILD, '-t', 'query', target], check=True,
                               capture_output=True, text=True, timeout=60)
        names.update(re.findall(r'^ {4}([\w-]+)$', query.stdout, re.M))
    return names


class LoadSection(unittest.TestCase):
    """A reader who has done no more than run the quickstart can follow the section."""

    def test_names_programs_that_the_quickstart_has_built(self):
        programs = re.findall(r'^ +build/release/([\w-]+) ', load_section(), re.M)
        self.assertTrue(programs)
        self.assertIn('deploy/quickstart.sh', readme_section('Quick start'))
        self.assertLessEqual(set(programs), quickstart_programs())

    def test_gives_flags_that_the_programs_know(self):
        section = load_section().replace('\\\n', ' ')
        for line in re.findall(r'^ +build/release/([\w-]+ .*)$', section, re.M):
            program, *words = shlex.split(line)
            path = os.path.join(served.BUILD, program)
            told = subprocess.run([path, '--help'], check=True, capture_output=True, text=True,
                                  timeout=60).stdout
            for word in words:
                if word.startswith('--'):
                    self.assertIn('  %s ' % word, told)


class Commands(VersionsTest):
    """Runs the commands against a server whose socket has another path."""

    def test_publishes_goes_back_and_unloads(self):
        """Runs the lines of the block one after the other."""
        block = re.search(r'(?:^ {4}.*\n)+', models_section(COMMANDS_SECTION), re.M).group(0)
        for version in 6, 7:
            self.publish(version, 'dlrm-v2')
        write_model(self.repository.path, 'dlrm-v2', '.8', [table_of(8)])
        socket = self.repository.join('.socket')
        self.serve('--admin-listen', 'unix:' + socket)
        served_then = []
        for line in block.splitlines():
            command = line.replace('REPOSITORY', self.repository.path)
            command = command.replace('/run/embag.sock', socket)
            command = command.replace('build/release/embag', served.EMBAG)
            subprocess.run(['bash', '-c', command], check=True, capture_output=True, timeout=60)
            if 'mv ' in line:
                self.wait_served(8, 'dlrm-v2')
            served_then.append(self.served('dlrm-v2'))
        self.assertEqual(served_then, [8, 8, 7, 8, 8, 8])
        wait_until(lambda: self.states('dlrm-v2') == {8: 'SERVING', 7: 'READY'}, 60,
                   'version 6 to be freed')


class OwnTables(unittest.TestCase):
    """The lines that serve the reader's own tables, run in a temporary folder."""

    def setUp(self):
        self.folder = Repository()
        self.addCleanup(self.folder.remove)
        os.symlink(served.BUILD, self.folder.join('release'))
        os.mkdir(self.folder.join('models'))
        write_npy(self.folder.path, Table.of_values('items', 'f32', np.ones((9, 4))))
        write_safetensors(self.folder.join('users.safetensors'),
                          [Table.of_values('users', 'f16', np.ones((5, 2)))])

    def run_line(self, line):
        """Returns the output of a command."""
        line = line.replace('build/release/', 'release/').replace(ADDRESS, self.server.address
                                                                  if self.server else ADDRESS)
        return subprocess.run(['bash', '-c', line], cwd=self.folder.path, check=True, text=True,
                              capture_output=True, timeout=60).stdout

    def test_serves_them_and_the_next_version(self):
        self.server = None
        lines = re.findall(r'^ {4}(\S.*)$', readme_section('Your own tables'), re.M)
        for line in lines:
            if 'embagd ' in line:
                self.assertRegex(line, r'^build/release/embagd --model-repository models --listen '
                                       r'0\.0\.0\.0:8600 &$')
                self.server = embagd_process.Embagd(self.folder.join('models'))
                self.addCleanup(self.server.stop)
                self.server.wait_ready()
            elif '/.2 ' in line:
                shutil.copytree(self.folder.join('models/shop/1'),
                                self.folder.join('models/shop/.2'))
                self.run_line(line)
            else:
                told = self.run_line(line)
        self.assertRegex(told, r'shop +1 +serving +items +f32 +\[9, 4\]')
        self.assertRegex(told, r'shop +1 +serving +users +f16 +\[5, 2\]')
        models = next(line for line in lines if 'embag models' in line)
        wait_until(lambda: re.search('shop +2 +serving', self.run_line(models)), 60, 'version 2')


class Readme(OwnServerTest):
    """The lookups, against a server on an arbitrary port."""

    def setUp(self):
        super().setUp()
        self.section = readme_section(SECTION)
        self.server = self.serve()
        self.folder = Repository()
        self.addCleanup(self.folder.remove)

    def write(self, name, text):
        """Writes one of the README's files, with this server's address in place of the README's."""
        path = self.folder.join(name)
        with open(path, 'w', encoding='utf-8') as file:
            file.write(text.replace(ADDRESS, self.server.address))
        return path

    def run_program(self, command):
        """Runs a program, which must succeed and print the first bag of the specification's
        example; returns its output."""
        environment = {**os.environ, 'PYTHONPATH': os.path.join(served.BUILD, 'python')}
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env=environment, cwd=self.folder.path, timeout=60, check=False)
        output = done.stdout.decode()
        self.assertEqual(done.returncode, 0, output)
        numbers = [float(n) for n in re.findall(r'-?\d+\.\d+(?:e-?\d+)?', output)]
        for value in FIRST_BAG:
            self.assertTrue(any(abs(n - value) < 1e-6 for n in numbers), output)

    def test_python(self):
        for number, text in enumerate(blocks(self.section, 'python')):
            self.run_program(['/usr/bin/python3', self.write('lookup%d.py' % number, text)])
        self.assertTrue(blocks(self.section, 'python'))

    def compile_command(self, source, program):
        """Returns the README's cc line, with this build's library and sanitizers."""
        found = re.search(r'^ +(cc .*)$', self.section, re.M)
        self.assertTrue(found, 'no line begins with cc')
        places = {'client': os.path.join(served.SOURCE, 'client'), 'lookup.c': source,
                  'lookup': program,
                  'build/release/libembag.a': os.path.join(served.BUILD, 'libembag.a')}
        sanitizer = embagd_process.SANITIZE
        flags = ['-fsanitize=' + sanitizer] if sanitizer else []
        return [places.get(word, word) for word in found.group(1).split()] + flags

    def test_c(self):
        self.assertTrue(blocks(self.section, 'c'))
        for number, text in enumerate(blocks(self.section, 'c')):
            program = self.folder.join('lookup%d' % number)
            command = self.compile_command(self.write('lookup%d.c' % number, text), program)
            subprocess.run(command, check=True, timeout=120)
            self.run_program([program])

    def test_commands_of_the_tool(self):
        """Runs the lines that begin with build/release/embag."""
        lines = re.findall(r'^ +build/release/embag ((?:.*\\\n)*.*)$', self.section, re.M)
        self.assertTrue(lines)
        for line in lines:
            words = shlex.split(line.replace("\\\n", " ").replace(ADDRESS, self.server.address))
            self.run_program([served.EMBAG, *words])


if __name__ == '__main__':
    unittest.main()
