#!/usr/bin/env python3
"""Prints the software bill of materials of a release, in SPDX 2.3 (JSON).

    sbom.py --version V --commit HASH FOLDER

Describes every file in FOLDER: its SHA-256 and what it depends on or contains. A Debian package
depends on libraries; their versions are those of this machine, where the package was built. A
container image contains Debian packages, read from its layers. A wheel depends on Python packages.
Licences are NOASSERTION: embag's owner has not chosen one, and the other packages contain their
own. The date of creation is SOURCE_DATE_EPOCH or, if that is not set, the present time.
The format: https://spdx.github.io/spdx-spec/v2.3/
"""

import argparse
import datetime
import email
import glob
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import time
import uuid
import zipfile

NO = 'NOASSERTION'
STATUS = 'var/lib/dpkg/status'
CHUNK_BYTES = 1 << 20


def spdx_id(*words):
    """Returns an identifier made of words. SPDX allows letters, digits, dots and hyphens."""
    return 'SPDXRef-' + re.sub(r'[^A-Za-z0-9.-]', '-', '-'.join(words))


def sha256(path):
    """Returns the checksum of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, 'rb') as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


class Bill:
    """The packages and relationships of the document, without duplicates."""

    def __init__(self):
        self.packages = {}
        self.relationships = set()

    def add(self, identifier, name, version, **more):
        """Adds a package; returns its identifier."""
        package = {'SPDXID': identifier, 'name': name, 'versionInfo': version,
                   'downloadLocation': NO, 'filesAnalyzed': False, 'licenseConcluded': NO,
                   'licenseDeclared': NO, 'copyrightText': NO, 'supplier': NO}
        package.update(more)
        if not version:
            del package['versionInfo']
        self.packages[identifier] = package
        return identifier

    def add_debian(self, name, version, architecture):
        """Adds a package of Debian; returns its identifier."""
        place = 'pkg:deb/debian/%s@%s?arch=%s' % (
            name.replace('+', '%2B'), version.replace('+', '%2B').replace(':', '%3A'), architecture)
        return self.add(spdx_id('deb', name, version, architecture), name, version,
                        supplier='Organization: Debian', externalRefs=[purl(place)])

    def add_python(self, requirement):
        """Adds a requirement of a wheel, such as `numpy>=1.24`; returns its identifier."""
        name = re.match(r'[\w.-]+', requirement)[0]
        return self.add(spdx_id('pypi', name), name, None, comment='Required as ' + requirement,
                        externalRefs=[purl('pkg:pypi/' + name.lower().replace('_', '-'))])

    def relate(self, one, relation, other):
        """Adds a relationship between two identifiers."""
        self.relationships.add((one, relation, other))


def purl(place):
    """Returns a package URL as an external reference."""
    return {'referenceCategory': 'PACKAGE-MANAGER', 'referenceType': 'purl',
            'referenceLocator': place}


def control_fields(*command):
    """Returns the fields that a command prints in the format of Debian's control files."""
    return email.message_from_string(
        subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def describe_deb(bill, identifier, path):
    """Adds the libraries that a Debian package depends on."""
    fields = control_fields('dpkg-deb', '--field', path)
    for one in filter(None, (fields['Depends'] or '').split(',')):
        name = re.match(r'\s*([^\s(|:]+)', one)[1]
        if name.startswith(('embag-', 'libembag')):
            continue
        # A virtual or transitional name may have no version here. It is then listed without one.
        known = subprocess.run(
            ['dpkg-query', '-W', '-f', '${Version} ${Architecture}\n', name], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout.split()
        found = bill.add_debian(name, *known[:2]) if known else bill.add(
            spdx_id('deb', name), name, None)
        bill.relate(identifier, 'DEPENDS_ON', found)


def read_blob(archive, digest):
    """Returns the bytes of a blob of an OCI archive."""
    return archive.extractfile('blobs/' + digest.replace(':', '/')).read()


def image_status(path):
    """Returns dpkg's database of a container image, from the uppermost layer that has one."""
    found = None
    with tarfile.open(path) as archive:
        index = json.loads(archive.extractfile('index.json').read())
        manifest = json.loads(read_blob(archive, index['manifests'][0]['digest']))
        for layer in manifest['layers']:
            with tarfile.open(fileobj=io.BytesIO(read_blob(archive, layer['digest']))) as files:
                for member in files:
                    if member.name.lstrip('./') == STATUS and member.isfile():
                        found = files.extractfile(member).read().decode()
    if found is None:
        sys.exit('sbom.py: %s: no layer has %s: expected an image of Debian' % (path, STATUS))
    return found


def describe_image(bill, identifier, path):
    """Adds the packages of Debian that a container image contains."""
    for paragraph in image_status(path).split('\n\n'):
        fields = email.message_from_string(paragraph)
        if fields['Status'] == 'install ok installed':
            bill.relate(identifier, 'CONTAINS', bill.add_debian(
                fields['Package'], fields['Version'], fields['Architecture']))


def describe_wheel(bill, identifier, path):
    """Adds what a wheel requires, except for its extras."""
    with zipfile.ZipFile(path) as wheel:
        name, = (name for name in wheel.namelist() if name.endswith('.dist-info/METADATA'))
        fields = email.message_from_string(wheel.read(name).decode())
    for requirement in fields.get_all('Requires-Dist') or []:
        if 'extra ==' not in requirement:
            bill.relate(identifier, 'DEPENDS_ON', bill.add_python(requirement))


DESCRIBE = {'.deb': describe_deb, '.oci.tar': describe_image, '.whl': describe_wheel}


def describe(folder, version, commit):
    """Returns the document of a folder, ready for JSON."""
    bill = Bill()
    root = bill.add(spdx_id('embag'), 'embag', version, sourceInfo='Built from commit ' + commit,
                    primaryPackagePurpose='APPLICATION')
    checksums = []
    for path in sorted(glob.glob(os.path.join(folder, '*'))):
        name, digest = os.path.basename(path), sha256(path)
        checksums.append(digest)
        made = bill.add(spdx_id('file', name), name, version, packageFileName=name,
                        checksums=[{'algorithm': 'SHA256', 'checksumValue': digest}])
        bill.relate(root, 'CONTAINS', made)
        for ending, add_contents in DESCRIBE.items():
            if name.endswith(ending):
                add_contents(bill, made, path)
    created = int(os.environ.get('SOURCE_DATE_EPOCH', time.time()))
    unique = uuid.uuid5(uuid.NAMESPACE_OID, ' '.join([commit, *checksums]))
    return {
        'spdxVersion': 'SPDX-2.3', 'dataLicense': 'CC0-1.0', 'SPDXID': 'SPDXRef-DOCUMENT',
        'name': 'embag-' + version,
        'documentNamespace': 'https://spdx.org/spdxdocs/embag-%s-%s' % (version, unique),
        'creationInfo': {
            'created': datetime.datetime.fromtimestamp(created, datetime.timezone.utc).strftime(
                '%Y-%m-%dT%H:%M:%SZ'),
            'creators': ['Tool: embag-sbom-' + version]},
        'documentDescribes': [root],
        'packages': [bill.packages[key] for key in sorted(bill.packages)],
        'relationships': [
            {'spdxElementId': one, 'relationshipType': relation, 'relatedSpdxElement': other}
            for one, relation, other in
            sorted(bill.relationships | {('SPDXRef-DOCUMENT', 'DESCRIBES', root)})]}


def main():
    """Reads the command line and prints the document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--version', required=True, help='of the release')
    parser.add_argument('--commit', required=True, help='that it was built from')
    parser.add_argument('folder', help='of the files that it consists of')
    options = parser.parse_args()
    json.dump(describe(options.folder, options.version, options.commit), sys.stdout, indent=1,
              sort_keys=True)
    print()


if __name__ == '__main__':
    main()
