"""The result of `cmake --install`: programs are built against it with pkg-config and with
find_package."""

import os
import re
import shutil
import subprocess
import unittest

import embagd_process
import served
from embagd_process import Repository
from served import OwnServerTest
from tmpfs_directory import make_tmpfs_directory

ADDRESS = '127.0.0.1:8600'
COMPONENTS = ('server', 'tools', 'libembag', 'libembag_local', 'dev')
HEADERS = ('embag.h', 'embag_admin.h', 'embag_async.h', 'embag_local.h', 'embag_models.h',
           'embag_servers.h', 'embag_types.h')
ROWS = '-2.1 -2.4\n0 0\n-0.2 0.8\n'
STRICT = ('-Wall', '-Wextra', '-Wpedantic', '-Wconversion', '-Werror', '-fsyntax-only')
PROJECT = """\
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES C)
find_package(embag %(version)s REQUIRED COMPONENTS static)
add_executable(shared lookup.c)
target_link_libraries(shared PRIVATE embag::embag)
add_executable(static lookup.c)
target_link_libraries(static PRIVATE embag::embag_static)
"""
LOCAL_PROJECT = """\
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES C)
find_package(embag %(version)s REQUIRED COMPONENTS local)
add_executable(local %(source)s)
target_link_libraries(local PRIVATE embag::local)
"""


def run(*command, **keywords):
    """Runs a command, which must succeed; returns its output."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=300, check=False, **keywords)
    if done.returncode != 0:
        raise AssertionError('%s: status %d\n%s' % (command, done.returncode, done.stdout))
    return done.stdout


def install(prefix, *options):
    """Installs the build folder under a prefix."""
    run('cmake', '--install', served.BUILD, '--prefix', prefix, *options)


def files_of(folder):
    """Returns the paths of all files and links below a folder."""
    return sorted(os.path.relpath(os.path.join(at, name), folder)
                  for at, _, names in os.walk(folder) for name in names)


def sanitizer_flags():
    """Returns the flags that a program needs to link a library of this build."""
    sanitizer = embagd_process.SANITIZE
    return ['-fsanitize=' + sanitizer] if sanitizer else []


def declared_functions(header):
    """Returns the names of the functions that a public header declares."""
    with open(header, encoding='utf-8') as file:
        text = re.sub(r'/\*.*?\*/', '', file.read(), flags=re.S)
    return set(re.findall(r'^[^\s#].*?\b(embag_\w+)\(', text, re.M))


class Install(OwnServerTest):
    """An installation that is moved to another prefix before anything uses it."""

    @classmethod
    def setUpClass(cls):
        cls.folder = Repository()
        cls.addClassCleanup(cls.folder.remove)
        cls.first = cls.folder.join('first')
        install(cls.first)
        cls.prefix = cls.folder.join('moved')
        os.rename(cls.first, cls.prefix)
        cls.files = files_of(cls.prefix)
        cls.library = cls.find('libembag.so')

    @classmethod
    def find(cls, name):
        """Returns the path of an installed file."""
        found = [path for path in cls.files if os.path.basename(path) == name]
        if len(found) != 1:
            raise AssertionError('%s: expected one path, found %s' % (name, found))
        return os.path.join(cls.prefix, found[0])

    def pkg_config(self, *options, library='libembag'):
        """Returns pkg-config's output for a library, as a list of words."""
        folder = os.path.dirname(self.find(library + '.pc'))
        return run('pkg-config', *options, library,
                   env={**os.environ, 'PKG_CONFIG_PATH': folder}).split()

    def write_lookup(self, server):
        """Writes the installed example, changed to connect to this server, to a folder."""
        with open(self.find('lookup_example.c'), encoding='utf-8') as file:
            text = file.read().replace(ADDRESS, server.address)
        folder = self.folder.join('user')
        shutil.rmtree(folder, ignore_errors=True)
        os.mkdir(folder)
        with open(os.path.join(folder, 'lookup.c'), 'w', encoding='utf-8') as file:
            file.write(text)
        return folder

    def test_component_by_component_it_is_the_same(self):
        parts = []
        for component in COMPONENTS:
            folder = self.folder.join('part-' + component)
            install(folder, '--component', component)
            parts += files_of(folder)
        self.assertEqual(sorted(parts), self.files)

    def test_names_neither_its_prefix_nor_the_build(self):
        for path in self.files:
            if path.endswith(('.pc', '.cmake', '.h')):
                with open(os.path.join(self.prefix, path), encoding='utf-8') as file:
                    text = file.read()
                for place in (self.first, served.BUILD, served.SOURCE):
                    self.assertNotIn(place, text, path)

    def test_programs_run(self):
        for name, said in (('embagd', 'embagd '), ('embag', 'embag '), ('embag-load', 'Usage')):
            flag = '--help' if name == 'embag-load' else '--version'
            self.assertIn(said, run(self.find(name), flag))

    def test_example_configuration_can_be_used(self):
        example = self.find('embagd.yaml')
        printed = run(self.find('embagd'), '--config', example, '--print-config',
                      env=embagd_process.clean_environment())
        with open(example, encoding='utf-8') as file:
            text = file.read()
        for line in re.findall(r'^\w.*$', text, re.M):
            name, value = line.split(': ', 1)
            self.assertRegex(printed.replace('"', ''), r'(?m)^%s: %s # file: ' % (
                name, re.escape(value.replace('"', ''))))
        every = self.folder.join('every.yaml')
        with open(every, 'w', encoding='utf-8') as file:
            file.write(re.sub(r'^# (\w+: )', r'\1', text, flags=re.M))
        run(self.find('embagd'), '--config', every, '--print-config',
            env=embagd_process.clean_environment())

    def test_protos_are_complete(self):
        folder = os.path.join(self.prefix, 'share', 'embag', 'proto')
        for path in files_of(folder):
            run('protoc', '-I', folder, '--descriptor_set_out=/dev/null', path)
        self.assertIn('embag/v1/embedding_bag.proto', files_of(folder))

    def test_every_header_is_c_and_cpp_alone(self):
        folder = os.path.dirname(self.find('embag.h'))
        self.assertEqual(sorted(os.listdir(folder)), sorted(HEADERS))
        compilers = [('cc', '-std=c17', '-xc'), ('c++', '-std=c++17', '-xc++')]
        for compiler, *language in compilers:
            if not shutil.which(compiler):
                self.skipTest(compiler + ' is not installed')
            for header in HEADERS:
                run(compiler, *language, *STRICT, '-I', folder, '-',
                    input='#include <%s>\n' % header)

    def test_exports_what_the_headers_declare(self):
        libraries = {'libembag.so': set(HEADERS) - {'embag_local.h'},
                     'libembag_local.so': {'embag_local.h'}}
        for library, headers in libraries.items():
            declared = set().union(*(declared_functions(self.find(name)) for name in headers))
            listed = run('nm', '-D', '--defined-only', self.find(library))
            self.assertEqual({line.split()[2] for line in listed.splitlines()}, declared)
            self.assertTrue(declared & {'embag_lookup', 'embag_local_lookup'})

    def test_is_called_by_the_versions_it_keeps_to(self):
        version = self.pkg_config('--modversion')[0]
        major, minor, _ = version.split('.')
        abi = major if major != '0' else '0.' + minor
        dynamic = run('readelf', '-d', self.library)
        self.assertIn('Library soname: [libembag.so.%s]' % abi, dynamic)
        self.assertTrue(os.path.exists(self.find('libembag.so.' + version)))

    def test_builds_by_pkg_config(self):
        folder = self.write_lookup(self.serve())
        shared = self.pkg_config('--cflags', '--libs')
        # The same with one change: our library is linked as an archive.
        static = [{'-lembag': '-l:libembag.a'}.get(word, word)
                  for word in self.pkg_config('--static', '--cflags', '--libs')]
        for words, needs_library in ((shared, True), (static, False)):
            program = os.path.join(folder, 'lookup')
            run('cc', os.path.join(folder, 'lookup.c'), '-o', program, *words, *sanitizer_flags())
            self.assertEqual('libembag.so' in run('readelf', '-d', program), needs_library)
            environment = {**os.environ, 'LD_LIBRARY_PATH': os.path.dirname(self.library)}
            self.assertEqual(run(program, env=environment), ROWS)

    def serve_resident(self):
        """Starts a server whose tables are resident; returns their directory."""
        directory = make_tmpfs_directory(self)
        self.serve('--resident-dir', directory, '--resident-small-pages', 'allow')
        return directory

    def test_looks_up_in_the_calling_process(self):
        directory = self.serve_resident()
        program = self.folder.join('local')
        words = self.pkg_config('--cflags', '--libs', library='libembag_local')
        run('cc', self.find('local_example.c'), '-o', program, *words, *sanitizer_flags())
        environment = {**os.environ, 'LD_LIBRARY_PATH': os.path.dirname(self.library)}
        self.assertEqual(run(program, directory, env=environment), ROWS)

    def configure(self, project):
        """Configures a user's project with this CMakeLists.txt; returns its build folder."""
        folder = self.folder.join('user')
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, 'CMakeLists.txt'), 'w', encoding='utf-8') as file:
            file.write(project)
        build = os.path.join(folder, 'build')
        run('cmake', '-S', folder, '-B', build, '-DCMAKE_PREFIX_PATH=' + self.prefix,
            '-DCMAKE_C_FLAGS=' + ' '.join(sanitizer_flags()))
        return build

    def test_builds_by_find_package(self):
        self.write_lookup(self.serve())
        version = self.pkg_config('--modversion')[0]
        build = self.configure(PROJECT % {'version': version})
        run('cmake', '--build', build)
        for name, needs_library in (('shared', True), ('static', False)):
            program = os.path.join(build, name)
            self.assertEqual('libembag.so' in run('readelf', '-d', program), needs_library)
            self.assertEqual(run(program), ROWS)
        major, minor, _ = version.split('.')
        with self.assertRaisesRegex(AssertionError, 'embag'):
            self.configure(PROJECT % {'version': '%s.%d' % (major, int(minor) + 1)})

    def test_looks_up_in_the_calling_process_by_find_package(self):
        directory = self.serve_resident()
        shutil.rmtree(self.folder.join('user'), ignore_errors=True)
        build = self.configure(LOCAL_PROJECT % {
            'version': self.pkg_config('--modversion')[0], 'source': self.find('local_example.c')})
        run('cmake', '--build', build)
        program = os.path.join(build, 'local')
        self.assertIn('libembag_local.so', run('readelf', '-d', program))
        self.assertEqual(run(program, directory), ROWS)

    def test_the_local_library_is_needed_only_if_it_is_wanted(self):
        other = self.folder.join('without-local')
        for component in 'libembag', 'dev':
            install(other, '--component', component)
        folder = self.folder.join('user')
        for components, is_found in (('', True), ('OPTIONAL_COMPONENTS local', True),
                                     ('COMPONENTS local', False)):
            shutil.rmtree(folder, ignore_errors=True)
            os.mkdir(folder)
            with open(os.path.join(folder, 'CMakeLists.txt'), 'w', encoding='utf-8') as file:
                file.write('cmake_minimum_required(VERSION 3.25)\nproject(user LANGUAGES C)\n'
                           'find_package(embag REQUIRED %s)\n' % components)
            done = subprocess.run(['cmake', '-S', folder, '-B', os.path.join(folder, 'build'),
                                   '-DCMAKE_PREFIX_PATH=' + other], capture_output=True,
                                  timeout=300, check=False)
            self.assertEqual(done.returncode == 0, is_found)


if __name__ == '__main__':
    unittest.main()
