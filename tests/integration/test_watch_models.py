"""WatchModels: what a server has, as routers see it, and the versions that routers claim."""

import os
import time
import unittest

from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import wait_until
from rpc import SERVICE, Admin, Client, as_bytes, error_of
from test_versions import VersionsTest

STATES = pb.ModelVersion.State
CALLS_MAX = 8     # EB_WATCHES_MAX
CLAIMS_MAX = 64   # EB_WATCH_CLAIMS_MAX
LEVEL = 1
WATCH = ('--watch-poll-ms', '100')
AUTH = '''principals:
  - {name: one, token_file: one.token, models: [m], router: true}
  - {name: all, token_file: all.token, models: ["*"]}
'''
TOKENS = {'one': 'a-token-of-this-test', 'all': 'another-token-of-this-test'}


class Watch:
    """A call of WatchModels."""

    def __init__(self, client, token=None, timeout=10, **fields):
        call = client.channel.unary_stream(
            SERVICE + 'WatchModels', request_serializer=as_bytes,
            response_deserializer=pb.WatchModelsResponse.FromString)
        metadata = token and (('authorization', 'Bearer ' + token),)
        self.call = call(pb.WatchModelsRequest(**fields), timeout=timeout, metadata=metadata)

    def next(self):
        """Returns the next message."""
        return next(self.call)

    def until(self, condition):
        """Returns the first message from now on for which the condition holds."""
        return next(message for message in self.call if condition(message))

    def states(self, **wanted):
        """Returns the first message in which versions have these states; v7='READY'."""
        numbers = {int(name[1:]): state for name, state in wanted.items()}
        return self.until(lambda message: numbers == {
            h.version: STATES.Name(h.state)[6:] for h in message.holdings
            if h.version in numbers})

    def end(self):
        """Cancels the call."""
        self.call.cancel()


def holding(message, version, model='m'):
    """Returns what a message says about a version."""
    found, = (h for h in message.holdings if (h.model, h.version) == (model, version))
    return found


def claim(version, served=False, model='m'):
    """Returns a claim."""
    return pb.Claim(model=model, version=version, served=served)


class Holdings(VersionsTest):
    """What a server says that it has."""

    def watch(self, **fields):
        return Watch(self.client, **fields)

    def test_come_at_once(self):
        self.publish(3)
        self.publish(1, model='other')
        self.serve()
        message = self.watch().next()
        self.assertEqual([(h.model, h.version) for h in message.holdings],
                         [('m', 3), ('other', 1)])
        self.assertEqual(message.instance, self.client.get_server().instance)
        self.assertEqual((message.level, message.draining), (LEVEL, False))
        found = holding(message, 3)
        said, = self.client.get_model('m').versions
        self.assertEqual((found.digest, found.state), (said.digest, STATES.STATE_SERVING))
        self.assertEqual((found.parts, list(found.owned_parts)), (0, []))
        self.assertEqual((found.claimed, found.served_by_router, found.error), (False, False, ''))

    def test_come_when_they_change(self):
        self.publish(1)
        self.serve(*WATCH)
        watches = [self.watch() for _ in range(3)]
        for watch in watches:
            watch.states(v1='SERVING')
        self.publish(2)
        for watch in watches:
            watch.states(v1='READY', v2='SERVING')

    def test_say_why_a_version_has_failed(self):
        self.publish(1)
        self.serve(*WATCH)
        watch = self.watch()
        watch.next()
        hidden = self.repository.join('m', '.2.new')
        os.mkdir(hidden)
        with open(os.path.join(hidden, 't.npy'), 'w', encoding='utf-8') as file:
            file.write('not an array')
        os.rename(hidden, self.repository.join('m', '2'))
        found = holding(watch.states(v1='SERVING', v2='FAILED'), 2)
        self.assertIn('m/2/t.npy', found.error)
        self.assertNotIn(self.repository.path, found.error)
        self.assertEqual(found.digest, 0)

    def test_come_each_second(self):
        self.publish(1)
        self.serve()
        watch = self.watch()
        first = watch.next()
        begun = time.monotonic()
        for _ in range(2):
            self.assertEqual(watch.next(), first)
        self.assertTrue(0.9 < time.monotonic() - begun < 5)

    def test_say_that_the_server_drains(self):
        self.publish(1)
        self.serve()
        watch = self.watch(claims=[claim(1)])
        self.assertFalse(watch.next().draining)
        self.server.terminate()
        watch.until(lambda message: message.draining)
        code, _ = error_of(list, watch.call)
        self.assertEqual(code.name, 'UNAVAILABLE')
        self.assertEqual(self.server.wait(), 0)

    def test_come_before_the_drain_if_it_is_delayed(self):
        self.publish(1)
        self.serve('--drain-delay-ms', '20000')
        watch = self.watch()
        self.assertFalse(watch.next().draining)
        self.server.terminate()
        watch.until(lambda message: message.draining)
        self.assertEqual(len(self.watch().next().holdings), 1)
        self.server.terminate()

    def test_a_connection_has_so_many_watches_and_no_more(self):
        self.publish(1)
        self.serve()
        watches = [self.watch() for _ in range(CALLS_MAX)]
        for watch in watches:
            watch.next()
        code, text = error_of(self.watch().next)
        self.assertEqual(code.name, 'RESOURCE_EXHAUSTED')
        self.assertIn(str(CALLS_MAX), text)
        watches[0].end()
        wait_until(lambda: self.may_watch(), 10, 'a watch can begin when another one has ended')

    def may_watch(self):
        """Returns whether a further watch can begin."""
        try:
            return self.watch().next().level == LEVEL
        except Exception as error:    # pylint: disable=broad-except
            self.assertIn('RESOURCE_EXHAUSTED', str(error))
            return False

    def test_are_those_that_the_caller_may_see(self):
        self.publish(1)
        self.publish(1, model='other')
        for name, token in TOKENS.items():
            with open(self.repository.join(name + '.token'), 'w', encoding='utf-8') as file:
                file.write(token)
        with open(self.repository.join('.auth'), 'w', encoding='utf-8') as file:
            file.write(AUTH)
        self.serve('--auth-file', self.repository.join('.auth'))
        code, _ = error_of(self.watch().next)
        self.assertEqual(code.name, 'UNAUTHENTICATED')
        one = self.watch(token=TOKENS['one'], claims=[claim(1), claim(1, model='other')])
        self.assertEqual({h.model for h in one.next().holdings}, {'m'})
        code, text = error_of(self.watch(token=TOKENS['all'], claims=[claim(1)]).next)
        self.assertEqual(code.name, 'PERMISSION_DENIED')
        self.assertIn('router: true', text)
        all_models = self.watch(token=TOKENS['all'])
        message = all_models.until(lambda message: holding(message, 1).claimed)
        self.assertEqual({h.model for h in message.holdings}, {'m', 'other'})
        self.assertFalse(holding(message, 1, 'other').claimed)

    def test_a_bad_request_is_refused(self):
        self.publish(1)
        self.serve()
        for fields, name in (
                ({'claims': [claim(n + 1) for n in range(CLAIMS_MAX + 1)]}, 'RESOURCE_EXHAUSTED'),
                ({'claims': [claim(0)]}, 'INVALID_ARGUMENT'),
                ({'claims': [claim(1, model='')]}, 'INVALID_ARGUMENT'),
                ({'router': 'r' * 256}, 'RESOURCE_EXHAUSTED')):
            code, _ = error_of(self.watch(**fields).next)
            self.assertEqual(code.name, name, fields)
        self.watch(claims=[claim(n + 1) for n in range(CLAIMS_MAX)]).next()


class Claims(VersionsTest):
    """Versions that routers need."""

    def setUp(self):
        super().setUp()
        for version in range(1, 6):
            self.publish(version)
        self.describe('versions: {keep: 1, keep_s: 0}\n')

    def serve(self, *flags, **keywords):
        super().serve(*WATCH, '--admin-on-data-port', 'true', *flags, **keywords)
        self.admin = Admin(self.server.address)
        self.addCleanup(self.admin.close)

    def watch(self, *claims, router='router-1', client=None):
        return Watch(client or self.client, claims=claims, router=router, level=LEVEL)

    def test_load_an_older_version_and_keep_it(self):
        self.serve('--claim-grace-s', '0', '--pin-ttl-s', '0')
        watch = self.watch()
        self.assertEqual([h.version for h in watch.next().holdings], [5])
        router = self.watch(claim(2, served=True), claim(3))
        message = watch.states(v5='SERVING', v3='READY', v2='READY')
        self.assertEqual([(h.version, h.claimed, h.served_by_router) for h in message.holdings],
                         [(5, False, False), (3, True, False), (2, True, True)])
        answer = self.client.lookup(pb.LookupRequest(model='m', version=2))
        self.assertEqual(answer.version, 2)
        router.end()
        watch.until(lambda message: [h.version for h in message.holdings] == [5])

    def test_are_those_of_all_calls(self):
        self.serve('--claim-grace-s', '0')
        first = self.watch(claim(2))
        first.states(v2='READY')
        with Client(self.server.address) as other:
            second = self.watch(claim(2, served=True), claim(1), router='router-2', client=other)
            second.states(v2='READY', v1='READY')
            first.end()
            message = second.next()
            self.assertEqual((holding(message, 2).claimed, holding(message, 1).claimed), (1, 1))
        watch = self.watch()
        watch.until(lambda message: [h.version for h in message.holdings] == [5])

    def test_end_later(self):
        self.serve('--claim-grace-s', '2')
        router = self.watch(claim(2))
        router.states(v2='READY')
        watch = self.watch()
        router.end()
        watch.until(lambda message: not holding(message, 2).claimed)
        begun = time.monotonic()
        watch.until(lambda message: [h.version for h in message.holdings] == [5])
        self.assertGreater(time.monotonic() - begun, 1.8)

    def test_wait_for_a_version_that_does_not_exist(self):
        self.describe('versions: {serve: 5, keep: 1, keep_s: 0}\n')
        self.serve()
        router = self.watch(claim(7))
        self.assertEqual([h.version for h in router.next().holdings], [5])
        self.publish(7)
        router.states(v5='SERVING', v7='READY')

    def test_forbid_to_unload(self):
        self.serve('--claim-grace-s', '60')
        routers = [self.watch(claim(2), router='router-%d' % n) for n in (1, 2)]
        for router in routers:
            router.states(v2='READY')
        code, text = error_of(self.admin.command, 'UnloadVersion', 'm', 2)
        self.assertEqual(code.name, 'FAILED_PRECONDITION')
        self.assertIn('router-1', text)
        self.assertIn('router-2', text)
        for router in routers:
            router.end()
        watch = self.watch()
        watch.until(lambda message: not holding(message, 2).claimed)
        self.admin.command('UnloadVersion', 'm', 2)
        watch.until(lambda message: [h.version for h in message.holdings] == [5])

    def test_are_loaded_in_order(self):
        self.serve()
        router = self.watch(claim(4), claim(1), claim(3))
        router.states(v5='SERVING', v4='READY', v3='READY', v1='READY')
        versions = {v.version: v for v in self.client.get_model('m').versions}
        times = [versions[number].loaded_unix_ms for number in (1, 3, 4)]
        self.assertEqual(times, sorted(times))


del VersionsTest

if __name__ == '__main__':
    unittest.main()
