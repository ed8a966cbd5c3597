"""The messages that the package builds when it is imported, and its requirements for that."""

import copy
import importlib.util
import os
import pickle
import subprocess
import sys
import tempfile
import unittest

import served
from embag.v1 import embedding_bag_pb2 as pb
from embag.v1 import model_admin_pb2 as admin_pb

PACKAGE = os.path.join(served.SOURCE, 'client', 'python')
# Another file of the same name, with a message of the same name and other fields.
CLASH = """
from google.protobuf import descriptor_pb2, descriptor_pool
file = descriptor_pb2.FileDescriptorProto(
    name='embag/v1/embedding_bag.proto', package='embag.v1', syntax='proto3',
    message_type=[{'name': 'BagQuery', 'field': [
        {'name': 'other', 'number': 1, 'type': 5, 'label': 1}]}])
descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
"""
USE = """
from embag.v1 import embedding_bag_pb2 as pb
print(pb.BagQuery(table='t').table)
"""
TYPED = """
from embag.v1 import embedding_bag_pb2 as pb
query = pb.BagQuery(table='t', reduction=pb.REDUCTION_SUM, missing=pb.MISSING_SKIP)
request = pb.LookupRequest(queries=[query], output_type=pb.DATA_TYPE_F32)
text: str = request.queries[0].table
"""


def run(program, **keywords):
    """Runs a Python program with the installed package."""
    return subprocess.run([sys.executable, *keywords.pop('options', ['-I']), '-c', program],
                          capture_output=True, text=True, timeout=60, check=False, **keywords)


class Messages(unittest.TestCase):
    """Modules with the same contents as generated ones."""

    def test_fields_enums_and_nested_messages(self):
        query = pb.BagQuery(table='t', reduction=pb.REDUCTION_MAX)
        request = pb.LookupRequest(queries=[query], output_type='DATA_TYPE_F16')
        self.assertEqual(pb.LookupRequest.FromString(request.SerializeToString()), request)
        self.assertIsInstance(request.queries[0], pb.BagQuery)
        self.assertEqual(pb.DataType.Name(pb.DATA_TYPE_F16), 'DATA_TYPE_F16')
        self.assertEqual(pb.Reduction.Value('REDUCTION_MAX'), query.reduction)
        self.assertEqual(pb.ModelVersion.State.Name(pb.ModelVersion.STATE_READY), 'STATE_READY')
        server = pb.Server(limits=[pb.Server.Limit(name='x', value=2)])
        self.assertIsInstance(server.limits[0], pb.Server.Limit)
        self.assertEqual(pb.BagQuery.TABLE_FIELD_NUMBER, 1)
        self.assertEqual(admin_pb.VersionRequest(model='m').model, 'm')

    def test_are_copied_and_pickled(self):
        model = pb.Model(name='m', versions=[pb.ModelVersion(version=2)])
        for other in copy.deepcopy(model), pickle.loads(pickle.dumps(model)):
            self.assertEqual(other, model)
            self.assertIs(type(other), pb.Model)

    def test_go_together_with_another_file_of_the_same_name(self):
        for program in CLASH + USE, USE + CLASH:
            done = run(program)
            self.assertEqual((done.returncode, done.stdout), (0, 't\n'), done.stderr)

    @unittest.skipUnless(importlib.util.find_spec('mypy'), 'mypy is not installed')
    def test_types_of_messages_are_known_to_users(self):
        for program, status in (TYPED, 0), (TYPED.replace('text: str', 'text: int'), 1):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, 'program.py')
                with open(path, 'w', encoding='utf-8') as file:
                    file.write(program)
                done = subprocess.run(
                    [sys.executable, '-I', '-m', 'mypy', '--strict', '--cache-dir', os.devnull,
                     path], capture_output=True, text=True, timeout=300, check=False)
                self.assertEqual(done.returncode, status, done.stdout + done.stderr)


class Missing(unittest.TestCase):
    """Errors of `import embag` if it cannot work."""

    def failure(self, program, **keywords):
        """Runs a program that must fail; returns the last line of its messages."""
        done = run(program, **keywords)
        self.assertEqual(done.returncode, 1)
        return done.stderr.strip().splitlines()[-1]

    def test_packages_that_are_not_installed_are_named(self):
        hide = 'import sys\nsys.modules[%r] = None\n'
        packages = {'grpc': 'grpcio', 'numpy': 'numpy', 'google.protobuf': 'protobuf'}
        for module, package in packages.items():
            said = self.failure(hide % module + 'import embag.v1.embedding_bag_pb2')
            self.assertEqual(said, 'ImportError: embag needs packages that are not installed: run '
                             '`pip install %s`, or on Debian `apt-get install python3-%s`'
                             % (package, package))
        said = self.failure(hide % 'google' + hide % 'grpc' + 'import embag.aio')
        self.assertIn('`pip install grpcio protobuf`', said)

    def test_a_checkout_is_not_importable(self):
        said = self.failure('import embag', options=[], cwd=PACKAGE,
                            env={**os.environ, 'PYTHONDONTWRITEBYTECODE': '1'})
        self.assertRegex(said, 'ImportError: embag/v1/messages.binpb is missing: .*pip install')
