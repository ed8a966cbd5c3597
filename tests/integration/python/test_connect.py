"""Behaviour of servers that embagd does not show, or not on demand. A grpcio server stands in for
embagd: it reports the token that it received, is slow, or is overloaded."""

import asyncio
import collections
import concurrent.futures
import json
import os
import socket
import threading
import unittest
import unittest.mock

import grpc

import embag
from certificates import Authority
from embag import aio
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import Repository, wait_until

SERVICE = 'embag.v1.EmbeddingBag'
NAMES = 'DNS:embag.example,IP:127.0.0.1'
CHANNELS_MAX = 256


class TokensInClear(unittest.TestCase):
    """A token is not sent where others could read it."""

    FAR = ('embag.example:1', 'dns:///embag.example:1', '10.0.0.1:1', 'ipv4:127.0.0.1:1,10.0.0.1:1',
           'dns://10.0.0.1/localhost:1', 'xds:///localhost:1')
    LOCAL = ('localhost:1', 'dns:///localhost:1', '127.0.0.1:1', 'ipv4:127.0.0.1:1', '[::1]:1',
             'ipv6:[::1]:1', 'unix:/none', 'unix:///none', 'unix-abstract:none')

    def test_it_goes_to_this_machine_only(self):
        for address in self.FAR:
            for fields in {'token': 'x' * 16}, {'token_file': '/none'}:
                with self.subTest(address), self.assertRaisesRegex(ValueError, 'in clear text'):
                    embag.Client(address, **fields)
            embag.Client(address).close()
            embag.Client(address, token='x' * 16, tls=True).close()
        for address in self.LOCAL:
            embag.Client(address, token='x' * 16).close()


class StandIn:
    """A server whose answer depends on the model's name."""

    def __init__(self, credentials=None):
        self.go_on = threading.Event()
        self.begun = threading.Event()
        self.withdrawn = threading.Event()
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
        handlers = {
            'Lookup': grpc.unary_unary_rpc_method_handler(
                self.look_up, pb.LookupRequest.FromString,
                pb.LookupResponse.SerializeToString),
            'LookupStream': grpc.stream_stream_rpc_method_handler(
                self.stream, pb.LookupRequest.FromString,
                pb.LookupResponse.SerializeToString),
        }
        self.server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, handlers),))
        port = (self.server.add_secure_port('127.0.0.1:0', credentials) if credentials
                else self.server.add_insecure_port('127.0.0.1:0'))
        self.address = '127.0.0.1:%d' % port
        self.server.start()

    def look_up(self, request, context):
        """Handles Lookup: the answer's model is the token that arrived, the name of the client's
        certificate, or the address of its connection."""
        if request.model == 'busy':
            context.set_trailing_metadata((('grpc-retry-pushback-ms', '250'),))
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, 'the queue is full')
        if request.model == 'slow':
            context.add_callback(self.withdrawn.set)
            self.begun.set()
            self.go_on.wait(60)
        if request.model == 'who':
            return pb.LookupResponse(model=context.peer_identities()[0].decode(), version=1)
        if request.model == 'where':
            return pb.LookupResponse(model=context.peer(), version=1)
        metadata = dict(context.invocation_metadata())
        return pb.LookupResponse(model=metadata.get('authorization', 'nobody'), version=1)

    def stream(self, requests, context):
        """Handles LookupStream: every request finds the queue full, except those of some models.
        Notes that a cancel arrived."""
        for request in requests:
            if request.cancel:
                self.withdrawn.set()
            elif request.model != 'slow':
                yield pb.LookupResponse(request_id=request.request_id, error_code=8,
                                        error_message='queries[1]: full', retry_after_ms=40)

    def stop(self):
        """Stops the server."""
        self.go_on.set()
        self.server.stop(0).wait()


class ConnectTest(unittest.TestCase):
    """Tests each of which has its own stand-in."""

    def setUp(self):
        folder = Repository()
        self.addCleanup(folder.remove)
        self.join = folder.join

    def stand_in(self, credentials=None):
        """Starts a stand-in that is stopped at the end of the test."""
        server = StandIn(credentials)
        self.addCleanup(server.stop)
        return server

    def connect(self, *arguments, **fields):
        """Creates a client that is closed at the end of the test."""
        client = embag.Client(*arguments, **fields)
        self.addCleanup(client.close)
        return client

    def write(self, name, text):
        """Writes a file; returns its path."""
        path = self.join(name)
        with open(path, 'w', encoding='utf-8') as file:
            file.write(text)
        return path


class Tokens(ConnectTest):
    """Tokens without TLS."""

    def test_goes_with_every_call(self):
        address = self.stand_in().address
        self.assertEqual(self.connect(address).lookup([]).model, 'nobody')
        client = self.connect(address, token='secret')
        self.assertEqual(client.lookup([]).model, 'Bearer secret')

    def test_a_file_is_read_again_when_it_changes(self):
        path = self.write('token', 'first\n')
        client = self.connect(self.stand_in().address, token_file=path)
        self.assertEqual(client.lookup([]).model, 'Bearer first')
        os.replace(self.write('next', 'second\n'), path)
        self.assertEqual(client.lookup([]).model, 'Bearer second')

    def test_what_does_not_fit_is_told_at_once(self):
        with self.assertRaises(ValueError):
            embag.Client('127.0.0.1:1', token='a', token_file='b')
        with self.assertRaises(ValueError):
            embag.Client('127.0.0.1:1', cert_file='a')
        with self.assertRaises(TypeError):
            embag.Client('127.0.0.1:1', colour='red')
        with self.assertRaises(FileNotFoundError):
            embag.Client('127.0.0.1:1', ca_file=self.join('nothing'))


class Channels(ConnectTest):
    """Clients with several channels. Each channel has a connection of its own."""

    def setUp(self):
        super().setUp()
        self.server = self.stand_in()

    def test_there_is_one_unless_more_are_asked_for(self):
        client = self.connect(self.server.address)
        self.assertEqual(len({client.lookup([], model='where').model for _ in range(4)}), 1)

    def test_lookups_use_all_in_turn(self):
        client = self.connect(self.server.address, channels=3)
        used = [client.lookup([], model='where').model for _ in range(9)]
        self.assertEqual(set(collections.Counter(used).values()), {3})
        self.assertEqual(used[:3], used[3:6])

    def test_lookups_of_asyncio_use_all_in_turn(self):
        async def ask():
            async with aio.Client(self.server.address, channels=3) as client:
                return [(await client.lookup([], model='where')).model for _ in range(9)]
        self.assertEqual(set(collections.Counter(asyncio.run(ask())).values()), {3})

    def test_one_with_fewer_calls_is_preferred(self):
        client = self.connect(self.server.address, channels=2)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            slow = pool.submit(client.lookup, [], model='slow')
            self.assertTrue(self.server.begun.wait(60))
            used = {client.lookup([], model='where').model for _ in range(4)}
            self.assertEqual(len(used), 1)
            self.server.go_on.set()
            slow.result(60)
        used = {client.lookup([], model='where').model for _ in range(4)}
        self.assertEqual(len(used), 2)

    def test_a_stream_counts_as_a_call(self):
        client = self.connect(self.server.address, channels=2)
        with client.stream() as stream:
            self.assertIsInstance(stream.submit([]).exception(60), embag.ResourceExhausted)
            used = {client.lookup([], model='where').model for _ in range(4)}
            self.assertEqual(len(used), 1)

    def test_all_are_connected_to_all_addresses(self):
        other = self.stand_in()
        config = {'loadBalancingConfig': [{'round_robin': {}}]}
        client = self.connect('ipv4:%s,%s' % (self.server.address, other.address), channels=2,
                              options=[('grpc.service_config', json.dumps(config))])
        used = set()
        wait_until(lambda: used.add(client.lookup([], model='where').model) or len(used) == 4, 60,
                   'lookups over two connections to each of two servers')

    def test_a_number_out_of_range_is_refused(self):
        for channels in -1, 0, CHANNELS_MAX + 1:
            with self.assertRaisesRegex(ValueError, 'channels is %d' % channels):
                embag.Client(self.server.address, channels=channels)
        client = self.connect(self.server.address, channels=CHANNELS_MAX)
        self.assertEqual(client.lookup([]).model, 'nobody')

    def test_no_call_is_made_after_the_end(self):
        client = self.connect(self.server.address, channels=2)
        client.lookup([])
        client.close()
        for _ in range(2):
            with self.assertRaises(ValueError):
                client.lookup([])


class Proxies(ConnectTest):
    """Proxies that the environment names."""

    def setUp(self):
        super().setUp()
        self.address = self.stand_in().address
        self.proxy = socket.create_server(('127.0.0.1', 0))
        self.addCleanup(self.proxy.close)
        proxy = '127.0.0.1:%d' % self.proxy.getsockname()[1]
        url = 'http://' + proxy
        environment = unittest.mock.patch.dict(
            os.environ, no_proxy='', no_grpc_proxy='', http_proxy=url, grpc_proxy=url,
            GRPC_ADDRESS_HTTP_PROXY=proxy, GRPC_ADDRESS_HTTP_PROXY_ENABLED_ADDRESSES='127.0.0.1')
        environment.start()
        self.addCleanup(environment.stop)
        self.forced = [('grpc.enable_http_proxy', 1), ('grpc.http_proxy', url)]

    def assert_unused(self):
        """Checks that nobody has called the proxy."""
        self.proxy.setblocking(False)
        with self.assertRaises(BlockingIOError):
            self.proxy.accept()

    def test_have_nothing_to_do_with_this_machine(self):
        self.assertEqual(self.connect(self.address).lookup([]).model, 'nobody')
        for options in (), self.forced, [(name.encode(), value) for name, value in self.forced]:
            client = self.connect(self.address, token='secret', options=options)
            self.assertEqual(client.lookup([]).model, 'Bearer secret')
        for scheme in 'dns:', 'dns:/', 'dns:///', 'ipv4:':
            client = self.connect(scheme + self.address, token='secret')
            self.assertEqual(client.lookup([]).model, 'Bearer secret')
        self.assert_unused()

    def test_nor_for_asyncio(self):
        async def ask():
            async with aio.Client(self.address, token='secret', options=self.forced) as client:
                return (await client.lookup([])).model
        self.assertEqual(asyncio.run(ask()), 'Bearer secret')
        self.assert_unused()

    def test_are_there_for_who_asks_and_has_no_token(self):
        client = self.connect(self.address, options=self.forced)
        client.stream().submit([])
        self.proxy.settimeout(60)
        connection, _ = self.proxy.accept()
        with connection:
            self.assertIn(b'CONNECT ' + self.address.encode(), connection.recv(1000))


class Encrypted(ConnectTest):
    """TLS as grpcio's server implements it."""

    def setUp(self):
        super().setUp()
        self.files = files = Authority()
        self.addCleanup(files.remove)
        for name in 'server', 'client':
            files.issue(name, names=NAMES)
        pair = [(files.read('server.key'), files.read('server.pem'))]
        self.server = self.stand_in(grpc.ssl_server_credentials(pair))
        mutual = grpc.ssl_server_credentials(pair, files.read('ca.pem'), True)
        self.mutual = self.stand_in(mutual)

    def test_a_certificate_that_leads_to_the_ca(self):
        client = self.connect(self.server.address, ca_file=self.files.path('ca.pem'), token='t')
        self.assertEqual(client.lookup([]).model, 'Bearer t')

    def test_others_are_not_believed(self):
        for fields in {'tls': True}, {}, {'ca_file': self.files.path('client.pem')}:
            with self.assertRaises(embag.Unavailable):
                self.connect(self.server.address, **fields).lookup([])

    def test_the_name_that_the_certificate_must_have(self):
        ca_file = self.files.path('ca.pem')
        client = self.connect(self.server.address, ca_file=ca_file, server_name='embag.example')
        self.assertEqual(client.lookup([]).model, 'nobody')
        with self.assertRaises(embag.Unavailable):
            self.connect(self.server.address, ca_file=ca_file, server_name='other').lookup([])

    def test_says_who_it_is(self):
        ca_file, cert_file, key_file = map(self.files.path, ('ca.pem', 'client.pem', 'client.key'))
        client = self.connect(self.mutual.address, ca_file=ca_file, cert_file=cert_file,
                              key_file=key_file)
        self.assertEqual(client.lookup([], model='who').model, 'embag.example')
        with self.assertRaises(embag.Unavailable):
            self.connect(self.mutual.address, ca_file=ca_file).lookup([])

    def test_asyncio_too(self):
        async def ask():
            async with aio.Client(self.server.address, ca_file=self.files.path('ca.pem'),
                                  token='t') as client:
                return (await client.lookup([])).model
        self.assertEqual(asyncio.run(ask()), 'Bearer t')


# Every call compares the certificate files, and uses new ones at once.
EAGER = unittest.mock.patch.multiple('embag.channel', _POLL_S=0.0, _QUIET_S=0.0)


class Renewed(ConnectTest):
    """Certificate files that change while a client runs."""

    def setUp(self):
        super().setUp()
        self.files = self.authority()
        self.issue('first')
        self.shown = self.files
        self.server = self.stand_in(grpc.dynamic_ssl_server_credentials(
            self.configuration(), self.configuration, True))
        self.files.replace('trusted.pem', self.files.read('ca.pem').decode())
        self.fields = dict(zip(('ca_file', 'cert_file', 'key_file'), map(
            self.files.path, ('trusted.pem', 'client.pem', 'client.key'))))

    def authority(self):
        """Makes an authority that has issued a certificate for the server."""
        files = Authority()
        self.addCleanup(files.remove)
        files.issue('server', names=NAMES)
        return files

    def configuration(self):
        """Returns what the server shows, and which clients it lets in, on a new connection."""
        pair = (self.shown.read('server.key'), self.shown.read('server.pem'))
        return grpc.ssl_server_certificate_configuration([pair], self.files.read('ca.pem'))

    def issue(self, name):
        """Replaces the client's certificate and key."""
        self.files.issue('client', names='DNS:' + name)

    def client(self):
        """Returns a client that uses the files."""
        return self.connect(self.server.address, timeout=60, **self.fields)

    def test_is_used_after_a_few_seconds(self):
        client = self.client()
        self.assertEqual(client.lookup([], model='who').model, 'first')
        self.issue('second')
        wait_until(lambda: client.lookup([], model='who').model == 'second', 60, 'the new one')

    @EAGER
    def test_later_calls_use_the_new_one_and_the_old_connection_is_closed(self):
        client = self.client()
        for name in 'first', 'second', 'third':
            self.issue(name)
            self.assertEqual(client.lookup([], model='who').model, name)
            self.assertEqual(client._channel._replaced, [])

    @EAGER
    def test_all_of_several_channels_use_the_new_one(self):
        client = self.connect(self.server.address, timeout=60, channels=2, **self.fields)
        for name in 'first', 'second':
            self.issue(name)
            self.assertEqual({client.lookup([], model='who').model for _ in range(4)}, {name})
            self.assertEqual(client._channel._replaced, [])

    @EAGER
    def test_connections_last_while_the_files_stay_the_same(self):
        client = self.client()
        first, second = (client.lookup([], model='where').model for _ in range(2))
        self.assertEqual(first, second)

    @EAGER
    def test_calls_in_flight_and_streams_end_where_they_began(self):
        client = self.client()
        with concurrent.futures.ThreadPoolExecutor(1) as pool, client.stream() as stream:
            slow = pool.submit(client.lookup, [], model='slow')
            self.assertTrue(self.server.begun.wait(60))
            self.assertIsInstance(stream.submit([]).exception(60), embag.ResourceExhausted)
            call = stream._call
            self.issue('second')
            self.assertEqual(client.lookup([], model='who').model, 'second')
            self.assertEqual(len(client._channel._replaced), 1)
            self.server.go_on.set()
            self.assertEqual(slow.result(60).model, 'nobody')
            self.assertIsInstance(stream.submit([]).exception(60), embag.ResourceExhausted)
            self.assertIs(stream._call, call)
            self.assertEqual(len(client._channel._replaced), 1)
        self.assertEqual(client._channel._replaced, [])

    @EAGER
    def test_closing_a_client_ends_the_calls_on_former_connections_too(self):
        client = self.client()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            slow = pool.submit(client.lookup, [], model='slow')
            self.assertTrue(self.server.begun.wait(60))
            self.issue('second')
            self.assertEqual(client.lookup([], model='who').model, 'second')
            client.close()
            self.assertIsInstance(slow.exception(60), embag.Cancelled)
            self.issue('third')
            with self.assertRaises(ValueError):
                client.lookup([])

    @EAGER
    def test_half_of_a_pair_is_not_used(self):
        client = self.client()
        self.files.issue('next', names='DNS:second')
        for kind, name in (('.pem', 'first'), ('.key', 'second')):
            os.replace(self.files.path('next' + kind), self.files.path('client' + kind))
            self.assertEqual(client.lookup([], model='who').model, name)

    @EAGER
    def test_files_that_are_missing_or_damaged_are_not_used(self):
        client = self.client()
        former = self.files.read('client.key').decode()
        self.issue('second')
        key = self.files.read('client.key').decode()
        for text in '', former, key[:100]:
            self.files.replace('client.key', text)
            self.assertEqual(client.lookup([], model='who').model, 'first')
        os.remove(self.files.path('client.key'))
        self.assertEqual(client.lookup([], model='who').model, 'first')
        self.files.replace('client.key', key)
        self.assertEqual(client.lookup([], model='who').model, 'second')

    @unittest.mock.patch.multiple('embag.channel', _POLL_S=0.0, _QUIET_S=3600.0)
    def test_files_that_have_just_changed_are_not_used(self):
        client = self.client()
        self.issue('second')
        for _ in range(3):
            self.assertEqual(client.lookup([], model='who').model, 'first')

    @EAGER
    def test_another_authority(self):
        client = self.client()
        before = client.lookup([], model='where').model
        self.shown = self.authority()
        with self.assertRaises(embag.Unavailable):
            self.client().lookup([])
        self.files.replace('trusted.pem', self.shown.read('ca.pem').decode())
        self.assertNotEqual(client.lookup([], model='where').model, before)

    @EAGER
    def test_asyncio_too(self):
        async def ask():
            async with aio.Client(self.server.address, timeout=60, **self.fields) as client:
                slow = asyncio.create_task(client.lookup([], model='slow'))
                self.assertTrue(await asyncio.to_thread(self.server.begun.wait, 60))
                async with client.stream() as stream:
                    with self.assertRaises(embag.ResourceExhausted):
                        await stream.submit([])
                    self.issue('second')
                    self.assertEqual((await client.lookup([], model='who')).model, 'second')
                    self.server.go_on.set()
                    self.assertEqual((await slow).model, 'nobody')
                    self.assertEqual(len(client._channel._replaced), 1)
                self.assertEqual(client._channel._replaced, [])
                self.assertEqual((await client.lookup([], model='who')).model, 'second')
        asyncio.run(ask())


class Trouble(ConnectTest):
    """Servers that are slow, busy or absent."""

    def test_says_when_to_come_again(self):
        client = self.connect(self.stand_in().address)
        with self.assertRaises(embag.ResourceExhausted) as caught:
            client.lookup([], model='busy')
        self.assertEqual((caught.exception.retry_after, str(caught.exception)),
                         (0.25, 'the queue is full'))
        with client.stream() as stream:
            error = stream.submit([embag.Query('t', [0]), embag.Query('t', [0])]).exception(60)
        self.assertIsInstance(error, embag.ResourceExhausted)
        self.assertEqual((error.retry_after, error.query), (0.04, 1))

    def test_a_timeout_ends_the_call(self):
        server = self.stand_in()
        client = self.connect(server.address, timeout=60)
        with self.assertRaises(embag.DeadlineExceeded):
            client.lookup([], model='slow', timeout=0.05)
        self.assertTrue(server.withdrawn.wait(60))
        with self.assertRaises(TimeoutError):
            self.connect(server.address, timeout=0.05).lookup([], model='slow')

    def test_a_cancelled_task_ends_the_call(self):
        server = self.stand_in()

        async def ask():
            async with aio.Client(server.address, timeout=60) as client:
                await client.lookup([])
                await asyncio.wait_for(client.lookup([], model='slow'), 0.1)
        with self.assertRaises(asyncio.TimeoutError):
            asyncio.run(ask())
        self.assertTrue(server.withdrawn.wait(60))

    def test_a_cancelled_future_withdraws_its_request(self):
        server = self.stand_in()
        with self.connect(server.address, timeout=1).stream() as stream:
            future = stream.submit([], model='slow')
            self.assertTrue(future.cancel())
            self.assertTrue(server.withdrawn.wait(60))
            self.assertEqual(len(stream._call.in_flight), 0)

    def test_a_cancelled_future_of_asyncio_withdraws_its_request(self):
        server = self.stand_in()

        async def ask():
            async with aio.Client(server.address, timeout=1) as client, client.stream() as stream:
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(stream.submit([], model='slow'), 0.05)
                self.assertTrue(await asyncio.to_thread(server.withdrawn.wait, 60))
                self.assertEqual(len(stream._call.in_flight), 0)
        asyncio.run(ask())

    def test_closing_a_stream_does_not_wait_for_ever(self):
        with self.connect(self.stand_in().address, timeout=0.2).stream() as stream:
            future = stream.submit([], model='slow')
        self.assertIsInstance(future.exception(60), (embag.Cancelled, embag.Unavailable))

    def test_closing_a_client_ends_its_calls(self):
        server = self.stand_in()
        client = self.connect(server.address, timeout=60)
        with concurrent.futures.ThreadPoolExecutor(1) as pool, client.stream() as stream:
            futures = [pool.submit(client.lookup, [], model='slow'),
                       stream.submit([], model='slow')]
            self.assertTrue(server.begun.wait(60))
            client.close()
            for future in futures:
                self.assertIsInstance(future.exception(60), embag.Cancelled)

    def test_closing_a_client_of_asyncio_ends_its_calls(self):
        server = self.stand_in()

        async def ask():
            client = aio.Client(server.address, timeout=60)
            task = asyncio.create_task(client.lookup([], model='slow'))
            future = client.stream().submit([], model='slow')
            self.assertTrue(await asyncio.to_thread(server.begun.wait, 60))
            await client.close()
            for call in task, future:
                with self.assertRaises(embag.Cancelled):
                    await asyncio.wait_for(call, 60)
            self.assertFalse(task.cancelled())
        asyncio.run(ask())

    def test_nobody_there(self):
        with self.assertRaises(embag.Unavailable) as caught:
            self.connect('unix:' + self.join('nothing')).lookup([])
        self.assertIsInstance(caught.exception, ConnectionError)
        with self.connect('unix:' + self.join('nothing')).stream() as stream:
            self.assertIsInstance(stream.submit([]).exception(60), embag.Unavailable)
