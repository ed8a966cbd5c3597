"""The Helm chart: the manifests that it renders, and the values that it refuses.

    helm_test.py EMBAGD BUILD

BUILD holds the tools that run.sh was able to build. Prints "N passed, N failed" at the end; the
exit status is 0 if none failed.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

import guide
import summary
from chart import (BUILD, CHART, EMBAGD, EVERY, EVERY_KIND, KUBERNETES, OWN_KINDS,
                   TEMPLATES, described_settings, find, has_tools, helm, image_environment,
                   known_settings, kubeconform, needs_helm, read_chart, read_yaml, render,
                   resident_values, run, settings_of, tool)

# Values of resident, with the volume and the amounts that follow from them. With the chart's other
# values, tables have two times 4 GiB, and the work 4 GiB.
RESIDENT = (
    ('mode=emptyDir', {'emptyDir': {'medium': 'Memory', 'sizeLimit': '8Gi'}}, {'memory': '12Gi'}),
    ('mode=emptyDir,size=3', {'emptyDir': {'medium': 'Memory', 'sizeLimit': '3Gi'}},
     {'memory': '12Gi'}),
    ('mode=emptyDir,size=20', {'emptyDir': {'medium': 'Memory', 'sizeLimit': '20Gi'}},
     {'memory': '24Gi'}),
    ('mode=emptyDir,medium=HugePages-2Mi',
     {'emptyDir': {'medium': 'HugePages-2Mi', 'sizeLimit': '8Gi'}},
     {'memory': '4Gi', 'hugepages-2Mi': '8Gi'}),
    ('mode=emptyDir,medium=HugePages-2Mi,size=6',
     {'emptyDir': {'medium': 'HugePages-2Mi', 'sizeLimit': '6Gi'}},
     {'memory': '6Gi', 'hugepages-2Mi': '6Gi'}),
    ('mode=emptyDir,medium=HugePages-2Mi,size=20',
     {'emptyDir': {'medium': 'HugePages-2Mi', 'sizeLimit': '20Gi'}},
     {'memory': '4Gi', 'hugepages-2Mi': '20Gi'}),
    ('mode=hostPath,path=/mnt/embag', {'hostPath': {'path': '/mnt/embag', 'type': 'Directory'}},
     {'memory': '12Gi'}),
    ('mode=hostPath,path=/mnt/embag,medium=HugePages-2Mi,readers=group',
     {'hostPath': {'path': '/mnt/embag', 'type': 'Directory'}},
     {'memory': '4Gi', 'hugepages-2Mi': '8Gi'}))
# Settings on which the manifests depend: the chart sets them, with flags and in the file.
FLAGS_OF_CHART = {'config', 'model_repository', 'listen', 'http_listen', 'part'}


class ChartFiles(unittest.TestCase):
    """Checks that need no helm."""

    def test_its_settings_are_embagds(self):
        config = read_yaml(os.path.join(CHART, 'values.yaml'))['config']
        known = settings_of(yaml.safe_dump(config))
        for name, value in config.items():
            self.assertEqual(known[name], (value, 'file'))
        names = set(re.findall(r'set \$config "(\w+)"', read_chart('templates/_helpers.tpl')))
        self.assertIn('admin_listen', names)
        self.assertLessEqual(names, set(known))
        described = {name: schema for name, schema in described_settings().items()
                     if name not in names | FLAGS_OF_CHART}
        self.assertEqual(set(described) | names | FLAGS_OF_CHART, set(known))
        schema = json.loads(read_chart('values.schema.json'))['properties']['config']
        self.assertEqual(schema['properties'], described)
        self.assertIs(schema['additionalProperties'], False)

    def test_new_pods_are_made_for_all_settings_but_those_that_change_at_once(self):
        live = re.findall(r'^  --([a-z0-9-]+) .*  \[live\]$', run(EMBAGD, '--help'), re.M)
        left_out = re.search(r'omit \$config\s(.*?)\)', read_chart('templates/_helpers.tpl'), re.S)
        self.assertEqual(re.findall(r'"(\w+)"', left_out[1]),
                         [name.replace('-', '_') for name in live])

    def test_values_are_all_used_and_all_described(self):
        values = yaml.safe_load(read_chart('values.yaml'))
        templates = ''.join(read_chart(os.path.join('templates', name))
                            for name in os.listdir(os.path.join(CHART, 'templates')))
        described = json.loads(read_chart('values.schema.json'))['properties']
        self.assertEqual(set(values), set(described) - {'global'})
        used = set(re.findall(r'\.Values\.(\w+)', templates))
        used |= set(re.findall(r'"(\w+)"', re.search(r'list (".*?) }}', templates)[1]))
        self.assertEqual(used, set(values))
        for name, value in values.items():
            if isinstance(value, dict) and 'properties' in described[name] and name != 'config':
                self.assertEqual(set(value) or set(described[name]['properties']),
                                 set(described[name]['properties']), name)

    def test_every_option_has_another_value_somewhere(self):
        values, every = yaml.safe_load(read_chart('values.yaml')), read_yaml(EVERY)
        self.assertEqual(set(every), set(values))
        for name, value in every.items():
            self.assertNotEqual(value, values[name], name)


def read_template(name):
    """Returns the documents of a template, with helm's actions replaced: an action that is a value,
    or part of one, becomes x; an action on a line of its own is removed; all branches are kept."""
    text = re.sub(r'^[ -]*\{\{[-/].*?\}\}\n', '', read_chart(os.path.join('templates', name)),
                  flags=re.M | re.S)
    return list(yaml.safe_load_all(re.sub(r'\{\{.*?\}\}', 'x', text)))


class Templates(unittest.TestCase):
    """The templates field by field, as far as that is possible without helm."""

    def setUp(self):
        # Those of parts are put together by helm only (parts_test.py).
        found = [document for name in os.listdir(TEMPLATES)
                 if name.endswith('.yaml') and name != 'parts.yaml'
                 for document in read_template(name)]
        self.kinds = sorted(document['kind'] for document in found)
        self.found = {document['kind']: document for document in found}
        template, = read_template('_pod.tpl')
        self.pod = template['spec']
        self.container, = self.pod['containers']

    def test_are_of_the_kinds_that_are_wanted(self):
        self.assertEqual(self.kinds, sorted([*EVERY_KIND, 'Service']))
        self.assertEqual({kind: document['apiVersion'] for kind, document in self.found.items()}, {
            'Deployment': 'apps/v1', 'Service': 'v1', 'ConfigMap': 'v1',
            'PodDisruptionBudget': 'policy/v1', 'NetworkPolicy': 'networking.k8s.io/v1',
            'ServiceMonitor': 'monitoring.coreos.com/v1',
            'PrometheusRule': 'monitoring.coreos.com/v1'})

    def test_flags_override_all_that_the_image_sets(self):
        flags = {word.split('=')[0] for word in self.container['args']}
        for name in image_environment():
            self.assertIn('--' + name.removeprefix('EMBAG_').lower().replace('_', '-'), flags)

    def test_ports_are_those_of_the_flags(self):
        ports = {port['name']: port['containerPort'] for port in self.container['ports']}
        self.assertEqual(ports, {'grpc': 8600, 'http': 8601})
        for name, flag in ('grpc', '--listen=x:%d'), ('http', '--http-listen=x:%d'):
            self.assertIn(flag % ports[name], self.container['args'])
        service, = read_template('service.yaml')
        self.assertEqual([(port['targetPort'], port['port']) for port in service['spec']['ports']],
                         [('grpc', 8600)])
        for probe, path in ('livenessProbe', '/healthz'), ('readinessProbe', '/readyz'):
            self.assertEqual(self.container[probe]['httpGet'], {'path': path, 'port': 'http'})

    def test_have_no_right_that_is_not_needed(self):
        context = self.pod['securityContext']
        self.assertTrue(context['runAsNonRoot'] and context['runAsUser'] > 0)
        self.assertIs(self.pod['automountServiceAccountToken'], False)
        self.assertEqual(self.container['securityContext'], {
            'allowPrivilegeEscalation': False, 'readOnlyRootFilesystem': True,
            'capabilities': {'drop': ['ALL']},
            'seccompProfile': {'type': 'x', 'localhostProfile': 'x'}})

    def test_volumes_are_all_mounted(self):
        self.assertEqual({mount['name'] for mount in self.container['volumeMounts']},
                         {volume['name'] for volume in self.pod['volumes']})
        writable = {mount['mountPath'] for mount in self.container['volumeMounts']
                    if not mount.get('readOnly')}
        self.assertEqual(writable, {'/run/embag', '/resident'})

    def test_the_monitor_finds_the_service_of_its_port(self):
        service, monitor = read_template('servicemonitor.yaml')
        component = service['metadata']['labels']['app.kubernetes.io/component']
        selector = monitor['spec']['selector']['matchLabels']
        self.assertEqual(selector['app.kubernetes.io/component'], component)
        self.assertEqual([endpoint['port'] for endpoint in monitor['spec']['endpoints']],
                         [port['name'] for port in service['spec']['ports']])


@needs_helm
class Rendered(unittest.TestCase):
    """The chart rendered by helm, with its own values and with every option."""

    @classmethod
    def setUpClass(cls):
        cls.own = render()
        cls.every = render('--values', EVERY)
        cls.resident = [render('--set', resident_values(text))
                        for text, _, _ in RESIDENT]

    def pod(self, manifests):
        """Returns the deployment's pod."""
        return find(manifests, 'Deployment')['spec']['template']['spec']

    def config(self, manifests):
        """Returns the text of the settings file."""
        return find(manifests, 'ConfigMap')['data']['embagd.yaml']

    def test_lints(self):
        for options in ((), ('--values', EVERY)):
            self.assertIn(' 0 chart(s) failed', helm('lint', '--strict', *options))

    def test_renders_by_the_command_of_the_guide(self):
        text = guide.section(guide.read('deploy', 'OPERATIONS.md'), 'Installing')
        command = re.search(r'^helm install ((?:.*\\\n)*.*)$', text, re.M)[1]
        words = shlex.split(command.replace('\\\n', ''))
        rendered = run(tool('helm'), 'template', *words, '--kube-version', KUBERNETES,
                       cwd=guide.SOURCE)
        manifests = list(yaml.safe_load_all(rendered))
        container = self.pod(manifests)['containers'][0]
        pushed = re.search(r'^podman push (\S+)$', text, re.M)[1]
        self.assertEqual(container['image'], pushed)
        self.assertEqual({m['metadata']['name'] for m in manifests}, {'embag'})
        for name in re.findall(r'^kubectl .* deployment/(\S+)$', text, re.M):
            self.assertEqual(find(manifests, 'Deployment')['metadata']['name'], name)

    def test_renders_each_kind_once(self):
        self.assertEqual(sorted(m['kind'] for m in self.own), sorted(OWN_KINDS))
        self.assertEqual(sorted(m['kind'] for m in self.every),
                         sorted([*EVERY_KIND, 'Service']))

    def test_manifests_keep_to_the_schemas(self):
        command = kubeconform(EVERY_KIND)
        for manifests in self.own, self.every, *self.resident:
            said = run(*command, input=yaml.safe_dump_all(manifests))
            self.assertIn('Valid: %d, Invalid: 0, Errors: 0, Skipped: 0' % len(manifests), said)
        # The schemas find errors, even nested ones.
        for path, value in ((('replicas',), 'two'), (('template', 'spec', 'volums'), []),
                            (('template', 'spec', 'containers', 0, 'ports', 0, 'name'), 5)):
            deployment = yaml.safe_load(yaml.safe_dump(find(self.own, 'Deployment')))
            at = deployment['spec']
            for step in path[:-1]:
                at = at[step]
            at[path[-1]] = value
            self.assertIn('is invalid', run(*command, status=1, input=yaml.safe_dump(deployment)))

    def test_embagd_takes_the_settings(self):
        for manifests, host in (self.own, '0.0.0.0'), (self.every, '[::]'):
            text = self.config(manifests)
            path, *flags = self.pod(manifests)['containers'][0]['args']
            self.assertEqual(path, '--config=/etc/embag/embagd.yaml')
            settings = settings_of(text, *flags)
            for name in yaml.safe_load(text):
                self.assertEqual(settings[name][1], 'file')
            self.assertEqual(settings['model_repository'], ('/models', 'flag'))
            self.assertEqual(settings['listen'], ([host + ':8600'], 'flag'))
            self.assertEqual(settings['http_listen'], (host + ':8601', 'flag'))
        self.assertEqual(yaml.safe_load(self.config(self.every)), {
            'admin_listen': 'unix:/run/embag/admin.sock', 'huge_pages': '1g',
            'watch_settings': True,
            'tls_cert': '/etc/embag-tls/tls.crt', 'tls_key': '/etc/embag-tls/tls.key',
            'tls_client_ca': '/etc/embag-client-ca/ca.crt', 'tls_client_verify': 'optional',
            'tls_min_version': '1.3', 'auth_file': '/etc/embag-auth/auth.yaml',
            'admin_on_data_port': True, 'drain_delay_ms': 4400,
            'drain_timeout_ms': 45500, 'log_level': 'info',
            'connection_age_max_ms': 600000, 'receive_memory_bytes': 8589934592,
            'request_bytes_max': '32MiB', 'watch': 'poll', 'load_bytes_per_s': 100000000,
            'load_jitter_s': 30, 'state_dir': '/run/embag'})

    def test_pods_stay_if_only_settings_change_that_need_no_restart(self):
        def template(setting):
            manifests = render('--set', setting)
            return self.config(manifests), find(manifests, 'Deployment')['spec']['template']

        own = self.config(self.own), find(self.own, 'Deployment')['spec']['template']
        for setting, stays in (('config.log_level=debug', True), ('config.queries_max=9', True),
                               ('config.loops=2', False), ('config.drain_timeout_ms=1', False)):
            config, pod = template(setting)
            self.assertNotEqual(config, own[0])
            self.assertEqual(pod == own[1], stays, setting)
        self.assertEqual(template('replicas=9'), own)

    def test_a_bare_off_stays_off(self):
        names = ('access_log', 'numa', 'prefetch', 'watch')
        with tempfile.NamedTemporaryFile('w', suffix='.yaml', encoding='utf-8') as file:
            file.write('config:\n' + ''.join('  %s: off\n' % name for name in names))
            file.flush()
            text = self.config(render('--values', file.name))
        settings = settings_of(text, '--model-repository=/models')
        self.assertEqual({name: settings[name] for name in names},
                         dict.fromkeys(names, ('off', 'file')))

    def test_its_rules_ask_for_its_own_job(self):
        rules = find(self.every, 'PrometheusRule')['spec']
        # A ServiceMonitor's job has the name of its service, and names are unique in a namespace.
        name = find(self.every, 'Service', 'http')['metadata']['name']
        job = 'job="%s", namespace="default"' % name
        alerts = read_chart('files/alerts.yaml')
        self.assertIn('job="embag"', alerts)
        self.assertNotEqual(job, 'job="embag"')
        self.assertEqual(rules, yaml.safe_load(alerts.replace('job="embag"', job)))
        if not shutil.which('promtool'):
            self.skipTest('promtool is not installed')
        with tempfile.NamedTemporaryFile('w', suffix='.yaml', encoding='utf-8') as file:
            yaml.safe_dump(rules, file)
            self.assertIn('SUCCESS', run('promtool', 'check', 'rules', file.name))

    def test_has_no_rules_without_the_job_that_they_ask_for(self):
        self.assertIn('prometheusRule.enabled needs serviceMonitor.enabled',
                      helm('template', '--set', 'prometheusRule.enabled=true', status=1))

    def test_every_path_of_the_settings_is_mounted(self):
        for manifests in self.own, self.every:
            pod = self.pod(manifests)
            container, = pod['containers']
            volumes = {volume['name'] for volume in pod['volumes']}
            mounts = {mount['mountPath']: mount for mount in container['volumeMounts']}
            self.assertEqual({mount['name'] for mount in mounts.values()}, volumes)
            text = '\n'.join([self.config(manifests), *container['args']])
            paths = re.findall(r'(/[\w./-]+)$', text, re.M)
            self.assertLessEqual({'/models', '/etc/embag/embagd.yaml'}, set(paths))
            for path in paths:
                self.assertTrue(path in mounts or os.path.dirname(path) in mounts, path)
            writable = {path for path, mount in mounts.items() if not mount.get('readOnly')}
            self.assertEqual(writable, {'/run/embag'})

    def test_ports_are_those_of_the_settings(self):
        for manifests in self.own, self.every:
            container = self.pod(manifests)['containers'][0]
            wanted = {name: int(flag.rpartition(':')[2])
                      for name, flag in zip(('grpc', 'http'), container['args'][2:])}
            self.assertEqual({p['name']: p['containerPort'] for p in container['ports']}, wanted)
            service = find(manifests, 'Service')['spec']
            self.assertEqual({p['targetPort']: p['port'] for p in service['ports']},
                             {'grpc': wanted['grpc']})
            for probe, path in ('livenessProbe', '/healthz'), ('readinessProbe', '/readyz'):
                self.assertEqual(container[probe]['httpGet'], {'path': path, 'port': 'http'})
        self.assertEqual(find(self.own, 'Service')['spec']['clusterIP'], 'None')
        self.assertNotIn('clusterIP', find(self.every, 'Service')['spec'])
        service = find(self.every, 'Service', 'http')['spec']
        self.assertEqual({p['targetPort']: p['port'] for p in service['ports']},
                         {'http': wanted['http']})

    def test_has_no_right_that_it_does_not_need(self):
        profile = {'seccompProfile': {'type': 'Localhost',
                                      'localhostProfile': 'profiles/embag.json'}}
        for manifests, added in (self.own, {}), (self.every, profile):
            pod = self.pod(manifests)
            context = pod['securityContext']
            self.assertTrue(context['runAsNonRoot'] and context['runAsUser'] > 0)
            self.assertEqual(context['seccompProfile'], {'type': 'RuntimeDefault'})
            self.assertIs(pod['automountServiceAccountToken'], False)
            self.assertIs(pod['enableServiceLinks'], False)
            self.assertEqual(pod['containers'][0]['securityContext'], {
                'allowPrivilegeEscalation': False, 'readOnlyRootFilesystem': True,
                'capabilities': {'drop': ['ALL']}, **added})

    def test_a_profile_replaces_the_default_of_the_container_alone(self):
        pod = self.pod(render('--set', 'numa.seccompProfile=Unconfined'))
        self.assertEqual(pod['containers'][0]['securityContext']['seccompProfile'],
                         {'type': 'Unconfined'})
        self.assertEqual(pod['securityContext']['seccompProfile'], {'type': 'RuntimeDefault'})

    def test_waits_for_the_drain(self):
        for manifests, pre_stop, grace in (self.own, 0, 45), (self.every, 20, 80):
            pod = self.pod(manifests)
            hook = {'lifecycle': {'preStop': {'sleep': {'seconds': pre_stop}}}} if pre_stop else {}
            container = pod['containers'][0]
            self.assertEqual({k: container[k] for k in container if k == 'lifecycle'}, hook)
            config = yaml.safe_load(self.config(manifests))
            drain_ms = config['drain_delay_ms'] + config['drain_timeout_ms']
            self.assertEqual(pod['terminationGracePeriodSeconds'], grace)
            self.assertGreater(1000 * (grace - pre_stop), drain_ms)

    def test_memory_is_what_tables_and_work_take(self):
        own, every = (self.pod(m)['containers'][0]['resources'] for m in (self.own, self.every))
        self.assertEqual(own['limits'], {'cpu': '2', 'memory': '12Gi'})
        self.assertEqual(own['requests'], own['limits'])
        # Three versions of 20 GiB: 40 GiB of them in pages of 1 GiB, and 12 GiB for the work.
        made = {'cpu': '500m', 'memory': '32Gi', 'hugepages-1Gi': '40Gi'}
        self.assertEqual(every, {'requests': made, 'limits': {**made, 'example.com/device': 1}})

    def test_resident_files_have_a_volume_and_count_in_memory_once(self):
        for manifests, (text, volume, amounts) in zip(self.resident, RESIDENT):
            pod = self.pod(manifests)
            container, = pod['containers']
            resources = container['resources']
            self.assertEqual(resources['limits'], {'cpu': '2', **amounts}, text)
            self.assertEqual(resources['requests'], resources['limits'], text)
            self.assertIn({'name': 'resident', **volume}, pod['volumes'], text)
            mount, = (m for m in container['volumeMounts'] if m['name'] == 'resident')
            settings = settings_of(self.config(manifests), *container['args'])
            self.assertEqual(settings['resident_dir'], (mount['mountPath'], 'file'), text)
            self.assertNotIn('readOnly', mount)
            readers = 'group' if 'readers=group' in text else 'user'
            self.assertEqual(settings['resident_readers'], (readers, 'file'), text)

    def test_there_are_no_resident_files_unless_they_are_wanted(self):
        for manifests in self.own, self.every:
            self.assertNotIn('resident', self.config(manifests))
            self.assertNotIn('resident', [v['name'] for v in self.pod(manifests)['volumes']])

    def test_refuses_resident_files_that_cannot_be(self):
        for settings, said in (
                ('resident.mode=emptyDir,hugePages1Gi=1', 'resident.mode must be none'),
                ('resident.mode=emptyDir,memory.tables=0', 'must not both be 0')):
            self.assertIn(said, helm('template', '--set', settings, status=1))

    def test_selectors_meet_the_pods(self):
        for manifests in self.own, self.every:
            template = find(manifests, 'Deployment')['spec']['template']
            labels = template['metadata']['labels'].items()
            constraint, = template['spec']['topologySpreadConstraints']
            selectors = [find(manifests, 'Service')['spec']['selector'],
                         constraint['labelSelector']['matchLabels']]
            selectors += [m['spec']['selector']['matchLabels'] for m in manifests
                          if m['kind'] in ('Deployment', 'PodDisruptionBudget')]
            for selector in selectors:
                self.assertTrue(selector.items() <= labels)
        policy = find(self.every, 'NetworkPolicy')['spec']
        self.assertTrue(policy['podSelector']['matchLabels'].items() <= labels)
        monitor = find(self.every, 'ServiceMonitor')['spec']
        service = find(self.every, 'Service', 'http')
        self.assertTrue(service['spec']['selector'].items() <= labels)
        asked = monitor['selector']['matchLabels'].items()
        self.assertEqual([m for m in self.every if m['kind'] == 'Service' and asked
                          <= m['metadata']['labels'].items()], [service])
        self.assertIn(monitor['endpoints'][0]['port'],
                      [port['name'] for port in service['spec']['ports']])

    def test_models_come_from_where_they_are_said_to_be(self):
        def volume(*options):
            manifests = render(*options)
            found, = (v for v in self.pod(manifests)['volumes'] if v['name'] == 'models')
            return found
        self.assertEqual(volume()['persistentVolumeClaim'], {'claimName': 'embag-models'})
        self.assertEqual(volume('--set', 'models.hostPath=/srv')['hostPath'],
                         {'path': '/srv', 'type': 'Directory'})
        pod = self.pod(self.every)
        self.assertIn({'name': 'models', 'emptyDir': {'sizeLimit': '40Gi'}}, pod['volumes'])
        container, = pod['initContainers']
        self.assertEqual([m['mountPath'] for m in container['volumeMounts']], ['/tmp', '/models'])
        served, = (m for m in pod['containers'][0]['volumeMounts'] if m['name'] == 'models')
        self.assertEqual(served['subPath'], 'current')

    def test_refuses_values_that_cannot_be_meant(self):
        for setting, said in (
                ('replica=3', 'replica'), ('config.listen=0.0.0.0:1', 'config'),
                ('config.http_listen=none', 'config'), ('config.Loops=3', 'config'),
                ('config.drain_timeout_ms=30s', 'drain_timeout_ms'),
                ('config.access_log=true', 'access_log'), ('config.nope=1', 'nope'),
                ('config.loops=abc', 'loops'), ('config.loops=0', 'loops'),
                ('config.row_bytes_max=1TB', 'row_bytes_max'),
                ('config.log_level=all', 'log_level'), ('config.log_format=xml', 'log_format'),
                ('models.existingClaim=', 'models'), ('models.emptyDir=4Gi', 'models'),
                ('tls.clientCaSecretName=ca', 'tls'), ('memory.tables=4Gi', 'memory.tables'),
                ('service.headless=yes', 'headless'), ('resident.mode=tmpfs', 'resident.mode'),
                ('resident.medium=HugePages-1Gi', 'resident.medium'),
                ('resident.size=8Gi', 'resident.size'), ('resident.readers=all', 'readers'),
                ('resident.mode=hostPath', 'resident.path'),
                ('resident.mode=hostPath,resident.path=/', 'resident.path'),
                ('resident.mode=hostPath,resident.path=mnt', 'resident.path'),
                ('config.resident_dir=/resident', 'resident_dir'),
                ('numa.seccompProfile=RuntimeDefault', 'numa.seccompProfile'),
                ('numa.seccompProfile=/embag.json', 'numa.seccompProfile'),
                ('numa.seccompProfile=a/../embag.json', 'numa.seccompProfile'),
                ('probes.liveness.periodSeconds=0', 'probes')):
            refusal = helm('template', '--set', setting, status=1)
            self.assertIn("values don't meet the specifications", refusal)
            self.assertIn(said, refusal)

    def test_notes_tell_how_to_go_on(self):
        """helm prints the notes only with a cluster; here a manifest contains their text."""
        with tempfile.TemporaryDirectory() as folder:
            chart = shutil.copytree(CHART, os.path.join(folder, 'embag'))
            templates = os.path.join(chart, 'templates')
            with open(os.path.join(templates, '_notes.tpl'), 'w', encoding='utf-8') as file:
                text = read_chart('templates/NOTES.txt')
                file.write('{{- define "notes" -}}%s{{- end -}}' % text)
            with open(os.path.join(templates, 'notes.yaml'), 'w', encoding='utf-8') as file:
                file.write('notes: {{ include "notes" . | toJson }}')
            for options, said in (
                    ((), 'embag answers gRPC at dns:///prod-embag.default:8600, every pod'),
                    (('--values', EVERY), 'gRPC over TLS at prod-embag.default:8600; a client')):
                shown = helm('template', '--show-only', 'templates/notes.yaml', *options,
                             chart=chart)
                notes = yaml.safe_load(shown)['notes']
                self.assertIn(said, notes)
                self.assertIn('deployment/prod-embag', notes)
                self.assertEqual('Everybody' in notes, not options)


def main():
    """Returns the exit status."""
    if not has_tools():
        print('helm: skipped, Go or a module proxy is not available')
    return summary.run_tests()


if __name__ == '__main__':
    sys.exit(main())
