"""The scripts of tests/bench: how they handle their command lines, before they measure anything."""

import os
import re
import subprocess
import unittest

BENCH = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'bench')
NOWHERE = '/nonexistent/build'
COUNTS = {'service.sh': ('--rounds', '--scale', '--rm2-scale'),
          'models.sh': ('--rounds', '--scale', '--rows', '--keyed-bytes', '--pack-rows'),
          'compare.sh': ('--turns', '--scale', '--rows-scale'),
          'python_peers.sh': ('--turns', '--scale'),
          'unary_cpu.sh': ('--pairs', '--requests', '--scale')}
SECONDS = {'service.sh': ('--seconds', '--overload-seconds'),
           'models.sh': ('--seconds',),
           'compare.sh': ('--seconds', '--step-seconds'),
           'python_peers.sh': ('--seconds',),
           'unary_cpu.sh': ()}


def run(script, *arguments):
    """Runs a script in a tree without built programs; returns its exit status, output and
    messages."""
    done = subprocess.run([os.path.join(BENCH, script), '--build', NOWHERE, *arguments],
                          capture_output=True, text=True, timeout=60, check=False, cwd='/')
    return done.returncode, done.stdout, done.stderr


class Scripts(unittest.TestCase):
    """The scripts that measure servers."""

    def check_refused(self, text, script, *arguments):
        """Checks that a script fails with a usage error whose last line contains the text."""
        with self.subTest(script=script, arguments=arguments):
            status, out, messages = run(script, *arguments)
            self.assertEqual((status, out), (2, ''), messages)
            self.assertRegex(messages.splitlines()[-1], '^%s: .*%s' % (re.escape(script), text))

    def test_want_numbers_of_at_least_one(self):
        for script, options in COUNTS.items():
            for option in options:
                for text in ('0', 'x', '-1', '1.5'):
                    self.check_refused('%s.* whole number of at least 1' % option, script, option,
                                       text)

    def test_want_seconds(self):
        for script, options in SECONDS.items():
            for option in options:
                for text in ('0', '00', '0.0', 'x', 'nan', 'inf'):
                    self.check_refused('%s.* at least ' % option, script, option, text)

    def test_want_values(self):
        for script in COUNTS:
            for option in (*COUNTS[script], *SECONDS[script], '--build'):
                self.check_refused(option, script, option)

    def test_know_their_figures_and_options(self):
        for script in COUNTS:
            self.check_refused('nothing', script, 'nothing')
            self.check_refused('--nothing', script, '--nothing')

    def test_right_numbers_lead_to_the_programs(self):
        for script in COUNTS:
            status, _, messages = run(
                script, *(word for option in COUNTS[script] for word in (option, '20')),
                *(word for option in SECONDS[script] for word in (option, '1.5')))
            self.assertEqual(status, 1, messages)
            self.assertIn(' is missing; this installs and builds what is needed', messages)

    def test_help_needs_no_programs(self):
        for script in COUNTS:
            for option in ('--help', '-h'):
                status, out, messages = run(script, option)
                self.assertEqual((status, messages), (0, ''))
                for known in (*COUNTS[script], *SECONDS[script], '--build'):
                    self.assertIn(known, out)

    def test_the_build_may_follow_an_equals_sign(self):
        for script in ('service.sh', 'models.sh'):
            status, _, messages = run(script, '--build=/nonexistent/other')
            self.assertEqual(status, 1)
            self.assertIn('/nonexistent/other/embagd is missing', messages)

    def test_the_head_of_service_names_all_options(self):
        with open(os.path.join(BENCH, 'service.sh'), encoding='utf-8') as file:
            head = file.read().partition('\nset ')[0]
        for option in (*COUNTS['service.sh'], *SECONDS['service.sh'], '--build'):
            self.assertIn(option, head)
