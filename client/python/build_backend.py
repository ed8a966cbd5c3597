"""Build backend for pip: setuptools, plus grpcio-tools if this machine has no protoc."""

import os
import shutil

from setuptools.build_meta import *  # noqa: F403


def get_requires_for_build_wheel(config_settings=None):
    """Returns the packages that the build needs in addition to those in pyproject.toml."""
    is_generated = os.path.exists(os.path.join('embag', 'v1', 'embedding_bag_pb2.py'))
    return [] if is_generated or shutil.which('protoc') else ['grpcio-tools']


get_requires_for_build_sdist = get_requires_for_build_wheel
