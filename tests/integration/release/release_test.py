"""The artifacts of deploy/release.sh for a tag, built twice in different folders. The container
image, and the second Debian packages, take minutes: they are built if EMBAG_LONG is in the
environment.

    release_test.py FOLDER VERSION BASE HELM PYTHON

FOLDER/tree is a repository with the tag vVERSION. BASE is the base image of the container image,
HELM a program that may be missing, PYTHON an interpreter with spdx-tools, or empty. PODMAN in the
environment names the podman to use. Prints "N passed, N failed" at the end; the exit status is 0 if
none failed.
"""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

import guide
import summary

BUILD_SECONDS = 900
SECONDS = 120
FOLDER = VERSION = BASE = HELM = SPDX_PYTHON = ''
# A PATH without protoc: the wheel must build without it.
NO_PROTOC = '/nonexistent'
IS_LONG = bool(os.environ.get('EMBAG_LONG'))
# The options of the two builds.
FIRST = () if IS_LONG else ('--only', 'debs,chart,python')
SECOND = () if IS_LONG else ('--only', 'chart,python')


def release(*words, check=True):
    """Runs deploy/release.sh of the tree; returns the finished process."""
    # Each build runs below a folder of its own, so that no path is the same in two builds.
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(
            [os.path.join(FOLDER, 'tree', 'deploy', 'release.sh'), '--base', BASE, *words],
            env={**os.environ, 'TMPDIR': scratch}, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=BUILD_SECONDS, check=False)
    if check and done.returncode != 0:
        raise AssertionError('release.sh failed:\n' + done.stdout)
    return done


def run(*words, **keywords):
    """Runs a program, which must succeed; returns its output."""
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=SECONDS, check=False, **keywords)
    if done.returncode != 0:
        raise AssertionError('%s: %s' % (' '.join(words), done.stdout))
    return done.stdout


def read(path):
    """Returns the bytes of a file."""
    with open(path, 'rb') as file:
        return file.read()


def artifact(name):
    """Returns the path of a file of the first build."""
    return os.path.join(FOLDER, 'first', name)


def debs():
    """Returns the paths of the Debian packages."""
    return [artifact(name) for name in sorted(os.listdir(artifact(''))) if name.endswith('.deb')]


def printed_command(program):
    """Returns the words of the guide's command that runs a program."""
    section = guide.section(guide.read('deploy', 'OPERATIONS.md'), 'Making a release')
    line, = (line for line in guide.blocks(section, 'sh')[0].text.splitlines() if program in line)
    return line.split()


def setUpModule():
    """Builds the release by the guide's command into a folder of the test's own, then once more."""
    script, tag, _ = printed_command('release.sh')
    if (script, tag) != ('deploy/release.sh', 'v' + VERSION):
        raise AssertionError('the guide builds %s %s, not %s' % (script, tag, VERSION))
    for name, options in ('first', FIRST), ('second', SECOND):
        print(release(*options, tag, os.path.join(FOLDER, name)).stdout, flush=True)


class Release(unittest.TestCase):
    """Checks of both builds."""

    def test_two_builds_are_equal(self):
        sums = []
        for name in 'first', 'second':
            folder = os.path.join(FOLDER, name)
            run(*printed_command('sha256sum')[3:], cwd=folder)
            with open(os.path.join(folder, 'SHA256SUMS'), encoding='utf-8') as file:
                sums.append(file.read().splitlines())
            self.assertEqual(len(sums[-1]) + 1, len(os.listdir(folder)))
        first, second = sums
        if not IS_LONG:    # The SBOM lists what was built.
            first, second = ([line for line in lines if not line.endswith(('.deb', '.json'))]
                             for lines in sums)
            self.assertEqual(len(first), 3)
        self.assertEqual(first, second)

    def test_has_every_artifact(self):
        architecture = run('dpkg', '--print-architecture').strip()
        soname = re.match(r'\d+\.\d+', VERSION)[0]
        self.assertEqual(sorted(os.listdir(artifact(''))), sorted(
            ['%s_%s_%s.deb' % (name, VERSION, architecture)
             for name in ('embag-server', 'embag-tools', 'libembag' + soname,
                          'libembag-local' + soname, 'libembag-dev')]
            + ['embag-%s%s' % (VERSION, ending) for ending in (
                '.tgz', '.tar.gz', '-py3-none-any.whl', '.spdx.json')]
            + ['embag-%s-%s.oci.tar' % (VERSION, architecture)] * IS_LONG
            + ['SHA256SUMS']))

    def test_packages_hold_programs_and_manual_pages_and_no_path_of_the_build(self):
        for path in debs():
            with tempfile.TemporaryDirectory() as root:
                run('dpkg-deb', '-x', path, root)
                if 'embag-server' in path:
                    self.assertIn(VERSION, run(root + '/usr/bin/embagd', '--version'))
                    page = gzip.decompress(read(root + '/usr/share/man/man8/embagd.8.gz'))
                    self.assertIn(b'"January 2026"', page)
                files = (os.path.join(folder, name)
                         for folder, _, names in os.walk(root) for name in names)
                for file in files:
                    if not os.path.islink(file):
                        self.assertNotIn(b'/source/', read(file), file)

    @unittest.skipUnless(IS_LONG, 'the image takes minutes')
    def test_image_runs(self):
        archive = artifact('embag-%s-%s.oci.tar' % (
            VERSION, run('dpkg', '--print-architecture').strip()))
        podman = os.environ['PODMAN']
        run(podman, 'load', '-i', archive)
        said = run(podman, 'run', '--rm', '--network', 'none', '--ulimit', 'nofile=20000:20000',
                   '--ulimit', 'nproc=1000:1000', 'localhost/embag:' + VERSION, '--version')
        self.assertIn('embagd ' + VERSION, said)

    def test_chart_is_one_that_helm_takes(self):
        if not os.path.exists(HELM):
            self.skipTest('there is no helm')
        chart = artifact('embag-%s.tgz' % VERSION)
        self.assertIn('version: ' + VERSION, run(HELM, 'show', 'chart', chart))
        rendered = run(HELM, 'template', 'test', chart, '--kube-version', '1.31.0',
                       '--set', 'models.existingClaim=models', '--set', 'memory.tables=4')
        self.assertIn('embag:' + VERSION, rendered)

    def test_python_package_installs_without_protoc(self):
        """The source distribution also installs, and makes the same wheel as the release."""
        with tempfile.TemporaryDirectory() as work:
            run('/usr/bin/python3', '-m', 'venv', '--system-site-packages', work + '/venv')
            python = work + '/venv/bin/python'
            environment = {**os.environ, 'PATH': NO_PROTOC, 'SOURCE_DATE_EPOCH': self.epoch()}
            run(python, '-m', 'pip', 'wheel', '--no-index', '--no-deps', '--no-build-isolation',
                '--wheel-dir', work, artifact('embag-%s.tar.gz' % VERSION), env=environment)
            wheel = 'embag-%s-py3-none-any.whl' % VERSION
            self.assertTrue(read(os.path.join(work, wheel)) == read(artifact(wheel)))
            run(python, '-m', 'pip', 'install', '--no-index', '--no-deps', artifact(wheel),
                env=environment)
            said = run(python, '-I', '-c', 'import embag; from embag.v1 import embedding_bag_pb2\n'
                       'print(embag.__file__, embedding_bag_pb2.LookupRequest(model="m").model)')
            self.assertRegex(said, r'^%s.* m$' % re.escape(work))

    def epoch(self):
        """Returns the date of the tagged commit."""
        return run('git', '-C', os.path.join(FOLDER, 'tree'), 'log', '-1', '--format=%ct').strip()


class Bill(unittest.TestCase):
    """The SBOM of the first build."""

    def setUp(self):
        self.path = artifact('embag-%s.spdx.json' % VERSION)
        with open(self.path, encoding='utf-8') as file:
            self.document = json.load(file)
        self.packages = {one['SPDXID']: one for one in self.document['packages']}

    def related(self, name, relation):
        """Returns the names of packages to which an artifact has a relationship."""
        return {self.packages[one['relatedSpdxElement']]['name']
                for one in self.document['relationships']
                if one['relationshipType'] == relation and
                self.packages.get(one['spdxElementId'], {}).get('name') == name}

    def test_is_valid_spdx(self):
        if not SPDX_PYTHON:
            self.skipTest('there is no spdx-tools')
        run(SPDX_PYTHON, '-m', 'spdx_tools.spdx.clitools.pyspdxtools', '-i', self.path)

    def test_names_every_artifact_with_its_checksum(self):
        named = {one['packageFileName']: one['checksums'][0]['checksumValue']
                 for one in self.packages.values() if 'packageFileName' in one}
        with open(artifact('SHA256SUMS'), encoding='utf-8') as file:
            sums = dict(reversed(line.split()) for line in file)
        del sums[os.path.basename(self.path)]
        self.assertEqual(named, sums)
        self.assertEqual(self.related('embag', 'CONTAINS'), set(sums))

    def test_lists_what_packages_depend_on(self):
        for path in debs():
            depends = run('dpkg-deb', '--field', path, 'Depends')
            self.assertEqual(
                self.related(os.path.basename(path), 'DEPENDS_ON'),
                {name for name in re.findall(r'(?:^|, )([a-z0-9.+-]+)', depends)
                 if 'embag' not in name})
        self.assertTrue(any('libuv1' in one['name'] for one in self.packages.values()))

    @unittest.skipUnless(IS_LONG, 'the image takes minutes')
    def test_lists_what_the_image_contains(self):
        image, = (one['name'] for one in self.packages.values() if 'oci' in one['name'])
        contained = self.related(image, 'CONTAINS')
        self.assertLessEqual({'libuv1', 'libssl3', 'libc6', 'dpkg'}, contained)
        self.assertFalse({'gcc', 'cmake'} & contained)

    def test_lists_what_the_wheel_requires(self):
        self.assertEqual(self.related('embag-%s-py3-none-any.whl' % VERSION, 'DEPENDS_ON'),
                         {'grpcio', 'numpy', 'protobuf'})


class Refused(unittest.TestCase):
    """Tags and arguments for which the script fails and leaves no files."""

    def setUp(self):
        self.folder = os.path.join(FOLDER, 'refused')
        self.tree = os.path.join(FOLDER, 'tree')

    def expect(self, message, *words):
        """Expects a failure with that message, and no folder."""
        done = release(*words, self.folder, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stdout, message)
        self.assertFalse([name for name in os.listdir(FOLDER) if name.startswith('refused')])

    def test_a_tag_that_is_not_there(self):
        self.expect('there is no tag "v9.9.9"', 'v9.9.9')

    def test_a_tag_of_another_version(self):
        run('git', '-C', self.tree, 'tag', '--force', 'v9.9.9')
        self.addCleanup(run, 'git', '-C', self.tree, 'tag', '--delete', 'v9.9.9')
        self.expect('CMakeLists.txt of v9.9.9 has the version "%s": expected "9.9.9"' % VERSION,
                    'v9.9.9')

    def test_a_changelog_without_the_version(self):
        other = os.path.join(FOLDER, 'refused-tree')
        self.addCleanup(shutil.rmtree, other)
        run('git', 'clone', '--quiet', self.tree, other)
        path = os.path.join(other, 'deploy', 'CHANGELOG.md')
        with open(path, encoding='utf-8') as file:
            text = file.read()
        with open(path, 'w', encoding='utf-8') as file:
            file.write(re.sub(r'(?m)^(## [\d.]+), .*$', r'\1, not released yet', text))
        run('git', '-C', other, '-c', 'user.name=test', '-c', 'user.email=test@example.org',
            'commit', '--quiet', '--all', '--message', 'Not a release')
        run('git', '-C', other, 'tag', '--force', 'v' + VERSION)
        done = subprocess.run([other + '/deploy/release.sh', 'v' + VERSION, self.folder],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=SECONDS, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn('expected "## %s, YYYY-MM-DD"' % VERSION, done.stdout)
        self.assertFalse(os.path.exists(self.folder))

    def test_a_folder_that_is_there(self):
        os.mkdir(self.folder)
        self.addCleanup(os.rmdir, self.folder)
        done = release('--only', 'chart', 'v' + VERSION, self.folder, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn('exists: expected a folder that is not there yet', done.stdout)

    def test_an_unknown_part_or_option(self):
        for words in ('--only', 'deb'), ('--fast', '1'), ():
            self.expect('^usage: ', *words)


class Parts(unittest.TestCase):
    """Builds of single artifacts."""

    def test_a_part_alone_is_the_same(self):
        folder = os.path.join(FOLDER, 'part')
        self.addCleanup(shutil.rmtree, folder)
        release('--only', 'chart', 'v' + VERSION, folder)
        name = 'embag-%s.tgz' % VERSION
        self.assertEqual(sorted(os.listdir(folder)),
                         sorted(['SHA256SUMS', name, 'embag-%s.spdx.json' % VERSION]))
        with tarfile.open(os.path.join(folder, name)) as chart:
            self.assertIn('embag/values.yaml', chart.getnames())
            self.assertEqual({(one.uid, one.gid, one.mtime) for one in chart},
                             {(0, 0, int(run('git', '-C', os.path.join(FOLDER, 'tree'), 'log', '-1',
                                             '--format=%ct')))})


if __name__ == '__main__':
    FOLDER, VERSION, BASE, HELM, SPDX_PYTHON = sys.argv[1:]
    sys.exit(summary.run_tests())
