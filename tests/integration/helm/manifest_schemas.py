"""Schemas for kubeconform out of what Go modules hold: the API description of Kubernetes, and the
resource definitions of the Prometheus operator. As strict as the API server's own field check."""

import json
import os

import yaml

API = 'api/openapi-spec/swagger.json'
RESOURCE = 'example/prometheus-operator-crd/monitoring.coreos.com_%ss.yaml'
# Types that the description calls strings, and the API takes as numbers too.
NUMBER_OR_TEXT = {'type': ['number', 'string']}
LOOSE = ('io.k8s.apimachinery.pkg.util.intstr.IntOrString',
         'io.k8s.apimachinery.pkg.api.resource.Quantity')


def close(schema):
    """Allows an object no fields but those it names, at every depth."""
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
    """By the name under which kubeconform looks for it."""
    parts = [kind.lower(), group.split('.')[0], version]
    path = os.path.join(folder, '-'.join(part for part in parts if part) + '.json')
    with open(path, 'w', encoding='utf-8') as file:
        json.dump(schema, file)


def write_api(module, folder, kinds):
    """Those of Kubernetes' own kinds that are wanted."""
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


def write_resources(module, folder, kinds):
    """Those of the operator's."""
    for kind in kinds:
        path = os.path.join(module, RESOURCE % kind.lower())
        if os.path.exists(path):
            with open(path, encoding='utf-8') as file:
                spec = yaml.load(file, yaml.CSafeLoader)['spec']
            for version in spec['versions']:
                schema = close(version['schema']['openAPIV3Schema'])
                # What the API server itself describes.
                schema['properties']['metadata'] = {'type': 'object'}
                write(folder, spec['group'], version['name'], kind, schema)
