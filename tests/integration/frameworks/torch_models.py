"""Serves the embedding tables of torch's modules."""

import os

import numpy as np
import torch

import embag.torch
from embagd_process import Embagd
from served import OwnServerTest

# The cases are small, and other tests run at the same time.
torch.set_num_threads(1)


def write_module(repository, name, version, module, with_description=True):
    """Writes REPOSITORY/NAME/VERSION with the tables of a module's state_dict, and model.yaml with
    the description of the module."""
    directory = os.path.join(repository, name, str(version))
    os.makedirs(directory)
    for key, values in module.state_dict().items():
        np.save(os.path.join(directory, key + '.npy'), values.numpy())
    if with_description:
        with open(os.path.join(repository, name, 'model.yaml'), 'w', encoding='utf-8') as file:
            file.write(embag.torch.describe(module))


class ModuleTest(OwnServerTest):
    """A test that serves modules."""

    def serve_modules(self, *flags, **modules):
        """Starts a server with one model for each module. Returns its address."""
        for name, module in modules.items():
            write_module(self.repository.path, name, 1, module)
        server = Embagd(self.repository.path, *flags)
        self.addCleanup(server.stop)
        server.wait_ready()
        self.assertIsNone(server.find('model_failed'))
        return server.address
