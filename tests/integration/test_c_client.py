"""The C client's examples, compiled as a user would, and a probe of every kind of request."""

import os
import subprocess
import unittest

import embagd_process
import served
from embagd_process import Repository
from served import OwnServerTest

ADDRESS = '127.0.0.1:8600'
LIBRARIES = ('-luv', '-lnghttp2', '-lprotobuf-c', '-lssl', '-lcrypto')
PROBED = """\
spec 1 timed 1
0 OK shape 2 2 missing 0 by at values -2.1 -2.4 0.0 0.0 <>
1 NOT_FOUND shape missing 0 by at values <%(absent)s>
2 OK shape 1 2 missing 2 by at 2 4 values -3.1 -0.9 <>
3 OK shape 0 2 missing 2 by at 2 4 values <>
4 OK shape 1 4 2 missing 2 by at 2 4 lengths 3 values -0.2 -0.6 -1.9 -1.8 -1.0 1.5 0.0 0.0 <>
5 OK shape 4 2 missing 2 by at 2 4 lengths 5 inverse 0 1 2 3 2%(unique)s <>
6 OK shape 2 4 missing 2 by 1 1 at 2 4 values -0.2 -0.6 0.0 0.0 -1.9 -1.8 -1.0 1.5 <>
7 INVALID_ARGUMENT shape missing 0 by at values <%(short)s>
8 OK shape 3 2 missing 2 by 1 1 at 2 4 lengths 1 1 0 1 values -0.2 -0.6 -1.9 -1.8 -1.0 1.5 <>
NOT_FOUND: %(absent)s
""" % {"absent": 'queries[1] "absent": model "spec" version 1 has no table or feature of that name',
       "unique": ' values -0.2 -0.6 -1.9 -1.8 0.0 0.0 -1.0 1.5',
       "short": 'groups[1] "": lengths_i32 add up to 3 values, but there are 5'}


class CClient(OwnServerTest):
    """Programs that call a server of the specification's table."""

    def setUp(self):
        super().setUp()
        self.server = self.serve()
        self.folder = Repository()
        self.addCleanup(self.folder.remove)

    def compile(self, name):
        """Compiles a program of the example, changed to call this server."""
        path = os.path.join(served.SOURCE, 'client', 'examples', name + '.c')
        with open(path, encoding='utf-8') as file:
            text = file.read().replace(ADDRESS, self.server.address)
        source = self.folder.join(name + '.c')
        with open(source, 'w', encoding='utf-8') as file:
            file.write(text)
        sanitizer = embagd_process.SANITIZE
        flags = ['-fsanitize=' + sanitizer] if sanitizer else []
        program = self.folder.join(name)
        subprocess.run(['cc', '-I', os.path.join(served.SOURCE, 'client'), source, '-o', program,
                        os.path.join(served.BUILD, 'libembag.a'), *LIBRARIES, *flags],
                       check=True, timeout=120)
        return program

    def run_program(self, *command):
        """Runs a program, which must succeed; returns its output."""
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_examples_print_rows(self):
        for name, expected in (
                ('lookup', '-2.1 -2.4\n0 0\n-0.2 0.8\n'),
                ('submit', 'row 0: -0.2 -0.6\nrow 1: -0.1 -0.4\nrow 2: -1.9 -1.8\n'
                           'row 3: -1 1.5\n'),
                ('group', '-0.2 -0.6 0 0\n-2.9 -0.3 0.8 -0.7\nno row: values[4]\n')):
            with self.subTest(example=name):
                program = self.compile(name + '_example')
                printed = self.run_program(program)
                # Lookups that are in flight together end in any order.
                self.assertEqual(sorted(printed.splitlines()), sorted(expected.splitlines()))

    def test_tells_of_each_query_and_group_what_became_of_it(self):
        program = os.path.join(served.BUILD, 'embag-request-probe')
        for mode in ((), ('unary',)):
            with self.subTest(mode=mode):
                self.assertEqual(self.run_program(program, self.server.address, *mode), PROBED)


if __name__ == '__main__':
    unittest.main()
