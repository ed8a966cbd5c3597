"""The modules of embag.torch without TorchRec: plain tensors, copies, processes and threads."""

import concurrent.futures
import copy
import io
import os
import pickle
import subprocess
import sys
import unittest
import unittest.mock
import warnings

import grpc
import numpy as np
import torch
from torch import nn

import embag
import embag.torch
from embag import aio
from served import SEED, scaled
from torch_models import ModuleTest

ROWS = 50
GRPC = tuple(int(number) for number in grpc.__version__.split('.')[:2])
# The oldest version whose forks were tested. 1.51 hangs in some, or cannot connect after them.
FORK_GRPC_MIN = (1, 85)
# Prints the vectors of a pickled module and its input, in a separate process.
UNPICKLE = '''
import pickle, sys
module, bags = pickle.load(sys.stdin.buffer)
sys.stdout.buffer.write(pickle.dumps(module(bags).values().numpy()))
'''
# Forks after lookups, with the connection of an address and with that of a client; then looks up in
# workers of DataLoaders. The first argument is the address. gRPC can hang in a fork while other
# connections are being closed, so this is a process without others.
FORK = '''
import os, sys
import torch
import embag, embag.torch

class Lookups(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, number):
        return look_up(remote, [number, number + 1]), os.getpid()

def look_up(module, ids):
    bags = embag.torch.KeyedBags(['user'], torch.tensor(ids), torch.tensor([len(ids)]))
    return module(bags).values()[0]

remotes = [embag.torch.RemoteEmbeddingBagCollection(given, features=['user'])
           for given in (sys.argv[1], embag.Client(sys.argv[1]))]
for remote in remotes:
    loader = torch.utils.data.DataLoader(Lookups(), batch_size=2, num_workers=2, timeout=60,
                                         multiprocessing_context='fork')
    assert os.getpid() not in torch.cat([pids for _, pids in loader])
    want = look_up(remote, [4, 5])
    for _ in range(5):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                status = int(not torch.equal(look_up(remote, [4, 5]), want))
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert torch.equal(look_up(remote, [4, 5]), want)
    found = torch.cat([vectors for vectors, _ in loader])
    assert torch.equal(found, torch.stack([look_up(remote, [n, n + 1]) for n in range(8)]))
'''


class Model(nn.Module):
    """A model with torch's own embedding modules."""

    def __init__(self):
        super().__init__()
        self.user = nn.EmbeddingBag(ROWS, 8, mode='sum')
        self.items = nn.ModuleList([nn.EmbeddingBag(ROWS, 4, mode='mean', padding_idx=3),
                                    nn.EmbeddingBag(ROWS, 12, mode='max')])
        self.word = nn.Embedding(ROWS, 5)


def one_bag(ids):
    """Returns one bag of ids of one feature."""
    return embag.torch.KeyedBags(['user'], torch.tensor(ids), torch.tensor([len(ids)]))


def random_bags(rng, names, bags=4, factors=None):
    """Returns random bags of several features; some are empty."""
    sizes = torch.from_numpy(rng.integers(0, 4, (len(names), bags)))
    ids = torch.from_numpy(rng.integers(4, ROWS, int(sizes.sum())))
    if factors is not None:
        factors = torch.from_numpy(rng.normal(size=len(ids))).to(factors)
    return embag.torch.KeyedBags(names, ids, sizes, factors)


class PlainModel(ModuleTest):
    """A test whose server has the tables of a model with torch's own modules."""

    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng(SEED)
        torch.manual_seed(SEED)
        self.model = Model()
        self.address = self.serve_modules(plain=self.model)


class TorchModules(PlainModel):
    """Collections on plain tensors."""

    def setUp(self):
        super().setUp()
        self.remote = embag.torch.RemoteEmbeddingBagCollection(
            self.address, features={'user': 'user', 'item': 'items.0'})

    def look_up(self, module=None, ids=(1, 2, 3)):
        """Returns the vectors of one bag of users."""
        remote = embag.torch.RemoteEmbeddingBagCollection(self.address, features=['user'])
        return (module or remote)(one_bag(list(ids))).values()

    def pooled(self, ids):
        """Returns the sum of users' rows."""
        return self.model.user.weight.detach()[list(ids)].sum(0, keepdim=True)

    def bag_of(self, features, name, module):
        """Returns the vectors of one feature, by torch's module."""
        place = features.keys().index(name)
        ends = torch.cumsum(torch.cat([torch.zeros(1, dtype=torch.int64), features.lengths()]), 0)
        bags = features.stride()
        begins = ends[place * bags:(place + 1) * bags + 1]
        with torch.no_grad():
            return nn.functional.embedding_bag(
                features.values()[begins[0]:begins[-1]], module.weight, begins[:-1] - begins[0],
                mode=module.mode)

    def test_plain_tensors_in_and_out(self):
        for _ in range(scaled(300)):
            bags = random_bags(self.rng, ['item', 'user'])
            got = self.remote(bags)
            self.assertIsInstance(got, embag.torch.KeyedVectors)
            self.assertEqual((got.keys(), got.length_per_key()), (['user', 'item'], [8, 4]))
            torch.testing.assert_close(got['user'], self.bag_of(bags, 'user', self.model.user))
            torch.testing.assert_close(got['item'], self.bag_of(bags, 'item', self.model.items[0]))

    def test_weights_of_every_type(self):
        remote = embag.torch.RemoteEmbeddingBagCollection(
            self.address, features=['user'], is_weighted=True)
        for dtype in torch.float32, torch.bfloat16, torch.float16:
            bags = random_bags(self.rng, ['user'], factors=dtype)
            ends = torch.cumsum(bags.lengths(), 0)
            want = nn.functional.embedding_bag(
                bags.values(), self.model.user.weight.detach(),
                torch.cat([torch.zeros(1, dtype=torch.int64), ends[:-1]]), mode='sum',
                per_sample_weights=bags.weights_or_none().float())
            torch.testing.assert_close(remote(bags).values(), want)
        self.assertTrue(remote.is_weighted())

    def test_sequences(self):
        remote = embag.torch.RemoteEmbeddingCollection(self.address, features=['word'],
                                                       need_indices=True)
        for bags in 0, 4:
            given = random_bags(self.rng, ['word'], bags)
            got = remote(given)['word']
            self.assertTrue(torch.equal(got.values(), self.model.word(given.values())))
            self.assertTrue(torch.equal(got.lengths(), given.lengths()))
            self.assertTrue(torch.equal(got.weights_or_none(), given.values()))
            self.assertEqual(got.offsets().tolist(),
                             [0, *np.cumsum(given.lengths().numpy()).tolist()])
        self.assertEqual(remote.embedding_dim(), 5)
        self.assertEqual(remote.embedding_names_by_table(), [['word']])
        self.assertEqual(remote.embedding_configs()[0].num_embeddings, ROWS)

    def test_outputs_are_writable_and_nobody_elses(self):
        with warnings.catch_warnings():
            warnings.simplefilter('error')
            first, second = self.look_up(), self.look_up()
            first.zero_()
            torch.testing.assert_close(second, self.pooled([1, 2, 3]))
            self.assertFalse(first.any())
            third = self.look_up()
            third.requires_grad_().sum().backward()

    def test_large_outputs_share_the_memory_of_the_answer_and_small_ones_do_not(self):
        remote = embag.torch.RemoteEmbeddingBagCollection(self.address, features=['user'])
        for bags in 1, 2048, 2049:
            ids = torch.from_numpy(self.rng.integers(0, ROWS, bags))
            given = embag.torch.KeyedBags(['user'], ids, torch.ones(bags, dtype=torch.int64))
            answers, look_up = [], embag.Client.lookup

            def kept(*arguments, **fields):
                answers.append(look_up(*arguments, **fields))
                return answers[-1]
            with unittest.mock.patch('embag.Client.lookup', kept):
                got = remote(given).values()
            self.assertTrue(torch.equal(got, self.model.user.weight.detach()[ids]))
            got.fill_(7)
            # Rows of 8 float32: 2048 of them are the 64 KiB up to which outputs are copied.
            self.assertEqual(bool((answers[0].values == 7).all()), bags > 2048)

    def test_a_module_has_no_state(self):
        remote = self.remote.train().eval()
        self.assertEqual((list(remote.parameters()), list(remote.buffers())), ([], []))
        self.assertEqual(remote.state_dict(), {})
        remote.load_state_dict({})
        self.assertEqual(remote.device, torch.device('cpu'))
        self.assertEqual(copy.deepcopy(remote).to('meta').device, torch.device('meta'))
        self.assertIn(self.address, repr(remote))
        self.assertFalse(self.look_up().requires_grad)

    def test_copies_share_the_connection(self):
        twin = copy.deepcopy(nn.Sequential(self.remote))[0]
        self.assertIsNot(twin, self.remote)
        self.assertIs(twin._connection.client, self.remote._connection.client)

    def test_a_pickled_module_connects_in_another_process(self):
        client = embag.Client(self.address, timeout=33)
        self.addCleanup(client.close)
        for given in self.address, client:
            remote = embag.torch.RemoteEmbeddingBagCollection(given, features=['user'])
            self.look_up(remote)
            output = self.run_program(UNPICKLE, input=pickle.dumps((remote, one_bag([7, 8]))))
            torch.testing.assert_close(torch.from_numpy(pickle.loads(output)),
                                       self.pooled([7, 8]))
            again = pickle.loads(pickle.dumps(remote))
            self.assertEqual(again._connection.client.timeout, 33 if given is client else 10)
            torch.testing.assert_close(self.look_up(again), self.pooled([1, 2, 3]))

    def test_torch_saves_a_model_with_a_remote_module(self):
        file = io.BytesIO()
        torch.save(nn.Sequential(self.remote), file)
        file.seek(0)
        options = {} if torch.__version__ < '2' else {'weights_only': False}
        loaded = torch.load(file, **options)[0]
        self.assertEqual(loaded(random_bags(self.rng, ['user', 'item'])).keys(), ['user', 'item'])

    def run_program(self, program, *arguments, **fields):
        """Runs a program in a process of its own. Returns its output."""
        done = subprocess.run(
            [sys.executable, '-c', program, *arguments], capture_output=True, timeout=120,
            check=False, env={**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)}, **fields)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return done.stdout

    @unittest.skipIf(GRPC < FORK_GRPC_MIN, 'gRPC %s fails in forked processes at times'
                     % grpc.__version__)
    def test_forked_processes_and_workers_connect_anew(self):
        self.run_program(FORK, self.address)

    def test_threads_share_a_module(self):
        def ask(first):
            return all(torch.allclose(self.look_up(remote, [n, n + 1]), self.pooled([n, n + 1]))
                       for n in range(first, first + 40))
        remote = embag.torch.RemoteEmbeddingBagCollection(self.address, features=['user'])
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            self.assertTrue(all(pool.map(ask, range(8))))

    def test_errors_of_the_server_pass_through(self):
        with self.assertRaises(embag.OutOfRange):
            self.look_up(ids=[ROWS])
        with self.assertRaises(embag.NotFound):
            embag.torch.RemoteEmbeddingBagCollection(self.address, features={'user': 'x'})(
                one_bag([1]))
        with self.assertRaises(embag.NotFound):
            embag.torch.RemoteEmbeddingBagCollection(self.address, features=['user'], version=9)(
                one_bag([1]))

    def test_lengths_that_do_not_fit(self):
        remote = embag.torch.RemoteEmbeddingCollection(self.address, features=['word'])
        for sizes, text in (([1, 2], 'add up to 3'), ([3, -1], 'a bag has -1 values')):
            with self.assertRaisesRegex(ValueError, text):
                remote(embag.torch.KeyedBags(['word'], torch.tensor([1, 2]), torch.tensor(sizes)))

    def test_arguments_that_do_not_fit(self):
        for fields in {}, {'features': []}, {'features': ['a', 'a']}:
            with self.assertRaises(ValueError):
                embag.torch.RemoteEmbeddingBagCollection(self.address, **fields)
        tables = [embag.torch.EmbeddingBagConfig('t', 4, 9)]
        self.assertEqual(embag.torch.RemoteEmbeddingBagCollection(
            self.address, tables)._collection.keys, ['t'])
        with self.assertRaisesRegex(ValueError, 'a list of features'):
            embag.torch.RemoteEmbeddingBagCollection(self.address, tables, features=['t'])
        with self.assertRaisesRegex(TypeError, "'user': expected a list"):
            embag.torch.RemoteEmbeddingBagCollection(self.address, features='user')
        with self.assertRaisesRegex(TypeError, "'user': expected a configuration.* features="):
            embag.torch.RemoteEmbeddingBagCollection(self.address, ['user'])
        for client in None, aio.Client:
            with self.assertRaisesRegex(TypeError, 'expected an embag.Client, or '):
                embag.torch.RemoteEmbeddingBagCollection(client, features=['user'])
        with self.assertRaisesRegex(ValueError, "unknown reduction 'avg': expected sum, mean, "):
            self.look_up(embag.torch.RemoteEmbeddingBagCollection(
                self.address, features=['user'], reduction='avg'))

    def test_a_key_that_the_input_lacks(self):
        with self.assertRaisesRegex(KeyError, "the input has no key 'item': its keys are user"):
            self.look_up(self.remote)

    def test_a_table_of_other_columns_is_refused_each_time(self):
        tables = [embag.torch.EmbeddingBagConfig('user', 6, ROWS)]
        remotes = (embag.torch.RemoteEmbeddingBagCollection(self.address, tables),
                   embag.torch.RemoteEmbeddingCollection(self.address, tables))
        for remote in remotes:
            for _ in range(2):
                with self.assertRaisesRegex(ValueError, 'embedding_dim 6, .* rows of 8'):
                    remote(one_bag([1]))

    @unittest.skipUnless(hasattr(torch, 'compiler') and hasattr(torch.compiler, 'disable'),
                         'torch %s has no torch.compiler.disable' % torch.__version__)
    def test_a_compiled_model_with_a_module_that_is_not_compiled(self):
        class Doubled(nn.Module):
            """Has a remote module."""

            def __init__(self, remote):
                super().__init__()
                self.remote = remote

            def forward(self, bags):
                """Returns twice the vectors."""
                return self.remote(bags).values() * 2
        remote = torch.compiler.disable(
            embag.torch.RemoteEmbeddingBagCollection(self.address, features=['user']))
        compiled = torch.compile(Doubled(remote), backend='eager')
        torch.testing.assert_close(compiled(one_bag([1, 2])), 2 * self.pooled([1, 2]))


class TorchEmbeddingBag(PlainModel):
    """RemoteEmbeddingBag in the place of nn.EmbeddingBag."""

    def remote_bag(self, module, name):
        """Returns the module that takes the place of `module`."""
        return embag.torch.RemoteEmbeddingBag.from_module(module, self.address, name)

    def test_results_are_those_of_nn_embedding_bag(self):
        modules = {'user': self.model.user, 'items.0': self.model.items[0],
                   'items.1': self.model.items[1]}
        remotes = {name: self.remote_bag(module, name) for name, module in modules.items()}
        for _ in range(scaled(600)):
            name = str(self.rng.choice(list(modules)))
            module, remote = modules[name], remotes[name]
            module.include_last_offset = remote.include_last_offset = bool(self.rng.random() < 0.5)
            lengths = self.rng.integers(0, 5, self.rng.integers(1, 6))
            ends = np.concatenate([[0], np.cumsum(lengths)])
            ids = torch.from_numpy(self.rng.integers(0, 8, lengths.sum()))
            weights = None
            if module.mode == 'sum' and self.rng.random() < 0.5:
                weights = torch.from_numpy(self.rng.normal(size=len(ids)).astype('f4'))
            offsets = torch.from_numpy(ends if module.include_last_offset else ends[:-1])
            with torch.no_grad():
                torch.testing.assert_close(remote(ids, offsets, weights),
                                           module(ids, offsets, weights))
                packed = torch.from_numpy(self.rng.integers(0, 8, (3, 4)))
                # Packed bags with include_last_offset corrupt the memory of old versions of torch.
                module.include_last_offset = False
                torch.testing.assert_close(remote(packed), module(packed))

    def test_inputs_that_do_not_fit(self):
        remote = self.remote_bag(self.model.user, 'user')
        for arguments in ((torch.tensor([1]),), (torch.tensor([[1]]), torch.tensor([0])),
                          (torch.tensor([[1]]), None, torch.ones(1))):
            with self.assertRaises(ValueError):
                remote(*arguments)
        with self.assertRaisesRegex(ValueError, 'max_norm 1'):
            self.remote_bag(nn.EmbeddingBag(2, 2, max_norm=1.0), 'user')

    def test_compare_of_torchs_own_modules(self):
        names = ['user', 'items.0', 'items.1', 'word']
        compared = embag.torch.compare(self.model, self.address,
                                       random_bags(self.rng, names, bags=9))
        self.assertTrue(compared.holds, compared)
        self.assertGreater(compared.elements, 9 * (8 + 4 + 12))
        with torch.no_grad():
            self.model.items[1].weight[5, 6] += 100
        bags = embag.torch.KeyedBags(['items.1'], torch.tensor([1, 5, 5, 6]),
                                     torch.tensor([1, 3]))
        compared = embag.torch.compare(self.model, self.address, bags)
        self.assertEqual((compared.holds, compared.feature, compared.bag, compared.element,
                          compared.exceeding), (False, 'items.1', 1, 6, 1))
        with self.assertRaises(embag.OutOfRange):
            embag.torch.compare(self.model, self.address, one_bag([ROWS]))
        self.model.user = nn.EmbeddingBag(4, 8, mode='sum')
        with self.assertRaisesRegex(IndexError, 'id 4 is outside the 4 rows of user.weight'):
            embag.torch.compare(self.model, self.address, one_bag([4]))
