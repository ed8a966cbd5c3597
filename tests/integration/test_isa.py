"""The instruction set: the best that the machine has, or the one requested, or the start fails.
Other machines than this one are emulated."""

import re
import shutil
import unittest

import numpy as np

import embagd_process
from bag_model import check_result, expect
from bag_query import to_message
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import Embagd
from random_query import random_query, random_tables
from served import SEED, OwnServerTest, scaled

REQUESTS = 1000
EMULATOR = 'qemu-x86_64'
# Two processors: one without AVX, and one with AVX2 but no AVX-512. Both are reduced to features
# that the emulator supports.
OLD = 'Nehalem'
MIDDLE = 'Haswell-noTSX,-pcid,-x2apic,-tsc-deadline,-invpcid'


class Isa(OwnServerTest):
    """Starts a server with and without --isa."""

    def emulate(self, processor):
        """Returns the command prefix that emulates a processor."""
        if embagd_process.SANITIZE:
            self.skipTest('the emulator cannot run sanitized programs')
        if not shutil.which(EMULATOR):
            self.skipTest(EMULATOR + ' is not installed')
        return EMULATOR, '-cpu', processor

    def fails(self, isa, reason, best, under=()):
        """Checks that a start fails before the server scans for models."""
        log = Embagd(self.repository.path, '--isa', isa, under=under).start_fails()
        failure = re.search(r'event=start_failed what=isa .*', log)
        self.assertTrue(failure, log)
        self.assertIn('reason="%s"' % reason, failure.group())
        self.assertRegex(failure.group(), r'remedy="[^"]* the best of %s"' % best)

    def answers(self, isa, *flags, under=()):
        """Starts a server and makes lookups in tables of every type."""
        rng = np.random.default_rng(SEED)
        tables = random_tables(rng)
        server = self.serve(*flags, tables=tables, under=under)
        self.assertRegex(server.find('ready'), r'\bisa=%s\b' % isa)
        client = self.connect(server)
        for _ in range(scaled(REQUESTS)):
            table = tables[rng.integers(len(tables))]
            query = random_query(rng, table)
            expected = expect(query, table)
            message = to_message(query, expected.shape[0])
            answer = client.lookup(pb.LookupRequest(model='spec', queries=[message]))
            check_result(expected, table, answer.results[0])
        server.check_log()
        if under:
            # The emulator fails if a program handles a signal.
            server.kill()

    def test_takes_the_reference_if_asked(self):
        self.answers('ref', '--isa', 'ref')

    def test_takes_each_that_this_machine_has(self):
        log = Embagd(self.repository.path, '--isa', 'none').start_fails()
        names = re.search(r'the best of ([^"]*)"', log).group(1).split()
        self.assertEqual(names[0], 'ref')
        for isa in names[1:]:
            with self.subTest(isa):
                self.answers(isa, '--isa', isa)

    def test_does_not_start_with_what_is_not_built(self):
        self.fails('neon', 'this build does not have neon', r'ref\b.*')
        self.fails('AVX2', 'this build does not have AVX2', r'ref\b.*')

    def test_an_old_processor_takes_the_reference(self):
        under = self.emulate(OLD)
        self.answers('ref', under=under)
        for isa in ('avx2', 'avx512vl', 'avx512'):
            self.fails(isa, 'this machine cannot run ' + isa, 'ref', under=under)

    def test_a_processor_without_avx512_takes_avx2(self):
        under = self.emulate(MIDDLE)
        self.answers('avx2', under=under)
        for isa in ('avx512vl', 'avx512'):
            self.fails(isa, 'this machine cannot run ' + isa, 'ref avx2', under=under)
