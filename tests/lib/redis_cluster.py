"""A Redis Cluster on this machine, without persistence and without replicas."""

import os
import shutil
import subprocess
import tempfile

from cluster import hold_ports, port_of
from embagd_process import wait_until

SLOTS = 16384
START_SECONDS = 30
STOP_SECONDS = 10


class RedisCluster:
    """Nodes that divide the slots evenly, in order. `stop` ends them and deletes their files."""

    def __init__(self, count):
        self.folder = tempfile.mkdtemp(prefix='embag-test-')
        self.held = hold_ports(2 * count)
        ports = [port_of(each) for each in self.held]
        self.ports, self.bus_ports = ports[:count], ports[count:]
        self.processes = []
        try:
            for number in range(count):
                self._start_node(number)
            self._form()
        except BaseException:
            self.stop()
            raise

    def _start_node(self, number):
        folder = os.path.join(self.folder, str(number))
        os.mkdir(folder)
        with open(os.path.join(folder, 'log'), 'wb') as log:
            self.processes.append(subprocess.Popen(
                ['redis-server', '--bind', '127.0.0.1', '--port', str(self.ports[number]),
                 '--cluster-enabled', 'yes', '--cluster-port', str(self.bus_ports[number]),
                 '--cluster-config-file', 'nodes.conf', '--dir', folder, '--save', '',
                 '--appendonly', 'no', '--daemonize', 'no'],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def ask(self, number, *command):
        """Sends a command to a node. Returns its answer, empty if there is none."""
        done = subprocess.run(
            ['redis-cli', '-h', '127.0.0.1', '-p', str(self.ports[number]), *map(str, command)],
            capture_output=True, text=True, timeout=START_SECONDS, check=False)
        return done.stdout.strip() if done.returncode == 0 else ''

    def _form(self):
        count = len(self.ports)
        for number in range(count):
            wait_until(lambda number=number: self.ask(number, 'PING') == 'PONG', START_SECONDS,
                       'a node of Redis to start')
            for command in (('ADDSLOTSRANGE', SLOTS * number // count,
                             SLOTS * (number + 1) // count - 1),
                            ('SET-CONFIG-EPOCH', number + 1)):
                answer = self.ask(number, 'CLUSTER', *command)
                assert answer == 'OK', answer
        for number in range(1, count):
            answer = self.ask(0, 'CLUSTER', 'MEET', '127.0.0.1', self.ports[number],
                              self.bus_ports[number])
            assert answer == 'OK', answer
        for number in range(count):
            wait_until(lambda number=number: self._is_whole(number), START_SECONDS,
                       'the nodes of Redis to meet')

    def _is_whole(self, number):
        state = self.ask(number, 'CLUSTER', 'INFO').split()
        return ('cluster_state:ok' in state and
                'cluster_known_nodes:%d' % len(self.ports) in state)

    @property
    def pids(self):
        """Ids of the processes."""
        return [process.pid for process in self.processes]

    @property
    def addresses(self):
        """Addresses of all nodes, separated by commas."""
        return ','.join('127.0.0.1:%d' % port for port in self.ports)

    def bytes(self):
        """Returns how many bytes the nodes have received from clients and sent to them."""
        total = 0
        for number in range(len(self.ports)):
            for line in self.ask(number, 'INFO', 'stats').split():
                key, _, value = line.partition(':')
                if key in ('total_net_input_bytes', 'total_net_output_bytes'):
                    total += int(value)
        return total

    def stop(self):
        """Ends all nodes and deletes their files."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for each in self.held:
            each.close()
        shutil.rmtree(self.folder, ignore_errors=True)
