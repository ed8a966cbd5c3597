"""What pyproject.toml cannot say: the messages are generated from the project's .proto files, by
protoc where it is on the PATH, otherwise by grpcio-tools."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile

from setuptools import setup
from setuptools.command.build_py import build_py

PROTO = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'proto')
FILES = ('embag/v1/embedding_bag.proto', 'embag/v1/model_admin.proto')
# Generated code of before 5.26 does not say which runtime it needs.
OLDEST_PROTOBUF = '3.21'


def generate(folder):
    """Writes modules and their types to FOLDER/embag/v1."""
    if not os.path.exists(os.path.join(PROTO, FILES[0])):
        sys.exit('setup.py: %s is not there: install from a whole checkout of embag' % PROTO)
    protoc = shutil.which('protoc')
    if not protoc and not importlib.util.find_spec('grpc_tools'):
        sys.exit('setup.py: there is neither protoc nor grpcio-tools to make the messages with: '
                 'install protobuf-compiler (Debian) or grpcio-tools (pip)')
    compiler = [protoc] if protoc else [sys.executable, '-m', 'grpc_tools.protoc']
    subprocess.run([*compiler, '-I', PROTO, '--python_out', folder, '--pyi_out', folder, *FILES],
                   check=True)


def needed_protobuf(folder):
    """Version of the least runtime that the generated code works with."""
    with open(os.path.join(folder, 'embag', 'v1', 'embedding_bag_pb2.py'),
              encoding='utf-8') as file:
        told = re.search(r'^# Protobuf Python Version: ([\d.]+)', file.read(), re.M)
    return told.group(1) if told else OLDEST_PROTOBUF


# Nothing is built in the checkout, since leftovers of an earlier build would be installed too.
with tempfile.TemporaryDirectory() as work:
    messages, egg_base = os.path.join(work, 'messages'), os.path.join(work, 'egg')
    os.mkdir(messages)
    os.mkdir(egg_base)
    generate(messages)

    class BuildWithMessages(build_py):
        """The package's own modules and the generated ones."""

        def run(self):
            """Puts all of them together."""
            super().run()
            self.copy_tree(messages, self.build_lib)

    setup(cmdclass={'build_py': BuildWithMessages},
          options={'build': {'build_base': os.path.join(work, 'build')},
                   'egg_info': {'egg_base': egg_base}},
          install_requires=['grpcio>=1.51', 'numpy>=1.24',
                            'protobuf>=' + needed_protobuf(messages)])
