"""The Helm chart with parts: routers, part servers, TLS between them, and copies from a store.

    parts_test.py EMBAGD BUILD

Prints "N passed, N failed" at the end; the exit status is 0 if none failed.
"""

import contextlib
import importlib.util
import io
import os
import re
import shutil
import sys
import tempfile
import types
import unittest
from unittest import mock

import grpc
import yaml

import embagd_process
import guide
import summary
from certificates import Authority
from chart import (CHART, EMBAGD, PARTS, PARTS_KIND, ROUTER_SETTINGS, find, helm, known_settings,
                   kubeconform, needs_helm, read_chart, render, run, settings_of)
from embagd_process import Embagd, Repository
from table_files import Table, write_model

CLIENT = os.path.join(CHART, '..', '..', '..', 'client', 'python')
SIMPLE = ('--set', 'parts.enabled=true,parts.models.existingClaim=all')
SECRETS = ('--set', 'parts.tls.secretName=part-tls,parts.tls.routerSecretName=router-tls')
NAME = 'prod-embag-parts'
HOST = 'prod-embag-parts.default.svc.cluster.local'
SERVICE = '/embag.v1.EmbeddingBag/'
# What routers' pods have besides: nobody may call a part server with it.
STRANGER = 'stranger.default'


def sets_of(manifests):
    """Returns the StatefulSets by name."""
    return {m['metadata']['name']: m for m in manifests if m['kind'] == 'StatefulSet'}


def pod_of(manifest):
    """Returns the template of a Deployment's or StatefulSet's pods."""
    return manifest['spec']['template']


def server_of(manifest):
    """Returns the container of the server."""
    container, = pod_of(manifest)['spec']['containers']
    return container


def settings_text(manifests, name):
    """Returns the text of a settings file."""
    return find(manifests, 'ConfigMap', name=name)['data']['embagd.yaml']


def meets(selector, labels):
    """Returns whether a selector of labels finds these."""
    return selector.items() <= labels.items()


def load_sync():
    """Returns the module of embag-sync's command line, without the package's other modules, whose
    messages are generated when it is installed."""
    package = types.ModuleType('embag')
    package.__path__ = [os.path.join(CLIENT, 'embag')]
    with mock.patch.dict(sys.modules, embag=package):
        return importlib.import_module('embag.sync.cli')


@needs_helm
class Rendered(unittest.TestCase):
    """The manifests with parts."""

    @classmethod
    def setUpClass(cls):
        cls.simple = render(*SIMPLE)
        cls.every = render('--values', PARTS)
        cls.secrets = render(*SIMPLE, *SECRETS)

    def test_lint_and_keep_to_the_schemas(self):
        command = kubeconform(PARTS_KIND)
        for options, manifests in ((SIMPLE, self.simple), (('--values', PARTS), self.every),
                                   ((*SIMPLE, *SECRETS), self.secrets)):
            self.assertIn(' 0 chart(s) failed', helm('lint', '--strict', *options))
            said = run(*command, input=yaml.safe_dump_all(manifests))
            self.assertIn('Valid: %d, Invalid: 0, Errors: 0, Skipped: 0' % len(manifests), said)
        self.assertEqual({m['kind'] for m in self.every}, PARTS_KIND)
        names = [(m['kind'], m['metadata']['name']) for m in self.every]
        self.assertEqual(len(names), len(set(names)))
        certificate = find(self.every, 'Certificate', name=NAME + '-tls')
        broken = {**certificate, 'spec': {**certificate['spec'], 'dnsName': ['x']}}
        self.assertIn('is invalid', run(*command, status=1, input=yaml.safe_dump(broken)))

    def test_the_values_of_the_guide_are_good(self):
        text = guide.section(guide.read('deploy', 'OPERATIONS.md'), 'Many machines')
        values, = (block.text for block in guide.blocks(text, 'yaml'))
        self.assertEqual(len(re.findall('^helm install .* --values parts.yaml$', text, re.M)), 1)
        with tempfile.NamedTemporaryFile('w', suffix='.yaml', encoding='utf-8') as file:
            file.write(values)
            file.flush()
            manifests = render('--values', file.name)
        (_, found), = sets_of(manifests).items()
        self.assertEqual(found['spec']['replicas'], 32)
        self.assertIn('--part=hostname/16', server_of(found)['args'])

    def test_one_set_has_all_parts(self):
        (name, found), = sets_of(self.simple).items()
        self.assertEqual((name, found['spec']['replicas']), (NAME + '-p4', 8))
        self.assertIn('--part=hostname/4', server_of(found)['args'])
        self.assertEqual((found['spec']['podManagementPolicy'], found['spec']['minReadySeconds']),
                         ('Parallel', 15))
        self.assertEqual(found['spec']['updateStrategy'],
                         {'type': 'RollingUpdate', 'rollingUpdate': {'partition': 0}})
        self.assertEqual([v for v in pod_of(found)['spec']['volumes'] if v['name'] == 'models'],
                         [{'name': 'models', 'persistentVolumeClaim': {'claimName': 'all'}}])
        self.assertNotIn('initContainers', pod_of(found)['spec'])

    def test_sets_have_nodes_of_their_own_and_hot_parts_one_more(self):
        sets = sets_of(self.every)
        self.assertEqual(
            {name: (each['spec']['replicas'], server_of(each)['args'][-1],
                    each['spec']['updateStrategy']['rollingUpdate']['partition'],
                    pod_of(each)['spec']['nodeSelector'], pod_of(each)['spec']['tolerations'])
             for name, each in sets.items()}, {
                 NAME + '-p4-a': (4, '--part=hostname/4', 0,
                               {'disk': 'nvme', 'topology.kubernetes.io/zone': 'a'},
                               [{'key': 'memory', 'operator': 'Exists'}]),
                 NAME + '-p4-b': (4, '--part=hostname/4', 4,
                               {'disk': 'nvme', 'topology.kubernetes.io/zone': 'b'},
                               [{'key': 'spot', 'operator': 'Exists'}]),
                 NAME + '-p4-of-3': (2, '--part=3/4', 0, {'disk': 'nvme'},
                                     [{'key': 'memory', 'operator': 'Exists'}]),
                 NAME + '-p3-a': (3, '--part=hostname/3', 0,
                               {'disk': 'nvme', 'topology.kubernetes.io/zone': 'a'},
                               [{'key': 'memory', 'operator': 'Exists'}]),
                 NAME + '-p3-b': (3, '--part=hostname/3', 3,
                               {'disk': 'nvme', 'topology.kubernetes.io/zone': 'b'},
                               [{'key': 'spot', 'operator': 'Exists'}]),
                 NAME + '-p3-of-2': (1, '--part=2/3', 0, {'disk': 'nvme'},
                                     [{'key': 'memory', 'operator': 'Exists'}])})
        # An upgrade releases a set that was held back.
        released = sets_of(render('--values', PARTS, '--set', 'parts.sets[1].partition=0'))
        self.assertEqual(
            {name: each['spec']['updateStrategy']['rollingUpdate'].pop('partition')
             for name, each in released.items()}, {name: 0 for name in sets})
        self.assertEqual(pod_of(released[NAME + '-p4-b']), pod_of(sets[NAME + '-p4-b']))
        one = sets_of(render(*SIMPLE, '--set', 'parts.previous.count=3,parts.previous.replicas=5'))
        self.assertEqual({name: each['spec']['replicas'] for name, each in one.items()},
                         {NAME + '-p4': 8, NAME + '-p3': 15})
        # The server reads the number at the end of a pod's name.
        for name in sets:
            self.assertRegex(name, '-p[34](-[a-z]+|-of-[23])?$')
        selectors = [each['spec']['selector']['matchLabels'] for each in sets.values()]
        for name, each in sets.items():
            labels = pod_of(each)['metadata']['labels']
            self.assertEqual([meets(selector, labels) for selector in selectors].count(True), 1)
        # A label has the name of a set and a hash, and a host name that of a pod.
        long_name = render(*SIMPLE, '--set', 'parts.count=4096,parts.sets[0].name=abcdefgh',
                           release='r' * 53)
        (name, _), = sets_of(long_name).items()
        self.assertLessEqual(len(name + '-0123456789'), 63)
        self.assertLessEqual(len(name + '-4095'), 63)
        other = render(*SIMPLE, release='r' * 52 + 's')
        self.assertNotEqual(list(sets_of(other))[0][:34], name[:34])

    def test_part_servers_take_their_settings(self):
        for manifests in self.simple, self.every, self.secrets:
            text = settings_text(manifests, NAME)
            self.assertEqual(set(yaml.safe_load(text)) & ROUTER_SETTINGS, set())
            for each in sets_of(manifests).values():
                path, *flags = server_of(each)['args']
                self.assertEqual(path, '--config=/etc/embag/embagd.yaml')
                flags = [flag.replace('hostname', '2') for flag in flags]
                settings = settings_of(text, *flags)
                self.assertRegex(settings['part'][0], '^[0-3]/[34]$')
                for name in yaml.safe_load(text):
                    self.assertEqual(settings[name][1], 'file')
        self.assertEqual(yaml.safe_load(settings_text(self.every, NAME))['load_jitter_s'], 5)

    def test_routers_take_their_settings(self):
        text = settings_text(self.every, 'prod-embag')
        config = yaml.safe_load(text)
        self.assertEqual({name: config[name] for name in set(config) & ROUTER_SETTINGS}, {
            'route': 'dns:%s.:8600' % HOST, 'flip_replicas': 2,
            'route_tls_ca': '/etc/embag-route-tls/ca.crt',
            'route_tls_cert': '/etc/embag-route-tls/tls.crt',
            'route_tls_key': '/etc/embag-route-tls/tls.key',
            'route_token_file': '/etc/embag-route-token/token'})
        self.assertNotIn('part', ' '.join(server_of(find(self.every, 'Deployment'))['args']))
        given = render(*SIMPLE, '--set', 'config.flip_replicas=3,config.next_wait_s=60')
        config = yaml.safe_load(settings_text(given, 'prod-embag'))
        self.assertEqual((config['flip_replicas'], config['next_wait_s']), (3, 60))
        self.assertNotIn('next_wait_s', settings_text(given, NAME))
        # No router waits for more servers of a part than there are, nor alerts that they lack.
        for values, wanted in (('replicas=1', 1), ('replicas=3', 2), ('sets[0].name=a', 1),
                               ('replicas=1,parts.sets[0].name=a,parts.sets[1].name=b', 2)):
            with self.subTest(values):
                text = settings_text(render(*SIMPLE, '--set', 'parts.' + values), 'prod-embag')
                self.assertEqual(yaml.safe_load(text)['flip_replicas'], wanted)
        if 'route' not in known_settings():
            self.skipTest('embagd has no setting route')
        for manifests in self.simple, self.every, self.secrets, given:
            text = settings_text(manifests, 'prod-embag')
            path, *flags = server_of(find(manifests, 'Deployment'))['args']
            settings = settings_of(text, *flags)
            for name in yaml.safe_load(text):
                self.assertEqual(settings[name][1], 'file')

    def test_names_lead_to_all_part_servers_and_to_nothing_else(self):
        for manifests in self.simple, self.every:
            service = find(manifests, 'Service', name=NAME)['spec']
            self.assertEqual((service['clusterIP'], service['publishNotReadyAddresses']),
                             ('None', True))
            route = yaml.safe_load(settings_text(manifests, 'prod-embag'))['route']
            self.assertEqual(route, 'dns:%s.default.svc.cluster.local.:%d' % (
                NAME, service['ports'][0]['port']))
            router = pod_of(find(manifests, 'Deployment'))['metadata']['labels']
            clients = find(manifests, 'Service', name='prod-embag')['spec']['selector']
            self.assertTrue(meets(clients, router))
            self.assertFalse(meets(service['selector'], router))
            budgets = {m['metadata']['name']: m['spec'] for m in manifests
                       if m['kind'] == 'PodDisruptionBudget'}
            self.assertEqual(budgets[NAME]['maxUnavailable'], 1)
            for each in sets_of(manifests).values():
                labels = pod_of(each)['metadata']['labels']
                self.assertEqual(each['spec']['serviceName'], NAME)
                self.assertTrue(meets(service['selector'], labels))
                self.assertTrue(meets(each['spec']['selector']['matchLabels'], labels))
                self.assertFalse(meets(clients, labels))
                for name, spec in budgets.items():
                    self.assertEqual(meets(spec['selector']['matchLabels'], labels), name == NAME)
        domain = render(*SIMPLE, '--set', 'parts.clusterDomain=corp')
        self.assertIn('dns:%s.default.svc.corp.:8600' % NAME, settings_text(domain, 'prod-embag'))

    def test_pods_are_kept_apart_by_host_and_spread_over_zones(self):
        for manifests, kind in ((self.simple, 'preferred'), (self.every, 'required')):
            for each in sets_of(manifests).values():
                labels, spec = pod_of(each)['metadata']['labels'], pod_of(each)['spec']
                term, = spec['affinity']['podAntiAffinity'][
                    kind + 'DuringSchedulingIgnoredDuringExecution']
                term = term.get('podAffinityTerm', term)
                self.assertEqual(term['topologyKey'], 'kubernetes.io/hostname')
                spread, = spec['topologySpreadConstraints']
                self.assertEqual(spread['topologyKey'], 'topology.kubernetes.io/zone')
                for selector in term['labelSelector'], spread['labelSelector']:
                    self.assertTrue(meets(selector['matchLabels'], labels))
                self.assertEqual('nodeAffinity' in spec['affinity'], kind == 'required')
        none = render(*SIMPLE, '--set', 'parts.hostAntiAffinity=none')
        (_, only), = sets_of(none).items()
        self.assertNotIn('affinity', pod_of(only)['spec'])

    def test_network_policies_admit_routers_and_prometheus(self):
        for manifests, types_of in ((self.simple, ['Ingress']),
                                    (self.every, ['Ingress', 'Egress'])):
            policy = find(manifests, 'NetworkPolicy', name=NAME)['spec']
            self.assertEqual(policy['policyTypes'], types_of)
            labels = pod_of(list(sets_of(manifests).values())[0])['metadata']['labels']
            self.assertTrue(meets(policy['podSelector']['matchLabels'], labels))
            lookups, metrics = policy['ingress']
            self.assertEqual(lookups['ports'], [{'port': 'grpc'}])
            peer, = lookups['from']
            router = pod_of(find(manifests, 'Deployment'))['metadata']['labels']
            self.assertTrue(meets(peer['podSelector']['matchLabels'], router))
            self.assertFalse(meets(peer['podSelector']['matchLabels'], labels))
            self.assertEqual(metrics['ports'], [{'port': 'http'}])
        self.assertEqual(metrics['from'],
                         [{'namespaceSelector': {'matchLabels': {
                             'kubernetes.io/metadata.name': 'monitoring'}}}])
        # Routers may reach part servers, DNS, and what the values name.
        legs, dns, given = find(self.every, 'NetworkPolicy', name='prod-embag')['spec']['egress']
        self.assertTrue(meets(legs['to'][0]['podSelector']['matchLabels'], labels))
        self.assertEqual({each['port'] for each in dns['ports']}, {53})
        self.assertEqual(given, {'ports': [{'port': 8333}]})
        # embag-sync asks DNS for the address of the store, beside part servers and other servers.
        whole = ('models.emptyDir=4Gi,sync.source=s3://m,sync.image=i,networkPolicy.enabled=true')
        for manifests, name, given in (
                (self.every, NAME, [{'ports': [{'port': 8333}]}]),
                (render('--set', whole), 'prod-embag', [])):
            first, *rest = find(manifests, 'NetworkPolicy', name=name)['spec']['egress']
            self.assertEqual((first, rest), ({'ports': [
                {'port': 53, 'protocol': each} for each in ('UDP', 'TCP')]}, given))
        for options in (('networkPolicy.enabled=true',),
                        ('networkPolicy.enabled=true', *SIMPLE[1:])):
            name = NAME if len(options) > 1 else 'prod-embag'
            alone = render('--set', ','.join(options))
            self.assertEqual(find(alone, 'NetworkPolicy', name=name)['spec']['egress'], [])
        off = render(*SIMPLE, '--set', 'parts.networkPolicy=false')
        self.assertEqual([m for m in off if m['kind'] == 'NetworkPolicy'], [])

    def test_certificates_are_those_that_both_sides_expect(self):
        part, router = (find(self.every, 'Certificate', name=NAME + name)['spec']
                        for name in ('-tls', '-router-tls'))
        self.assertEqual((part['dnsNames'], part['usages']), ([HOST], ['server auth']))
        self.assertEqual(router['usages'], ['client auth'])
        auth = yaml.safe_load(find(self.every, 'Secret')['stringData']['auth.yaml'])
        principal, = auth['principals']
        self.assertEqual([principal['client_name']], router['dnsNames'])
        self.assertTrue(principal['router'])
        self.assertEqual(part['issuerRef'], {'name': 'internal-ca', 'kind': 'ClusterIssuer'})
        for manifests, names in ((self.every, (part['secretName'], router['secretName'])),
                                 (self.secrets, ('part-tls', 'router-tls'))):
            for each in sets_of(manifests).values():
                volumes = {v['name']: v.get('secret', {}).get('secretName')
                           for v in pod_of(each)['spec']['volumes']}
                self.assertEqual((volumes['tls'], volumes['client-ca'], volumes['auth']),
                                 (names[0], names[0], NAME + '-auth'))
                self.assertNotIn('route-tls', volumes)
            volumes = {v['name']: v.get('secret', {}).get('secretName')
                       for v in pod_of(find(manifests, 'Deployment'))['spec']['volumes']}
            self.assertEqual(volumes['route-tls'], names[1])
            self.assertNotIn('tls', volumes)
        self.assertEqual([m for m in self.simple if m['kind'] in ('Secret', 'Certificate')], [])
        for options, token in ((SECRETS, {}), ((*SECRETS, '--set', 'parts.tokenSecretName=t'), {
                'token_file': '/etc/embag-route-token/token'})):
            auth = yaml.safe_load(find(render(*SIMPLE, *options), 'Secret')[
                'stringData']['auth.yaml'])
            self.assertEqual(auth['principals'], [{
                'name': 'router', 'client_name': 'router.' + HOST, **token, 'models': ['*'],
                'router': True}])

    def test_every_path_of_the_settings_is_mounted(self):
        for manifests in self.simple, self.every, self.secrets:
            for name, each in (('prod-embag', find(manifests, 'Deployment')),
                               *((NAME, each) for each in sets_of(manifests).values())):
                container = server_of(each)
                mounts = {m['mountPath']: m['name'] for m in container['volumeMounts']}
                self.assertEqual(set(mounts.values()),
                                 {v['name'] for v in pod_of(each)['spec']['volumes']})
                text = '\n'.join([settings_text(manifests, name), *container['args']])
                for path in re.findall(r'[ =](/[\w./-]+)$', text, re.M):
                    self.assertTrue(path in mounts or os.path.dirname(path) in mounts, path)
                self.assertEqual(
                    {m['mountPath'] for m in container['volumeMounts'] if not m.get('readOnly')},
                    {'/run/embag'} | ({'/resident'} & set(mounts)))

    def test_memory_is_that_of_a_part(self):
        for name, each in sets_of(self.every).items():
            is_previous = name.startswith(NAME + '-p3')
            memory, tables = ('104Gi', '100Gi') if is_previous else ('84Gi', '80Gi')
            self.assertEqual(server_of(each)['resources'], {
                'requests': {'cpu': '8', 'memory': memory},
                'limits': {'cpu': '8', 'memory': memory, 'example.com/device': 1}})
            volume, = (v for v in pod_of(each)['spec']['volumes'] if v['name'] == 'resident')
            self.assertEqual(volume['emptyDir'], {'medium': 'Memory', 'sizeLimit': tables})
            self.assertEqual(pod_of(each)['spec']['terminationGracePeriodSeconds'], 35)
        self.assertEqual(server_of(find(self.every, 'Deployment'))['resources']['limits'],
                         {'cpu': '4', 'memory': '6Gi'})

    def test_embag_sync_takes_its_arguments(self):
        cli = load_sync()
        for each, role in ((find(self.every, 'Deployment'), 'a router'),
                           *((each, 'part [0-3]/[34]') for each in sets_of(self.every).values())):
            containers = pod_of(each)['spec']['initContainers']
            self.assertEqual([c['name'] for c in containers], ['sync', 'sync-loop'])
            self.assertEqual([c.get('restartPolicy') for c in containers], [None, 'Always'])
            for container in containers:
                self.assertEqual(container['command'], ['embag-sync'])
                options = cli._parse([word.replace('hostname', '2') for word in container['args']])
                self.assertRegex(str(options.role), role)
                self.assertEqual(
                    (options.source, options.directory, options.model, options.versions,
                     options.grace, options.connections, options.endpoint),
                    ('s3://models/parts', '/models', ['ranking'], 3, 7200, 8,
                     'http://seaweed.storage:8333'))
                self.assertEqual((options.every, options.until_present),
                                 (5, False) if container['name'] == 'sync-loop' else (None, True))
                self.assertEqual([m['mountPath'] for m in container['volumeMounts']], ['/models'])
                self.assertEqual(container['resources']['requests'],
                                 container['resources']['limits'])
                self.assertIs(container['securityContext']['readOnlyRootFilesystem'], True)
            volume, = (v for v in pod_of(each)['spec']['volumes'] if v['name'] == 'models')
            self.assertIn('sizeLimit', volume['emptyDir'])
        whole = render('--set', 'sync.source=s3://m,sync.image=i,models.emptyDir=4Gi,'
                       'models.subPath=current')
        containers = pod_of(find(whole, 'Deployment'))['spec']['initContainers']
        options = cli._parse(containers[0]['args'])
        self.assertEqual((str(options.role), options.directory),
                         ('a whole server', '/models/current'))

    def test_meshes_are_bypassed_if_that_is_wanted(self):
        inbound = {'traffic.sidecar.istio.io/excludeInboundPorts': '8600',
                   'config.linkerd.io/skip-inbound-ports': '8600'}
        outbound = {'traffic.sidecar.istio.io/excludeOutboundPorts': '8600',
                    'config.linkerd.io/skip-outbound-ports': '8600'}
        for manifests, wanted in ((self.simple, False), (self.every, True)):
            for each, expected in ((find(manifests, 'Deployment'), {**inbound, **outbound}),
                                   *((each, inbound) for each in sets_of(manifests).values())):
                found = {name: text for name, text in pod_of(each)['metadata'][
                    'annotations'].items() if 'bound' in name}
                self.assertEqual(found, expected if wanted else {})

    def test_prometheus_scrapes_both_and_rules_ask_for_both(self):
        http = {m['metadata']['name']: m for m in self.every if m['kind'] == 'Service'
                and m['metadata']['labels'].get('app.kubernetes.io/component') == 'http'}
        self.assertEqual(set(http), {'prod-embag-http', NAME + '-http'})
        monitors = [m['spec']['selector']['matchLabels'] for m in self.every
                    if m['kind'] == 'ServiceMonitor']
        for service in http.values():
            self.assertEqual([meets(each, service['metadata']['labels'])
                              for each in monitors].count(True), 1)
        rules = yaml.safe_dump(find(self.every, 'PrometheusRule')['spec'], width=10**6)
        self.assertIn('job=~"prod-embag-http|%s-http", namespace="default"' % NAME, rules)
        # Each job is missed by itself.
        self.assertEqual(re.findall('absent[^)]*', rules), [
            'absent(up{job="%s", namespace="default"}' % name
            for name in ('prod-embag-http', NAME + '-http')])
        self.assertEqual(rules.count('job="'), 2)

    def test_settings_that_need_a_start_replace_the_pods(self):
        def checksums(*options):
            manifests = render(*SIMPLE, *options)
            return [pod_of(each)['metadata']['annotations']['checksum/config'] for each in (
                find(manifests, 'Deployment'), *sets_of(manifests).values())]
        router, part = checksums()
        for setting, changes in (('config.loops=2', (True, True)),
                                 ('parts.config.loops=2', (False, True)),
                                 ('config.flip_replicas=1', (True, False)),
                                 ('parts.config.log_level=debug', (False, False))):
            now = checksums('--set', setting)
            self.assertEqual((now[0] != router, now[1] != part), changes, setting)

    def test_refuses_values_that_cannot_be_meant(self):
        for settings, said in (
                ('parts.enabled=true', 'parts.enabled needs parts.models.existingClaim'),
                ('parts.enabled=true,parts.models.emptyDir=4Gi', 'emptyDir needs sync.source'),
                ('sync.source=s3://m,sync.image=i', 'sync.source needs a volume'),
                ('sync.source=s3://m,models.emptyDir=4Gi', 'sync.source needs sync.image'),
                ('sync.source=ftp://m', 'sync.source'), ('parts.count=0', 'parts.count'),
                ('parts.count=4097', 'parts.count'), ('parts.replicas=0', 'parts.replicas'),
                ('parts.sets[0].name=a1', 'parts.sets'), ('parts.sets[0].partition=1', 'name'),
                ('parts.replicasOf.x=4', 'replicasOf'), ('parts.resident.mode=hostPath', 'mode'),
                ('parts.hostAntiAffinity=maybe', 'hostAntiAffinity'),
                ('parts.config.nope=1', 'nope'), ('parts.tls.certManagerIssuer.x=1', 'x'),
                ('mesh.bypass=yes', 'bypass'), ('config.part=1/2', 'part')):
            self.assertIn(said, helm('template', '--set', settings, status=1))
        for settings, said in (
                ('parts.tls.secretName=a', 'must be set together'),
                ('parts.replicasOf.4=3', 'there is no part 4; parts.count is 4'),
                ('parts.previous.count=4', 'parts.previous.count: 4 is parts.count'),
                ('parts.replicasOf.3=2', 'part 3 has 2 replicas already'),
                ('parts.previous.count=3,parts.previous.replicasOf.3=4',
                 'parts.previous.replicasOf: there is no part 3; parts.previous.count is 3'),
                # embagd refuses to send a token unencrypted, so no router would start.
                ('parts.tokenSecretName=t', 'parts.tokenSecretName needs parts.tls')):
            self.assertIn(said, helm('template', *SIMPLE, '--set', settings, status=1))

    def test_notes_name_the_part_servers(self):
        with tempfile.TemporaryDirectory() as folder:
            chart = shutil.copytree(CHART, os.path.join(folder, 'embag'))
            with open(os.path.join(chart, 'templates', 'notes.yaml'), 'w',
                      encoding='utf-8') as file:
                file.write('{{- define "notes" -}}%s{{- end -}}\nnotes: '
                           '{{ include "notes" . | toJson }}' % read_chart('templates/NOTES.txt'))
            shown = helm('template', '--show-only', 'templates/notes.yaml', *SIMPLE, chart=chart)
            notes = yaml.safe_load(shown)['notes']
            self.assertRegex(notes, r'get statefulsets \\\n +-l app.kubernetes.io/name=embag-part,'
                                    r'app.kubernetes.io/instance=prod$')


@needs_helm
class Served(unittest.TestCase):
    """A part server with the chart's settings and auth_file, and certificates as they are made for
    the chart."""

    def setUp(self):
        embagd_process.EMBAGD = EMBAGD
        self.authority = Authority()
        self.addCleanup(self.authority.remove)
        self.repository = Repository()
        self.addCleanup(self.repository.remove)
        write_model(self.repository.path, 'm', 1, [Table.of_values('t', 'f32', [[1, 2]])])
        self.manifests = render('--values', PARTS)

    def mount(self):
        """Writes what the pod mounts. Returns the settings file's path."""
        join = self.authority.path
        for name in 'part', 'router':
            spec = find(self.manifests, 'Certificate',
                        name=NAME + ('-tls' if name == 'part' else '-router-tls'))['spec']
            self.authority.issue(name, names=','.join('DNS:' + each for each in spec['dnsNames']))
        self.authority.issue('stranger', names='DNS:' + STRANGER)
        self.authority.write('token', 'a-token-of-32-characters-or-more\n')
        places = {'/etc/embag-tls/tls.crt': join('part.pem'), '/etc/embag-tls/tls.key':
                  join('part.key'), '/etc/embag-client-ca/ca.crt': join('ca.pem'),
                  '/etc/embag-route-token/token': join('token'), '/run/embag': join(''),
                  '/resident': join('resident'), '/etc/embag-auth/auth.yaml': join('auth.yaml')}
        texts = {'auth.yaml': find(self.manifests, 'Secret')['stringData']['auth.yaml'],
                 'embagd.yaml': settings_text(self.manifests, NAME)}
        os.mkdir(join('resident'))
        for name, text in texts.items():
            for place, path in places.items():
                text = text.replace(place, path)
            # A test has no RAM file system of its own, and need not wait for clients.
            self.authority.write(name, re.sub('^(resident|drain_delay)_.*\n', '', text, flags=re.M))
        return join('embagd.yaml')

    def call(self, server, name, metadata=()):
        """Calls GetServer with a certificate and, as a router, WatchModels. Returns the status."""
        read = self.authority.read
        credentials = grpc.ssl_channel_credentials(
            read('ca.pem'), *((read(name + '.key'), read(name + '.pem')) if name else ()))
        options = (('grpc.ssl_target_name_override', HOST), ('grpc.enable_retries', 0))
        with grpc.secure_channel(server.address, credentials, options=options) as channel:
            try:
                channel.unary_unary(SERVICE + 'GetServer')(b'', timeout=20, metadata=metadata)
                next(channel.unary_stream(SERVICE + 'WatchModels')(b'', timeout=20,
                                                                   metadata=metadata))
            except grpc.RpcError as error:
                return error.code()
        return grpc.StatusCode.OK

    def test_only_routers_may_call(self):
        # Whatever it serves: a part server would need a version in parts.
        server = Embagd(self.repository.path, '--config', self.mount()).wait_ready()
        self.addCleanup(server.stop)
        self.assertEqual(self.call(server, 'router'), grpc.StatusCode.OK)
        self.assertEqual(self.call(server, 'stranger'), grpc.StatusCode.UNAUTHENTICATED)
        token = (('authorization', 'Bearer a-token-of-32-characters-or-more'),)
        self.assertEqual(self.call(server, 'stranger', token), grpc.StatusCode.OK)
        with contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(self.call(server, None), grpc.StatusCode.UNAVAILABLE)


def main():
    """Returns the exit status."""
    if 'route' not in known_settings():
        print('routers: skipped, embagd has no setting route')
    return summary.run_tests()


if __name__ == '__main__':
    sys.exit(main())
