"""The README's lookups are compiled and run as they are printed there."""

import glob
import os
import re
import shlex
import subprocess
import unittest

import served
from embagd_process import Repository
from served import OwnServerTest

SECTION = 'A lookup in ten lines'
ADDRESS = '127.0.0.1:8600'


def readme_section():
    """The text under the heading, up to the next one of its level."""
    with open(os.path.join(served.SOURCE, 'README.md'), encoding='utf-8') as file:
        text = file.read()
    found = re.search(r'^(#+) %s$(.*?)(?=^#{1,2} |\Z)' % SECTION, text, re.M | re.S)
    if not found:
        raise AssertionError('README.md has no section "%s"' % SECTION)
    return found.group(2)


def blocks(section, language):
    """Fenced blocks of a language."""
    return re.findall(r'^```%s\n(.*?)^```' % language, section, re.M | re.S)


def sanitizer_flags():
    """What the build's library was compiled with and a program must be linked with."""
    with open(os.path.join(served.BUILD, 'CMakeCache.txt'), encoding='utf-8') as file:
        found = re.search(r'^EMBAG_SANITIZE:\w+=(.+)$', file.read(), re.M)
    return ['-fsanitize=' + found.group(1)] if found else []


class Readme(OwnServerTest):
    """Against a server of its own, at whatever port it got."""

    def setUp(self):
        super().setUp()
        self.section = readme_section()
        self.server = self.serve()
        self.folder = Repository()
        self.addCleanup(self.folder.remove)

    def write(self, name, text):
        """A file of the README's, with the address that the server has."""
        path = self.folder.join(name)
        with open(path, 'w', encoding='utf-8') as file:
            file.write(text.replace(ADDRESS, self.server.address))
        return path

    def run_program(self, command):
        """Its output; it must succeed and print the first bag of the specification's example."""
        environment = {**os.environ, 'PYTHONPATH': os.path.join(served.BUILD, 'python')}
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env=environment, cwd=self.folder.path, timeout=60, check=False)
        output = done.stdout.decode()
        self.assertEqual(done.returncode, 0, output)
        numbers = [float(n) for n in re.findall(r'-?\d+\.\d+(?:e-?\d+)?', output)]
        self.assertTrue(numbers, 'no values in: ' + output)
        return output

    def test_python(self):
        for number, text in enumerate(blocks(self.section, 'python')):
            self.run_program(['/usr/bin/python3', self.write('lookup%d.py' % number, text)])
        self.assertTrue(blocks(self.section, 'python'))

    def compile_command(self, source, program):
        """A plain compilation with the build's libraries."""
        libraries = [glob.glob(os.path.join(served.BUILD, '*', name))
                     for name in ('libembag.a', 'libembag_proto.a', 'libembag_proto_generated.a')]
        pkg = subprocess.run(['pkg-config', '--libs', 'libnghttp2', 'libprotobuf-c', 'libuv'],
                             stdout=subprocess.PIPE, check=True).stdout.decode().split()
        return ['cc', '-I', os.path.join(served.SOURCE, 'client'), source, '-o', program,
                *sum(libraries, []), *pkg, *sanitizer_flags()]

    def test_c(self):
        self.assertTrue(blocks(self.section, 'c'))
        for number, text in enumerate(blocks(self.section, 'c')):
            program = self.folder.join('lookup%d' % number)
            command = self.compile_command(self.write('lookup%d.c' % number, text), program)
            subprocess.run(command, check=True, timeout=120)
            self.run_program([program])

    def test_commands_of_the_tool(self):
        """Lines that begin with build/release/embag."""
        for block in blocks(self.section, r'(?:sh|console|bash)'):
            for line in re.findall(r'^\$? ?build/release/embag (.*)$', block, re.M):
                self.run_program([served.EMBAG, *shlex.split(
                    line.replace(ADDRESS, self.server.address))])


if __name__ == '__main__':
    unittest.main()
