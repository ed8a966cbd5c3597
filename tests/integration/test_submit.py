"""The C client's non-blocking lookups while the server is paused, ended and restarted."""

import os
import subprocess
import unittest

import served
from embagd_process import SANITIZER_MARKS, Embagd, wait_until
from served import OwnServerTest, scaled
from table_files import Table, write_model

LONG = 60000000  # us, longer than any test takes
OFTEN = 1000000
NEVER = -1
CONNECTIONS = 2  # of the probe
MODES = ('stream', 'unary')


class Probe:
    """The program of submit_probe.c."""

    def __init__(self, test, address, mode='stream', retries_max=OFTEN, indices=1, files=()):
        self.test = test
        self.process = subprocess.Popen(
            [os.path.join(served.BUILD, 'embag-submit-probe'), address, mode, str(retries_max),
             str(indices), *files],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        test.addCleanup(self.end)
        test.assertEqual(self.answer(), 'open')

    def begin(self, line):
        """Sends the probe a command."""
        self.process.stdin.write(line + '\n')
        self.process.stdin.flush()

    def answer(self):
        """Returns the probe's answer to the last command."""
        line = self.process.stdout.readline().rstrip('\n')
        if not line:
            self.process.wait(60)
            self.test.fail('the probe exited: ' + self.process.stderr.read())
        return line

    def ask(self, line):
        """Sends a command and returns the answer."""
        self.begin(line)
        return self.answer()

    def submit(self, count, timeout_us=LONG):
        """Starts lookups."""
        self.test.assertEqual(self.ask('submit %d %d' % (count, timeout_us)),
                              'submitted %d' % count)

    def take(self, count):
        """Waits for `count` lookups; returns the largest number of attempts, and the count of each
        status."""
        words = self.ask('take %d' % count).split()
        return int(words[1]), dict(zip(words[2::2], map(int, words[3::2])))

    def end(self):
        """Closes the probe, which must exit cleanly with all memory freed."""
        try:
            _, said = self.process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise AssertionError('the probe does not exit') from None
        self.test.assertFalse([mark for mark in SANITIZER_MARKS if mark in said], said)
        self.test.assertEqual(self.process.returncode, 0, said)


class Submit(OwnServerTest):
    """Tests each of which has its own servers."""

    def setUp(self):
        super().setUp()
        self.socket = 'unix:' + self.repository.join('socket')
        self.write_table(2)

    def write_table(self, dim):
        """Writes the probe's table: every value of row n is n."""
        table = Table.of_values('emb_table', 'f32', [[n] * dim for n in range(5)])
        write_model(self.repository.path, 'spec', dim, [table])

    def start(self, *flags, listen='127.0.0.1:0'):
        """Starts a server, perhaps on the address of an earlier one."""
        server = Embagd(self.repository.path, *flags, listen=(listen,))
        self.addCleanup(server.stop)
        return server.wait_ready()

    def hold(self, server):
        """Stops the server's process, as the system might, until its `release`."""
        server.hold()
        self.addCleanup(server.release)

    def test_lookups_end_at_their_deadline_and_the_next_are_answered(self):
        for mode in MODES:
            with self.subTest(mode=mode):
                server = self.start()
                probe = Probe(self, server.address, mode)
                self.hold(server)
                probe.submit(20, timeout_us=1000)
                self.assertEqual(probe.take(20)[1], {'DEADLINE_EXCEEDED': 20})
                server.release()
                probe.submit(20)
                self.assertEqual(probe.take(20)[1], {'OK': 20})

    def test_what_is_withdrawn_ends_and_the_rest_is_answered(self):
        for mode in MODES:
            with self.subTest(mode=mode):
                server = self.start()
                probe = Probe(self, server.address, mode)
                self.hold(server)
                probe.submit(10)
                probe.submit(20)
                probe.ask('cancel')
                self.assertEqual(probe.take(20)[1], {'CANCELLED': 20})
                server.release()
                self.assertEqual(probe.take(10)[1], {'OK': 10})
                probe.ask('cancel')
                probe.submit(5)
                self.assertEqual(probe.take(5)[1], {'OK': 5})

    def test_what_is_refused_for_now_is_sent_again(self):
        self.write_table(1024)
        server = self.start('--queue-bytes-max', '1MiB', '--inline-below-us', '0')
        for mode in MODES:
            with self.subTest(mode=mode):
                probe = Probe(self, server.address, mode, indices=200)

                def was_refused(probe=probe):
                    """Returns whether one of many lookups was refused; all must be answered."""
                    probe.submit(50)
                    attempts, ends = probe.take(50)
                    self.assertEqual(ends, {'OK': 50})
                    return attempts > 1
                wait_until(was_refused, 60, 'a refusal')

    def check_return(self, server, address, mode):
        """Checks that lookups in flight when the server ends, and lookups submitted while there is
        no server, are answered by the next server. Returns that server."""
        probe = Probe(self, address, mode)
        probe.submit(5)
        self.assertEqual(probe.take(5)[1], {'OK': 5})
        self.hold(server)
        probe.submit(10)
        server.kill()
        probe.submit(10)
        server = self.start(listen=address)
        self.assertEqual(probe.take(20)[1], {'OK': 20})
        return server

    def test_a_server_that_comes_back_on_its_path_answers_what_waited(self):
        server = self.start(listen=self.socket)
        for mode in MODES:
            with self.subTest(mode=mode):
                server = self.check_return(server, self.socket, mode)

    def test_a_server_that_comes_back_on_its_port_answers_what_waited(self):
        # Nobody connects from this address, so the port stays free.
        server = self.start(listen='127.83.7.5:0')
        address = '127.83.7.5:%d' % server.port
        for mode in MODES:
            with self.subTest(mode=mode):
                server = self.check_return(server, address, mode)

    def test_without_retries_lookups_fail_until_the_server_is_back(self):
        server = self.start(listen=self.socket)
        probe = Probe(self, self.socket, retries_max=NEVER)
        self.hold(server)
        probe.submit(10)
        server.kill()
        self.assertEqual(probe.take(10)[1], {'UNAVAILABLE': 10})
        probe.submit(10)
        self.assertEqual(probe.take(10)[1], {'UNAVAILABLE': 10})
        self.start(listen=self.socket)

        def is_back():
            """Returns whether a lookup is answered."""
            probe.submit(1)
            return probe.take(1)[1] == {'OK': 1}
        wait_until(is_back, 60, 'an answer')

    def test_threads_do_not_notice_that_servers_end_and_come_back(self):
        server = self.start(listen=self.socket)
        for mode in MODES:
            with self.subTest(mode=mode):
                probe = Probe(self, self.socket, mode)
                probe.begin('crowd %d' % scaled(40000))
                for end in ('terminate', 'kill', 'terminate'):
                    self.assertEqual(probe.answer(), 'a quarter answered')
                    getattr(server, end)()
                    server.wait()
                    server = self.start(listen=self.socket)
                self.assertEqual(probe.answer(), 'all answered')

    def stand_in(self, name):
        """Starts a server on a path of its own, and points the symlink `front` at it."""
        server = self.start(listen='unix:' + self.repository.join(name))
        os.symlink(name, self.repository.join('new'))
        os.replace(self.repository.join('new'), self.repository.join('front'))
        return server

    def test_no_lookup_fails_while_its_server_drains_and_another_stands_by(self):
        """There are as many retries as connections to the draining server: after that many refusals
        a lookup goes to the other server."""
        server = self.stand_in('socket0')
        for number, mode in enumerate(MODES * 2, 1):
            with self.subTest(mode=mode, number=number):
                probe = Probe(self, 'unix:' + self.repository.join('front'), mode,
                              retries_max=CONNECTIONS)
                probe.begin('crowd %d' % scaled(40000))
                self.assertEqual(probe.answer(), 'a quarter answered')
                drained, server = server, self.stand_in('socket%d' % number)
                drained.stop()
                self.assertEqual([probe.answer() for _ in range(3)],
                                 ['a quarter answered'] * 2 + ['all answered'])


if __name__ == '__main__':
    unittest.main()
