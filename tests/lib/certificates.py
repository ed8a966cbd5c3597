"""Certificates for a test, made by the openssl command in a temporary directory."""

import os
import shutil
import subprocess
import tempfile

KEY = ('-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes')
HERE = 'DNS:localhost,IP:127.0.0.1'  # subject names of the tests' servers


def openssl(*words):
    """Runs the openssl command. Raises CalledProcessError if it fails."""
    subprocess.run(['openssl', *words], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.PIPE, timeout=60)


class Authority:
    """A certificate authority with a temporary folder, which `remove` deletes."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix='embag-test-')
        openssl('req', '-x509', *KEY, '-days', '2', '-subj', '/CN=authority',
                '-keyout', self.path('ca.key'), '-out', self.path('ca.pem'))

    def remove(self):
        """Deletes the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, name):
        """Returns the path of a file in the folder."""
        return os.path.join(self.folder, name)

    def write(self, name, text, mode=0o600):
        """Writes a file to the folder. Returns its path."""
        with open(self.path(name), 'w', encoding='utf-8') as file:
            file.write(text)
        os.chmod(self.path(name), mode)
        return self.path(name)

    def replace(self, name, text):
        """Writes a file and renames it over the one of that name. Returns its path."""
        os.replace(self.write('replacement', text), self.path(name))
        return self.path(name)

    def issue(self, name, common_name='someone', names=None, days=2):
        """Creates NAME.pem and NAME.key, or replaces each of them atomically."""
        request, new = self.path('request'), self.path('new')
        openssl('req', *KEY, '-subj', '/CN=' + common_name, '-keyout', new + '.key',
                '-out', request)
        extension = []
        if names:
            extension = ['-extfile', self.write('extension', 'subjectAltName=' + names)]
        openssl('x509', '-req', '-in', request, '-CA', self.path('ca.pem'), '-CAkey',
                self.path('ca.key'), '-CAcreateserial', '-days', str(days), *extension,
                '-out', new + '.pem')
        for kind in ('.key', '.pem'):
            os.replace(new + kind, self.path(name + kind))

    def read(self, name):
        """Returns the bytes of a file in the folder."""
        with open(self.path(name), 'rb') as file:
            return file.read()
