"""The suite "balance" of interop.py: stock gRPC clients with the service configuration of
client/CLIENTS.md, which balance over several servers.

All clients run at the same time. There are three servers at 127.0.0.1 to 127.0.0.3; the version in
an answer tells which one it is from. For clients that check health there is a fourth, which does
not serve the model.

* first: all three get lookups from each client
* loaded: one also gets large lookups; clients with weighted round robin send it fewer
* killed: one is killed with SIGKILL; no lookup fails
* alone: with nobody at the address a lookup waits, and ends after the time in the configuration
"""

import concurrent.futures
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading

import guide

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
SERVERS = 3
LOADED, KILLED = 1, 3       # versions
LOOKUPS = 100               # from each client, in each phase
SECONDS = 120
BUILD_SECONDS = 300
TIMEOUT_S = '60s'           # no machine is so slow
LARGE_BAGS = 3000000        # some ms of work
LOADED_SHARE_MAX = 0.2      # of all lookups of a client that balances by load


class Client:
    """A stock client under test.

    - block: name of its configuration in the document
    - policy: the only policy of the configuration that it is given; None for all of them
    - is_weighted: whether it has weighted round robin; otherwise it uses round robin
    - has_health: whether it leaves out servers that do not serve the model
    """

    def __init__(self, name, command, environment=None, *, block='balance.json', policy=None,
                 is_weighted=True, has_health=True):
        self.name, self.command, self.environment = name, command, environment
        self.block, self.policy = block, policy
        self.is_weighted, self.has_health = is_weighted, has_health
        self.process = None
        self.failed, self.why = 0, ''

    def start(self, config, addresses):
        """Starts the program; returns the status of its first lookup."""
        self.process = subprocess.Popen(
            [*self.command, config, ','.join(addresses)], env=self.environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        watchdog = threading.Timer(SECONDS, self.process.kill)
        watchdog.start()
        status = self.process.stdout.readline().strip()
        watchdog.cancel()
        return status.upper().replace('_', '')

    def counts(self):
        """Returns how many lookups each version has answered since the last call."""
        watchdog = threading.Timer(SECONDS, self.process.kill)
        watchdog.start()
        self.process.stdin.write('\n')
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        watchdog.cancel()
        failed, self.why = re.search(r'failed:(\d+) ?(.*)', line).groups()
        self.failed += int(failed)
        return {int(version): int(count) for version, count in re.findall(r'(\d+):(\d+)', line)}

    def stop(self):
        """Ends the program."""
        if self.process:
            self.process.stdin.close()
            self.process.stdout.close()
            try:
                self.process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None


class Servers:
    """Three servers with the model, in versions 1 to 3, and one without it."""

    def __init__(self):
        from embagd_process import Embagd, Repository
        from served import spec_table
        from table_files import write_model
        self.repositories = [Repository() for _ in range(SERVERS + 1)]
        self.processes = []
        for number, repository in enumerate(self.repositories, 1):
            if number <= SERVERS:
                write_model(repository.path, 'spec', number, [spec_table()])
            else:
                write_model(repository.path, 'another', 1, [spec_table()])
            self.processes.append(Embagd(
                repository.path, '--threads', '1', listen=('127.0.0.%d:0' % number,)))
        self.addresses = ['127.0.0.%d:%d' % (number, process.wait_ready().port)
                          for number, process in enumerate(self.processes, 1)]

    def kill(self, version):
        """Kills a server."""
        self.processes[version - 1].kill()

    def stop(self):
        """Stops the servers; raises AssertionError if one does not exit cleanly."""
        for process in self.processes:
            process.stop()
        for repository in self.repositories:
            repository.remove()


class Large(threading.Thread):
    """Keeps the executor of a server busy with large lookups, until `stop`."""

    def __init__(self, address):
        super().__init__()
        self.address, self.is_over = address, threading.Event()

    def run(self):
        import grpc

        from embag.v1 import embedding_bag_pb2 as pb
        from rpc import OPTIONS
        query = pb.BagQuery(table='emb_table', num_bags=LARGE_BAGS)
        request = pb.LookupRequest(model='spec', queries=[query]).SerializeToString()
        with grpc.insecure_channel(self.address, OPTIONS) as channel:
            lookup = channel.unary_unary('/embag.v1.EmbeddingBag/Lookup')
            while not self.is_over.is_set():
                lookup(request, timeout=SECONDS)

    def stop(self):
        """Ends the load."""
        self.is_over.set()
        self.join()


def write_configs(folder, client):
    """Writes the document's configuration for a client and the test's model, and again with a
    timeout that no lookup reaches. Returns the paths of both."""
    text = guide.section(guide.read('client', 'CLIENTS.md'), 'A service configuration')
    config = json.loads(next(b.text for b in guide.blocks(text, 'json') if b.word == client.block))
    if client.policy:
        config['loadBalancingConfig'] = [
            policy for policy in config['loadBalancingConfig'] if client.policy in policy]
    paths = []
    for name, timeout in ('printed', None), ('patient', TIMEOUT_S):
        if timeout:
            config['methodConfig'][0]['timeout'] = timeout
        if 'healthCheckConfig' in config:
            config['healthCheckConfig']['serviceName'] = 'spec'
        paths.append(os.path.join(folder, '%s %s.json' % (name, client.name)))
        with open(paths[-1], 'w', encoding='utf-8') as file:
            json.dump(config, file)
    return paths


def build_java(work):
    """Builds the Java client; returns its command, or (None, why) if it cannot be built here."""
    folder = os.path.abspath(os.path.join(work, 'java'))
    if not shutil.which('mvn') or not shutil.which('javac'):
        return None, 'Maven or a JDK is not installed'
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(os.path.join(SOURCE, 'proto'), os.path.join(folder, 'proto'))
    os.makedirs(os.path.join(folder, 'src', 'main', 'java'))
    shutil.copy(os.path.join(HERE, 'java', 'pom.xml'), folder)
    shutil.copy(os.path.join(HERE, 'java', 'Balance.java'),
                os.path.join(folder, 'src', 'main', 'java'))
    for goal in 'dependency:copy-dependencies', 'package':
        done = subprocess.run(['mvn', '--quiet', '--batch-mode', goal], cwd=folder, check=False,
                              timeout=BUILD_SECONDS, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        if done.returncode != 0 and goal == 'package':
            raise AssertionError('the Java client does not build:\n' + done.stdout.decode()[-4000:])
        if done.returncode != 0:
            return None, 'its packages are not there'
    classes = os.path.join(folder, 'target', 'classes'), os.path.join(
        folder, 'target', 'dependency', '*')
    return ['java', '-cp', os.pathsep.join(classes), 'Balance'], ''


def find_clients(options, build_go, counts):
    """Returns the clients that can run on this machine; reports the others."""
    paths = os.path.join(options.build, 'python'), os.path.join(SOURCE, 'tests', 'lib')
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(map(os.path.abspath, paths)))
    program = os.path.join(HERE, 'balance_client.py')
    clients = [Client('grpcio', [sys.executable, program], environment, is_weighted=False)]
    newest = os.path.join(options.build, 'python-package', 'index', 'bin', 'python')
    if os.path.exists(newest):
        clients.append(Client('grpcio, newest', [newest, program], environment))
    else:
        counts.skip('balance with the newest grpcio', 'its environment is not there')
    program = os.path.join(options.build, 'embag-balance-grpcpp')
    if os.path.exists(program):
        clients.append(Client('grpc++', [program], is_weighted=False))
    else:
        counts.skip('balance with grpc++', 'it is not built')
    modules = os.path.join(options.work, 'node', 'node-modules', 'node_modules')
    if os.path.isdir(modules):
        clients.append(Client(
            'grpc-js', ['node', os.path.join(HERE, 'node', 'balance_client.js')],
            {**os.environ, 'NODE_PATH': os.path.abspath(modules)}, block='balance-node.json',
            has_health=False))
    else:
        counts.skip('balance with grpc-js', 'its packages are not there')
    folder, why = build_go(options)
    if folder:
        clients.append(Client('grpc-go', [os.path.join(folder, 'balance')]))
    else:
        counts.skip('balance with grpc-go', why)
    command, why = build_java(options.work)
    if command:
        clients.append(Client('grpc-java', command, has_health=False))
        clients.append(Client('grpc-java, round robin', command, policy='round_robin',
                              is_weighted=False))
    else:
        counts.skip('balance with grpc-java', why)
    return clients


class Balance:
    """One run of all phases."""

    def __init__(self, options, clients, counts):
        self.clients, self.counts = clients, counts
        self.folder = os.path.join(options.work, 'balance')
        os.makedirs(self.folder, exist_ok=True)
        self.servers = Servers()

    def tell(self, client, phase, is_good, shown):
        """Counts the outcome of one client in one phase."""
        line = '%s %s: %s' % ('ok' if is_good else 'FAIL', phase, shown)
        self.counts.take('balance with ' + client.name, line, 0)

    def look_up_alone(self, client):
        """Makes one lookup from a port where nobody listens; returns its status."""
        printed, _ = write_configs(self.folder, client)
        with socket.socket() as nobody:
            nobody.bind(('127.0.0.1', 0))
            status = client.start(printed, ['127.0.0.1:%d' % nobody.getsockname()[1]])
        client.stop()
        return status

    def run_alone(self):
        """Runs the phase of that name, in which clients mostly wait."""
        with concurrent.futures.ThreadPoolExecutor(len(self.clients)) as pool:
            statuses = list(pool.map(self.look_up_alone, self.clients))
        for client, status in zip(self.clients, statuses):
            self.tell(client, 'alone', status == 'DEADLINEEXCEEDED', status)

    def start(self, client):
        """Starts a client's load."""
        _, patient = write_configs(self.folder, client)
        count = SERVERS + 1 if client.has_health else SERVERS
        status = client.start(patient, self.servers.addresses[:count])
        if status != 'OK':
            self.tell(client, 'first', False, status)
        return status == 'OK'

    def gather(self, is_enough):
        """Returns the counts of each client in turn, from now until they are enough for it."""
        from embagd_process import wait_until
        for client in self.clients:
            client.counts()
        for client in self.clients:
            sums = {}

            def is_done(client=client, sums=sums):
                for version, count in client.counts().items():
                    sums[version] = sums.get(version, 0) + count
                return is_enough(client, sums)

            try:
                wait_until(is_done, SECONDS, 'lookups of ' + client.name)
            except AssertionError:
                yield client, sums, False
            else:
                yield client, sums, True

    def run_phases(self):
        """Runs the load."""
        def all_used(_, sums):
            return len(sums) == SERVERS and sum(sums.values()) >= LOOKUPS

        def fewer_to_loaded(client, sums):
            share = sums.get(LOADED, 0) / max(sum(sums.values()), 1)
            is_less = not client.is_weighted or share <= LOADED_SHARE_MAX
            if sum(sums.values()) >= LOOKUPS and not is_less:
                sums.clear()
            return sum(sums.values()) >= LOOKUPS and is_less

        def enough_elsewhere(_, sums):
            return sum(count for version, count in sums.items() if version != KILLED) >= LOOKUPS

        for client, sums, is_good in self.gather(all_used):
            self.tell(client, 'first', is_good, sums)
        large = Large(self.servers.addresses[LOADED - 1])
        large.start()
        try:
            for client, sums, is_good in self.gather(fewer_to_loaded):
                self.tell(client, 'loaded', is_good, sums)
        finally:
            large.stop()
        self.servers.kill(KILLED)
        for client, sums, is_good in self.gather(enough_elsewhere):
            self.tell(client, 'killed', is_good, sums)
        for client in self.clients:
            client.counts()
            self.tell(client, 'failed', client.failed == 0,
                      '%d %s' % (client.failed, client.why))

    def run(self):
        """Runs all phases; stops what runs."""
        try:
            self.run_alone()
            self.clients = [client for client in self.clients if self.start(client)]
            self.run_phases()
        finally:
            for client in self.clients:
                client.stop()
            self.servers.stop()


def run(options, build_go, counts):
    """Runs the suite."""
    Balance(options, find_clients(options, build_go, counts), counts).run()
