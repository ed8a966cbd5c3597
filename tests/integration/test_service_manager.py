"""embagd under a service manager: its notifications to systemd, the sockets that it is passed, and
its watchdog messages, which stop only if it hangs."""

import ctypes
import os
import signal
import sys
import time
import unittest

from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import Embagd, wait_until
from h2raw import Connection, message
from rpc import Admin, Client, as_bytes
from served import OwnServerTest, spec_table
from service_manager import NotifySocket
from service_manager import __file__ as MANAGER
from table_files import write_model

ASKED = pb.LookupRequest(model='spec', queries=[
    pb.BagQuery(table='emb_table', indices=[0, 4], num_bags=1)])
RELOADS = 3
WATCHED = {'WATCHDOG_USEC': '400000'}


def other_threads(pid):
    """Returns all threads of a process but the first."""
    return [int(name) for name in os.listdir('/proc/%d/task' % pid) if int(name) != pid]


class Halted:
    """Stops threads with ptrace. The test is skipped if the system does not permit that."""

    SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17
    WAIT_ALL_THREADS = 0x40000000  # __WALL

    def __init__(self, threads):
        self.threads = threads

    @staticmethod
    def trace(request, thread):
        """Calls ptrace(2)."""
        libc = ctypes.CDLL(None, use_errno=True)
        call = libc.ptrace
        call.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        return call(request, thread, None, None)

    def __enter__(self):
        for thread in self.threads:
            if self.trace(self.SEIZE, thread) != 0:
                raise unittest.SkipTest('threads cannot be traced here')
            self.trace(self.INTERRUPT, thread)
            os.waitpid(thread, self.WAIT_ALL_THREADS)

    def __exit__(self, *exception):
        for thread in self.threads:
            self.trace(self.DETACH, thread)


class ServiceManager(OwnServerTest):
    """Tests each of which has its own server."""

    def setUp(self):
        super().setUp()
        self.manager = NotifySocket(self.repository.path)
        self.addCleanup(self.manager.close)

    def serve_told(self, *flags, environment=None, **keywords):
        """Starts a server that sends notifications to our socket."""
        heard = {**self.manager.environment, **(environment or {})}
        return self.serve(*flags, environment=heard, **keywords)

    def passing(self, *sockets):
        """Returns the command prefix that starts a server with these sockets."""
        return {'under': (sys.executable, MANAGER, *sockets, '--')}

    def at(self, name):
        """Returns a path for a unix socket."""
        return self.repository.join(name)

    def answers(self, address, client_type=Client):
        """Checks that a lookup at this address is answered."""
        with client_type(address) as client:
            self.assertEqual(len(client.lookup(ASKED).results), 1)

    # ---- notifications

    def test_it_is_ready_when_it_answers_and_says_what_it_serves(self):
        server = self.serve_told()
        self.manager.wait('READY')
        self.assertEqual(self.manager.wait('STATUS'), 'Serving 1 of 1 models: spec 1')
        self.answers(server.address)

    def test_the_status_follows_the_models(self):
        self.serve_told()
        self.manager.wait('READY')
        write_model(self.repository.path, 'spec', 2, [spec_table()])
        wait_until(lambda: self.manager.wait('STATUS') == 'Serving 1 of 1 models: spec 2', 30,
                   'the status names the new version')

    def test_a_status_of_many_models_is_cut(self):
        for number in range(40):
            write_model(self.repository.path, 'model-%02d-é%s' % (number, 'é' * 20), 1,
                        [spec_table()])
        self.serve_told()
        status = self.manager.wait('STATUS')
        self.assertTrue(status.startswith('Serving 41 of 41 models: model-00-'), status)
        self.assertLess(len(status.encode()), 512)

    def test_reading_again_is_told_from_its_beginning_to_its_end(self):
        server = self.serve_told()
        self.manager.wait('READY')
        for times in range(1, RELOADS + 1):
            server.process.send_signal(signal.SIGHUP)
            self.manager.wait('READY', times + 1)
            self.assertEqual(self.manager.count('RELOADING'), times)
        kinds = [next(iter(m)) for m in self.manager.messages if 'STATUS' not in m]
        self.assertEqual(kinds, ['READY'] + ['RELOADING', 'READY'] * RELOADS)
        self.assertTrue(int(self.manager.wait('MONOTONIC_USEC')) > 0)

    def test_the_end_is_told_with_the_time_it_may_take(self):
        server = self.serve_told('--drain-timeout-ms', '45000')
        self.manager.wait('READY')
        server.terminate()
        self.assertEqual(self.manager.wait('STOPPING'), '1')
        self.assertEqual(server.wait(), 0)
        allowed = [m['EXTEND_TIMEOUT_USEC'] for m in self.manager.look() if 'STOPPING' in m]
        self.assertEqual(allowed, ['60000000'])

    def test_a_start_that_fails_is_never_ready(self):
        server = Embagd(self.repository.join('nowhere'), environment=self.manager.environment)
        server.start_fails()
        self.assertEqual(self.manager.count('READY'), 0)

    # ---- the watchdog

    def test_the_watchdog_hears_of_a_server_that_answers(self):
        self.serve_told('--loops', '2', environment=WATCHED)
        self.manager.wait('WATCHDOG', 5)

    def test_the_watchdog_does_not_hear_of_one_whose_loops_hang(self):
        server = self.serve_told('--loops', '2', environment=WATCHED)
        self.manager.wait('WATCHDOG')
        with Halted(other_threads(server.pid)):
            heard = self.manager.count('WATCHDOG')
            time.sleep(1)
            # One more may be on its way if the loops had answered before they were stopped.
            self.assertLessEqual(self.manager.count('WATCHDOG'), heard + 1)
        self.manager.wait('WATCHDOG', heard + 3)

    def test_the_watchdog_hears_of_it_while_it_drains(self):
        server = self.serve_told('--drain-timeout-ms', '60000', environment=WATCHED)
        with Connection(server.port, window=1) as peer:
            peer.call(message(as_bytes(ASKED)))  # its answer does not fit into the window
            server.terminate()
            self.manager.wait('STOPPING')
            self.manager.wait('WATCHDOG', self.manager.count('WATCHDOG') + 3)
        self.assertEqual(server.wait(), 0)

    def test_without_a_watchdog_nothing_is_told_of_it(self):
        self.serve_told()
        self.manager.wait('READY')
        self.assertEqual(self.manager.count('WATCHDOG'), 0)

    # ---- sockets that are passed

    def test_passed_sockets_take_the_place_of_listen(self):
        server = self.serve('--loops', '2', listen=('192.0.2.1:8600',),
                            **self.passing('embag-data=127.0.0.1:0', 'embag-data=' + self.at('d')))
        self.assertIn('passed=1', server.find('listening'))
        for _ in range(4):
            self.answers(server.address)
            self.answers('unix:' + self.at('d'))

    def test_a_passed_socket_is_its_makers_when_the_server_has_ended(self):
        server = self.serve(**self.passing('embag-data=' + self.at('d')))
        self.answers('unix:' + self.at('d'))
        server.stop()
        self.assertTrue(os.path.exists(self.at('d')))

    def test_the_socket_for_commands_is_passed_beside_those_of_listen(self):
        server = self.serve('--admin-listen', 'unix:/proc/nowhere',
                            **self.passing('embag-admin=' + self.at('a')))
        self.answers(server.address)
        with Admin('unix:' + self.at('a')) as admin:
            self.assertEqual(len(admin.list_versions().models), 1)
        self.assertIn('passed=1', server.find('admin_listening'))

    def refuses(self, *sockets):
        """Checks that a start with these sockets fails; returns its log."""
        write_model(self.repository.path, 'spec', 1, [spec_table()])
        server = Embagd(self.repository.path, **self.passing(*sockets))
        return server.start_fails()

    def test_a_socket_of_another_name_is_refused(self):
        log = self.refuses('embag-data=127.0.0.1:0', 'http=127.0.0.1:0')
        self.assertIn('a socket with the unknown name \\"http\\" was passed', log)
        self.assertIn('FileDescriptorName', log)

    def test_a_tcp_port_for_commands_is_refused(self):
        log = self.refuses('embag-admin=127.0.0.1:0')
        self.assertIn('not a unix socket', log)
        self.assertIn('address=127.0.0.1:', log)
        self.assertIn('SocketMode=0600', log)
        self.assertNotIn('stop the process that uses', log)

    def test_more_sockets_than_there_may_be_are_refused(self):
        log = self.refuses(*['embag-data=127.0.0.1:0'] * 33)
        self.assertIn('33 sockets were passed; expected at most 32', log)
