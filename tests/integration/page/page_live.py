"""The status page of a real server that embag-load keeps busy. Part of page_test.py."""

import os
import signal
import subprocess

import numpy as np

import embagd_process
from embagd_process import Embagd, Repository
from page_case import PageTest

PROGRAMS = {}       # paths by name, set by page_test.py
ROWS = 200_000
SECONDS_MAX = 600   # of load, which is stopped when the test is over


class UnderLoad(PageTest):
    """A server with two models, one of which has a version that cannot be loaded, and several kinds
    of calls."""

    def setUp(self):
        embagd_process.EMBAGD = PROGRAMS['embagd']
        self.repository = Repository()
        self.addCleanup(self.repository.remove)
        self.add_table('ranking', 1, 'users')
        self.add_table('ranking', 1, 'items')
        self.add_table('retrieval', 4, 'queries')
        broken = self.repository.join('ranking', '2')
        os.makedirs(broken)
        with open(os.path.join(broken, 'users.npy'), 'wb') as file:
            file.write(b'no array')
        self.server = Embagd(self.repository.path, http='127.0.0.1:0').wait_ready()
        self.addCleanup(self.server.stop)
        self.address = 'http://127.0.0.1:%d/' % self.server.http_port

    def add_table(self, model, version, table):
        """Writes a table of equal f32 rows of 256 bytes."""
        folder = self.repository.join(model, str(version))
        os.makedirs(folder, exist_ok=True)
        np.save(os.path.join(folder, table + '.npy'), np.ones((ROWS, 64), '<f4'))

    def load(self, model, tables, *options, seconds=SECONDS_MAX):
        """Starts embag-load; it is stopped at the end of the test."""
        process = subprocess.Popen(
            [PROGRAMS['embag-load'], '--server', self.server.address, '--model', model, '--tables',
             tables, '--duration', str(seconds), '--timeout-us', '60000000', *options],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        """Interrupts a program as Ctrl-C does."""
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(120)

    def ask_for_a_row_that_is_not_there(self):
        """Makes a lookup that fails."""
        done = subprocess.run(
            [PROGRAMS['embag'], 'lookup', '--server', self.server.address, '--model', 'ranking',
             '--table', 'users', '--indices', str(ROWS), '--offsets', '0'],
            capture_output=True, timeout=120, check=False)
        self.assertNotEqual(done.returncode, 0)

    def check_lists(self, tab):
        """Checks that the page's lists match the repository and the requests."""
        models = {(row['Model'].split('\u2013')[0][:9].strip(), row['Version']): row
                  for row in self.rows(tab, 'models')}
        self.assertEqual(models[('ranking', '1')]['State'], 'serving')
        self.assertEqual(models[('ranking', '1')]['Tables'], '2')
        self.assertRegex(models[('ranking', '1')]['Size'], '^(9[89]|10[0-4]) MiB$')
        self.assertEqual(models[('retrieval', '4')]['State'], 'serving')
        [failed] = [row for row in self.rows(tab, 'models') if row['Version'] == '2']
        self.assertEqual(failed['State'], 'failed')
        self.assertIn('users.npy', failed['Model'])
        tables = {row['Table']: row for row in self.rows(tab, 'tables')}
        self.assertEqual(set(tables), {'users', 'items', 'queries'})
        self.assertEqual(tables['queries']['Model'], 'retrieval')
        self.assertRegex(tables['users']['Hottest rows'], r'\d+.*%')
        codes = {row['Code'] for row in self.rows(tab, 'methods')
                 if row['Method'].startswith('Lookup')}
        self.assertLessEqual({'OK', 'OUT_OF_RANGE'}, codes)
        longest = self.rows(tab, 'slow')[0]
        self.assertRegex(longest['Total'], '^[0-9.]+ [mµ]?s$')
        self.assertRegex(longest['Method'], 'Lookup')
        self.assertIn(longest['Model'], ('ranking', 'retrieval'))
        self.assertRegex(longest['Peer'], r'^127\.0\.0\.1:\d+$')

    def test_shows_what_the_server_does(self):
        tab = self.open(self.address)
        self.load('ranking', 'users,items', '--bags', '8', '--indices-per-bag', '20',
                  '--distribution', 'zipf:1.1', '--rate', '400')
        self.load('retrieval', 'queries', '--bags', '2', '--mode', 'unary', '--rate', '50')
        self.ask_for_a_row_that_is_not_there()
        tab.wait('points.filter(p => p.good > 20 && p.p50 > 0 && p.rows > 0 && p.sent > 0)'
                 '.length > 4 && document.querySelectorAll("#slow tbody tr").length', 120)
        self.check_lists(tab)
        for selector in ('#uptime', '#chart-requests-good', '#chart-latency-p99',
                         '#chart-rows-rows', '#chart-bytes-sent', '#methods tbody',
                         '#tables tbody', '#stages tbody'):
            was = tab.text(selector)
            tab.wait('document.querySelector("%s").textContent !== %s' % (
                selector, self.quoted(was)), 120)
        self.check_looks(tab, 'under-load')
        tab.call('Emulation.setEmulatedMedia',
                 features=[{'name': 'prefers-color-scheme', 'value': 'dark'}])
        self.check_looks(tab, 'under-load-dark')
        self.check_quiet(tab, self.address)

    def test_tells_as_many_lookups_as_were_answered(self):
        load = self.load('ranking', 'users', '--in-flight', '1', seconds=2)
        load.wait(120)
        tab = self.open(self.address)
        tab.wait('document.querySelectorAll("#tables tbody tr").length > 0')
        status = tab.value('(async () => (await (await fetch("status.json")).json()))()')
        requests = sum(r['count'] for r in status['requests']
                       if r['method'].startswith('Lookup') and r['code'] == 'OK')
        self.assertGreater(requests, 0)
        self.assertEqual({t['table']: t['indices'] for t in status['tables'] if t['indices']},
                         {'users': requests})

    def test_says_when_the_server_has_ended(self):
        tab = self.open(self.address)
        tab.wait('points.length > 0')
        self.server.stop()
        tab.wait('!document.querySelector("#banner").hidden')
        self.assertIn('cannot be reached', tab.text('#banner'))
