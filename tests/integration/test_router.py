"""Routers: lookups that part servers compute, and which version is served."""

import json
import os
import subprocess
import time
import unittest

import grpc
import numpy as np

import served
from certificates import Authority
from cluster import Cluster, wait_served
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import Embagd, wait_until
from http_peer import Metrics
from random_query import random_tables
from rogue_part import RoguePart
from rpc import error_of
from served import SEED, scaled
from table_files import Table, write_model
from test_differential import Lookup

PARTS = 3
REQUESTS = 1500


class RandomLookupTest(unittest.TestCase):
    """A router answers random lookups as the model computes them."""

    flags = ()

    @classmethod
    def setUpClass(cls):
        rng = np.random.default_rng([SEED, 11])
        cls.cluster = Cluster(PARTS)
        cls.addClassCleanup(cls.cluster.remove)
        tables = random_tables(rng)
        cls.tables = {table.name: table for table in tables}
        write_model(cls.cluster.source, 'm', 1, tables)
        # Each kind of table is divided, whole in a part, or everywhere.
        kinds = ['placement: rows', 'placement: everywhere'] + [
            'placement: whole, part: %d' % part for part in range(PARTS)]
        placement = {table.name: kinds[0] if rng.random() < 0.6
                     else kinds[rng.integers(1, len(kinds))] for table in tables}
        for table in tables:
            table.is_divided = placement[table.name] == kinds[0]
        cls.cluster.split('m', 1, placement=placement)
        cls.cluster.start_parts()
        cls.router = cls.cluster.start_router(*cls.flags)
        cls.client = cls.cluster.connect(cls.router)
        wait_served(cls.client, 1)

    def lookups(self, number, count, **more):
        """Yields random lookups."""
        rng = np.random.default_rng([SEED, number])
        for _ in range(scaled(count)):
            yield Lookup(rng, 'm', self.tables, **more)

    def test_unary_answers_are_those_of_the_model(self):
        for lookup in self.lookups(21, REQUESTS):
            answer = self.client.lookup(lookup.request)
            self.assertEqual((answer.model, answer.version), ('m', 1))
            lookup.check(answer)

    def test_concat_is_that_of_the_model(self):
        for lookup in self.lookups(22, REQUESTS // 3, concat=True):
            lookup.check(self.client.lookup(lookup.request))

    def test_streams_are_those_of_the_model(self):
        lookups = list(self.lookups(23, REQUESTS))
        for number, lookup in enumerate(lookups):
            lookup.request.request_id = number + 1
        answers = {a.request_id: a for a in self.client.stream([x.request for x in lookups])}
        for lookup in lookups:
            answer = answers[lookup.request.request_id]
            self.assertEqual((answer.error_code, answer.error_message), (0, ''))
            lookup.check(answer)


class SlicedLookupTest(RandomLookupTest):
    """So does one that cuts all but the smallest queries into slices."""

    flags = ('--route-slab-bytes', '4096')


VALUES = np.arange(40, dtype='f4').reshape(20, 2)


class RouterTest(unittest.TestCase):
    """A small table in two parts: row r has the values 2 r and 2 r + 1."""

    def setUp(self):
        self.cluster = Cluster(2)
        self.addCleanup(self.cluster.remove)
        write_model(self.cluster.source, 'm', 1, [Table.of_values('t', 'f32', VALUES),
                                                  Table.of_values('here', 'f32', VALUES)])
        self.cluster.split('m', 1, placement={
            't': 'placement: rows', 'here': 'placement: everywhere'})

    def route(self, *flags, **keywords):
        """Starts a router. Returns a client that is connected to it."""
        client = self.cluster.connect(self.cluster.start_router(*flags, **keywords))
        wait_served(client, 1)
        return client

    def sum_of(self, client, indices=range(20), table='t', **fields):
        """Looks up one bag."""
        return client.lookup(pb.LookupRequest(
            queries=[pb.BagQuery(table=table, indices=indices, num_bags=1)], **fields))

    def look_up(self, *flags):
        """Runs `embag lookup` for one bag. Returns its exit status and what it prints."""
        done = subprocess.run(
            [served.EMBAG, 'lookup', '--server', self.cluster.routers[-1].address, '--table', 't',
             '--num-bags', '1', *flags], capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout

    def assert_sums(self, client, indices=range(20)):
        """Expects the right sum of one bag."""
        values = np.frombuffer(self.sum_of(client, indices).results[0].values, '<f4')
        np.testing.assert_array_equal(values, VALUES[list(indices)].sum(0))

    def test_passes_the_trace_on(self):
        self.cluster.start_parts('--access-log', 'all')
        trace = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'
        client = self.route()
        self.sum_of(client, traceparent=trace)
        client.unary('Lookup', pb.LookupResponse)(
            pb.LookupRequest(queries=[pb.BagQuery(table='t', indices=[1], num_bags=1)]),
            metadata=[('traceparent', trace.replace('4bf9', 'abcd'))], timeout=10)
        for server, count in ((0, 1), (1, 2)):  # Row 1 is in part 1 alone.
            wait_until(lambda: sum('trace_id=' in line
                                   for line in self.cluster.servers[server, 0].lines) == count,
                       10, 'the traces of part %d' % server)

    def test_authenticates_itself_with_a_token(self):
        authority = Authority()
        self.addCleanup(authority.remove)
        token = authority.write('router.token', 'a-token-of-this-router\n')
        rules = authority.write('auth.yaml', 'principals:\n  - {name: router, token_file: %s, '
                                'models: ["*"], router: true}\n  - {name: caller, token_file: %s, '
                                'models: ["*"]}\n' % (token, authority.write(
                                    'caller.token', 'a-token-of-a-caller\n')))
        self.cluster.start_parts('--auth-file', rules)
        self.assert_sums(self.route('--route-token-file', token))
        stranger = self.cluster.connect(self.cluster.servers[0, 0])
        self.assertEqual(error_of(self.sum_of, stranger)[0], grpc.StatusCode.UNAUTHENTICATED)
        query = pb.LookupRequest(queries=[pb.BagQuery(table='t', indices=[0], num_bags=1, part=1)])
        look_up = stranger.unary('Lookup', pb.LookupResponse)
        tokens = [[('authorization', 'Bearer a-token-of-' + who)] for who in (
            'this-router', 'a-caller')]
        answer = look_up(query, timeout=10, metadata=tokens[0])
        refusal = error_of(look_up, query, timeout=10, metadata=tokens[1])
        self.assertEqual(answer.results[0].values, VALUES[0].tobytes())
        self.assertEqual(refusal[0], grpc.StatusCode.PERMISSION_DENIED)
        self.assertIn('router: true', refusal[1])

    def test_speaks_mutual_tls_and_takes_new_certificates(self):
        authority = Authority()
        self.addCleanup(authority.remove)
        authority.issue('part', names='IP:127.0.0.1')
        authority.issue('router', 'router')
        self.cluster.start_parts(
            '--tls-cert', authority.path('part.pem'), '--tls-key', authority.path('part.key'),
            '--tls-client-ca', authority.path('ca.pem'))
        client = self.route('--route-tls-ca', authority.path('ca.pem'), '--route-tls-cert',
                            authority.path('router.pem'), '--route-tls-key',
                            authority.path('router.key'))
        self.assert_sums(client)
        authority.issue('router', 'router')
        self.assert_sums(client)

    def test_refuses_settings_that_contradict_each_other(self):
        for flags, text in ((('--route', 'a:1', '--part', '0/2'), 'set one of them'),
                            (('--route-tls-ca', 'x'), 'need --route'),
                            (('--route', 'a:1', '--route-tls-cert', 'x'), '--route-tls-key'),
                            (('--route', 'nowhere'), 'invalid address'),
                            (('--route', 'a:1', '--route-tls-ca', '/nowhere'), '/nowhere')):
            self.assertIn(text, Embagd(self.cluster.path, *flags).start_fails())

    def test_names_the_part_that_nobody_has(self):
        self.cluster.start_part(0).wait_ready()
        router = self.cluster.start_router('--route-settle-ms', '200')
        client = self.cluster.connect(router)
        wait_until(lambda: 'part 1 of 2' in error_of(self.sum_of, client, version=1)[1], 20,
                   'the version to be loaded')
        code, text = error_of(self.sum_of, client, version=1)
        self.assertEqual(code, grpc.StatusCode.UNAVAILABLE)
        self.assertIn('part 1 of 2', text)
        values = np.frombuffer(
            self.sum_of(client, range(0, 20, 2), version=1).results[0].values, '<f4')
        np.testing.assert_array_equal(values, VALUES[::2].sum(0))
        self.assertEqual(len(self.sum_of(client, table='here', version=1).results), 1)

    def test_answers_without_a_part_if_the_request_allows_it(self):
        self.cluster.start_parts()
        client = self.route()
        self.cluster.servers[1, 0].kill()
        del self.cluster.servers[1, 0]
        answer = self.sum_of(client, allow_incomplete=True)
        self.assertTrue(answer.incomplete)
        self.assertEqual(answer.results[0].unreached, 10)
        np.testing.assert_array_equal(np.frombuffer(answer.results[0].values, '<f4'),
                                      VALUES[::2].sum(0))
        answer = self.sum_of(client, range(0, 20, 2), allow_incomplete=True)
        self.assertFalse(answer.incomplete)
        code, text = self.look_up('--indices', '0,1,2,3')
        self.assertEqual((code, text), (1, ''))
        code, text = self.look_up('--indices', '0,1,2,3', '--allow-incomplete')
        self.assertEqual(code, 0)
        self.assertIn('t: f32 [1, 2], 0 missing, 2 unreached\n     0: 4 6\n', text)
        code, text = self.look_up('--indices', '0,1,2,3', '--allow-incomplete', '--json')
        result, = json.loads(text)['results']
        self.assertEqual((result['unreached'], result['values']), (2, [4, 6]))
        code, text = self.look_up('--indices', '0,2', '--allow-incomplete', '--json')
        self.assertNotIn('unreached', json.loads(text)['results'][0])

    def test_fails_only_results_that_need_a_lost_part(self):
        self.cluster.start_parts()
        client = self.route()
        self.cluster.servers[1, 0].kill()
        del self.cluster.servers[1, 0]
        answer = client.lookup(pb.LookupRequest(errors_per_query=True, queries=[
            pb.BagQuery(table=table, indices=indices, num_bags=1)
            for table, indices in (('t', [0]), ('t', [1]), ('here', [1]), ('t', [2, 3]))]))
        codes = [result.error_code for result in answer.results]
        unavailable = grpc.StatusCode.UNAVAILABLE.value[0]
        self.assertEqual(codes, [0, unavailable, 0, unavailable])
        self.assertIn('part 1 of 2', answer.results[1].error_message)

    def test_drops_lookups_that_nobody_waits_for(self):
        self.cluster.start_parts()
        client = self.route()
        for server in self.cluster.servers.values():
            server.hold()
        futures = [client.lookup_future(pb.LookupRequest(
            queries=[pb.BagQuery(table='t', indices=range(20), num_bags=1)])) for _ in range(50)]
        for future in futures[::2]:
            future.cancel()
        late = [error_of(self.sum_of, client, timeout_us=50000) for _ in range(3)]
        for server in self.cluster.servers.values():
            server.release()
        self.assertEqual({code for code, _ in late}, {grpc.StatusCode.DEADLINE_EXCEEDED})
        for future in futures[1::2]:
            np.testing.assert_array_equal(
                np.frombuffer(future.result().results[0].values, '<f4'), VALUES.sum(0))
        self.assert_sums(client)

    def test_takes_no_status_from_a_part_that_grpc_does_not_define(self):
        self.cluster.start_parts('--access-log', 'all')
        rogue = RoguePart(self.cluster.servers[1, 0].address, lambda request: pb.LookupResponse(
            error_code=code, error_message='made up'))
        self.addCleanup(rogue.stop)
        code = 2**32 - 1
        client = self.route('--loops', '1', route='%s,%s' % (
            self.cluster.servers[0, 0].address, rogue.address))
        for code in (17, 100000, 2**31, 2**32 - 1):
            status, text = error_of(self.sum_of, client)
            self.assertEqual(status, grpc.StatusCode.UNKNOWN)
            self.assertIn('made up', text)
            self.assertEqual([answer.error_code for answer in client.stream(iter([pb.LookupRequest(
                request_id=1, queries=[pb.BagQuery(table='t', indices=[1], num_bags=1)])]))],
                             [grpc.StatusCode.UNKNOWN.value[0]])
        self.assertGreaterEqual(rogue.count, 8)
        self.assertEqual(len(self.sum_of(client, [0]).results), 1)

    def route_beside(self, answer, *others):
        """Starts the part servers and a router. Before one of part 1 stands a rogue that answers.
        Returns a client and the rogue."""
        self.cluster.add_ports(others)
        self.cluster.start_parts()
        rogue = RoguePart(self.cluster.servers[1, 0].address, answer)
        self.addCleanup(rogue.stop)
        addresses = [self.cluster.servers[key].address for key in [(0, 0), *others]]
        return self.route('--loops', '1', route=','.join([*addresses, rogue.address])), rogue

    def test_asks_another_server_if_an_answer_is_wrong(self):
        answers = [
            lambda request: pb.LookupResponse(results=[pb.BagResult(shape=[7])]),
            lambda request: pb.LookupResponse(error_code=13, error_message='broken'),
            lambda request: pb.LookupResponse(error_code=16, error_message='who?'),
            lambda request: pb.LookupResponse(error_code=4, error_message='late',
                                              retry_after_ms=5)]
        client, rogue = self.route_beside(lambda request: answers[0](request), (1, 1))
        while answers:
            count = rogue.count
            for _ in range(30):
                self.assert_sums(client)
            self.assertGreater(rogue.count, count)
            answers.pop(0)
            time.sleep(1.5)    # It may have been ejected for a second.

    def test_a_part_cannot_cancel(self):
        client, rogue = self.route_beside(
            lambda request: pb.LookupResponse(error_code=1, error_message='made up'))
        for fields in {}, {'errors_per_query': True}:
            answer = next(client.stream(iter([pb.LookupRequest(request_id=1, **fields, queries=[
                pb.BagQuery(table='t', indices=[0, 1], num_bags=1),
                pb.BagQuery(table='t', indices=[0], num_bags=1)])])))
            failed = answer.results[0] if fields else answer
            self.assertEqual(failed.error_code, grpc.StatusCode.INTERNAL.value[0])
            self.assertIn('part 1 of 2', failed.error_message)
        self.assertEqual(answer.results[1].values, VALUES[0].tobytes())
        self.assertGreater(rogue.count, 1)

    def test_bounds_the_pause_that_a_part_asks_for(self):
        client, _ = self.route_beside(lambda request: pb.LookupResponse(
            error_code=8, error_message='made up', retry_after_ms=2**32 - 1))
        answer = next(client.stream(iter([pb.LookupRequest(request_id=1, queries=[
            pb.BagQuery(table='t', indices=[1], num_bags=1)])])))
        self.assertEqual(answer.error_code, grpc.StatusCode.RESOURCE_EXHAUSTED.value[0])
        self.assertEqual(answer.retry_after_ms, 60000)

    def test_does_not_wait_for_a_part_if_a_concatenated_result_has_failed(self):
        client, _ = self.route_beside(
            lambda request: pb.LookupResponse(error_code=16, error_message='made up'))
        self.cluster.servers[0, 0].hold()
        try:
            begin = time.monotonic()
            status, text = error_of(client.lookup, pb.LookupRequest(
                concat=True, errors_per_query=True,
                queries=[pb.BagQuery(table='t', indices=[0, 1], num_bags=1)]), 20)
        finally:
            self.cluster.servers[0, 0].release()
        self.assertEqual(status, grpc.StatusCode.UNAVAILABLE)
        self.assertIn('part 1', text)
        self.assertLess(time.monotonic() - begin, 15)

    def test_asks_a_part_for_two_slabs_at_a_time(self):
        values = np.arange(20 * 128, dtype='<f4').reshape(20, 128)
        write_model(self.cluster.source, 'm', 2, [Table.of_values('t', 'f32', values)])
        self.cluster.split('m', 2, placement={'t': 'placement: rows'})
        self.cluster.start_parts()
        router = self.cluster.start_router('--loops', '1', '--route-slab-bytes', '4096')
        client = self.cluster.connect(router)
        wait_served(client, 2)
        indices = [2, 3, 4, 5, 6] * 200
        request = pb.LookupRequest(queries=[pb.BagQuery(
            table='t', indices=indices, reduction=pb.REDUCTION_NONE)])
        before = Metrics(router).sum('embag_route_leg_bytes_total', direction='sent')
        for server in self.cluster.servers.values():
            server.hold()
        try:
            future = client.lookup_future(request)
            self.assertRaises(grpc.FutureTimeoutError, future.result, 0.5)
            sent = Metrics(router).sum('embag_route_leg_bytes_total', direction='sent') - before
        finally:
            for server in self.cluster.servers.values():
                server.release()
        self.assertEqual(future.result(20).results[0].values, values[indices].tobytes())
        total = Metrics(router).sum('embag_route_leg_bytes_total', direction='sent') - before
        # 1,000 rows of 512 B, at most 7 in a leg: as many legs are sent as two slabs have room for.
        self.assertLess(0, sent)
        self.assertLess(sent, total / 50)
        self.assertEqual(Metrics(router).sum('embag_route_slab_waits_total'), 1)

    def test_a_silent_part_holds_back_only_its_own_rows(self):
        values = np.arange(20 * 128, dtype='<f4').reshape(20, 128)
        write_model(self.cluster.source, 'm', 2, [Table.of_values('t', 'f32', values)])
        self.cluster.split('m', 2, placement={'t': 'placement: rows'})
        self.cluster.start_parts()
        client = self.cluster.connect(self.cluster.start_router(
            '--loops', '1', '--route-slab-bytes', '4096'))
        wait_served(client, 2)
        self.cluster.servers[0, 0].hold()
        try:
            # 200 rows of 512 B from each part, many slabs.
            answer = client.lookup(pb.LookupRequest(
                allow_incomplete=True, timeout_us=2000000, queries=[pb.BagQuery(
                    table='t', indices=[0, 1] * 200, reduction=pb.REDUCTION_NONE)]), 20)
        finally:
            self.cluster.servers[0, 0].release()
        self.assertEqual(answer.results[0].unreached, 200)
        rows = np.frombuffer(answer.results[0].values, '<f4').reshape(400, 128)
        np.testing.assert_array_equal(rows[1::2], values[[1] * 200])
        self.assertFalse(rows[0::2].any())

    def start_wide(self, *flags):
        """Serves a table with rows of 512 B in two parts. Returns its values, and a client."""
        values = np.arange(20 * 128, dtype='<f4').reshape(20, 128)
        write_model(self.cluster.source, 'm', 2, [Table.of_values('t', 'f32', values)])
        self.cluster.split('m', 2, placement={'t': 'placement: rows'})
        self.cluster.start_parts()
        client = self.cluster.connect(self.cluster.start_router('--loops', '1', *flags))
        wait_served(client, 2)
        return values, client

    def sum_pairs(self, client, rows):
        """Sums the rows two by two."""
        return client.lookup(pb.LookupRequest(queries=[pb.BagQuery(
            table='t', indices_i32=rows.tobytes(), num_bags=len(rows) // 2,
            offsets_i32=np.arange(0, len(rows), 2, dtype='<i4').tobytes())]), 60)

    def test_a_large_answer_needs_little_more_memory_than_its_own(self):
        values, client = self.start_wide('--answer-memory-bytes', str(128 << 20))
        sum_count = 0
        # 66 MB of results. Half of the rows are in part 1, or a few here and there.
        for every in 2, 100, 1000:
            rows = np.arange(260000, dtype='<i4') * 2 % 20
            rows[::every] |= 1
            np.testing.assert_array_equal(
                np.frombuffer(self.sum_pairs(client, rows).results[0].values, '<f4')
                .reshape(-1, 128), values[rows].reshape(-1, 2, 128).sum(1))
            sum_count += 130000 + np.count_nonzero(rows[::2] % 2 != rows[1::2] % 2)
        self.assertEqual(Metrics(self.cluster.routers[-1]).sum('embag_row_bytes_touched_total'),
                         512 * sum_count)

    def test_small_queries_share_legs_beside_a_large_one(self):
        values, client = self.start_wide('--route-slab-bytes', str(256 << 10))
        router = self.cluster.routers[-1]
        before = Metrics(router).sum('embag_route_legs_total')
        rows = np.tile(np.array([0, 1], '<i4'), 300)    # 300 KB of sums
        answer = client.lookup(pb.LookupRequest(queries=[
            pb.BagQuery(table='t', indices_i32=rows.tobytes(), num_bags=300,
                        offsets_i32=np.arange(0, 600, 2, dtype='<i4').tobytes()),
            *(pb.BagQuery(table='t', indices=[i % 20, i % 7], num_bags=1) for i in range(1000))]),
            20)
        for i, result in enumerate(answer.results[1:]):
            np.testing.assert_array_equal(
                np.frombuffer(result.values, '<f4'), values[i % 20] + values[i % 7])
        # An answer has at most 64 KiB: of 300 bags of 512 B, and some 750 results of 640 B.
        legs = Metrics(router).sum('embag_route_legs_total') - before
        self.assertLess(legs, 2 * 20)

    def test_a_connection_gets_no_more_memory_than_its_share(self):
        _, client = self.start_wide('--answer-memory-bytes', str(256 << 20))
        router = self.cluster.routers[-1]
        others = [self.cluster.connect(router) for _ in range(3)]
        rows = (np.arange(100000) * 2 % 20).astype('<i4')
        self.cluster.servers[0, 0].hold()
        try:
            futures = [other.lookup_future(pb.LookupRequest(queries=[pb.BagQuery(
                table='t', indices_i32=rows.tobytes(), reduction=pb.REDUCTION_NONE)]))
                       for other in others]
            wait_until(lambda: Metrics(router).get('embag_pool_bytes', pool='answer') > 150e6, 20,
                       'the others to hold memory')
            # 56 MB of results are less than what is left, but more than half of it.
            refused = [error_of(self.sum_pairs, client, np.ones(220000, '<i4'))]
            # So are 56 MB of rows that a silent part would send.
            refused.append(error_of(client.lookup, pb.LookupRequest(queries=[pb.BagQuery(
                table='t', indices_i32=rows[:1].repeat(110000).tobytes(),
                reduction=pb.REDUCTION_NONE)]), 20))
        finally:
            self.cluster.servers[0, 0].release()
        for status, text in refused:
            self.assertEqual(status, grpc.StatusCode.RESOURCE_EXHAUSTED)
            self.assertIn('more than this connection may now use', text)
        self.assertEqual(Metrics(router).sum('embag_refused_total', reason='memory'), 2)
        for future in futures:
            future.cancel()

    def test_bags_that_lose_all_rows_get_the_default_row(self):
        values, client = self.start_wide('--route-slab-bytes', '4096')
        uncut = self.cluster.connect(self.cluster.start_router())
        wait_served(uncut, 2)
        self.cluster.servers[1, 0].hold()
        try:
            for each in client, uncut:
                answer = each.lookup(pb.LookupRequest(
                    allow_incomplete=True, timeout_us=2000000, queries=[pb.BagQuery(
                        table='t', indices=[1] * 40, offsets=range(40), default_index=2,
                        num_bags=40)]), 20)
                self.assertEqual(answer.results[0].unreached, 40)
                self.assertEqual(answer.results[0].values, values[[2] * 40].tobytes())
        finally:
            self.cluster.servers[1, 0].release()

    def ask_for_slices(self, client, **fields):
        """Looks up 200 bags in many slices, and one bag of another table, while part 0 is silent.
        Each of the bags has a row of either part."""
        self.cluster.servers[0, 0].hold()
        try:
            return client.lookup(pb.LookupRequest(timeout_us=2000000, queries=[
                pb.BagQuery(table='t', indices=[0, 1] * 200, offsets=range(0, 400, 2),
                            num_bags=200),
                pb.BagQuery(table='t', indices=[3], num_bags=1)], **fields), 20)
        finally:
            self.cluster.servers[0, 0].release()

    def test_a_silent_part_is_left_out_of_all_slices(self):
        values, client = self.start_wide('--route-slab-bytes', '4096')
        answer = self.ask_for_slices(client, allow_incomplete=True)
        self.assertEqual([result.unreached for result in answer.results], [200, 0])
        np.testing.assert_array_equal(
            np.frombuffer(answer.results[0].values, '<f4').reshape(200, 128), values[[1] * 200])
        np.testing.assert_array_equal(
            np.frombuffer(answer.results[1].values, '<f4'), values[3])

    def test_slices_that_no_part_was_asked_for_are_left_out(self):
        _, client = self.start_wide('--route-slab-bytes', '4096')
        self.cluster.servers[1, 0].hold()
        try:
            answer = self.ask_for_slices(client, allow_incomplete=True)
        finally:
            self.cluster.servers[1, 0].release()
        self.assertEqual([result.unreached for result in answer.results], [400, 1])
        self.assertFalse(np.frombuffer(b''.join(r.values for r in answer.results), '<f4').any())

    def test_the_result_fails_whose_slices_need_a_silent_part(self):
        values, client = self.start_wide('--route-slab-bytes', '4096')
        answer = self.ask_for_slices(client, errors_per_query=True)
        self.assertEqual(answer.results[0].error_code, grpc.StatusCode.DEADLINE_EXCEEDED.value[0])
        self.assertIn('part 0 of 2', answer.results[0].error_message)
        self.assertEqual(answer.results[1].error_message, '')
        np.testing.assert_array_equal(
            np.frombuffer(answer.results[1].values, '<f4'), values[3])

    def test_sums_of_parts_may_be_larger_than_an_answer(self):
        values = np.arange(20 * 128).reshape(20, 128) % 64
        write_model(self.cluster.source, 'm', 2, [Table.of_values('t', 'f16', values)])
        self.cluster.split('m', 2, placement={'t': 'placement: rows'})
        self.cluster.start_parts()
        client = self.cluster.connect(self.cluster.start_router(
            '--loops', '1', '--response-bytes-max', '1500000'))
        wait_served(client, 2)
        rows = np.arange(11200, dtype='<i4') % 20    # 1.4 MB of f16, 2.9 MB of f32 from each part
        np.testing.assert_array_equal(
            np.frombuffer(self.sum_pairs(client, rows).results[0].values, '<f2').reshape(-1, 128),
            values[rows].reshape(-1, 2, 128).sum(1))

    def test_a_request_may_take_more_than_a_part_is_allowed(self):
        """The share of the memory that requests to one part may have is for those of others."""
        values = np.arange(20 * 128, dtype='<f4').reshape(20, 128)
        write_model(self.cluster.source, 'm', 2, [Table.of_values('t', 'f32', values)])
        self.cluster.split('m', 2, placement={'t': 'placement: rows'})
        self.cluster.start_parts()
        client = self.cluster.connect(self.cluster.start_router(
            '--loops', '1', '--answer-memory-bytes', str(128 << 20)))
        wait_served(client, 2)
        indices = [2, 4, 6, 8] * 20000    # 40 MB, all of part 0
        answer = client.lookup(pb.LookupRequest(queries=[pb.BagQuery(
            table='t', indices=indices, reduction=pb.REDUCTION_NONE)]), 30)
        self.assertEqual(answer.results[0].values, values[indices].tobytes())

    def test_starts_or_says_why_with_few_descriptors(self):
        ended = 0
        token = self.cluster.repository.join('token')  # Loops watch the file for a new one.
        with open(token, 'w', encoding='utf-8') as file:
            file.write('a-token-of-this-router\n')
        os.chmod(token, 0o600)
        for count in range(10, 45):
            router = Embagd(self.cluster.path, '--route', self.cluster.addresses(), '--loops', '2',
                            '--threads', '1', '--route-settle-ms', '10',
                            '--route-token-file', token,
                            under=('prlimit', '--nofile=%d' % count))
            wait_until(lambda: router.find('ready') or router.has_ended(), 20, 'an outcome')
            if router.has_ended():
                self.assertIn('event=start_failed', router.start_fails())
                ended += 1
            else:
                router.stop()
        self.assertGreater(ended, 0)
        self.assertLess(ended, 35)

    def test_ends_while_a_request_to_a_part_is_not_sent(self):
        """The part does not read, the lookup is cancelled, and the router ends."""
        self.cluster.start_parts()
        router = self.cluster.start_router()
        client = self.cluster.connect(router)
        wait_served(client, 1)
        self.cluster.servers[1, 0].hold()
        try:
            for _ in range(4):
                future = client.lookup_future(pb.LookupRequest(queries=[pb.BagQuery(
                    table='t', indices=[1] * 1000000, num_bags=1)]))
                self.assertRaises(grpc.FutureTimeoutError, future.result, 0.3)
                future.cancel()
            self.cluster.routers.remove(router)
            client.close()
            router.stop()
        finally:
            self.cluster.servers[1, 0].release()

    def test_many_empty_bags_of_a_table_in_one_part(self):
        values = np.arange(2560, dtype='<f4').reshape(20, 128)
        write_model(self.cluster.source, 'm', 2, [Table.of_values('t', 'f32', values)])
        self.cluster.split('m', 2, placement={'t': 'placement: whole, part: 1'})
        self.cluster.start_parts()
        client = self.cluster.connect(self.cluster.start_router())
        wait_served(client, 2)
        offsets = [0] * 2000 + list(range(10))
        got = client.lookup(pb.LookupRequest(queries=[pb.BagQuery(
            table='t', indices=range(10), offsets=offsets)])).results[0]
        expected = np.zeros((2010, 128), '<f4')
        expected[2000:] = values[:10]
        np.testing.assert_array_equal(
            np.frombuffer(got.values, '<f4').reshape(2010, 128), expected)

    def test_large_answers_in_several_messages(self):
        """Most of the memory is taken only after the parts have answered."""
        values = np.arange(2560, dtype='<f4').reshape(20, 128)
        write_model(self.cluster.source, 'm', 2, [Table.of_values('t', 'f32', values),
                                                  Table.of_values('here', 'f32', values)])
        self.cluster.split('m', 2, placement={
            't': 'placement: rows', 'here': 'placement: everywhere'})
        self.cluster.start_parts()
        client = self.cluster.connect(self.cluster.start_router())
        wait_served(client, 2)
        many = list(range(20)) * 1000
        queries = [pb.BagQuery(table='t', indices=range(20), num_bags=1)] + [
            pb.BagQuery(table='here', indices=many, reduction=pb.REDUCTION_NONE)] * 5
        got = {}
        for answer in client.stream(iter([pb.LookupRequest(
                request_id=5, partial=True, queries=queries)])):
            got.update((result.query, result.values) for result in answer.results)
        self.assertEqual(sorted(got), list(range(6)))
        np.testing.assert_array_equal(np.frombuffer(got[0], '<f4'), values.sum(0))
        for number in range(1, 6):
            self.assertEqual(got[number], values[many].tobytes())


if __name__ == '__main__':
    unittest.main()
