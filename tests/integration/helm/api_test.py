"""The chart's manifests in a real API server of Kubernetes, with its checks and its admission.

    api_test.py EMBAGD BUILD

There are no nodes and no controllers, so no pod starts. Prints "N passed, N failed" at the end; the
exit status is 0 if none failed.
"""

import base64
import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import unittest

import yaml

import manifest_schemas
import summary
from certificates import openssl
from chart import BUILD, EVERY, PARTS, PARTS_KIND, module_folders, needs_helm, render, tool
from embagd_process import wait_until

SECONDS = 120
TOKEN = 'token-of-this-test'
# Where the kinds of the chart are, by group.
PATHS = {'Deployment': 'deployments', 'StatefulSet': 'statefulsets', 'Service': 'services',
         'ConfigMap': 'configmaps', 'Secret': 'secrets', 'NetworkPolicy': 'networkpolicies',
         'PodDisruptionBudget': 'poddisruptionbudgets', 'ServiceMonitor': 'servicemonitors',
         'PrometheusRule': 'prometheusrules', 'Certificate': 'certificates', 'Pod': 'pods'}


def free_port():
    """Returns a free port."""
    with socket.socket() as bound:
        bound.bind(('127.0.0.1', 0))
        return bound.getsockname()[1]


class Server:
    """An API server with its store, in a temporary folder."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix='embag-test-')
        self.port, store, peer = free_port(), free_port(), free_port()
        self.processes = []
        self.log = open(self.path('log'), 'wb')
        openssl('genrsa', '-out', self.path('accounts.key'), '2048')
        with open(self.path('tokens'), 'w', encoding='utf-8') as file:
            file.write('%s,admin,admin,"system:masters"\n' % TOKEN)
        at = 'http://127.0.0.1:%d'
        self.start('etcd', '--data-dir', self.path('store'), '--listen-client-urls', at % store,
                   '--advertise-client-urls', at % store, '--listen-peer-urls', at % peer,
                   '--initial-advertise-peer-urls', at % peer,
                   '--initial-cluster', 'default=' + at % peer, '--unsafe-no-fsync')
        self.start('kube-apiserver', '--etcd-servers', at % store, '--bind-address', '127.0.0.1',
                   '--secure-port', str(self.port), '--cert-dir', self.path('certificates'),
                   '--token-auth-file', self.path('tokens'), '--authorization-mode', 'RBAC',
                   '--service-account-issuer', 'https://test', '--service-account-key-file',
                   self.path('accounts.key'), '--service-account-signing-key-file',
                   self.path('accounts.key'), '--service-cluster-ip-range', '10.0.0.0/24',
                   # No controller makes accounts.
                   '--disable-admission-plugins', 'ServiceAccount')

    def path(self, name):
        """Returns a path in the folder."""
        return os.path.join(self.folder, name)

    def start(self, name, *arguments):
        """Starts a program that run.sh has built."""
        self.processes.append(subprocess.Popen([tool(name), *arguments], cwd=self.folder,
                                               stdout=self.log, stderr=self.log))

    def stop(self):
        """Ends the programs, and removes the folder."""
        for process in reversed(self.processes):
            process.kill()
            process.wait()
        self.log.close()
        shutil.rmtree(self.folder)

    def call(self, method, path, body=None):
        """Sends a request. Returns the status and the answer."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection('127.0.0.1', self.port, context=context,
                                                 timeout=60)
        try:
            connection.request(method, path, body and json.dumps(body), {
                'Authorization': 'Bearer ' + TOKEN, 'Content-Type': 'application/json'})
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        return answer.status, json.loads(text) if text[:1] == b'{' else text.decode()

    def is_ready(self):
        """Returns whether it answers requests."""
        assert all(each.poll() is None for each in self.processes), self.read_log()
        try:
            return self.call('GET', '/readyz')[0] == 200
        except OSError:
            return False

    def read_log(self):
        """Returns the end of what both programs have logged."""
        with open(self.path('log'), encoding='utf-8', errors='replace') as file:
            return file.read()[-4000:]

    def create(self, manifest, namespace, query=''):
        """Creates an object as strictly as the server can. Returns the status and the answer."""
        version = manifest['apiVersion']
        path = '/%s/%s/namespaces/%s/%s?fieldValidation=Strict%s' % (
            'apis' if '/' in version else 'api', version, namespace, PATHS[manifest['kind']], query)
        return self.call('POST', path, manifest)


def pod_of(manifest):
    """Returns a pod from the template of a Deployment or StatefulSet."""
    template = manifest['spec']['template']
    return {'apiVersion': 'v1', 'kind': 'Pod', 'spec': template['spec'],
            'metadata': {**template['metadata'], 'name': manifest['metadata']['name'] + '-0'}}


@needs_helm
@unittest.skipUnless(os.path.exists(os.path.join(BUILD, 'server-installed')),
                     'the API server was not built')
class Accepted(unittest.TestCase):
    """Manifests that are created in a namespace of their own."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)
        wait_until(cls.server.is_ready, SECONDS, 'the API server')
        for module in module_folders()[1:]:
            for definition in manifest_schemas.read_definitions(module, PARTS_KIND):
                definition['metadata'] = {'name': definition['metadata']['name'], 'annotations': {
                    'api-approved.kubernetes.io': 'test'}}
                status, answer = cls.server.call(
                    'POST', '/apis/apiextensions.k8s.io/v1/customresourcedefinitions', definition)
                assert status == 201, answer
                group, kinds = definition['spec']['group'], definition['spec']['names']['plural']
                version = definition['spec']['versions'][-1]['name']
                wait_until(lambda at='/apis/%s/%s/%s' % (group, version, kinds): cls.server.call(
                    'GET', at)[0] == 200, SECONDS, kinds)

    def namespace(self, name, level='restricted'):
        """Creates a namespace that admits pods up to this level of the Pod Security Standards."""
        status, answer = self.server.call('POST', '/api/v1/namespaces', {
            'metadata': {'name': name, 'labels': {
                'pod-security.kubernetes.io/enforce': level}}})
        self.assertEqual(status, 201, answer)
        return name

    def check(self, name, *options, level='restricted'):
        """Creates the manifests of a rendering, and a pod of each template."""
        namespace = self.namespace(name, level)
        # The server knows no priority classes but its own.
        for manifest in render(*options, '--namespace', namespace, '--set',
                               'priorityClassName='):
            status, answer = self.server.create(manifest, namespace)
            self.assertEqual(status, 201, (manifest['kind'], answer))
            if manifest['kind'] in ('Deployment', 'StatefulSet'):
                status, answer = self.server.create(pod_of(manifest), namespace, '&dryRun=All')
                self.assertEqual(status, 201, answer)
                self.assertEqual(answer['metadata']['name'], manifest['metadata']['name'] + '-0')
            if manifest['kind'] == 'Secret':
                told = base64.b64decode(answer['data']['auth.yaml'])
                self.assertEqual(yaml.safe_load(told)['end'], True)

    def test_its_own_values(self):
        self.check('own')

    def test_every_option(self):
        # The init container of the values is not restricted.
        self.check('every', '--values', EVERY, level='baseline')

    def test_parts(self):
        self.check('parts', '--values', PARTS)
        self.check('simple', '--set', 'parts.enabled=true,parts.models.existingClaim=all')

    def test_errors_are_found(self):
        namespace = self.namespace('errors')
        manifests = {m['kind']: m for m in render('--values', PARTS, '--namespace', namespace)}
        for kind, path, value in (
                ('StatefulSet', ('spec', 'podManagementPolicy'), 'parallel'),
                ('StatefulSet', ('spec', 'template', 'spec', 'restartPolicy'), 'Never'),
                ('StatefulSet', ('spec', 'volums'), []), ('Service', ('spec', 'clusterIP'), 'x'),
                ('NetworkPolicy', ('spec', 'policyTypes'), ['In']),
                ('PodDisruptionBudget', ('spec', 'minAvailable'), 1)):
            manifest = json.loads(json.dumps(manifests[kind]))
            at = manifest
            for step in path[:-1]:
                at = at[step]
            at[path[-1]] = value
            status, answer = self.server.create(manifest, namespace)
            self.assertIn(status, (400, 422), (kind, path, answer))
        pod = pod_of(manifests['StatefulSet'])
        pod['spec']['securityContext']['runAsNonRoot'] = False
        status, answer = self.server.create(pod, namespace)
        self.assertEqual(status, 403, answer)


if __name__ == '__main__':
    sys.exit(summary.run_tests())
