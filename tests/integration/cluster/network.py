"""A network of hosts, each a network namespace that is joined to one bridge, with a name service.

The program that makes it must itself be in namespaces for network and mounts of its own: then the
kernel removes everything when it ends.
"""

import os
import signal
import subprocess

from embagd_process import wait_until

BRIDGE = 'bridge0'
DEVICE = 'eth0'
HOST = '10.231.8.%d'
HOST6 = 'fd00:e7:8::%d'
HOST_FIRST, HOST_LAST = 10, 199
# Addresses at which nobody is.
EMPTY_FIRST = 200
NAMES_SECONDS = 10
TABLE = 'table inet failures'


def run(*command, given=None):
    """Runs a command, which must succeed."""
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError('%s: %s' % (' '.join(command), done.stderr))
    return done.stdout


def has_ipv6():
    """Returns whether a new network namespace has IPv6."""
    path = '/proc/sys/net/ipv6/conf/default/disable_ipv6'
    if not os.path.exists(path):
        return False
    with open(path, encoding='ascii') as file:
        return int(file.read()) == 0


class Node:
    """A host.

    - name, address: its name, and its IPv4 address
    - address6: its IPv6 address; None if this kernel has no IPv6
    """

    def __init__(self, name, number, has_ipv6):
        self.name = name
        self.address = HOST % number
        self.address6 = HOST6 % number if has_ipv6 else None
        outside = 'port%d' % number
        run('ip', 'netns', 'add', name)
        run('ip', 'link', 'add', outside, 'type', 'veth', 'peer', 'name', DEVICE, 'netns', name)
        run('ip', 'link', 'set', outside, 'master', BRIDGE, 'up')
        run('ip', '-n', name, 'address', 'add', self.address + '/24', 'dev', DEVICE)
        if has_ipv6:
            run('ip', '-n', name, 'address', 'add', self.address6 + '/64', 'dev', DEVICE, 'nodad')
        for device in DEVICE, 'lo':
            run('ip', '-n', name, 'link', 'set', device, 'up')

    @property
    def under(self):
        """The start of a command line that runs a program on this host."""
        return ('ip', 'netns', 'exec', self.name)

    def filter(self, port, verdict, here='dport', there='sport'):
        """Applies a verdict to the TCP packets of a server's port, both ways."""
        self.heal()
        run(*self.under, 'nft', '-f', '-', given='''
            %s {
                chain in { type filter hook input priority 0; tcp %s %d %s; }
                chain out { type filter hook output priority 0; tcp %s %d %s; }
            }''' % (TABLE, here, port, verdict, there, port, verdict))

    def drop(self, port):
        """Drops all packets of a port: a black hole."""
        self.filter(port, 'drop')

    def drop_ipv4(self, port):
        """Drops the packets of a port that IPv4 carries."""
        self.filter(port, 'meta nfproto ipv4 drop')

    def drop_ipv6(self, port):
        """Drops the packets of a port that IPv6 carries."""
        self.filter(port, 'meta nfproto ipv6 drop')

    def drop_others(self, port):
        """Drops all packets of the servers at that port of other hosts."""
        self.filter(port, 'drop', 'sport', 'dport')

    def lose(self, port, percent):
        """Drops some of the packets of a port."""
        self.filter(port, 'numgen random mod 100 < %d drop' % percent)

    def reset(self, port):
        """Resets connections to a port, those that are open and those that are tried."""
        self.filter(port, 'reject with tcp reset')

    def delay(self, milliseconds):
        """Delays all packets that the host sends. Returns False if this kernel cannot."""
        return subprocess.run(['tc', '-n', self.name, 'qdisc', 'add', 'dev', DEVICE, 'root',
                               'netem', 'delay', '%dms' % milliseconds], check=False,
                              stderr=subprocess.DEVNULL).returncode == 0

    def heal(self):
        """Ends what the functions above do."""
        run(*self.under, 'nft', '-f', '-', given='%s\ndelete %s\n' % (TABLE, TABLE))
        subprocess.run(['tc', '-n', self.name, 'qdisc', 'del', 'dev', DEVICE, 'root'], check=False,
                       stderr=subprocess.DEVNULL)


class Network:
    """The bridge, its hosts, and dnsmasq on a host of its own."""

    def __init__(self, directory):
        self.directory = directory
        self.nodes = {}
        self.names = {}
        self.names_process = None
        self.has_ipv6 = has_ipv6()
        # ip keeps the names of namespaces there.
        run('mount', '-t', 'tmpfs', 'run', '/run')
        run('ip', 'link', 'set', 'lo', 'up')
        run('ip', 'link', 'add', BRIDGE, 'type', 'bridge')
        run('ip', 'address', 'add', HOST % 1 + '/24', 'dev', BRIDGE)
        run('ip', 'link', 'set', BRIDGE, 'up')
        self.names_node = self.add('names')
        for name, text in (('resolv.conf', 'nameserver %s\noptions timeout:1 attempts:1\n'
                            % self.names_node.address), ('nsswitch.conf', 'hosts: dns\n')):
            with open(self.join(name), 'w', encoding='ascii') as file:
                file.write(text)
            target = os.path.realpath('/etc/' + name)
            if not os.path.exists(target):    # It was in /run.
                os.makedirs(os.path.dirname(target), exist_ok=True)
                with open(target, 'w', encoding='ascii'):
                    pass
            run('mount', '--bind', self.join(name), target)
        self.tell_names()
        self.start_names()

    def join(self, name):
        """Returns the path of a file of the network."""
        return os.path.join(self.directory, name)

    def add(self, name):
        """Adds a host. Returns it."""
        number = HOST_FIRST + len(self.nodes)
        assert number <= HOST_LAST
        self.nodes[name] = Node(name, number, self.has_ipv6)
        return self.nodes[name]

    # ---- names ----

    def tell_names(self, **names):
        """Changes the addresses of names below .test; with none the name has none."""
        self.names.update(names)
        with open(self.join('hosts'), 'w', encoding='ascii') as file:
            for name, addresses in self.names.items():
                file.writelines('%s %s.test\n' % (address, name) for address in addresses)
        if self.names_process:
            self.names_process.send_signal(signal.SIGHUP)

    def start_names(self, *flags):
        """Starts the name service; it answers NXDOMAIN for a name without addresses."""
        self.names_process = subprocess.Popen(
            [*self.names_node.under, 'dnsmasq', '--keep-in-foreground', '--conf-file=/dev/null',
             '--no-resolv', '--no-hosts', '--local=/test/', '--user=root', '--pid-file=',
             '--local-ttl=0', '--addn-hosts=' + self.join('hosts'), *flags],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        wait_until(self.is_naming, NAMES_SECONDS, 'the name service')

    def is_naming(self):
        """Returns whether the name service listens."""
        if self.names_process.poll() is not None:
            raise AssertionError('dnsmasq has ended: ' + self.names_process.stderr.read())
        return ':53 ' in run(*self.names_node.under, 'ss', '--udp', '--listening', '--numeric')

    def stop_names(self):
        """Ends the name service, if it runs: questions are refused."""
        if self.names_process:
            self.names_process.kill()
            self.names_process.communicate()
            self.names_process = None

    @staticmethod
    def empty_addresses(count):
        """Returns addresses at which nobody is."""
        return [HOST % (EMPTY_FIRST + number) for number in range(count)]
