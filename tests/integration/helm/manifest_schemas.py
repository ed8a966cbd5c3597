"""Generates schemas for kubeconform from files in Go modules: Kubernetes' API description, and the
resource definitions of the Prometheus operator and of cert-manager. They are as strict as the API
server's own field check."""

import json
import os

import yaml

API = 'api/openapi-spec/swagger.json'
# Where modules define kinds: the Prometheus operator, and cert-manager.
RESOURCES = ('example/prometheus-operator-crd/monitoring.coreos.com_%ss.yaml',
             'deploy/crds/crd-%ss.yaml')
# Types that the description calls strings although the API also accepts numbers.
NUMBER_OR_TEXT = {'type': ['number', 'string']}
LOOSE = ('io.k8s.apimachinery.pkg.util.intstr.IntOrString',
         'io.k8s.apimachinery.pkg.api.resource.Quantity')


def close(schema):
    """Forbids unknown fields in an object, at every depth."""
    pending = [schema]
    while pending:
        at = pending.pop()
        if isinstance(at, dict):
            is_open = at.get('x-kubernetes-preserve-unknown-fields')
            if at.get('type') == 'object' and 'properties' in at and not is_open:
                at.setdefault('additionalProperties', False)
            if at.get('x-kubernetes-int-or-string') is True:
                at.clear()
                at.update(NUMBER_OR_TEXT)
            pending.extend(at.values())
        elif isinstance(at, list):
            pending.extend(at)
    return schema


def write(folder, group, version, kind, schema):
    """Writes a schema under the name by which kubeconform finds it."""
    parts = [kind.lower(), group.split('.')[0], version]
    path = os.path.join(folder, '-'.join(part for part in parts if part) + '.json')
    with open(path, 'w', encoding='utf-8') as file:
        json.dump(schema, file)


def write_api(module, folder, kinds):
    """Writes the schemas of those Kubernetes kinds that the chart uses."""
    with open(os.path.join(module, API), encoding='utf-8') as file:
        definitions = json.load(file)['definitions']
    for name in LOOSE:
        definitions[name] = NUMBER_OR_TEXT
    close(definitions)
    for name, definition in definitions.items():
        for named in definition.get('x-kubernetes-group-version-kind', ()):
            if named['kind'] in kinds:
                write(folder, named['group'], named['version'], named['kind'],
                      {'$ref': '#/definitions/' + name, 'definitions': definitions})


def read_definitions(module, kinds):
    """Returns the definitions of those kinds that a module has."""
    paths = [os.path.join(module, path % kind.lower()) for kind in kinds for path in RESOURCES]
    definitions = []
    for path in filter(os.path.exists, paths):
        with open(path, encoding='utf-8') as file:
            definitions.append(yaml.load(file, yaml.CSafeLoader))
    return definitions


def write_resources(module, folder, kinds):
    """Writes the schemas of those kinds that the module defines."""
    for definition in read_definitions(module, kinds):
        spec = definition['spec']
        for version in spec['versions']:
            schema = close(version['schema']['openAPIV3Schema'])
            # The API server itself describes the metadata.
            schema['properties']['metadata'] = {'type': 'object'}
            write(folder, spec['group'], version['name'], spec['names']['kind'], schema)
