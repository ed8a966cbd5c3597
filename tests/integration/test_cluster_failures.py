"""Part servers and routers that fail, while a load through two routers goes on.

No request may fail and no answer may be wrong, unless all servers of a part are gone. Nothing here
depends on how fast the machine is: a request has much time, and each step waits until the one
before has had its effect.
"""

import os
import shutil
import time
import unittest

import grpc
import numpy as np

from cluster import Cluster, count_bags, version_served, wait_connected, wait_served, \
    wait_used
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import wait_until
from http_peer import Metrics
from published import published_row, published_sums
from rogue_part import RoguePart
from rpc import error_of
from table_files import Table, write_model
from verified_load import VerifiedLoad

PARTS, REPLICAS, ROUTERS = 3, 2, 2
MODEL = 'dlrm-v2'
SCALE = 20000
RATE = 150
SECONDS = 60
STOP_SECONDS = 5
REFUSED = 2000
RESENDS_LEAST = 32    # that a router may send in 10 s in any case
# Every kind of placement. The load looks up all tables.
PLACEMENT = {'t%02d' % number: 'placement: everywhere' for number in range(26)}
PLACEMENT.update({name: 'placement: rows' for name in ('t00', 't09', 't19', 't10')})
PLACEMENT.update({'t20': 'placement: whole, part: 0', 't21': 'placement: whole, part: 1',
                  't22': 'placement: whole, part: 2'})


def request_of(*queries, **more):
    """Returns a lookup of one bag for each pair of table and rows."""
    return pb.LookupRequest(model=MODEL, queries=[
        pb.BagQuery(table=table, indices=rows, num_bags=1) for table, rows in queries], **more)


def make_cluster():
    """Returns servers and two routers of a model with published values, all of them ready."""
    cluster = Cluster(PARTS, REPLICAS)
    try:
        cluster.make_model(MODEL, 1, SCALE)
        cluster.split(MODEL, 1, placement=PLACEMENT)
        cluster.start_parts()
        for _ in range(ROUTERS):
            router = cluster.start_router()
            wait_served(cluster.connect(router), 1, MODEL)
    except BaseException:
        cluster.remove()
        raise
    return cluster


class FailuresTest(unittest.TestCase):
    """One cluster for the tests of a class. Each test leaves it as it was."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = make_cluster()
        cls.addClassCleanup(cls.cluster.remove)

    def start_load(self, routers=None, flags=()):
        """Starts a load through routers, by default both, and waits until it runs."""
        load = VerifiedLoad([router.address for router in routers or self.cluster.routers], MODEL,
                            '--rate', str(RATE), *flags)
        self.addCleanup(load.close)
        return load.wait_started()

    def restart(self, part, replica, **keywords):
        """Starts a server that has ended, and waits until it is used."""
        server = self.cluster.start_part(part, replica, **keywords).wait_ready()
        wait_used(server)
        return server

    def check_sums(self, answer, request, version=1):
        """Compares an answer with the published values."""
        self.assertEqual(answer.version, version)
        self.assertEqual([result.values for result in answer.results[:len(request.queries)]],
                         published_sums(request, version))


class Replicas(FailuresTest):
    """One server of a part fails, and the other is there."""

    def test_a_replica_of_each_part_may_be_killed_in_turn(self):
        load = self.start_load()
        for part in range(PARTS):
            replica = part % REPLICAS
            self.cluster.servers[part, replica].kill()
            wait_used(self.cluster.servers[part, 1 - replica])
            self.restart(part, replica)
        load.finish()

    def test_a_replica_of_each_part_may_drain_in_turn(self):
        load = self.start_load()
        for part in range(PARTS):
            self.cluster.servers[part, 0].stop()
            wait_used(self.cluster.servers[part, 1])
            self.restart(part, 0)
        load.finish()

    def test_a_stopped_replica_costs_no_request_and_is_used_again(self):
        load = self.start_load()
        stopped = self.cluster.servers[1, 0]
        stopped.hold()
        try:
            over = time.monotonic() + STOP_SECONDS
            wait_until(lambda: time.monotonic() > over, 2 * STOP_SECONDS, 'the time to be over')
            wait_used(self.cluster.servers[1, 1])
        finally:
            stopped.release()
        wait_used(stopped)
        load.finish()

    def test_other_files_under_the_same_number_are_never_used(self):
        other = self.cluster.repository.join('other')
        self.cluster.make_model(MODEL, 9, SCALE, other)
        os.rename(os.path.join(other, MODEL, '9'), os.path.join(other, MODEL, '1'))
        split = self.cluster.repository.join('other-parts')
        self.cluster.split(MODEL, 1, source=other, path=split, placement=PLACEMENT)
        load = self.start_load()
        self.cluster.servers[2, 1].stop()
        wrong = self.cluster.start_part(2, 1, path=split)
        wait_connected(wrong, ROUTERS)
        for _ in range(5):
            wait_used(self.cluster.servers[2, 0])
        self.assertEqual(count_bags(wrong), 0)
        wrong.stop()
        self.restart(2, 1)
        load.finish()


class LostParts(FailuresTest):
    """All servers of a part are gone, and come back."""

    # Rows of t00 in part 1, and elsewhere.
    LOST = ('t00', [1, 4])
    MIXED = ('t00', [0, 1, 2, 4])
    RIGHT = ('t00', [0, 2, 3])

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = cls.cluster.clients[0]

    def setUp(self):
        """Kills all servers of part 1. They come back when the test ends."""
        for replica in range(REPLICAS):
            self.cluster.servers[1, replica].kill()
        self.addCleanup(self.bring_back)

    def bring_back(self):
        """Starts the servers of part 1, and waits until they are used."""
        for replica in range(REPLICAS):
            self.cluster.start_part(1, replica)
        request = request_of(self.LOST)

        def is_answered():
            try:
                self.check_sums(self.client.lookup(request), request)
            except grpc.RpcError as error:
                self.assertEqual(error.code(), grpc.StatusCode.UNAVAILABLE)
                return False
            return True
        wait_until(is_answered, SECONDS, 'the lost part to be answered again')

    def test_what_touches_the_part_fails_and_names_it(self):
        for query in (self.LOST, self.MIXED, ('t21', [3])):
            began = time.monotonic()
            code, text = error_of(self.client.lookup, request_of(self.RIGHT, query))
            self.assertEqual(code, grpc.StatusCode.UNAVAILABLE)
            self.assertIn('part 1 of 3 of model "dlrm-v2" version 1: ', text)
            self.assertLess(time.monotonic() - began, 10)

    def test_what_does_not_touch_the_part_is_answered(self):
        request = request_of(self.RIGHT, ('t20', [5, 6]), ('t22', [1]), ('t05', [0]))
        for _ in range(20):
            self.check_sums(self.client.lookup(request), request)
        self.assertEqual(version_served(self.client, MODEL), 1)

    def test_with_errors_per_query_only_touched_results_fail(self):
        request = request_of(self.RIGHT, self.MIXED, ('t21', [1]), ('t20', [2]), ('t01', [0]),
                             errors_per_query=True)
        answer = self.client.lookup(request)
        self.assertEqual([result.error_code for result in answer.results], [0, 14, 14, 0, 0])
        for result in answer.results[1:3]:
            self.assertIn('part 1 of 3', result.error_message)
        good = (0, 3, 4)
        del request.queries[1:3], answer.results[1:3]
        self.assertEqual(len(answer.results), len(good))
        self.check_sums(answer, request)

    def test_with_allow_incomplete_its_indices_are_skipped(self):
        request = request_of(self.RIGHT, self.MIXED, ('t21', [1, 2]), ('t20', [2]),
                             allow_incomplete=True)
        for errors_per_query in (False, True):
            request.errors_per_query = errors_per_query
            answer = self.client.lookup(request)
            self.assertTrue(answer.incomplete)
            self.assertEqual([result.error_code for result in answer.results], [0] * 4)
            self.assertEqual([result.unreached for result in answer.results], [0, 2, 2, 0])
            self.check_sums(answer, request_of(self.RIGHT, ('t00', [0, 2])))
            self.assertFalse(np.frombuffer(answer.results[2].values, '<f4').any())
        whole = self.client.lookup(request_of(self.RIGHT, allow_incomplete=True))
        self.assertFalse(whole.incomplete)

    def test_means_of_incomplete_bags_are_those_of_the_rest(self):
        request = request_of(self.MIXED, allow_incomplete=True)
        request.queries[0].reduction = pb.REDUCTION_MEAN
        answer = self.client.lookup(request)
        expected = (published_row('t00', 1, 0) + published_row('t00', 1, 2)) / 2
        np.testing.assert_array_equal(np.frombuffer(answer.results[0].values, '<f4'), expected)


class RefusedLegs(unittest.TestCase):
    """Servers of a part that answer every leg with UNAVAILABLE at once."""

    TEXT = 'no part today'
    ROWS = 30

    def setUp(self):
        """Starts two parts of two servers, and a router that reaches part 1 through servers that
        refuse the legs of those whose number is in `refusing`."""
        self.cluster = Cluster(2, REPLICAS)
        self.addCleanup(self.cluster.remove)
        write_model(self.cluster.source, 'm', 1, [Table.of_values(
            't', 'f32', np.arange(2 * self.ROWS).reshape(self.ROWS, 2))])
        self.cluster.split('m', 1, placement={'t': 'placement: rows'})
        self.cluster.start_parts()
        self.refusing = set()
        self.rogues = [self.make_rogue(replica) for replica in range(REPLICAS)]
        self.router = self.cluster.start_router(route=','.join(
            [self.cluster.servers[0, replica].address for replica in range(REPLICAS)] +
            [rogue.address for rogue in self.rogues]))
        self.client = self.cluster.connect(self.router)
        wait_served(self.client, 1)

    def make_rogue(self, replica):
        """Returns a server of part 1. It counts the legs that came, in `legs`."""
        def answer(request):
            rogue.legs += len(request.queries) > 0    # Otherwise it is a probe.
            if replica in self.refusing:
                return pb.LookupResponse(error_code=grpc.StatusCode.UNAVAILABLE.value[0],
                                         error_message=self.TEXT)
            return rogue.pass_on('Lookup', pb.LookupResponse)(request, timeout=SECONDS)
        rogue = RoguePart(self.cluster.servers[1, replica].address, answer)
        rogue.legs = 0
        self.addCleanup(rogue.stop)
        return rogue

    def look_up(self, indices, count=1):
        """Looks up one bag repeatedly. Checks answers that are no errors. Returns the errors."""
        errors = []
        queries = [pb.BagQuery(table='t', indices=indices, num_bags=1)]
        expected = np.array([[2 * row, 2 * row + 1] for row in indices], '<f4').sum(0).tobytes()
        for answer in self.client.stream(pb.LookupRequest(
                model='m', request_id=number + 1, queries=queries) for number in range(count)):
            if answer.error_code:
                errors.append((answer.error_code, answer.error_message))
            else:
                self.assertEqual(answer.results[0].values, expected)
        return errors

    def test_a_part_that_refuses_everything_gets_few_legs_twice(self):
        self.refusing = set(range(REPLICAS))
        errors = self.look_up(range(self.ROWS), REFUSED)
        self.assertEqual(len(errors), REFUSED)
        for code, text in errors:
            self.assertEqual(code, grpc.StatusCode.UNAVAILABLE.value[0])
            self.assertIn('part 1 of 2 of model "m" version 1: ', text)
            self.assertIn(self.TEXT, text)
        legs = sum(rogue.legs for rogue in self.rogues)
        self.assertGreaterEqual(legs, REFUSED)
        self.assertLessEqual(legs, 1.2 * REFUSED + RESENDS_LEAST)
        self.assertEqual(Metrics(self.router).sum('embag_route_resends_total'), legs - REFUSED)
        self.assertEqual(self.look_up(range(0, self.ROWS, 2), 20), [])
        self.refusing = set()
        wait_until(lambda: not self.look_up(range(self.ROWS)), SECONDS, 'the part to answer')
        self.assertEqual(self.look_up(range(self.ROWS), 20), [])

    def test_a_replica_that_refuses_everything_costs_no_request(self):
        self.refusing = {0}
        for _ in range(REFUSED // 20):
            self.assertEqual(self.look_up(range(self.ROWS), 20), [])
        self.assertLess(self.rogues[0].legs, REFUSED / 10)
        self.refusing = set()
        before = self.rogues[0].legs

        def is_used():
            self.assertEqual(self.look_up(range(self.ROWS), 20), [])
            return self.rogues[0].legs > before + 20
        wait_until(is_used, SECONDS, 'the replica to be used again')


class Routers(FailuresTest):
    """Routers that end, and routers whose repository cannot be read."""

    def test_a_killed_router_costs_clients_of_both_no_request(self):
        load = self.start_load(flags=('--retries', '2'))
        for number in range(ROUTERS):
            address = self.cluster.routers[number].address
            self.cluster.routers[number].kill()
            wait_used(self.cluster.servers[0, 0])
            router = self.cluster.start_router(listen=(address,))
            self.cluster.routers[number] = self.cluster.routers.pop()
            wait_served(self.cluster.connect(router), 1, MODEL)
            wait_used(router)
        load.finish()

    def test_a_router_serves_on_while_its_repository_is_away(self):
        path = self.cluster.repository.join('copy')
        away = self.cluster.repository.join('away')
        shutil.copytree(self.cluster.path, path)
        router = self.cluster.start_router(path=path)
        client = self.cluster.connect(router)
        wait_served(client, 1, MODEL)
        load = self.start_load([router])
        for name in ('', MODEL, MODEL + '/1', MODEL + '/1/manifest.yaml'):
            with self.subTest(name=name):
                target = os.path.join(path, name).rstrip('/')
                warnings = router.log.count('event=repository_unreadable')
                os.rename(target, away)
                if name in ('', MODEL):
                    wait_until(lambda: router.log.count('event=repository_unreadable') > warnings,
                               SECONDS, 'a warning in the log')
                for _ in range(5):
                    wait_used(self.cluster.servers[0, 0])
                self.assertEqual(version_served(client, MODEL), 1)
                os.rename(away, target)
        load.finish()


if __name__ == '__main__':
    unittest.main()
