"""embag.aio."""

import asyncio
import contextlib
import gc
import math
import os
import unittest

import numpy as np

import embag
from embag import aio
from embagd_process import wait_until
from served import SPEC_TABLE, ServedTest, scaled, shared

ROWS = np.array(SPEC_TABLE, 'f4')
LOOKUPS = 10000
AT_ONCE = 100
# Growth over 9 000 lookups after the first 1 000. One retained lookup would take some kilobytes.
GROWTH_BYTES_MAX = 8 << 20
GROWTH_OBJECTS_MAX = 500


def resident_bytes():
    """Returns the resident memory of this process."""
    with open('/proc/self/statm', encoding='ascii') as file:
        return int(file.read().split()[1]) * os.sysconf('SC_PAGE_SIZE')


def object_count():
    """Collects garbage, and returns the number of objects that the collector still tracks."""
    gc.collect()
    return len(gc.get_objects())


def socket_count(pid):
    """Returns the number of a process's open sockets."""
    folder = '/proc/%d/fd' % pid
    return sum(os.readlink(os.path.join(folder, name)).startswith('socket:')
               for name in os.listdir(folder) if os.path.lexists(os.path.join(folder, name)))


def one_row(asker, row, **fields):
    """Looks up one row of the specification's table with a method of a client or a stream."""
    return asker('emb_table', [row], num_bags=1, model='spec', **fields)


class Asyncio(unittest.IsolatedAsyncioTestCase):
    """Tests on the shared server."""

    @classmethod
    def setUpClass(cls):
        cls.server = shared()

    async def asyncSetUp(self):
        asyncio.get_running_loop().set_debug(False)
        self.client = aio.Client(self.server.address, timeout=60)
        self.addAsyncCleanup(self.client.close)

    def slow(self, asker, **fields):
        """Starts a lookup of a hundred megabytes of rows."""
        indices = np.arange(500_000, dtype='i4') % 50000
        return asker('large', indices, lengths=[len(indices)], model='wide', **fields)

    async def ask_rows(self, count):
        """Makes this many lookups, some at a time, and checks the answers."""
        for begin in range(0, count, AT_ONCE):
            answers = await asyncio.gather(
                *(one_row(self.client.lookup, (begin + n) % 5) for n in range(AT_ONCE)))
            for number, answer in enumerate(answers):
                np.testing.assert_array_equal(answer.values[0], ROWS[(begin + number) % 5])

    async def test_ten_thousand_lookups_leave_nothing_behind(self):
        await self.ask_rows(LOOKUPS // 10)
        sockets = socket_count(self.server.pid)
        objects, resident = object_count(), resident_bytes()
        await self.ask_rows(LOOKUPS - LOOKUPS // 10)
        self.assertLess(object_count() - objects, GROWTH_OBJECTS_MAX)
        self.assertLess(resident_bytes() - resident, GROWTH_BYTES_MAX)
        self.assertLessEqual(socket_count(self.server.pid), sockets)

    async def test_a_stream_leaves_nothing_behind(self):
        async with self.client.stream() as stream:
            async def ask(count):
                for _ in range(count // AT_ONCE):
                    await asyncio.gather(*(one_row(stream.submit, 1) for _ in range(AT_ONCE)))
            await ask(LOOKUPS // 10)
            objects, resident = object_count(), resident_bytes()
            await ask(LOOKUPS - LOOKUPS // 10)
            self.assertLess(object_count() - objects, GROWTH_OBJECTS_MAX)
            self.assertLess(resident_bytes() - resident, GROWTH_BYTES_MAX)
            self.assertEqual(len(stream._call.in_flight), 0)

    async def test_closed_clients_leave_no_connection(self):
        sockets = socket_count(self.server.pid)
        for _ in range(scaled(50)):
            async with aio.Client(self.server.address) as client:
                await one_row(client.lookup, 0)
                async with client.stream() as stream:
                    await one_row(stream.submit, 0)
        # The event loop closes the last connection.
        await asyncio.to_thread(wait_until, lambda: socket_count(self.server.pid) <= sockets, 30,
                                'connections to close')

    async def test_a_stream_answers_each_its_own(self):
        async with self.client.stream() as stream:
            futures = [one_row(stream.submit, n % 5) for n in range(scaled(5000))]
            for number, answer in enumerate(await asyncio.gather(*futures)):
                np.testing.assert_array_equal(answer.values[0], ROWS[number % 5])

    async def test_errors(self):
        with self.assertRaises(embag.OutOfRange) as caught:
            await one_row(self.client.lookup, 9)
        self.assertEqual(caught.exception.query, 0)
        async with self.client.stream() as stream:
            with self.assertRaises(embag.OutOfRange):
                await one_row(stream.submit, 9)
            self.assertEqual((await one_row(stream.submit, 0)).version, 1)

    async def test_a_timeout(self):
        with self.assertRaises(embag.DeadlineExceeded):
            await self.slow(self.client.lookup, timeout=1e-4)
        async with self.client.stream() as stream:
            with self.assertRaises(TimeoutError):
                await self.slow(stream.submit, timeout=1e-6)

    async def test_a_timeout_without_end(self):
        for timeout in math.inf, 1e300:
            async with aio.Client(self.server.address, timeout=timeout) as client:
                await one_row(client.lookup, 0)
                async with client.stream() as stream:
                    await one_row(stream.submit, 0)
            await one_row(self.client.lookup, 0, timeout=timeout)
            async with self.client.stream() as stream:
                await one_row(stream.submit, 0, timeout=timeout)
        for timeout, error in (math.nan, ValueError), (-math.inf, embag.DeadlineExceeded):
            with self.assertRaises(error):
                await self.slow(self.client.lookup, timeout=timeout)

    async def test_a_cancelled_task_is_withdrawn(self):
        task = asyncio.create_task(self.slow(self.client.lookup))
        await asyncio.sleep(0)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        self.assertEqual((await one_row(self.client.lookup, 0)).version, 1)

    async def test_a_cancelled_future_of_a_stream_is_withdrawn(self):
        async with self.client.stream() as stream:
            futures = [self.slow(stream.submit) for _ in range(4)]
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(futures[-1], 0)
            self.assertEqual((await one_row(stream.submit, 0)).version, 1)
            self.assertEqual(len(await asyncio.gather(*futures[:-1])), 3)
            self.assertEqual(len(stream._call.in_flight), 0)

    async def test_closing_waits_for_what_is_under_way(self):
        stream = self.client.stream()
        futures = [self.slow(stream.submit) for _ in range(3)]
        await stream.close()
        self.assertTrue(all(future.done() and future.exception() is None for future in futures))
        with self.assertRaises(ValueError):
            one_row(stream.submit, 0)

    async def test_describes_models_and_the_server(self):
        self.assertEqual([model.name for model in await self.client.models()],
                         ['every', 'packed', 'spec', 'wide'])
        self.assertEqual((await self.client.model('spec')).served_version, 1)
        self.assertTrue((await self.client.server()).limits)

    async def test_a_closed_client(self):
        await self.client.close()
        with self.assertRaises(ValueError):
            await one_row(self.client.lookup, 0)
        with self.assertRaises(ValueError):
            await one_row(self.client.stream().submit, 0)

    async def test_a_stream_whose_client_is_closed(self):
        async with self.client.stream() as stream:
            await one_row(stream.submit, 0)
            await self.client.close()
            # A request that is submitted before the stream notices the close fails through its
            # future.
            with self.assertRaises(ValueError):
                for _ in range(2):
                    with contextlib.suppress(embag.Cancelled):
                        await asyncio.wait_for(one_row(stream.submit, 0), 60)


class AsyncioAlive(ServedTest):
    """The shared server after these tests."""

    def test_server_lives(self):
        self.assertEqual(self.client.get_model('spec').name, 'spec')
