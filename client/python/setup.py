"""Compiles the project's .proto files, which pyproject.toml cannot express.

In a checkout, writes a descriptor set and type stubs with protoc, or with grpcio-tools if there is
no protoc. A source distribution holds both, so that it installs without either.
"""

import glob
import importlib.util
import os
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
DESCRIPTORS = os.path.join('embag', 'v1', 'messages.binpb')


def compile_messages(folder):
    """Writes the descriptor set and the type stubs to FOLDER/embag/v1."""
    if not os.path.exists(os.path.join(PROTO, FILES[0])):
        sys.exit('setup.py: no .proto files in %s: install from a full checkout of embag, or from '
                 'its wheel or source distribution' % PROTO)
    protoc = shutil.which('protoc')
    if not protoc and not importlib.util.find_spec('grpc_tools'):
        sys.exit('setup.py: the .proto files cannot be compiled without protoc or grpcio-tools: '
                 'install protobuf-compiler (Debian) or grpcio-tools (pip)')
    compiler = [protoc] if protoc else [sys.executable, '-m', 'grpc_tools.protoc']
    os.makedirs(os.path.join(folder, os.path.dirname(DESCRIPTORS)))
    subprocess.run([*compiler, '-I', PROTO, '--pyi_out', folder, '--descriptor_set_out',
                    os.path.join(folder, DESCRIPTORS), *FILES], check=True)


def add_messages(folder, messages):
    """Copies what compile_messages made into a tree, instead of leftovers of the same name."""
    for path in glob.glob(os.path.join(messages, 'embag', 'v1', '*')):
        target = os.path.join(folder, os.path.relpath(path, messages))
        # The leftover may be a hard link to a file of the checkout.
        if os.path.exists(target):
            os.remove(target)
        shutil.copyfile(path, target)


# Only a source distribution has this file.
IS_DISTRIBUTION = os.path.exists(os.path.join(HERE, 'PKG-INFO'))

# Builds outside the checkout, because leftovers of an earlier build would be installed too.
with tempfile.TemporaryDirectory() as work:
    egg_base = os.path.join(work, 'egg')
    os.mkdir(egg_base)
    messages = os.path.join(work, 'messages')
    if not IS_DISTRIBUTION:
        compile_messages(messages)

    class BuildWithMessages(build_py):
        """Builds the package's own modules and adds the descriptor set and the stubs."""

        def run(self):
            """Copies both into the build folder."""
            super().run()
            if not IS_DISTRIBUTION:
                add_messages(self.build_lib, messages)

    class SdistWithMessages(sdist):
        """Makes a source distribution that holds the descriptor set and the stubs."""

        def make_release_tree(self, base_dir, files):
            """Adds both to the package's own files."""
            super().make_release_tree(base_dir, files)
            if not IS_DISTRIBUTION:
                add_messages(base_dir, messages)

    setup(cmdclass={'build_py': BuildWithMessages, 'sdist': SdistWithMessages},
          options={'build': {'build_base': os.path.join(work, 'build')},
                   'egg_info': {'egg_base': egg_base}})
