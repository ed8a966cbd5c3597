"""A name service for processes of a test, on an address of its own in 127.0.0.0/8.

The processes run in a mount namespace in which /etc/resolv.conf names this service. Nothing else
on the machine is changed. That needs CAP_SYS_ADMIN, and CAP_NET_BIND_SERVICE for port 53.
"""

import os
import random
import shutil
import socket
import struct
import subprocess
import threading

PORT = 53
MESSAGE_BYTES = 512
HEADER = struct.Struct('>HHHHHH')
ANSWERS, AUTHORITATIVE = 0x8000, 0x0400
NO_ERROR, SERVER_FAILURE, NO_SUCH_NAME = 0, 2, 3
TYPE_A, CLASS_IN = 1, 1
TTL_SECONDS = 0
ADDRESS_TRIES = 50
SCRIPT = 'mount --bind "$0" /etc/resolv.conf && mount --bind "$1" /etc/nsswitch.conf && ' \
    'shift && exec "$@"'


def loopback_address():
    """Returns an address that hardly anybody else uses."""
    return '127.%d.%d.%d' % tuple(random.randrange(2, 250) for _ in range(3))


def is_available():
    """Returns whether this process may give others a name service."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((loopback_address(), PORT))
    except OSError:
        return False
    return shutil.which('unshare') and subprocess.run(
        ['unshare', '--mount', 'mount', '--bind', '/etc/hosts', '/etc/resolv.conf'],
        stderr=subprocess.DEVNULL, check=False).returncode == 0


class NameServer:
    """Answers the questions for addresses of one name.

    - addresses: IPv4 addresses of the name; none: there is no such name
    - fails: the answers are errors of the service
    - is_silent: there are no answers
    - questions: how many questions for IPv4 addresses have come
    """

    def __init__(self, directory, name):
        self.name = name
        self.addresses = ()
        self.fails = False
        self.is_silent = False
        self.questions = 0
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._bind()
        self.resolv_conf = os.path.join(directory, 'resolv.conf')
        with open(self.resolv_conf, 'w', encoding='ascii') as file:
            file.write('nameserver %s\noptions timeout:30 attempts:2\n'
                       % self.socket.getsockname()[0])
        self.nsswitch_conf = os.path.join(directory, 'nsswitch.conf')
        with open(self.nsswitch_conf, 'w', encoding='ascii') as file:
            file.write('hosts: dns\n')
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _bind(self):
        for _ in range(ADDRESS_TRIES):
            try:
                self.socket.bind((loopback_address(), PORT))
                return
            except OSError:
                continue
        raise AssertionError('no free address for a name server')

    def under(self):
        """Returns the start of a command line that runs a program with this name service."""
        return ('unshare', '--mount', 'sh', '-c', SCRIPT, self.resolv_conf, self.nsswitch_conf)

    def close(self):
        """Ends the service."""
        self.socket.sendto(b'', self.socket.getsockname())
        self.thread.join()
        self.socket.close()

    def _serve(self):
        while True:
            question, peer = self.socket.recvfrom(MESSAGE_BYTES)
            if not question:    # close() has sent it.
                return
            answer = self._answer(question)
            if not self.is_silent:
                self.socket.sendto(answer, peer)

    def _answer(self, message):
        number = HEADER.unpack_from(message)[0]
        labels, at = [], HEADER.size
        while message[at]:
            labels.append(message[at + 1:at + 1 + message[at]].decode('ascii'))
            at += 1 + message[at]
        kind = struct.unpack_from('>H', message, at + 1)[0]
        question = message[HEADER.size:at + 5]
        self.questions += kind == TYPE_A
        addresses = self.addresses if '.'.join(labels).lower() == self.name else ()
        code = SERVER_FAILURE if self.fails else NO_ERROR if addresses else NO_SUCH_NAME
        records = [] if self.fails or kind != TYPE_A else [
            b'\xc0\x0c' + struct.pack('>HHIH', TYPE_A, CLASS_IN, TTL_SECONDS, 4)
            + socket.inet_aton(address) for address in addresses]
        return HEADER.pack(number, ANSWERS | AUTHORITATIVE | code, 1, len(records), 0, 0) + \
            question + b''.join(records)
