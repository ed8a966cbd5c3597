"""Part servers and routers: which versions are loaded at the start and later, what is ready, and
what routers are told of versions that are not in memory."""

import os
import shutil
import time
import urllib.error
import urllib.request

from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import Embagd, wait_until
from rpc import Admin, Client, error_of
from test_health import CHECK, NOT_SERVING, SERVING
from test_parts import PARTS, SECONDS, WithParts
from test_watch_models import STATES, Watch, claim, holding

PART = f'1/{PARTS}'
WAIT_S = 2    # CLAIM_WAIT_MS


class WithClaims(WithParts):
    """A part server that may be watched before it is ready."""

    def start(self, *flags):
        """Starts a part server, and does not wait until it is ready."""
        self.server = Embagd(self.parts, '--part', PART, '--watch-poll-ms', '100',
                             '--admin-on-data-port', 'true', *flags, http='127.0.0.1:0')
        self.addCleanup(self.server.stop)
        self.client = Client(self.server.address)
        self.addCleanup(self.client.close)

    def watch(self, *claims, router='router-1'):
        """Opens a call of WatchModels, and waits for its first message."""
        watch = Watch(self.client, claims=claims, router=router, timeout=SECONDS)
        self.addCleanup(watch.end)    # a call that nothing refers to is cancelled
        watch.next()
        return watch

    def path(self, version):
        """Returns a version's directory."""
        return os.path.join(self.parts, 'm', str(version))

    def break_version(self, version):
        """Makes a version unloadable."""
        os.remove(os.path.join(self.path(version), f'part-00001-of-0000{PARTS}', 'rows.embag'))

    def http(self, path):
        """Returns status and text of an answer of the operators' port."""
        try:
            with urllib.request.urlopen(
                    f'http://127.0.0.1:{self.server.http_port}{path}') as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def health(self):
        """Returns what grpc.health.v1 says of the server."""
        return CHECK.unary(self.client.channel).status

    def expect_ready(self, is_ready, text='ready\n'):
        """Waits until /readyz and the health service agree that the server is ready or not."""
        wait_until(lambda: self.http('/readyz')[0] == (200 if is_ready else 503), SECONDS,
                   '/readyz to change')
        self.assertIn(text, self.http('/readyz')[1])
        wait_until(lambda: self.health() == (SERVING if is_ready else NOT_SERVING), SECONDS,
                   'the health to change')

    def load_order(self):
        """Returns the versions that were loaded, in order."""
        return [int(line.split(' version=')[1].split()[0]) for line in list(self.server.lines)
                if 'event=model_loaded ' in line]


class StartTest(WithClaims):
    """How a part server starts."""

    def test_waits_for_claims_with_open_ports(self):
        self.split('2', PARTS)
        begun = time.monotonic()
        self.start()
        self.assertEqual(self.http('/readyz')[0], 503)
        self.assertEqual(self.health(), NOT_SERVING)
        self.assertEqual(list(Watch(self.client).next().holdings), [])
        self.server.wait_ready()
        self.assertGreater(time.monotonic() - begun, WAIT_S - 0.2)
        self.expect_ready(True)
        message = self.watch().states(v2='SERVING')
        self.assertEqual([h.version for h in message.holdings], [2])
        self.assertIn('embag_phase{phase="serving"} 1', self.http('/metrics')[1])

    def test_loads_claimed_versions_in_order_and_no_others(self):
        for version in '2', '3', '4':
            self.split(version, PARTS)
        self.start()
        router = self.watch(claim(3), claim(1, served=True))
        message = router.states(v1='READY', v3='SERVING')
        self.assertEqual([h.version for h in message.holdings], [3, 1])
        self.server.wait_ready()
        self.assertEqual(self.load_order(), [1, 3])
        time.sleep(WAIT_S)
        self.assertEqual(self.load_order(), [1, 3])
        self.client.lookup(pb.LookupRequest(version=1))

    def test_is_ready_before_the_next_version_is_loaded(self):
        self.split('2', PARTS)
        self.break_version(2)
        self.start()
        self.watch(claim(1, served=True), claim(2))
        self.server.wait_ready()
        self.expect_ready(True)

    def test_a_command_does_not_wait_for_claims(self):
        self.start()
        with Admin(self.server.address) as admin:
            begun = time.monotonic()
            admin.command('LoadVersion', 'm', 1)
        self.assertLess(time.monotonic() - begun, WAIT_S)

    def test_stays_up_where_all_versions_fail(self):
        self.break_version(1)
        self.start()
        watch = self.watch()
        found = holding(watch.states(v1='FAILED'), 1)
        self.assertIn("table 'rows' is missing", found.error)
        wait_until(lambda: self.server.find('model_unserved'), SECONDS, 'event=model_unserved')
        self.expect_ready(False, 'no version is in memory')
        self.assertIsNone(self.server.find('ready'))
        self.split('2', PARTS)
        watch.states(v1='FAILED', v2='SERVING')
        self.server.wait_ready()
        self.expect_ready(True)

    def test_stays_up_until_a_version_for_its_part_exists(self):
        shutil.move(self.path(1), self.repository.join('away'))
        self.split('1', PARTS + 1)
        self.start()
        line = wait_until(lambda: self.server.find('model_unserved'), SECONDS, 'the log line')
        self.assertIn('no version in it has a manifest.yaml and a folder part-00001-of-00003', line)
        self.split('2', PARTS)
        self.server.wait_ready()

    def test_ends_while_it_waits(self):
        self.start()
        self.watch()
        self.server.terminate()
        self.assertEqual(self.server.wait(), 0)
        self.assertIsNone(self.server.find('ready'))

    def test_settings_may_be_reread_while_it_waits(self):
        self.start()
        self.watch()
        self.server.process.send_signal(1)
        self.server.wait_ready()


class ReadinessTest(WithClaims):
    """When a part server counts as ready."""

    def test_what_routers_serve_must_be_in_memory(self):
        self.start()
        self.server.wait_ready()
        self.expect_ready(True)
        first = self.watch(claim(1, served=True), claim(8))
        self.expect_ready(True)
        second = self.watch(claim(2, served=True), router='router-2')
        self.expect_ready(True)  # Servers of other parts have it.
        self.split('2', PARTS)
        self.expect_ready(True)
        others = [self.watch(claim(2, served=True, model=model)) for model in ('other', 'a\nb')]
        self.expect_ready(True)
        for watch in *others, first, second:
            watch.end()
        self.expect_ready(True)

    def test_an_ordinary_server_is_ready_whatever_is_claimed(self):
        server = Embagd(self.repository.join('source'), http='127.0.0.1:0')
        self.addCleanup(server.stop)
        self.server = server
        self.client = Client(server.wait_ready().address)
        self.addCleanup(self.client.close)
        self.watch(claim(9, served=True))
        watch = self.watch()
        wait_until(lambda: 'embag_claims{model="m",slot="served"} 1\n' in self.http('/metrics')[1],
                   SECONDS, 'the claim')
        watch.next()
        self.expect_ready(True)


class ClaimsTest(WithClaims):
    """What claims do to a part server that is ready."""

    def test_digests_must_agree(self):
        self.split('2', PARTS)
        self.split('3', PARTS)
        self.start('--claim-grace-s', '0')
        self.server.wait_ready()
        watch = self.watch()
        digest = holding(watch.next(), 3).digest ^ 1
        wrong = self.watch(pb.Claim(model='m', version=2, digest=digest),
                           pb.Claim(model='m', version=1, digest=digest, served=True))
        self.expect_ready(False, f'version 1 with the digest {digest:016x} of model "m"')
        self.assertEqual([(h.version, h.claimed) for h in wrong.next().holdings], [(3, False)])
        wrong.end()
        self.expect_ready(True)
        any_digest = self.watch(claim(2))
        digest = holding(any_digest.states(v2='SERVING'), 2).digest
        right = self.watch(pb.Claim(model='m', version=2, digest=digest, served=True))
        any_digest.end()
        self.assertTrue(holding(right.until(lambda m: holding(m, 2).served_by_router), 2).claimed)
        self.expect_ready(True)
        with Admin(self.server.address) as admin:
            code, text = error_of(admin.command, 'UnloadVersion', 'm', 2)
            self.assertEqual(code.name, 'FAILED_PRECONDITION')
            self.assertIn('router-1', text)

    def test_of_a_version_that_fails_forbid_to_unload_it_too(self):
        self.split('2', PARTS)
        self.break_version(2)
        self.start()
        self.server.wait_ready()
        router = self.watch(claim(2))
        router.states(v1='SERVING', v2='FAILED')
        with Admin(self.server.address) as admin:
            code, text = error_of(admin.command, 'UnloadVersion', 'm', 2)
            self.assertEqual(code.name, 'FAILED_PRECONDITION')
            self.assertIn('router-1', text)

    def test_what_is_not_loaded_is_known_by_its_digest(self):
        self.start()
        self.server.wait_ready()
        self.split('2', PARTS, out=self.repository.join('other'))
        shutil.move(self.repository.join('other', 'm', '2'), self.path('.2'))
        self.break_version('.2')
        os.rename(self.path('.2'), self.path(2))
        found = holding(self.watch().states(v1='SERVING', v2='FAILED'), 2)
        self.assertEqual((found.parts, list(found.owned_parts)), (PARTS, [1]))
        self.assertNotEqual(found.digest, 0)
        self.assertEqual(found.digest, holding(self.watch().next(), 1).digest)    # the same tables

    def test_nothing_newer_is_loaded_while_versions_are_claimed(self):
        self.start()
        router = self.watch(claim(1, served=True))
        self.server.wait_ready()
        self.split('2', PARTS)
        time.sleep(1)
        self.assertEqual([h.version for h in router.next().holdings], [1])
        both = self.watch(claim(1, served=True), claim(2))
        router.end()
        both.states(v1='READY', v2='SERVING')

    def test_a_version_that_was_never_claimed_is_spare_at_once(self):
        self.write('parts/m/model.yaml', 'versions: {keep: 1, keep_s: 3600}\n')
        self.start('--claim-grace-s', '0')
        self.server.wait_ready()
        self.split('2', PARTS)
        watch = self.watch()
        watch.until(lambda message: [h.version for h in message.holdings] == [2])
        router = self.watch(claim(2, served=True))
        watch.until(lambda message: holding(message, 2).claimed)
        router.end()
        watch.until(lambda message: not holding(message, 2).claimed)
        self.split('3', PARTS)
        message = watch.states(v3='SERVING')
        self.assertEqual(STATES.Name(holding(message, 2).state), 'STATE_READY')    # for keep_s

    def test_are_counted(self):
        self.start()
        self.server.wait_ready()
        watches = [self.watch(claim(1, served=True), claim(2)) for _ in range(3)]
        watches.append(self.watch(claim(7)))
        lines = ('embag_claims{model="m",slot="served"} %d\n'
                 'embag_claims{model="m",slot="next"} %d\n')
        wait_until(lambda: lines % (3, 4) in self.http('/metrics')[1], SECONDS, 'all claims')
        for watch in watches:
            watch.end()
        wait_until(lambda: lines % (0, 0) in self.http('/metrics')[1], SECONDS, 'no claim')


del WithParts, WithClaims
