"""Generates the messages from the project's .proto files, which pyproject.toml cannot express.

Uses protoc if it is on the PATH, and grpcio-tools otherwise.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = os.path.dirname(os.path.abspath(__file__))
PROTO = os.path.join(HERE, '..', '..', 'proto')
FILES = ('embag/v1/embedding_bag.proto', 'embag/v1/model_admin.proto')
# protoc before 5.26 does not note in its output which runtime the code needs.
OLDEST_PROTOBUF = '3.21'


def generate(folder):
    """Writes the generated modules and their type stubs to FOLDER/embag/v1."""
    if not os.path.exists(os.path.join(PROTO, FILES[0])):
        sys.exit('setup.py: no .proto files in %s: install from a full checkout of embag' % PROTO)
    protoc = shutil.which('protoc')
    if not protoc and not importlib.util.find_spec('grpc_tools'):
        sys.exit('setup.py: the messages cannot be generated without protoc or grpcio-tools: '
                 'install protobuf-compiler (Debian) or grpcio-tools (pip)')
    compiler = [protoc] if protoc else [sys.executable, '-m', 'grpc_tools.protoc']
    subprocess.run([*compiler, '-I', PROTO, '--python_out', folder, '--pyi_out', folder, *FILES],
                   check=True)


def needed_protobuf(folder):
    """Returns the oldest version of the protobuf runtime that the generated code works with."""
    with open(os.path.join(folder, 'embag', 'v1', 'embedding_bag_pb2.py'),
              encoding='utf-8') as file:
        told = re.search(r'^# Protobuf Python Version: ([\d.]+)', file.read(), re.M)
    return told.group(1) if told else OLDEST_PROTOBUF


# A source distribution holds the generated messages, so that installing it needs no protoc.
IS_DISTRIBUTION = os.path.exists(os.path.join(HERE, 'embag', 'v1', 'embedding_bag_pb2.py'))

# Builds outside the checkout, because leftovers of an earlier build would be installed too.
with tempfile.TemporaryDirectory() as work:
    egg_base = os.path.join(work, 'egg')
    os.mkdir(egg_base)
    messages = HERE
    if not IS_DISTRIBUTION:
        messages = os.path.join(work, 'messages')
        os.mkdir(messages)
        generate(messages)

    class BuildWithMessages(build_py):
        """Builds the package's own modules and adds the generated ones."""

        def run(self):
            """Copies both into the build folder."""
            super().run()
            if not IS_DISTRIBUTION:
                self.copy_tree(messages, self.build_lib)

    class SdistWithMessages(sdist):
        """Makes a source distribution that holds the generated messages."""

        def make_release_tree(self, base_dir, files):
            """Adds the messages to the package's own files."""
            super().make_release_tree(base_dir, files)
            if not IS_DISTRIBUTION:
                self.copy_tree(messages, base_dir)

    setup(cmdclass={'build_py': BuildWithMessages, 'sdist': SdistWithMessages},
          options={'build': {'build_base': os.path.join(work, 'build')},
                   'egg_info': {'egg_base': egg_base}},
          install_requires=['grpcio>=1.51', 'numpy>=1.24',
                            'protobuf>=' + needed_protobuf(messages)])
