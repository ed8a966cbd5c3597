"""The server that most tests share, and base classes for tests.

The server is one process with every kind of table. It is checked at the end.
"""

import json
import os
import unittest

import numpy as np

from embagd_process import Embagd, Repository
from random_query import random_tables
from rpc import Client
from table_files import Table, write_model

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCE = os.path.dirname(TESTS)
SEED = int(os.environ.get('EMBAG_TEST_SEED') or np.random.SeedSequence().entropy % 2**32)
QUICK = False    # set by run.py: send fewer requests, for slow servers
BUILD = None     # set by run.py: the build folder, with libraries
EMBAG = None     # set by run.py: the command-line tool
ROUTED = False   # set by run.py: the shared server is a router, and its tables are in parts
ROUTED_PARTS = 3
SPEC_TABLE = [[-0.2, -0.6], [-0.1, -0.4], [-1.9, -1.8], [-1.0, 1.5], [0.8, -0.7]]

_shared = {}


def scaled(count):
    """Returns `count`, or a tenth of it (at least 1) if QUICK is set."""
    return max(count // 10, 1) if QUICK else count


def spec_cases():
    """Returns the specification's examples."""
    with open(os.path.join(TESTS, 'conformance', 'spec_examples.json'), encoding='utf-8') as file:
        return json.load(file)


def spec_table():
    """Returns the 5x2 table of all examples."""
    return Table.of_values('emb_table', 'f32', SPEC_TABLE)


def _wide_tables(rng):
    tables = [Table.of_values('wide', 'f32', rng.normal(size=(40, 4096))),
              Table.of_values('narrow', 'f32', rng.normal(size=(1000, 1))),
              Table.of_values('large', 'f32', rng.normal(size=(50000, 64)))]
    return tables + [Table.of_values('t%02d' % n, 'f32', rng.normal(size=(50 + 7 * n, 128)))
                     for n in range(26)]


def _start():
    rng = np.random.default_rng(SEED)
    repository = Repository()
    _shared['repository'] = repository
    every, wide = random_tables(rng), _wide_tables(rng)
    write_model(repository.path, 'every', 3, every)
    write_model(repository.path, 'packed', 12, every[::3], as_safetensors=True)
    write_model(repository.path, 'spec', 1, [spec_table()])
    write_model(repository.path, 'wide', 1, wide)
    _shared['tables'] = {
        'every': {t.name: t for t in every}, 'packed': {t.name: t for t in every[::3]},
        'spec': {'emb_table': spec_table()}, 'wide': {t.name: t for t in wide},
    }
    socket_path = repository.join('socket')
    _shared['unix'] = 'unix:' + socket_path
    if ROUTED:
        _start_routed({'every': 3, 'packed': 12, 'spec': 1, 'wide': 1})
    else:
        _shared['server'] = Embagd(
            repository.path, listen=('127.0.0.1:0', _shared['unix'])).wait_ready()


def _start_routed(versions):
    """Starts a router and part servers. The rows of all tables are divided."""
    # That module imports this one.
    from cluster import Cluster, wait_served  # pylint: disable=import-outside-toplevel
    cluster = Cluster(ROUTED_PARTS)
    cluster.source = _shared['repository'].path
    _shared['cluster'] = cluster
    for model, version in versions.items():
        tables = _shared['tables'][model]
        cluster.split(model, version, placement={name: 'placement: rows' for name in tables})
        for table in tables.values():
            table.is_divided = True
    cluster.start_parts()
    _shared['server'] = cluster.start_router(listen=('127.0.0.1:0', _shared['unix']))
    for model, version in versions.items():
        wait_served(cluster.connect(_shared['server']), version, model)


def shared(what='server'):
    """Returns the shared server, which it starts on the first call.

    `what` may also be 'tables' (by model and name) or 'unix' (the server's second address).
    """
    if not _shared:
        _start()
    return _shared[what]


def finish():
    """Stops the shared server. Returns whether there was one.

    Raises AssertionError if the server does not end cleanly.
    """
    try:
        if 'cluster' in _shared:
            _shared['cluster'].remove()
        elif 'server' in _shared:
            _shared['server'].stop()
        return 'server' in _shared
    finally:
        if 'repository' in _shared:
            _shared['repository'].remove()


class ServedTest(unittest.TestCase):
    """A test that calls the shared server, which must survive the test."""

    @classmethod
    def setUpClass(cls):
        cls.server = shared()
        cls.tables = shared('tables')

    def setUp(self):
        self.client = Client(self.server.address)
        self.addCleanup(self.client.close)

    def tearDown(self):
        self.assertFalse(self.server.has_ended(), self.server.log[-4000:])


class OwnServerTest(unittest.TestCase):
    """A test that starts its own servers, on a repository with the specification's table."""

    def setUp(self):
        self.repository = Repository()
        self.addCleanup(self.repository.remove)

    def serve(self, *flags, tables=None, **keywords):
        """Starts a server, which is stopped and checked at the end of the test."""
        if not os.path.exists(self.repository.join('spec', '1')):
            write_model(self.repository.path, 'spec', 1, tables or [spec_table()])
        server = Embagd(self.repository.path, *flags, **keywords)
        self.addCleanup(server.stop)
        return server.wait_ready()

    def connect(self, server):
        """Returns a client, which is closed at the end of the test."""
        client = Client(server.address)
        self.addCleanup(client.close)
        return client
