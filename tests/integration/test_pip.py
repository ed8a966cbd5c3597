"""tests/lib/pip.sh against its own package indexes: what is skipped, what fails, and why."""

import http.server
import os
import shutil
import subprocess
import tempfile
import threading
import unittest
import zipfile

LIB = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'lib', 'pip.sh')
SCRIPT = """set -euo pipefail
source "$1"
if install_packages some 60 "${@:2}"; then echo installed; else echo "status $?"; fi
"""


def write_wheel(folder, name, version):
    """Writes an empty package to an index."""
    os.makedirs(os.path.join(folder, name))
    about = '%s-%s.dist-info' % (name, version)
    path = os.path.join(folder, name, '%s-%s-py3-none-any.whl' % (name, version))
    with zipfile.ZipFile(path, 'w') as wheel:
        wheel.writestr(about + '/METADATA',
                       'Metadata-Version: 2.1\nName: %s\nVersion: %s\n' % (name, version))
        wheel.writestr(about + '/WHEEL', 'Wheel-Version: 1.0\nGenerator: tests\n'
                       'Root-Is-Purelib: true\nTag: py3-none-any\n')
        wheel.writestr(about + '/RECORD', '')


class Index(http.server.SimpleHTTPRequestHandler):
    """Serves a folder."""

    def log_message(self, *_arguments):
        """Prints nothing."""


class InstallPackages(unittest.TestCase):
    """A virtual environment, an index that answers, and an address where none does."""

    @classmethod
    def setUpClass(cls):
        cls.root = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.root)
        venv = os.path.join(cls.root, 'venv')
        subprocess.run(['/usr/bin/python3', '-m', 'venv', venv], check=True, timeout=120)
        cls.pip = os.path.join(venv, 'bin', 'pip')
        simple = os.path.join(cls.root, 'simple')
        write_wheel(simple, 'pip', '1.0')
        write_wheel(simple, 'embag_known', '1.0')
        os.rename(os.path.join(simple, 'embag_known'), os.path.join(simple, 'embag-known'))
        cls.server = http.server.ThreadingHTTPServer(
            ('127.0.0.1', 0), lambda *arguments: Index(*arguments, directory=cls.root))
        cls.addClassCleanup(cls.server.server_close)
        thread = threading.Thread(target=cls.server.serve_forever)
        thread.start()
        cls.addClassCleanup(thread.join)
        cls.addClassCleanup(cls.server.shutdown)

    def install(self, *requirements, port=None, **environment):
        """Runs the script; returns its exit status, output and messages."""
        port = self.server.server_port if port is None else port
        kept = {name: value for name, value in os.environ.items() if not name.startswith('PIP_')}
        done = subprocess.run(
            ['bash', '-c', SCRIPT, 'script', LIB, self.pip, *requirements], check=False,
            capture_output=True, text=True, timeout=120,
            env={**kept, 'PIP_CONFIG_FILE': os.devnull, 'PIP_RETRIES': '0', 'NO_PROXY': '*',
                 'PIP_INDEX_URL': 'http://127.0.0.1:%d/simple' % port, **environment})
        return done.returncode, done.stdout, done.stderr

    def check_fails(self, text, *requirements):
        """Checks that the script fails with this reason and skips nothing."""
        status, out, messages = self.install(*requirements)
        self.assertEqual((status, out), (1, ''), messages)
        self.assertIn('the package index answers, but the installation failed: ', messages)
        self.assertIn(text, messages.splitlines()[-1])

    def test_installs(self):
        self.assertEqual(self.install('embag-known==1.0')[:2], (0, 'installed\n'))

    def test_skips_where_no_index_answers(self):
        # A folder of wheels does not make an index.
        wheels = os.path.join(self.root, 'simple', 'pip')
        for environment in ({}, {'PIP_FIND_LINKS': wheels}):
            status, out, _ = self.install('embag-known==2.0', port=1, **environment)
            self.assertEqual(status, 0)
            self.assertRegex(out, r'^some: skipped, no package index answers: .*'
                                  r'embag-known==2\.0.*\nstatus 1\n$')

    def test_skips_a_package_that_the_index_lacks(self):
        status, out, _ = self.install('embag-unknown==1.0')
        self.assertEqual(status, 0)
        self.assertRegex(out, r'^some: skipped, a package is not available: .*'
                              r'embag-unknown==1\.0.*\nstatus 1\n$')

    def test_fails_where_the_requirement_is_wrong(self):
        self.check_fails('embag-known==2.0', 'embag-known==2.0')
        self.check_fails('Invalid requirement', 'embag-known=')
        self.check_fails('nowhere.txt', '-r', '/nonexistent/nowhere.txt')
