"""TorchRec's DLRM with the tables in a server."""

import unittest

import numpy as np

try:
    import torch
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
    from torchrec.models.dlrm import DLRM
except ImportError as error:
    raise unittest.SkipTest('TorchRec cannot be imported: %s' % error) from error

import embag.torch
from served import SEED, scaled
from torch_models import ModuleTest

FEATURES = ['f%d' % n for n in range(26)]
ROWS, COLUMNS, DENSE = 100, 16, 13


def random_batch(rng, bags, longest):
    """Returns dense features and bags of ids."""
    lengths = rng.integers(0, longest + 1, len(FEATURES) * bags)
    return (torch.from_numpy(rng.normal(size=(bags, DENSE)).astype('f4')),
            KeyedJaggedTensor(keys=FEATURES, lengths=torch.from_numpy(lengths),
                              values=torch.from_numpy(rng.integers(0, ROWS, lengths.sum()))))


def trained_model(rng):
    """Returns a DLRM after some steps of training."""
    model = DLRM(
        EmbeddingBagCollection([EmbeddingBagConfig(
            name='t_' + name, embedding_dim=COLUMNS, num_embeddings=ROWS, feature_names=[name])
            for name in FEATURES]),
        dense_in_features=DENSE, dense_arch_layer_sizes=[32, COLUMNS],
        over_arch_layer_sizes=[32, 1])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            model(*random_batch(rng, 64, 3)), torch.from_numpy(rng.integers(0, 2, (64, 1)) * 1.0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


class Dlrm(ModuleTest):
    """Predictions of a trained model."""

    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng(SEED)
        torch.manual_seed(SEED)
        self.model = trained_model(self.rng)
        self.trained = self.model.sparse_arch.embedding_bag_collection
        self.address = self.serve_modules(dlrm=self.model)
        self.remote = embag.torch.RemoteEmbeddingBagCollection.from_module(
            self.trained, self.address)

    def predict(self, collection, dense, sparse):
        """Returns the predictions with the embeddings of a collection."""
        self.model.sparse_arch.embedding_bag_collection = collection
        with torch.no_grad():
            return self.model(dense, sparse)

    def slack(self, dense, sparse):
        """Returns by how much each prediction may change if each embedding changes by twice the
        bound of `compare`, to first order, and the rounding of the layers above."""
        self.model.sparse_arch.embedding_bag_collection = self.trained
        pooled = self.trained(sparse).values().detach().requires_grad_()
        deep = self.model.dense_arch(dense)
        crossed = self.model.inter_arch(deep, pooled.reshape(len(dense), len(FEATURES), COLUMNS))
        logits = self.model.over_arch(crossed)
        slopes = torch.autograd.grad(logits.sum(), pooled)[0].abs()
        n = int(sparse.lengths().max())
        eps = torch.finfo(torch.float32).eps / 2
        weights = [table.weight.abs() for table in self.trained.embedding_bags.values()]
        terms = torch.cat([torch.nn.functional.embedding_bag(
            sparse[name].values(), weight, sparse[name].offsets(), mode='sum',
            include_last_offset=True) for name, weight in zip(FEATURES, weights)], 1)
        bounds = (n + 4) * eps * terms + eps * pooled.abs()
        return (2 * slopes * bounds).sum(1, keepdim=True) + 512 * eps * (1 + logits.abs())

    def test_predictions_are_within_the_bound(self):
        for _ in range(scaled(200)):
            batch = random_batch(self.rng, int(self.rng.integers(1, 20)), 4)
            got, want = (self.predict(each, *batch) for each in (self.remote, self.trained))
            self.assertTrue(bool(((got - want).abs() <= self.slack(*batch)).all()))

    def test_predictions_of_single_ids_are_equal(self):
        for _ in range(scaled(50)):
            batch = random_batch(self.rng, 16, 1)
            self.assertTrue(torch.equal(self.predict(self.remote, *batch),
                                        self.predict(self.trained, *batch)))

    def test_a_model_that_is_built_with_the_remote_collection(self):
        model = DLRM(self.remote, dense_in_features=DENSE,
                     dense_arch_layer_sizes=[32, COLUMNS], over_arch_layer_sizes=[32, 1])
        rest = {name: value for name, value in self.model.state_dict().items()
                if 'embedding_bags' not in name}
        self.assertEqual(set(model.state_dict()), set(rest))
        model.load_state_dict(rest)
        batch = random_batch(self.rng, 8, 1)
        with torch.no_grad():
            self.assertTrue(torch.equal(model.eval()(*batch), self.predict(self.trained, *batch)))

    def test_compare_takes_the_whole_model(self):
        compared = embag.torch.compare(self.model, self.address, random_batch(self.rng, 50, 4)[1])
        self.assertTrue(compared.holds, compared)
        self.assertEqual(compared.elements, 50 * len(FEATURES) * COLUMNS)
        self.assertIn(compared.feature, FEATURES)
