"""Stands in for systemd: hears what a service tells it, and passes sockets on to it.

    service_manager.py NAME=ADDRESS... -- PROGRAM ARGUMENT...

runs the program with sockets that listen, in its own place; ADDRESS is HOST:PORT or a path.
"""

import os
import socket
import stat
import sys

from embagd_process import wait_until

FIRST = 3  # descriptor of the first socket that is passed
HIGH = 100  # where they are in between
HEAR_SECONDS = 30
MESSAGE_BYTES = 4096


class NotifySocket:
    """Where a service says what it is doing, in a directory of its caller's."""

    def __init__(self, directory):
        self.path = os.path.join(directory, 'notify')
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.socket.bind(self.path)
        os.chmod(self.path, 0o666)
        self.messages = []  # a dict each

    @property
    def environment(self):
        """By which a service finds it."""
        return {'NOTIFY_SOCKET': self.path}

    def look(self):
        """Reads what has come; returns all there has ever been."""
        while True:
            try:
                text = self.socket.recv(MESSAGE_BYTES).decode()
            except BlockingIOError:
                return self.messages
            self.messages.append(dict(line.split('=', 1) for line in text.splitlines()))

    def count(self, key):
        """In how many messages it was."""
        return sum(key in message for message in self.look())

    def wait(self, key, times=1, seconds=HEAR_SECONDS):
        """Waits until a key has come so often; returns its last value."""
        wait_until(lambda: self.count(key) >= times, seconds, '%s is told' % key)
        return [message[key] for message in self.messages if key in message][-1]

    def close(self):
        """Nothing more is heard."""
        self.socket.close()
        os.unlink(self.path)


def listen(address):
    """A socket that listens there; a unix socket is for its owner and group."""
    host, _, port = address.rpartition(':')
    if not host:
        made = socket.socket(socket.AF_UNIX)
        made.bind(address)
        os.chmod(address, stat.S_IRWXU | stat.S_IRWXG)
    else:
        made = socket.create_server((host, int(port)))
    made.listen()
    return made


def run_with(sockets, command):
    """Becomes the command, with sockets that it asks for as NAME=ADDRESS."""
    names, addresses = zip(*(asked.split('=', 1) for asked in sockets))
    # High ones first: what is moved down may lie where another one is to be.
    high = [os.dup2(listen(address).detach(), HIGH + n) for n, address in enumerate(addresses)]
    for n, descriptor in enumerate(high):
        os.dup2(descriptor, FIRST + n, inheritable=True)
        os.close(descriptor)
    os.environ.update(LISTEN_FDS=str(len(names)), LISTEN_FDNAMES=':'.join(names),
                      LISTEN_PID=str(os.getpid()))
    os.execv(command[0], command)


if __name__ == '__main__':
    separator = sys.argv.index('--')
    run_with(sys.argv[1:separator], sys.argv[separator + 1:])
