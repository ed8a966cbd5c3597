"""Metrics, rules and dashboard, checked with Debian's Prometheus.

    monitoring_test.py BUILD

Prints "N passed, N failed" at the end; the exit status is 0 if none failed.
"""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.parse
import urllib.request

import yaml

import embagd_process
import summary
from certificates import HERE as LOOPBACK, Authority
from embagd_process import Embagd, Repository, wait_until

HERE = os.path.dirname(os.path.abspath(__file__))
DEPLOY = os.path.join(HERE, '..', '..', '..', 'deploy', 'monitoring')
SECONDS = 60
# Values for the dashboard's variables.
VARIABLES = {'$instance': '.*', '$__rate_interval': '10s', '$__range': '1m'}
PARTS = 2
METRIC = r'\b(?:up|(?:embag|process)_[a-z0-9_]+)\b'


def get(url):
    """Returns the text at the address."""
    with urllib.request.urlopen(url, timeout=SECONDS) as answer:
        return answer.read().decode()


def promtool(*words, text=None):
    """Runs promtool, which must succeed; returns its output."""
    done = subprocess.run(['promtool', *words], input=text, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=SECONDS, check=False)
    if done.returncode != 0:
        raise AssertionError('promtool %s: %s' % (' '.join(words), done.stdout))
    return done.stdout


def read_yaml(name):
    """Returns the content of a YAML file in the dashboard's folder."""
    with open(os.path.join(DEPLOY, name), encoding='utf-8') as file:
        return yaml.safe_load(file)


def read_rules():
    """Returns the alerts."""
    return [rule for group in read_yaml('alerts.yaml')['groups'] for rule in group['rules']]


def read_dashboard():
    """Returns the panels that have queries."""
    with open(os.path.join(DEPLOY, 'dashboard.json'), encoding='utf-8') as file:
        return [panel for panel in json.load(file)['panels'] if 'targets' in panel]


def is_ready(server):
    """Returns whether a server is ready."""
    try:
        return get('http://127.0.0.1:%d/readyz' % server.http_port)
    except urllib.error.HTTPError:
        return False


def free_port():
    """Returns a port on which nobody listens."""
    with socket.create_server(('127.0.0.1', 0)) as listener:
        return listener.getsockname()[1]


class Prometheus:
    """A Prometheus that scrapes servers each second, with our rules."""

    def __init__(self, *targets):
        self.folder = tempfile.TemporaryDirectory(prefix='embag-test-')
        config = read_yaml('prometheus.yaml')
        config['global'] = {'scrape_interval': '1s', 'evaluation_interval': '1s'}
        config['rule_files'] = [os.path.abspath(os.path.join(DEPLOY, name))
                                for name in config['rule_files']]
        config['scrape_configs'][0]['static_configs'][0]['targets'] = list(targets)
        self.count = len(targets)
        path = os.path.join(self.folder.name, 'prometheus.yaml')
        with open(path, 'w', encoding='utf-8') as file:
            yaml.safe_dump(config, file)
        self.url = 'http://127.0.0.1:%d' % free_port()
        with open(os.path.join(self.folder.name, 'log'), 'wb') as log:
            self.process = subprocess.Popen(
                ['prometheus', '--config.file=' + path,
                 '--storage.tsdb.path=' + os.path.join(self.folder.name, 'data'),
                 '--web.listen-address=' + self.url[len('http://'):]], stdout=log, stderr=log)
        wait_until(self.is_up, SECONDS, 'Prometheus has scraped embagd')

    def is_up(self):
        """Returns whether Prometheus has scraped all servers."""
        try:
            return [value for _, value in self.ask('up{job="embag"}')] == [1] * self.count
        except (urllib.error.URLError, ConnectionError):
            return False

    def read(self, path):
        """Returns the result of a call of Prometheus's API."""
        return json.loads(get(self.url + '/api/v1/' + path))['data']

    def ask(self, expression):
        """Returns the labels and the value of each series of an expression."""
        result = self.read('query?' + urllib.parse.urlencode({'query': expression}))['result']
        return [(series['metric'], float(series['value'][1])) for series in result]

    def close(self):
        """Stops Prometheus."""
        self.process.terminate()
        self.process.wait(SECONDS)
        self.folder.cleanup()


class RulesTest(unittest.TestCase):
    """Checks that need no server."""

    def test_rules_are_as_promtool_wants_them(self):
        promtool('check', 'config', os.path.join(DEPLOY, 'prometheus.yaml'))

    def test_each_alert_speaks_when_it_should(self):
        promtool('test', 'rules', os.path.join(HERE, 'alerts_test.yaml'))

    def test_each_alert_says_what_to_do(self):
        for rule in read_rules():
            with self.subTest(rule['alert']):
                self.assertIn(rule['labels']['severity'], ('page', 'ticket', 'info'))
                self.assertTrue(rule['annotations']['summary'])
                self.assertTrue(rule['annotations']['description'])

    def test_each_alert_has_a_test(self):
        with open(os.path.join(HERE, 'alerts_test.yaml'), encoding='utf-8') as file:
            tested = set(re.findall(r'alertname="(\w+)"', file.read()))
        self.assertEqual(tested, {rule['alert'] for rule in read_rules()})

    def test_each_selector_names_the_job(self):
        """The job distinguishes one deployment from others, and the chart replaces it."""
        for rule in read_rules():
            selectors = re.findall(METRIC + r'(\{[^}]*\})?', rule['expr'])
            self.assertTrue(selectors)
            for selector in selectors:
                self.assertIn('job="embag"', selector, rule['alert'])

    def test_panels_do_not_overlap(self):
        places = [panel['gridPos'] for panel in read_dashboard()]
        for i, one in enumerate(places):
            self.assertLessEqual(one['x'] + one['w'], 24)
            for other in places[:i]:
                apart = (one['x'] >= other['x'] + other['w'] or other['x'] >= one['x'] + one['w'] or
                         one['y'] >= other['y'] + other['h'] or other['y'] >= one['y'] + one['h'])
                self.assertTrue(apart, (one, other))


class ScrapeTest(unittest.TestCase):
    """A server and a router under load, and a Prometheus that has scraped them for a while."""

    @classmethod
    def setUpClass(cls):
        cls.repository = Repository()
        subprocess.run([os.path.join(BUILD, 'embag'), 'make-model', '--workload', 'dlrm-v2',
                        '--scale', '20000', cls.repository.path], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        cls.authority = Authority()
        cls.authority.issue('server', names=LOOPBACK)
        cls.server = Embagd(cls.repository.path, '--http-listen', '127.0.0.1:0',
                            '--tls-cert', cls.authority.path('server.pem'),
                            '--tls-key', cls.authority.path('server.key')).wait_ready()
        cls.http = re.search(r'event=http_listening address=(\S+)', cls.server.log)[1]
        cls.router = cls.start_router()
        cls.loads = [cls.load(cls.server, '--tls-ca', cls.authority.path('ca.pem')),
                     cls.load(cls.router)]
        cls.prometheus = Prometheus(cls.http, '127.0.0.1:%d' % cls.router.http_port)
        for name in ('embag_requests_total{code="OK", instance="%s"}' % cls.http,
                     'embag_route_legs_total{outcome="ok"}'):
            wait_until(lambda name=name: cls.prometheus.ask('rate(%s[5s]) > 0' % name), SECONDS,
                       'Prometheus has seen requests')

    @classmethod
    def start_router(cls):
        """Starts part servers with the model, and a router."""
        cls.divided = Repository()
        subprocess.run([os.path.join(BUILD, 'embag'), 'split', cls.repository.join('dlrm-v2', '1'),
                        '--parts', str(PARTS), '--everywhere-below', '0', '--out',
                        cls.divided.path], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        cls.parts = [Embagd(cls.divided.path, '--part', '%d/%d' % (part, PARTS), '--loops', '1')
                     .wait_ready() for part in range(PARTS)]
        router = Embagd(cls.divided.path, '--route', ','.join(each.address for each in cls.parts),
                        http='127.0.0.1:0').wait_ready()
        wait_until(lambda: is_ready(router), SECONDS, 'the router is ready')
        return router

    @staticmethod
    def load(server, *flags):
        """Starts load on a server."""
        return subprocess.Popen(
            [os.path.join(BUILD, 'embag-load'), '--server', server.address, '--model', 'dlrm-v2',
             '--workload', 'dlrm-v2', '--rate', '200', '--duration', '600', *flags],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    @classmethod
    def tearDownClass(cls):
        for load in cls.loads:
            load.terminate()
            load.wait(SECONDS)
        cls.prometheus.close()
        cls.server.stop()
        cls.router.stop()
        for part in cls.parts:
            part.stop()
        cls.divided.remove()
        cls.repository.remove()
        cls.authority.remove()

    def test_metrics_are_as_promtool_wants_them(self):
        for address in self.http, '127.0.0.1:%d' % self.router.http_port:
            self.assertEqual(promtool('check', 'metrics', text=get('http://%s/metrics' % address)),
                             '')

    def test_rules_can_be_evaluated(self):
        def rules():
            return [rule for group in self.prometheus.read('rules')['groups']
                    for rule in group['rules']]
        wait_until(lambda: rules() and all(rule['health'] == 'ok' for rule in rules()), SECONDS,
                   'every rule has been evaluated')
        self.assertEqual(len(rules()), len(read_rules()))

    def test_rules_and_panels_name_metrics_that_there_are(self):
        known = set(self.prometheus.read('label/__name__/values'))
        asked = [rule['expr'] for rule in read_rules()]
        asked += [target['expr'] for panel in read_dashboard() for target in panel['targets']]
        for expression in asked:
            names = set(re.findall(METRIC, expression))
            self.assertTrue(names and names <= known, (expression, names - known))

    def test_every_panel_has_something_to_show(self):
        for panel in read_dashboard():
            for target in panel['targets']:
                expression = target['expr']
                for name, value in VARIABLES.items():
                    expression = expression.replace(name, value)
                with self.subTest(panel['title'], expression=expression):
                    self.assertTrue(self.prometheus.ask(expression))

    def test_what_has_a_limit_is_shown_with_it(self):
        asked = ''.join(target['expr'] for panel in read_dashboard() for target in panel['targets'])
        shown = re.findall(r'\w+', ' '.join(re.findall(r'embag_limit\{(.*?)\}', asked)))
        limits = {labels['name'] for labels, _ in self.prometheus.ask('embag_limit')}
        self.assertTrue(limits)
        self.assertLessEqual(limits, set(shown))

    def test_counts_what_was_asked(self):
        """The load continues, so two scrapes differ by the requests between them."""
        server = '{instance="%s", code="OK"}' % self.http
        rate, = (value for labels, value in self.prometheus.ask(
            'rate(embag_requests_total%s[5s])' % server) if value > 0)
        bags, = (value for _, value in self.prometheus.ask(
            'rate(embag_bags_total{instance="%s"}[5s])' % self.http))
        self.assertAlmostEqual(bags / rate, 26, delta=2)  # one bag of each of 26 tables


if __name__ == '__main__':
    BUILD = os.path.abspath(sys.argv[1])
    embagd_process.EMBAGD = os.path.join(BUILD, 'embagd')
    sys.exit(summary.run_tests())
