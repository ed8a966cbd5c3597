"""Relays connections to a server, and breaks them off when a test says so."""

import asyncio
import socket
import struct
import threading

CHUNK_BYTES = 1 << 16
RESET = struct.pack('ii', 1, 0)    # for SO_LINGER: closing sends RST


class TcpProxy:
    """Listens on a free port. A thread relays what arrives there.

    - count: connections so far
    - delay_seconds: time for which the server's bytes are held back
    """

    def __init__(self, server_port, server_host='127.0.0.1'):
        self.server = (server_host, server_port)
        self.port = None
        self.count = 0
        self.delay_seconds = 0
        self.writers = set()  # of connections in use, both sides
        self.loop = asyncio.new_event_loop()
        self.is_open = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        self.is_open.wait()

    @property
    def address(self):
        """Address of the proxy, as HOST:PORT."""
        return '127.0.0.1:%d' % self.port

    def reset(self):
        """Breaks all connections off, on both sides."""
        asyncio.run_coroutine_threadsafe(self._reset(), self.loop).result()

    def close(self):
        """Ends the proxy and its connections."""
        self.reset()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()

    def _run(self):
        asyncio.set_event_loop(self.loop)
        server = self.loop.run_until_complete(asyncio.start_server(self._connect, '127.0.0.1', 0))
        self.port = server.sockets[0].getsockname()[1]
        self.is_open.set()
        self.loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()

    async def _connect(self, reader, writer):
        try:
            server_reader, server_writer = await asyncio.open_connection(*self.server)
        except OSError:
            writer.transport.abort()
            return
        self.count += 1
        self.writers |= {writer, server_writer}
        await asyncio.gather(self._carry(reader, server_writer, False),
                             self._carry(server_reader, writer, True))
        self.writers -= {writer, server_writer}

    async def _carry(self, reader, writer, is_held):
        try:
            while data := await reader.read(CHUNK_BYTES):
                if is_held and self.delay_seconds:
                    await asyncio.sleep(self.delay_seconds)
                writer.write(data)
                await writer.drain()
        except (OSError, RuntimeError):
            pass    # One side is gone; the other is told below.
        writer.close()

    async def _reset(self):
        for writer in self.writers:
            connection = writer.get_extra_info('socket')
            if connection.fileno() >= 0:    # The other side may still wait for delayed bytes.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            writer.transport.abort()
        self.writers = set()
