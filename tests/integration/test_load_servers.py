"""embag-load with several servers: their shares, and what happens when one of them is gone."""

import json
import os
import re
import signal
import subprocess
import threading
import unittest

import served
from embagd_process import Embagd, Repository, wait_until

# A timeout that no request exceeds, even on a slow machine.
PATIENT = ('--timeout-us', '60000000')
SECONDS = 120


def command(addresses, *arguments):
    """Returns the command line of a load in JSON on a list of addresses."""
    return [os.path.join(served.BUILD, 'embag-load'), '--server', ','.join(addresses), '--workload',
            'rows', *PATIENT, *arguments]


class LoadServersTest(unittest.TestCase):
    """Three servers of one small model."""

    def setUp(self):
        self.repository = Repository()
        self.addCleanup(self.repository.remove)
        subprocess.run([served.EMBAG, 'make-model', '--workload', 'rows', '--scale', '10000',
                        self.repository.path], check=True, capture_output=True, timeout=60)
        self.socket = 'unix:' + self.repository.join('socket')
        self.servers = [self.serve('127.0.0.1:0') for _ in range(2)]
        self.servers.append(self.serve('127.0.0.1:0', self.socket))
        self.addresses = [server.address for server in self.servers]

    def serve(self, *listen):
        """Starts a server, which is stopped and checked at the end of the test."""
        server = Embagd(self.repository.path, listen=listen).wait_ready()
        self.addCleanup(server.stop)
        return server

    def run_load(self, addresses, *arguments):
        """Runs a short load; returns its output and messages."""
        done = subprocess.run(
            command(addresses, '--duration', '0.4', '--warmup', '0.1', *arguments),
            capture_output=True, text=True, timeout=SECONDS, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout, done.stderr

    def check(self, figures, addresses):
        """Checks that the figures of the servers fit together. Returns the servers by address."""
        servers = figures['servers']
        self.assertEqual(sorted(server['address'] for server in servers), sorted(addresses))
        sent = sum(server['sent'] for server in servers)
        self.assertGreater(sent, 0)
        for server in servers:
            self.assertEqual(sorted(server), ['address', 'connected', 'failed', 'left_out', 'sent',
                                              'share'])
            self.assertAlmostEqual(server['share'], 100 * server['sent'] / sent, places=5)
            self.assertLessEqual(server['failed'], server['sent'])
        self.assertLessEqual(figures['hedges_won'], figures['hedges'])
        return {server['address']: server for server in servers}


class Shares(LoadServersTest):
    """Loads on servers that all work."""

    def test_tells_what_each_server_was_sent(self):
        for more in ((), ('--rate', '300'), ('--threads', '2', '--connections', '2'),
                     ('--retries', '2', '--hedge', '5'), ('--mode', 'unary')):
            with self.subTest(more=more):
                out, messages = self.run_load(self.addresses, '--json', *more)
                figures = json.loads(out)
                for server in self.check(figures, self.addresses).values():
                    self.assertIs(server['connected'], True)
                self.assertEqual(figures['errors'], 0)
                self.assertEqual(figures['server'], ','.join(self.addresses))
                self.assertNotIn('known servers', messages)
                if '--hedge' not in more:
                    self.assertEqual((figures['resends'], figures['hedges']), (0, 0))

    def test_tells_people(self):
        out, _ = self.run_load(self.addresses)
        found = re.findall(r'^server (\S+): (\d+\.\d) % of all requests sent, \d+ failed, '
                           r'left out \d+ times?, connected$', out, re.M)
        self.assertEqual(sorted(address for address, _ in found), sorted(self.addresses))
        self.assertAlmostEqual(sum(float(share) for _, share in found), 100, delta=0.2)
        self.assertIn('\nresends 0, hedges 0 (0 won)\n', out)

    def test_takes_every_form_of_address(self):
        port = self.servers[0].port
        for given, shown in ((self.socket, self.socket),
                             ('dns:127.0.0.1:%d' % port, self.addresses[0]),
                             ('dns:///127.0.0.1:%d' % port, self.addresses[0])):
            out, _ = self.run_load([given], '--json')
            self.assertEqual(self.check(json.loads(out), [shown])[shown]['share'], 100)
            out, _ = self.run_load([given])
            self.assertNotIn('% of all requests sent', out)

    def test_counts_each_step_of_a_sweep(self):
        out, _ = self.run_load(self.addresses, '--json', '--sweep', '100:300:3', '--svg',
                               '/dev/null')
        for step in json.loads(out)['steps']:
            self.check(step, self.addresses)


class Losses(LoadServersTest):
    """Loads during which, or before which, a server is killed."""

    def start(self, *arguments):
        """Starts a run of a minute on all servers. Returns the process and a list of its messages,
        which grows."""
        process = subprocess.Popen(
            command(self.addresses, '--json', '--duration', '60', '--warmup', '0', *arguments),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        lines = []
        reader = threading.Thread(target=lambda: lines.extend(process.stderr), daemon=True)
        reader.start()
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(reader.join)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process, lines

    @staticmethod
    def wait_answers(process, lines, count):
        """Waits until the run has printed that many lines about answers, or has exited."""
        wait_until(lambda: sum(bool(re.search(r' of 60 s: (?!0/)', line)) for line in lines)
                   >= count or process.poll() is not None, 60, 'answers')

    def test_fails_no_request_when_a_server_is_killed(self):
        for more in (('--in-flight', '8'), ('--rate', '200')):
            with self.subTest(more=more):
                process, lines = self.start('--retries', '2', *more)
                self.wait_answers(process, lines, 1)
                killed = self.servers[0]
                killed.kill()
                self.wait_answers(process, lines, len(lines) + 2)
                process.send_signal(signal.SIGINT)
                out = process.stdout.read()
                self.assertEqual(process.wait(60), 0, lines)
                figures = json.loads(out)
                self.assertEqual((figures['errors'], figures['errors_by_code']), (0, {}), lines)
                self.assertEqual((figures['lost'], figures['retries']), (0, 2))
                servers = self.check(figures, self.addresses)
                self.assertIs(servers[self.addresses[0]]['connected'], False)
                self.assertIs(servers[self.addresses[1]]['connected'], True)
                self.servers[0] = self.serve(self.addresses[0])

    def test_starts_without_a_server_that_is_gone(self):
        self.servers[1].kill()
        out, messages = self.run_load(self.addresses, '--json', '--threads', '2', '--connections',
                                      '2')
        # Said once, although there are two clients.
        self.assertEqual(re.findall('embag-load: .*', messages), [
            'embag-load: connected to 2 of 3 known servers; 3 are wanted: the load starts with '
            'those that are connected'])
        figures = json.loads(out)
        gone = self.check(figures, self.addresses)[self.addresses[1]]
        self.assertEqual((gone['sent'], gone['share'], gone['connected']), (0, 0, False))
        self.assertEqual(figures['errors'], 0)


if __name__ == '__main__':
    unittest.main()
