"""How pip builds the package: by setuptools, with grpcio-tools where this machine has no protoc."""

import shutil

from setuptools.build_meta import *  # noqa: F403


def get_requires_for_build_wheel(config_settings=None):
    """What pip installs to build with, beside what pyproject.toml names."""
    return [] if shutil.which('protoc') else ['grpcio-tools']
