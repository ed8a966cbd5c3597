"""Renders the Helm chart and asks embagd about its settings. The tests of the chart share this.

The program that imports it is called as PROGRAM EMBAGD BUILD. BUILD holds the tools that run.sh was
able to build.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

import yaml

import manifest_schemas

HERE = os.path.dirname(os.path.abspath(__file__))
CHART = os.path.join(HERE, '..', '..', '..', 'deploy', 'helm', 'embag')
EVERY = os.path.join(HERE, 'every.yaml')
PARTS = os.path.join(HERE, 'parts.yaml')
KUBERNETES = '1.31.0'
TEMPLATES = os.path.join(CHART, 'templates')
IMAGE = os.path.join(CHART, '..', '..', 'Containerfile')
OWN_KINDS = {'Deployment', 'Service', 'ConfigMap', 'PodDisruptionBudget'}
EVERY_KIND = OWN_KINDS | {'NetworkPolicy', 'ServiceMonitor', 'PrometheusRule'}
PARTS_KIND = EVERY_KIND | {'StatefulSet', 'Secret', 'Certificate'}
# Settings of routers alone.
ROUTER_SETTINGS = {'route', 'route_tls_ca', 'route_tls_cert', 'route_tls_key', 'route_token_file',
                   'route_resolve_ms', 'route_settle_ms', 'flip_replicas', 'next_wait_s',
                   'hedge_percent', 'hedge_delay_min_us', 'route_slab_bytes'}
EMBAGD, BUILD = sys.argv[1:3]


def has_tools():
    """Returns whether run.sh could build the tools."""
    return os.path.exists(os.path.join(BUILD, 'installed'))


def run(*command, status=0, **keywords):
    """Runs a command, which must exit with this status; returns its output."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=300, check=False, **keywords)
    if done.returncode != status:
        raise AssertionError('%s: status %d\n%s' % (command, done.returncode, done.stdout))
    return done.stdout


def tool(name):
    """Returns the path of a tool that run.sh has built."""
    return os.path.join(BUILD, 'bin', name)


def helm(command, *options, chart=CHART, release='prod', **keywords):
    """Runs helm for a release, on a cluster of the tested version."""
    named = (release,) if command != 'lint' else ()
    return run(tool('helm'), command, *named, chart, '--kube-version', KUBERNETES, *options,
               **keywords)


def read_chart(name):
    """Returns the text of a file of the chart."""
    with open(os.path.join(CHART, name), encoding='utf-8') as file:
        return file.read()


def resident_values(text):
    """Returns values of resident, separated by commas, as helm takes them."""
    return ','.join('resident.' + value for value in text.split(','))


def read_yaml(path):
    """Returns the only document of a file."""
    with open(path, encoding='utf-8') as file:
        return yaml.safe_load(file)


def image_environment():
    """Returns the environment that the image sets."""
    with open(IMAGE, encoding='utf-8') as file:
        text = file.read()
    return dict(pair.split('=') for line in re.findall(r'^ENV (.*)$', text, re.M)
                for pair in line.split())


def described_settings():
    """Returns a schema for the values of each setting, derived from --help."""
    told = run(EMBAGD, '--help')
    return {name.replace('-', '_'): setting_schema(placeholder, *limits)
            for name, placeholder, *limits in re.findall(
                r'^  --([a-z0-9-]+) (\S+)(?:  \((\d+)\.\.(\d+)(?: (bytes))?)?', told, re.M)}


def setting_schema(placeholder, least, most, unit):
    """Returns the schema of one setting; false stands for a bare `off`, as helm parses it."""
    words = placeholder.split('|')
    if least:
        numbers = {'minimum': int(least), 'maximum': int(most)}
        if unit:
            return {'type': ['integer', 'string'], 'pattern': '^[0-9]+([KMG]iB)?$', **numbers}
        return {'type': 'integer', **numbers}
    if len(words) > 1 and placeholder.islower():
        return {'enum': words + [False] * ('off' in words)}
    if 'off' in words:
        return {'type': ['string', 'boolean'], 'not': {'const': True}}
    return {'type': 'string'}


def settings_of(text, *flags):
    """Returns settings by name, with their values and sources, as --print-config reports them for a
    file's text and for flags."""
    with tempfile.NamedTemporaryFile('w', suffix='.yaml', encoding='utf-8') as file:
        file.write(text)
        file.flush()
        printed = run(EMBAGD, *flags, '--config', file.name, '--print-config',
                      env=image_environment())
    found = re.findall(r'^(?:# )?(\w+):(.*?) # (default|file|environment|flag)\b', printed, re.M)
    return {name: (yaml.safe_load(value), source) for name, value, source in found}


def known_settings():
    """Returns the names of embagd's settings."""
    return {name.replace('-', '_')
            for name in re.findall(r'^  --([a-z0-9-]+) ', run(EMBAGD, '--help'), re.M)}


def render(*options, **keywords):
    """Returns the manifests that helm renders."""
    return list(yaml.safe_load_all(helm('template', *options, **keywords)))


def find(manifests, kind, component=None, name=None):
    """Returns the only manifest of a kind, for this component or, if given, with this name."""
    found, = (m for m in manifests if m['kind'] == kind and (
        m['metadata']['name'] == name if name else
        component == m['metadata']['labels'].get('app.kubernetes.io/component')))
    return found


def module_folders():
    """Returns the folders of the Go modules with Kubernetes' kinds, those of the Prometheus
    operator, and those of cert-manager."""
    with open(os.path.join(BUILD, 'modules.json'), encoding='utf-8') as file:
        return re.findall(r'"Dir": "(.*)"', file.read())


def kubeconform(kinds):
    """Writes the schemas of these kinds. Returns the command that compares manifests with them."""
    folder = os.path.join(BUILD, 'schemas')
    os.makedirs(folder, exist_ok=True)
    api, *others = module_folders()
    manifest_schemas.write_api(api, folder, kinds)
    for module in others:
        manifest_schemas.write_resources(module, folder, kinds)
    place = os.path.join(folder, '{{.ResourceKind}}{{.KindSuffix}}.json')
    return tool('kubeconform'), '-strict', '-summary', '-schema-location', place


needs_helm = unittest.skipUnless(has_tools(), 'helm could not be built')
