"""The status page in a headless Chromium: checks its contents, that no element covers another, and
that the page sends requests to its server only.

    page_test.py --embagd PATH --embag PATH --embag-load PATH --pictures FOLDER [TEST...]

Prints "N passed, N failed" at the end; the exit status is 0 if none failed.
"""

import argparse
import os
import sys

import page_case
import page_live
import summary
from page_case import TESTS, PageTest
from page_live import UnderLoad  # pylint: disable=unused-import
from page_server import HOSTILE, STARTED_MS, Clock, busy_status, empty_status, route_status

BYTES_MAX = 48 << 10



class Looks(PageTest):
    """The page's view of servers of all sizes."""

    def test_is_small(self):
        page = os.path.join(TESTS, '..', 'server', 'admin', 'status_page.html')
        self.assertLess(os.path.getsize(page), BYTES_MAX)

    def test_shows_a_server_without_models(self):
        clock = Clock()
        server = self.serve(lambda: {
            **empty_status(), 'taken_unix_ms': STARTED_MS + int(clock.seconds() * 1000)})
        tab = self.open(server.address)
        tab.wait('points.length > 1')
        self.assertEqual(tab.text('#phase'), 'loading')
        self.assertIn('No models yet.', tab.text('#models'))
        self.assertEqual(tab.text('#tile-models'), '0\u00a0serving')
        self.check_looks(tab, 'empty')
        self.check_quiet(tab, server.address)

    def test_shows_one_model_light_and_dark(self):
        for scheme in ('light', 'dark'):
            clock = Clock(100)
            server = self.serve(lambda: busy_status(clock.seconds()))
            tab = self.open(server.address, scheme=scheme)
            tab.wait('points.length > 3')
            self.assertEqual(tab.text('#phase'), 'serving')
            self.assertEqual(tab.text('#chart-requests-good'), '1.2\u00a0k/s')
            [model] = self.rows(tab, 'models')
            self.assertEqual((model['Model'], model['Version'], model['State'], model['Size'],
                              model['Loaded in']), ('ranking', '3', 'serving', '3.3 GiB', '1.8 s'))
            self.assertRegex(model['Pages'], '^2 MiB: 98 %')
            reasons = {row['Reason']: row for row in self.rows(tab, 'refusals')}
            self.assertNotEqual(reasons['Queue full']['Now'], '0/s')
            self.assertEqual(reasons['Too many requests in flight']['Now'], '0/s')
            self.check_looks(tab, 'one-model-' + scheme)
            self.check_quiet(tab, server.address)

    def test_shows_a_hundred_models_and_a_thousand_tables_in_part(self):
        clock = Clock(100)
        server = self.serve(lambda: busy_status(clock.seconds(), models=100))
        tab = self.open(server.address)
        tab.wait('points.length > 2')
        tables = self.rows(tab, 'tables')
        self.assertEqual(len(tables), 20)
        self.assertIn('and 980 more', tab.text('#tables'))
        self.assertEqual(tables[0]['Model'], 'ranking-099')
        models = self.rows(tab, 'models')
        self.assertEqual((len(models), models[0]['State']), (20, 'failed'))
        self.assertEqual(models[0]['Version'], str(2 ** 64 - 1))
        self.assertIn('its header ends early', models[0]['Model'])
        self.assertEqual(tab.text('#tile-models'), '100\u00a0serving')
        self.assertIn('; loading, 3.0\u00a0GiB of 10\u00a0GiB; the repository cannot be read',
                      tab.text('#models-count'))
        self.check_looks(tab, 'many')
        tab.value('document.querySelector("#tables button").click()')
        self.assertEqual(len(self.rows(tab, 'tables')), 40)
        self.assertIn('and 960 more', tab.text('#tables'))
        tab.value('const find = document.querySelector("#tables input"); find.value = "KING-042"; '
                  'find.dispatchEvent(new Event("input"))')
        self.assertEqual({row['Model'] for row in self.rows(tab, 'tables')}, {'ranking-042'})
        tab.value('find.value = "no such"; find.dispatchEvent(new Event("input"))')
        self.assertIn('No name matches.', tab.text('#tables'))
        self.check_quiet(tab, server.address)

    def test_shows_the_parts_of_a_router_light_and_dark(self):
        for scheme, parts in ('light', 4), ('dark', 100):
            clock = Clock(100)
            server = self.serve(lambda parts=parts, clock=clock: {
                **busy_status(clock.seconds()), 'route': route_status(parts)})
            tab = self.open(server.address, scheme=scheme)
            tab.wait('points.length > 1')
            rows = self.rows(tab, 'routes')
            cells = [(row['Version'], row['Slot'], row['Parts ready']) for row in rows[:3]]
            self.assertEqual(cells,
                             [('8', 'served', '%d of %d' % (parts - 1, parts)),
                              ('9', 'next', '%d of %d' % (parts, parts)),
                              ('7', 'previous', '%d of %d' % (parts, parts))])
            cells = tab.value('[...document.querySelector("#routes .parts").children]'
                              '.map(c => c.className)')
            self.assertEqual(cells[:3], ['bad', 'warn', 'good'])
            self.assertEqual(cells[3:], ['good'] if parts == 4 else ['good'] * 61 + ['good rest'])
            peers = self.rows(tab, 'peers')
            self.assertEqual([row['State'] for row in peers[:4]],
                             ['lost', 'suspect', 'ejected', 'connected'])
            self.assertEqual((peers[0]['Latency'], peers[1]['Part']), ('\u2013', '1'))
            self.assertIn('other files', tab.text('#routes-count'))
            self.check_looks(tab, 'router-' + scheme)
            self.check_quiet(tab, server.address)

    def test_shows_no_parts_of_other_servers(self):
        clock = Clock(100)
        tab = self.open(self.serve(lambda: busy_status(clock.seconds())).address)
        tab.wait('points.length > 1')
        for card in '#routes', '#peers':
            self.assertTrue(tab.value('document.querySelector("%s").hidden' % card))

    def test_takes_names_for_texts_only(self):
        clock = Clock(100)
        server = self.serve(lambda: busy_status(clock.seconds(), models=len(HOSTILE)))
        tab = self.open(server.address)
        tab.wait('points.length > 1')
        self.assertEqual({row['Model'].split('user.npy')[0] for row in self.rows(tab, 'models')},
                         set(HOSTILE))
        self.assertEqual({row['Table'] for row in self.rows(tab, 'tables')
                          if row['Model'] == HOSTILE[-1]} & set(HOSTILE), set(HOSTILE))
        self.assertTrue(tab.value('window.harmed === undefined && !document.querySelector("img")'))
        self.check_looks(tab, 'hostile')
        self.check_quiet(tab, server.address)


class Life(PageTest):
    """The page while the server, and the person who reads the page, come and go."""

    def test_numbers_move(self):
        clock = Clock(100)
        server = self.serve(lambda: busy_status(clock.seconds()))
        tab = self.open(server.address)
        for selector in ('#uptime', '#methods td:last-child', '#tables td:nth-child(6)',
                         '#slow tbody'):
            was = tab.text(selector)
            tab.wait('document.querySelector(%r).textContent !== %r' % (selector, was), 90)

    def test_says_so_while_the_server_does_not_answer_and_goes_on_after(self):
        clock = Clock(100)
        server = self.serve(lambda: busy_status(clock.seconds()))
        tab = self.open(server.address)
        tab.wait('points.length > 1')
        server.answers = False
        tab.wait('!document.querySelector("#banner").hidden')
        self.assertIn('does not answer', tab.text('#banner'))
        self.assertEqual(tab.value('document.title'), 'embag: no answer')
        tab.wait('/no answer for ([3-9]|\\d\\d)/.test(document.querySelector("#link").textContent)')
        self.check_looks(tab, 'no-answer')
        server.answers = True
        tab.wait('document.querySelector("#banner").hidden')
        count = tab.value('points.length')
        tab.wait('points.length > %d' % count)
        self.assertEqual(tab.text('#chart-requests-good'), '1.2\u00a0k/s')

    def test_begins_anew_with_another_process(self):
        clock, started = Clock(1000), [STARTED_MS]
        server = self.serve(
            lambda: {**busy_status(clock.seconds()), 'started_unix_ms': started[0]})
        tab = self.open(server.address)
        tab.wait('points.length > 2')
        clock.start += 900  # the counters are smaller, too
        started[0] += 900_000
        tab.wait('looks[0].started === %d' % started[0])
        tab.wait('points.length > 1')
        self.assertEqual(tab.value('points.filter(p => p.good < 0 || p.good > 1500)'), [])

    def test_goes_on_when_the_clock_was_set_back(self):
        clock, back_ms = Clock(1000), [0]

        def make():
            status = busy_status(clock.seconds())
            status['taken_unix_ms'] -= back_ms[0]
            return status
        tab = self.open(self.serve(make).address)
        tab.wait('points.length > 1')
        back_ms[0] = 500_000
        tab.wait('points.length > 1 && points[0].at < %d' % (STARTED_MS + 900_000))
        self.assertEqual(tab.text('#chart-requests-good'), '1.2\u00a0k/s')

    def test_asks_nothing_while_nobody_sees_it(self):
        clock = Clock(100)
        server = self.serve(lambda: busy_status(clock.seconds()))
        tab = self.open(server.address)
        other = self.serve(empty_status)
        above = self.open(other.address)  # a new tab hides the one below it
        tab.wait('document.hidden && document.querySelector("#link").className === ""')
        seen, begun = server.looks, other.looks
        above.wait('new Promise(go => setTimeout(() => go(true), 3500))')
        self.assertGreater(other.looks, begun)
        self.assertLessEqual(server.looks, seen + 1)  # one request may have been on its way
        above.close()
        tab.call('Page.bringToFront')
        tab.wait('document.querySelector("#link")?.className === "live"')
        self.assertGreater(server.looks, seen)

    def test_holds_still_under_the_keyboard(self):
        order = [1]

        def make(clock=Clock(100)):
            status = busy_status(clock.seconds(), models=3)
            status['tables'] = status['tables'][::order[0]]
            for i, table in enumerate(status['tables']):
                table['indices'] = int(clock.seconds() * 1000 * (100 - i))
            return status
        tab = self.open(self.serve(make).address)
        tab.wait('points.length > 1')
        tab.value('document.querySelector("#tables input").focus()')
        for _ in range(2):
            tab.call('Input.dispatchKeyEvent', type='keyDown', key='Tab', code='Tab',
                     windowsVirtualKeyCode=9)
        self.assertEqual(tab.value('document.activeElement.tagName'), 'SUMMARY')
        self.assertTrue(tab.value('document.activeElement.matches(":focus-visible")'))
        tab.call('Input.dispatchKeyEvent', type='keyDown', key='Enter', code='Enter', text='\r',
                 windowsVirtualKeyCode=13)
        tab.wait('document.activeElement.parentElement.open')
        self.assertEqual(tab.value('document.activeElement.nextSibling.children.length'), 16)
        names = [row['Table'] for row in self.rows(tab, 'tables')]
        count = tab.value('points.length')
        order[0] = -1
        tab.wait('points.length > %d' % (count + 3))
        self.assertEqual(tab.value('document.activeElement.tagName'), 'SUMMARY')
        self.assertTrue(tab.value('document.activeElement.parentElement.open'))
        self.assertEqual([row['Table'] for row in self.rows(tab, 'tables')], names)


class Numbers(PageTest):
    """The page's arithmetic, called directly."""

    def setUp(self):
        self.tab = self.open(self.serve(empty_status).address)

    def test_says_numbers_in_units_that_people_read(self):
        for expression, expected in [
                ('rate(1234)', '1.2 k/s'), ('rate(0)', '0/s'), ('rate(0.04)', '<0.1/s'),
                ('rate(340)', '340/s'), ('rate(999.7)', '1.0 k/s'), ('count(12e6)', '12 M'),
                ('time(340000)', '340 \u00b5s'), ('time(999900)', '1.0 ms'), ('time(7)', '7 ns'),
                ('time(null)', '\u2013'), ('time(2.5e9)', '2.5 s'), ('time(9.98e6)', '10 ms'),
                ('bytes(3.4 * 2 ** 30)', '3.4 GiB'), ('bytes(0)', '0 B'), ('bytes(1023)', '1023 B'),
                ('byteRate(1.5 * 2 ** 20)', '1.5 MiB/s'), ('share(1, 3)', '33 %'),
                ('share(1, 1e6)', '<0.1 %'), ('share(5, 5)', '100 %'), ('share(0, 0)', '0 %'),
                ('span(59400)', '59 s'), ('span(3725e3)', '1 h 2 min'), ('span(2e8)', '2 d 7 h')]:
            with self.subTest(expression=expression):
                self.assertEqual(self.tab.value(expression).replace('\u00a0', ' '), expected)

    def test_makes_quantiles_of_what_came_between_two_looks(self):
        look = ('(ranges => ({at: ranges.length, counts: new Map(ranges.map(([e, n]) => '
                '[key("h", e), n]))}))')
        of = 'new Between(%s([[2048, 100]]), %s(%s)).quantile("h", {ranges: %s}, %s)'
        for ranges, part, expected in [
                ('[[2048, 100]]', 0.5, None), ('[[2048, 100], [4096, 100]]', 0.5, 3840),
                ('[[2048, 100], [4096, 100]]', 1, 4096), ('[[1024, 4], [2048, 100]]', 0.25, 256),
                ('[[2048, 200], [5120, 1]]', 0.5, 1792 + 256 * 50.5 / 100),
                ('[[2048, 100], [0, 1]]', 0.99, 2 ** 36)]:
            with self.subTest(ranges=ranges, part=part):
                self.assertEqual(self.tab.value(of % (look, look, ranges, ranges, part)), expected)

    def test_ends_axes_at_round_numbers_above_all_points(self):
        tops = 'new Set([3, 12, 999, 1010, 49e5].map(v => charts[%d].top([{%s: v}])))'
        self.assertEqual(self.tab.value('[...%s]' % (tops % (2, 'rows'))),
                         [10, 20, 1000, 2000, 5e6])
        kib = 'charts[3].top([{read: %s * 1024}]) / 1024'
        self.assertEqual([self.tab.value(kib % v) for v in (1.5, 700, 1010, 1100)],
                         [2, 1000, 1024, 2048])


def main():
    """Runs all tests, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for program in ('embagd', 'embag', 'embag-load'):
        parser.add_argument('--' + program, required=True, dest=program)
    parser.add_argument('--pictures', required=True, help='folder for screenshots')
    parser.add_argument('tests', nargs='*', help='such as Looks.test_is_small')
    arguments = vars(parser.parse_args())
    for program in ('embagd', 'embag', 'embag-load'):
        page_live.PROGRAMS[program] = os.path.abspath(arguments[program])
    page_case.PICTURES['folder'] = arguments['pictures']
    os.makedirs(arguments['pictures'], exist_ok=True)
    return summary.run_tests(*arguments['tests'])


if __name__ == '__main__':
    sys.exit(main())
