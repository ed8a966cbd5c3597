"""A substitute for systemd, which receives a service's notifications and passes sockets to it.

    service_manager.py NAME=ADDRESS... -- PROGRAM ARGUMENT...

replaces its own process with the program, and passes listening sockets to it. ADDRESS is HOST:PORT
or the path of a unix socket.
"""

import os
import socket
import stat
import sys

from embagd_process import wait_until

FIRST = 3  # descriptor of the first socket that is passed
HIGH = 100  # descriptor of the first socket while they are rearranged
HEAR_SECONDS = 30
MESSAGE_BYTES = 4096


class NotifySocket:
    """The socket to which a service sends its notifications, in a directory of the caller."""

    def __init__(self, directory):
        self.path = os.path.join(directory, 'notify')
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.socket.bind(self.path)
        os.chmod(self.path, 0o666)
        self.messages = []  # one dict for each message

    @property
    def environment(self):
        """Environment variables that tell a service the path of the socket."""
        return {'NOTIFY_SOCKET': self.path}

    def look(self):
        """Reads new messages. Returns all messages received so far."""
        while True:
            try:
                text = self.socket.recv(MESSAGE_BYTES).decode()
            except BlockingIOError:
                return self.messages
            self.messages.append(dict(line.split('=', 1) for line in text.splitlines()))

    def count(self, key):
        """Returns the number of messages that had `key`."""
        return sum(key in message for message in self.look())

    def wait(self, key, times=1, seconds=HEAR_SECONDS):
        """Waits until `key` was in `times` messages. Returns its last value."""
        wait_until(lambda: self.count(key) >= times, seconds, 'notifications of %s' % key)
        return [message[key] for message in self.messages if key in message][-1]

    def close(self):
        """Closes and removes the socket."""
        self.socket.close()
        os.unlink(self.path)


def listen(address):
    """Returns a socket that listens on `address`.

    A unix socket is accessible to its owner and group.
    """
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
    """Replaces this process with the command, which gets the sockets given as NAME=ADDRESS."""
    names, addresses = zip(*(asked.split('=', 1) for asked in sockets))
    # Moves the sockets to high numbers first, because one of them may have the number that another
    # one needs.
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
