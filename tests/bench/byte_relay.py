"""Relays connections to a server and counts the bytes in both directions.

    byte_relay.py ADDRESS

It listens on a free port and prints event=listening and event=ready on stderr, as a server does. At
SIGTERM it prints event=counted with the bytes sent to and received from the server.
"""

import asyncio
import signal
import sys

CHUNK_BYTES = 1 << 18


class Counts:
    """Bytes of all connections."""

    def __init__(self):
        self.to_server = 0
        self.from_server = 0


async def pass_on(reader, writer, add):
    """Relays bytes from `reader` to `writer` until one side closes.

    Calls `add` with the size of each chunk.
    """
    try:
        while data := await reader.read(CHUNK_BYTES):
            add(len(data))
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def serve(host, port, counts):
    """Relays connections until SIGTERM."""
    def add_to(count):
        counts.to_server += count

    def add_from(count):
        counts.from_server += count

    async def connect(reader, writer):
        server_reader, server_writer = await asyncio.open_connection(host, port)
        await asyncio.gather(pass_on(reader, server_writer, add_to),
                             pass_on(server_reader, writer, add_from))

    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    server = await asyncio.start_server(connect, "127.0.0.1", 0)
    own_port = server.sockets[0].getsockname()[1]
    print(f"event=listening address=127.0.0.1:{own_port}\nevent=ready", file=sys.stderr, flush=True)
    await ended.wait()


def main():
    host, _, port = sys.argv[1].rpartition(":")
    counts = Counts()
    asyncio.run(serve(host, int(port), counts))
    print(f"event=counted to_server={counts.to_server} from_server={counts.from_server}",
          file=sys.stderr)


if __name__ == "__main__":
    main()
