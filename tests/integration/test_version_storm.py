"""A repository that changes at random while it is served. Every answer comes from one version, and
lookups fail only if their version does not exist."""

import collections
import os
import random
import shutil
import threading
import time
import unittest

import grpc
import numpy as np

import served
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import Embagd, Repository
from rpc import Client
from table_files import Table, write_model

ACTIONS = 300
VERSIONS = 20
MODELS = ('a', 'b', 'c')    # the last is created and removed
DESCRIPTIONS = (
    'versions: {keep: 1, keep_s: 0}\n', 'versions: {keep: 3, keep_s: 1, serve: 7}\n',
    'versions: {keep_s: 0, labels: [{name: x, version: 5}]}\n',
    'tables: [{name: t, storage: int8}]\nversions: {keep_s: 0}\n',
    'versions: {', 'tables: [{name: absent}]\n')


class Storm:
    """Actions of writers, valid and invalid."""

    def __init__(self, repository, rng):
        self.repository = repository
        self.rng = rng
        self.serial = 0

    def publish(self, model, version, is_broken=False, is_keyed=False):
        """Publishes a version whose elements are its number; replaces an existing one."""
        self.serial += 1
        hidden = write_model(self.repository.path, model, '.new%d' % self.serial,
                             [Table.of_values('t', 'f32', np.full((50, 4), version))])
        if is_keyed:
            np.save(os.path.join(hidden, 't.keys.npy'), np.arange(50, dtype='<i8'))
        if is_broken:
            os.truncate(os.path.join(hidden, 't.npy'), 150)
        path = self.repository.join(model, str(version))
        shutil.rmtree(path, ignore_errors=True)
        os.rename(hidden, path)

    def describe(self, model):
        """Writes another model.yaml."""
        os.makedirs(self.repository.join(model), exist_ok=True)
        hidden = self.repository.join(model, '.yaml')
        with open(hidden, 'w', encoding='utf-8') as file:
            file.write(self.rng.choice(DESCRIPTIONS))
        os.rename(hidden, self.repository.join(model, 'model.yaml'))

    def remove(self, model):
        """Removes a version other than the first, or the last model."""
        path = self.repository.join(model)
        later = [name for name in os.listdir(path) if name.isdigit() and name != '1'] \
            if os.path.isdir(path) else []
        if later:
            shutil.rmtree(os.path.join(path, self.rng.choice(later)))
        elif model == MODELS[-1]:
            shutil.rmtree(path, ignore_errors=True)

    def act(self):
        """Takes one of these actions at random."""
        model, version = self.rng.choice(MODELS), self.rng.randint(2, VERSIONS)
        kind = self.rng.choice(('publish',) * 4 + ('break', 'key', 'describe', 'remove', 'remove'))
        if kind == 'describe':
            self.describe(model)
        elif kind == 'remove':
            self.remove(model)
        else:
            self.publish(model, version, kind == 'break', kind == 'key')


class VersionStorm(unittest.TestCase):
    """Two clients call while the repository changes."""

    def test_every_answer_is_of_one_version(self):
        rng = random.Random(served.SEED)
        repository = Repository()
        self.addCleanup(repository.remove)
        storm = Storm(repository, rng)
        for model in MODELS:
            storm.publish(model, 1)
        server = Embagd(repository.path, '--watch-poll-ms', '300', '--pin-ttl-s', '1')
        self.addCleanup(server.stop)
        server.wait_ready()
        self.is_over, self.seen, self.wrong = False, collections.Counter(), []
        callers = [threading.Thread(target=self.call, args=(server.address, served.SEED + n))
                   for n in range(2)]
        for caller in callers:
            caller.start()
        try:
            for _ in range(served.scaled(ACTIONS)):
                storm.act()
                time.sleep(rng.choice((0, 0.01, 0.05)))
        finally:
            self.is_over = True
            for caller in callers:
                caller.join()
        self.assertEqual(self.wrong, [])
        self.assertGreater(self.seen['answered'], 0)
        self.assertFalse(server.has_ended())

    def call(self, address, seed):
        """Makes lookups of any version of any model until the test is over."""
        rng = random.Random(seed)
        with Client(address) as client:
            while not self.is_over:
                self.ask(client, rng.choice(MODELS), rng.choice((0, rng.randint(1, VERSIONS))))

    def ask(self, client, model, version):
        """Makes one lookup, whose results must agree with each other and with the version that they
        name."""
        queries = [pb.BagQuery(table='t', indices=[0, 3], offsets=[0, 1])] * 3
        try:
            answer = client.lookup(pb.LookupRequest(model=model, version=version, queries=queries))
        except grpc.RpcError as error:
            self.seen['refused'] += 1
            if error.code() != grpc.StatusCode.NOT_FOUND or (not version and model != MODELS[-1]):
                self.wrong.append((model, version, error.code(), error.details()))
            return
        self.seen['answered'] += 1
        values = {value for result in answer.results
                  for value in np.frombuffer(result.values, '<f4').tolist()}
        if values != {answer.version} or version not in (0, answer.version):
            self.wrong.append((model, version, answer.version, values))


if __name__ == '__main__':
    unittest.main()
