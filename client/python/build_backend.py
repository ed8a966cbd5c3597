"""Build backend for pip: setuptools, plus grpcio-tools if this machine has no protoc."""

import shutil

from setuptools.build_meta import *  # noqa: F403


def get_requires_for_build_wheel(config_settings=None):
    """Returns the packages that the build needs in addition to those in pyproject.toml."""
    return [] if shutil.which('protoc') else ['grpcio-tools']
