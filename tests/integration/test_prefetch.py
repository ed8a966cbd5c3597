"""The prefetch distance: measured, or set by `prefetch`. No answer depends on it."""

import re
import unittest

import numpy as np

import bag_model
from bag_query import Query, to_message
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import Embagd
from served import SEED, OwnServerTest, spec_table
from table_files import Table

ROWS = 300000
SCHEDULE = r'^(off|\d+w?:\d+:l[12])$'


class Prefetch(OwnServerTest):
    """The specification's table, or a table of 74 MiB, about the smallest on which the server
    measures."""

    def large_table(self):
        """Writes a table with rows of 256 bytes."""
        rng = np.random.default_rng([SEED, 47])
        return Table.of_values('large', 'f32', rng.normal(size=(ROWS, 64)))

    def lines(self, server):
        """Returns the fields of each log line that reports the choice."""
        return [dict(re.findall(r'(\w+)=("[^"]*"|\S+)', line))
                for line in server.log.splitlines() if ' event=prefetch ' in line]

    def is_measured(self, lines):
        """Returns whether the server measured. If it did, it logged a line for every class of row
        sizes, even if there was no time for some of them."""
        return 'largest tables' not in lines[0].get('reason', '') and \
            'does not prefetch' not in lines[0].get('reason', '')

    def check_line(self, line):
        """Checks what the server logged about a class of row sizes."""
        self.assertRegex(line['schedule'], SCHEDULE)
        if line['measured'] == 'no':
            self.assertIn('fewer than 3 rounds', line['reason'])
            return
        led, rounds = map(int, re.fullmatch('"([0-7]) of ([3-7])"', line['led_in_rounds']).groups())
        self.assertLessEqual(led, rounds)
        if line['schedule'] == line['default']:
            self.assertTrue(line['fastest'] == line['default'] or led < 0.7 * rounds or
                            int(line['gain_percent']) < 6)
        else:
            self.assertEqual(line['schedule'], line['fastest'])
            self.assertGreaterEqual(led, 0.7 * rounds)
            self.assertGreaterEqual(int(line['gain_percent']), 5)

    def check_answers(self, server, table):
        """Checks a lookup of rows all over the table."""
        rng = np.random.default_rng([SEED, 48])
        query = Query('large', rng.integers(0, ROWS, 5000), layout='packed', indices_per_bag=20)
        answer = self.connect(server).lookup(
            pb.LookupRequest(model='spec', queries=[to_message(query)]))
        bag_model.check_result(bag_model.expect(query, table), table, answer.results[0], 0)

    def test_measures_on_a_large_table(self):
        table = self.large_table()
        server = self.serve(tables=[table, spec_table()])
        self.assertRegex(server.log, r'event=config source=default .*\bprefetch=auto\b')
        lines = self.lines(server)
        if self.is_measured(lines):
            said = server.find('prefetch_measured')
            self.assertIn(' model=spec version=1 table=large bytes=%d ' % (ROWS * 256), said)
            self.assertEqual([line['row_bytes'] for line in lines],
                             ['1..64', '65..128', '129..256', '257..512', '513..'])
            for line in lines:
                self.check_line(line)
        else:
            # The processor has no vector functions, or its cache is very large.
            self.assertRegex(lines[0]['reason'],
                             'does not prefetch rows|largest tables have less than')
        self.check_answers(server, table)

    def test_measures_on_several_tables(self):
        rng = np.random.default_rng([SEED, 49])
        tables = [Table.of_values(name, 'f32', rng.normal(size=(ROWS // 2, 64)))
                  for name in ('one', 'other')]
        server = self.serve(tables=tables)
        if self.is_measured(self.lines(server)):
            self.assertRegex(server.find('prefetch_measured'), r' table=one bytes=\d+ tables=2 ')
        else:
            self.assertRegex(self.lines(server)[0]['reason'],
                             'does not prefetch rows|largest tables have less than')

    def test_does_not_measure_on_small_tables(self):
        server = self.serve(tables=[spec_table()])
        for line in self.lines(server):
            self.assertRegex(line['schedule'], SCHEDULE)
            self.assertEqual(line['measured'], 'no')
            self.assertRegex(line['reason'], 'largest tables have less than [0-9]+ bytes')
        self.assertRegex(server.find('prefetch_caches'),
                         r' processor=[a-z0-9-]+ cached_bytes=\d+ nearby_bytes=\d+ nearby=')

    def takes(self, setting):
        """Checks that a server takes this setting, that no measurement overrides it, and that a
        lookup succeeds."""
        table = self.large_table()
        server = self.serve('--prefetch', setting, tables=[table])
        line, = self.lines(server)
        self.assertEqual((line['schedule'], line['measured']), (setting, 'no'))
        self.assertRegex(server.log, r'event=config source=flag .*\bprefetch=%s ' % setting)
        self.check_answers(server, table)

    def test_prefetches_nothing_when_off(self):
        self.takes('off')

    def test_prefetches_into_l1_when_set(self):
        self.takes('64w:4:l1')

    def test_prefetches_into_l2_when_set(self):
        self.takes('0:32:l2')

    def test_refuses_invalid_schedules(self):
        for setting in ('fast', '128', '64:128:l2', '0:4097:l2'):
            with self.subTest(setting):
                log = Embagd(self.repository.path, '--prefetch', setting).start_fails()
                self.assertIn('event=bad_configuration', log)
                self.assertIn('--prefetch %s: ' % setting, log)
                self.assertIn('(how many rows ahead', log)


if __name__ == '__main__':
    unittest.main()
