"""Part servers and routers of one repository, as processes on this machine."""

import os
import socket
import subprocess

import served
from embagd_process import Embagd, Repository, wait_until
from http_peer import Metrics
from rpc import Client, pb

READY_SECONDS = 60
SOME_BAGS = 20    # that show that a server is used
SALT = '5bd1e995a1b2c3d4'
SETTLE = ('--route-settle-ms', '3000', '--route-resolve-ms', '1000')


def hold_ports(count):
    """Returns sockets that hold free TCP ports. As long as they are open, a server can listen on
    these ports, also repeatedly, and the kernel gives them to no other program."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        each.bind(('127.0.0.1', 0))
    return sockets


def port_of(held):
    """Returns the port that a socket holds."""
    return held.getsockname()[1]


class Cluster:
    """Versions in parts, their servers and routers. `remove` stops and deletes all.

    - source: the repository with undivided versions
    - path: the repository with versions in parts
    - servers: part servers by (part, replica); each keeps its port when it is started again
    - routers: routers
    """

    def __init__(self, parts, replicas=1):
        self.repository = Repository()
        self.source = self.repository.join('source')
        self.path = self.repository.join('parts')
        os.makedirs(self.source)
        os.makedirs(self.path)
        self.parts = parts
        keys = [(part, replica) for part in range(parts) for replica in range(replicas)]
        self.held_ports = []
        self.ports = {}
        self.add_ports(keys)
        self.servers = {}
        self.routers = []
        self.clients = []

    def add_ports(self, keys):
        """Adds part servers, which routers know and which may start later."""
        keys = list(keys)
        held = hold_ports(len(keys))
        self.held_ports += held
        self.ports.update(zip(keys, map(port_of, held)))

    def split(self, model, version, *flags, parts=None, placement=None, source=None, path=None):
        """Divides a version of the source into parts. `placement` is by table."""
        if placement is not None:
            flags += ('--placement', self.repository.join('placement.yaml'))
            with open(flags[-1], 'w', encoding='utf-8') as file:
                file.write('tables:\n' if placement else 'tables: []\n')
                file.writelines('  - {name: "%s", %s}\n' % pair for pair in placement.items())
        done = subprocess.run(
            [served.EMBAG, 'split', os.path.join(source or self.source, model, str(version)),
             '--parts', str(parts or self.parts), '--salt', SALT, '--out', path or self.path,
             *flags],
            capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr

    def make_model(self, workload, version, scale, path=None):
        """Writes a version with published values into the source."""
        subprocess.run([served.EMBAG, 'make-model', '--workload', workload, '--scale', str(scale),
                        '--version', str(version), path or self.source], check=True,
                       capture_output=True, timeout=300)

    def start_part(self, part, replica=0, *flags, path=None, parts=None):
        """Starts a part server, which may have run before. Returns it."""
        address = '127.0.0.1:%d' % self.ports[part, replica]
        server = Embagd(path or self.path, '--part', '%d/%d' % (part, parts or self.parts),
                        '--watch-poll-ms', '100', '--loops', '1', '--threads', '1', *flags,
                        listen=(address,), http='127.0.0.1:0')
        self.servers[part, replica] = server
        return server

    def start_parts(self, *flags):
        """Starts all part servers and waits until they are ready."""
        for part, replica in self.ports:
            self.start_part(part, replica, *flags)
        for server in self.servers.values():
            server.wait_ready()

    def addresses(self):
        """The addresses of all part servers, for `route`."""
        return ','.join('127.0.0.1:%d' % port for port in self.ports.values())

    def start_router(self, *flags, route=None, path=None, **keywords):
        """Starts a router, which is ready but may not have settled yet. Returns it."""
        router = Embagd(path or self.path, '--route', route or self.addresses(),
                        '--watch-poll-ms', '100', *SETTLE, '--loops', '2', '--threads', '1', *flags,
                        http='127.0.0.1:0', **keywords)
        self.routers.append(router)
        return router.wait_ready()

    def connect(self, server):
        """Returns a client, which is closed with the cluster."""
        client = Client(server.address)
        self.clients.append(client)
        return client

    def remove(self):
        """Stops everything, and checks that all have ended cleanly."""
        for client in self.clients:
            client.close()
        errors = []
        for server in [*self.routers, *self.servers.values()]:
            try:
                server.stop()
            except AssertionError as error:
                errors.append(error)
        for held in self.held_ports:
            held.close()
        self.repository.remove()
        if errors:
            raise errors[0]


def count_bags(server):
    """Returns how many bags were looked up at a server."""
    return Metrics(server).sum('embag_table_bags_total')


def wait_used(server, seconds=READY_SECONDS):
    """Waits until bags are looked up at a server, from now on."""
    before = count_bags(server)
    wait_until(lambda: count_bags(server) >= before + SOME_BAGS, seconds, 'a server to be used')


def wait_connected(server, routers):
    """Waits until a part server listens and that many routers, of two loops, are connected. It need
    not be ready: it may lack a version that routers serve."""
    wait_until(lambda: Metrics(server).sum('embag_connections') >= 3 * routers, READY_SECONDS,
               'routers to connect')


def version_served(client, model='m'):
    """Returns the version that a server answers from, 0 if none."""
    answer = client.unary('GetModel', pb.Model)(pb.GetModelRequest(model=model), timeout=10)
    return next((v.version for v in answer.versions
                 if v.state == pb.ModelVersion.STATE_SERVING), 0)


def wait_served(client, version, model='m', seconds=READY_SECONDS):
    """Waits until a server answers from a version."""
    wait_until(lambda: version_served(client, model) == version, seconds,
               'version %d to be served' % version)
