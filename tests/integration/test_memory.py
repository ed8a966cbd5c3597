"""Which pages hold the tables: what the server reports, and what the system reports."""

import ctypes
import re
import subprocess
import unittest

import numpy as np

import bag_model
import served
from bag_query import Query, to_message
from embag.v1 import embedding_bag_pb2 as pb
from served import SEED, OwnServerTest, spec_table
from table_files import Table

PR_SET_THP_DISABLE = 41
ROWS = 40000
PAGE = 2 << 20
TABLES = 12  # of 1.07 MiB each


def fields_of(line):
    """Returns a log line's keys and values."""
    return dict(re.findall(r'(\w+)=("[^"]*"|\S+)', line))


def huge_bytes(pid, flag):
    """Returns the bytes of huge pages in the read-only mappings with the flag, according to the
    kernel."""
    total, anonymous, readable = 0, 0, False
    with open('/proc/%d/smaps' % pid, encoding='utf-8') as smaps:
        for line in smaps:
            words = line.split()
            if re.match(r'[0-9a-f]+-[0-9a-f]+ ', line):
                readable = words[1] == 'r--p'
            elif words[0] == 'AnonHugePages:':
                anonymous = int(words[1]) * 1024
            elif words[0] == 'VmFlags:' and readable and flag in words:
                total += anonymous
    return total


def mapped_bytes(pid, flag):
    """Returns the bytes of the read-only mappings with the flag."""
    total, size, readable = 0, 0, False
    with open('/proc/%d/smaps' % pid, encoding='utf-8') as smaps:
        for line in smaps:
            words = line.split()
            if re.match(r'[0-9a-f]+-[0-9a-f]+ ', line):
                readable = words[1] == 'r--p'
            elif words[0] == 'Size:':
                size = int(words[1]) * 1024
            elif words[0] == 'VmFlags:' and readable and flag in words:
                total += size
    return total


class Memory(OwnServerTest):
    """Tables of some 10 MiB, whose rows have gaps between them, and a small one."""

    def setUp(self):
        super().setUp()
        rng = np.random.default_rng([SEED, 31])
        self.large = Table.of_values('large', 'f32', rng.normal(size=(ROWS, 61)))
        self.tables = [self.large, spec_table()]

    def start(self, *flags, **keywords):
        """Starts the server; returns it and the log line of its only version."""
        server = self.serve(*flags, tables=self.tables, **keywords)
        return server, fields_of(server.find('model_loaded'))

    def test_tables_below_a_page_take_what_check_says(self):
        """No two of these tables fit into one page of 2 MiB."""
        rng = np.random.default_rng([SEED, 32])
        self.tables = [Table.of_values('t%02d' % i, 'f32', rng.normal(size=(1100, 256)))
                       for i in range(TABLES)]
        server, _ = self.start(environment={'EMBAG_HUGE_PAGES': 'off'})
        out = subprocess.run([served.EMBAG, 'check', self.repository.join('spec', '1')],
                             check=True, capture_output=True, text=True, timeout=60).stdout
        told = int(re.search(r'%d tables, (\d+) bytes of memory' % TABLES, out).group(1))
        self.assertEqual(told, -(-TABLES * 1100 * 1024 // PAGE) * PAGE)
        self.assertEqual(mapped_bytes(server.pid, 'nh'), told)

    def check_answers(self, server):
        """Checks a lookup in the large table."""
        query = Query('large', np.arange(0, ROWS, 8), layout='packed', indices_per_bag=5)
        answer = self.connect(server).lookup(
            pb.LookupRequest(model='spec', queries=[to_message(query)]))
        bag_model.check_result(
            bag_model.expect(query, self.large), self.large, answer.results[0], 0)

    def test_says_what_the_system_says(self):
        server, loaded = self.start()
        given = int(loaded['bytes_2m'])
        self.assertEqual(int(loaded['resident_bytes']), ROWS * 256 + 40)
        self.assertLessEqual(given, int(loaded['resident_bytes']))
        self.assertLessEqual(given, huge_bytes(server.pid, 'hg'))
        table = fields_of(server.find('table_loaded'))
        self.assertEqual((table['table'], int(table['resident_bytes'])), ('large', ROWS * 256))
        missing = server.find('huge_pages_missing')
        self.assertEqual(missing is None, loaded['bytes_2m'] == loaded['resident_bytes'])
        self.check_answers(server)

    def test_uses_small_pages_when_huge_pages_are_off(self):
        server, loaded = self.start(environment={'EMBAG_HUGE_PAGES': 'off'})
        self.assertEqual((loaded['bytes_2m'], loaded['bytes_1g']), ('0', '0'))
        self.assertEqual(huge_bytes(server.pid, 'nh'), 0)
        self.assertIsNone(server.find('huge_pages_missing'))
        self.assertIn('source=environment huge_pages=off', server.log)
        self.check_answers(server)

    def test_starts_where_the_pool_has_no_pages_of_1_gib(self):
        server, loaded = self.start('--huge-pages', '1g', '--numa', 'local')
        if int(loaded['bytes_1g']) == 0:
            said = fields_of(server.find('huge_pages_missing'))
            self.assertEqual((said['huge_pages'], said['bytes']), ('1g', loaded['resident_bytes']))
            self.assertIn('1', said['remedy'])
        else:
            self.assertEqual(loaded['bytes_1g'], loaded['resident_bytes'])
            self.assertIsNone(server.find('huge_pages_missing'))
        self.check_answers(server)

    def test_starts_where_huge_pages_are_forbidden(self):
        prctl = ctypes.CDLL(None).prctl
        if prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0:
            self.skipTest('this kernel cannot forbid a process huge pages')
        try:
            server, loaded = self.start()
        finally:
            prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0)
        self.assertEqual(loaded['bytes_2m'], '0')
        said = fields_of(server.find('huge_pages_missing'))
        self.assertEqual(said['bytes_in_such_pages'], '0')
        self.assertGreater(len(said['remedy']), 20)
        self.check_answers(server)


if __name__ == '__main__':
    unittest.main()
