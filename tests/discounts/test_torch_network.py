"""Live modules of PyTorch: against converted ones and plain PyTorch, seeds, save and resume."""

import doctest
import inspect
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gloam
from gloam.discounts import DiscountModel, TorchNetwork, from_torch
from gloam.discounts.networks import torch_network
from gloam.discounts.networks.mlp import outputs
from gloam.discounts.training import Trained, fit
from tests.helpers import assert_same_bits

from .test_training import order_of

IMAGES = np.random.default_rng(0).random((40, 6, 5)).astype(np.float32)


@pytest.fixture(scope="module")
def torch():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what importing PyTorch warns of is no concern of ours
        return pytest.importorskip("torch", reason="PyTorch is not installed (pip install torch)")


def perceptron(torch, measures=30, seed=0):
    nn = torch.nn
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Linear(measures, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1)
        )


def dms(network, images=IMAGES):
    return gloam.DMS.paper(
        gloam.CVTArchive(images, 0, 1),
        np.full(6, 0.2),
        0.3,
        num_emitters=2,
        batch_size=8,
        num_init_points=30,
        num_empty_points=8,
        network=network,
        cutoff=0.0,
        max_epochs=2,
    )


def evaluate(solutions):
    waves = np.abs(np.sin(np.outer(np.arange(1, 31), np.arange(1, 7)) @ solutions.T).T)
    return waves.reshape(-1, 6, 5).astype(np.float32)


def told(search, iterations=3):
    for _ in range(iterations):
        search.tell(None, evaluate(search.ask()))
    return search


def arrays_of(tree):
    kept = [x for x in jax.tree.leaves(tree) if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key)]
    return [np.asarray(leaf) for leaf in kept]


# What it computes


def test_outputs_and_gradients_are_those_of_pytorch(torch):
    module = perceptron(torch)
    network = TorchNetwork(module)
    rows = np.random.default_rng(1).normal(size=(9, 30)).astype(np.float32)
    slopes = np.linspace(-1, 1, 9, dtype=np.float32)

    def weighted(network, rows):
        return jnp.sum(outputs(network, rows) * slopes)

    got, (by_weights, by_rows) = jax.jit(jax.value_and_grad(weighted, argnums=(0, 1)))(
        network, jnp.asarray(rows)
    )
    x = torch.tensor(rows, requires_grad=True)
    want = (module(x)[:, 0] * torch.tensor(slopes)).sum()
    want.backward()
    np.testing.assert_allclose(got, want.item(), rtol=1e-5)
    np.testing.assert_allclose(by_rows, x.grad, rtol=1e-5, atol=1e-6)
    for name, parameter in module.named_parameters():
        np.testing.assert_allclose(by_weights.weights[name], parameter.grad, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(network(jnp.asarray(rows[0])), module(x)[0, 0].item(), rtol=1e-5)


def test_the_search_is_that_of_the_converted_module(torch):
    module = perceptron(torch)
    live = told(gloam.Search(dms(TorchNetwork(module, fresh=False)), seed=3))
    converted = told(gloam.Search(dms(from_torch(module)), seed=3))
    for name in ("loss", "epochs", "qd_score", "coverage", "best_objective", "empty_discount"):
        # Sums of float32 in another order, over 3 fits of 2 epochs.
        np.testing.assert_allclose(
            live.metrics[name], converted.metrics[name], rtol=1e-4, atol=1e-6
        )
    np.testing.assert_array_equal(live.ask(), converted.ask())
    trained = live.state.discount.params.weights["0.weight"]
    np.testing.assert_allclose(
        trained, converted.state.discount.params.layers[0].weight, rtol=1e-3, atol=1e-5
    )
    assert np.abs(trained - module[0].weight.detach().numpy()).max() > 1e-3


def test_training_is_that_of_plain_pytorch(torch):
    module = perceptron(torch, 3)
    network = TorchNetwork(module)
    optimizer = optax.adam(1e-3)
    rng = np.random.default_rng(2)
    inputs = rng.uniform(-1, 1, (40, 3)).astype(np.float32)
    targets = np.sin(3 * inputs.sum(axis=1)).astype(np.float32)
    real = np.arange(40) % 4 != 2  # 30 rows: minibatches of 8, 8, 8, 6 and none
    trained, adam = Trained(network, optimizer.init(network)), torch.optim.Adam(module.parameters())

    @jax.jit
    def fitted(trained, key):
        return fit(
            outputs,
            optimizer,
            trained,
            jnp.asarray(inputs),
            jnp.asarray(targets),
            jnp.asarray(real),
            batch_size=8,
            epochs=1,
            cutoff=0.0,
            key=key,
        )

    for epoch in range(6):
        key = jax.random.key(epoch)
        trained, loss, _ = fitted(trained, key)
        total = 0.0
        order = order_of(key, 0, real)
        for part in (order[i : i + 8] for i in range(0, len(order), 8)):
            adam.zero_grad()
            error = module(torch.tensor(inputs[part]))[:, 0] - torch.tensor(targets[part])
            mean = error.square().mean()
            mean.backward()
            adam.step()
            total += mean.item() * len(part)
        np.testing.assert_allclose(loss, total / len(order), rtol=1e-4)
    for name, parameter in module.named_parameters():
        got = trained.params.weights[name]
        np.testing.assert_allclose(got, parameter.detach(), rtol=1e-3, atol=1e-5)


def test_any_module_will_do(torch):
    nn = torch.nn

    class Strange(nn.Module):
        """Takes images, ties weights, has a frozen part and a buffer, changes its input."""

        def __init__(self):
            super().__init__()
            self.scan = nn.GRU(5, 4, batch_first=True)
            self.norm = nn.BatchNorm1d(4)
            self.out = nn.Linear(4, 4)
            self.again = self.out
            self.fixed = nn.Parameter(torch.ones(4), requires_grad=False)
            self.drop = nn.Dropout(0.5)

        def forward(self, images):
            assert images.shape[1:] == (6, 5)
            x = self.scan(images.mul_(0.5))[0][:, -1]
            return self.drop(self.again(self.out(self.norm(x))) * self.fixed).sum(dim=1)

    module = Strange()
    module.norm.running_mean += 0.3
    assert module.training
    network = TorchNetwork(module)
    assert not any("again" in name or "fixed" in name for name in network.weights)
    search = told(gloam.Search(dms(network), seed=1))
    before, after = network.weights, search.state.discount.params.weights
    assert all(not np.array_equal(before[name], after[name]) for name in before)
    # The user's module is as it was.
    assert module.training
    images = torch.tensor(IMAGES)
    module.eval()
    np.testing.assert_allclose(
        outputs(network, jnp.asarray(IMAGES)), module(images.clone()).detach(), rtol=1e-4, atol=1e-5
    )


def test_a_convolution_takes_flat_rows_by_unflatten(torch):
    nn = torch.nn
    module = nn.Sequential(
        nn.Unflatten(1, (1, 6, 5)), nn.Conv2d(1, 3, 3), nn.Flatten(), nn.Linear(36, 1)
    )
    algorithm = dms(TorchNetwork(module))
    assert algorithm.discount.row_shape == ()
    assert told(gloam.Search(algorithm), 1).metrics["epochs"] == 2


# Seeds


def test_every_seed_has_its_own_weights_and_always_the_same(torch):
    network = TorchNetwork(perceptron(torch))
    torch.manual_seed(11)
    state = torch.random.get_rng_state()
    first, second, again = (network.reinitialized(key=jax.random.key(seed)) for seed in (0, 1, 0))
    gloam.Search(dms(network), seed=4)
    assert torch.equal(torch.random.get_rng_state(), state)  # the user's own numbers
    assert_same_bits(first, again)
    for name, leaf in first.weights.items():
        assert not np.isin(leaf, second.weights[name]).any()
        limit = network.weights[name.replace("bias", "weight")].shape[1] ** -0.5
        assert np.abs(leaf).max() <= limit


def test_weights_are_kept_where_asked_or_where_layers_cannot_draw(torch):
    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = perceptron(torch)
            self.scale = torch.nn.Parameter(torch.ones(()))

        def forward(self, x):
            return self.scale * self.head(x)

    for network in (TorchNetwork(perceptron(torch), fresh=False), TorchNetwork(Own())):
        assert_same_bits(network.reinitialized(key=jax.random.key(3)), network)


# Save and resume


@pytest.mark.slow
def test_a_saved_search_goes_on_to_the_same_bits(torch, tmp_path):
    module = perceptron(torch)
    whole = told(gloam.Search(dms(TorchNetwork(module)), seed=2), 4)
    half = told(gloam.Search(dms(TorchNetwork(module)), seed=2), 2)
    half.save(tmp_path / "search.npz")
    with pytest.raises(gloam.ForeignError, match="TorchNetwork, which is not part of gloam"):
        gloam.Search.load(tmp_path / "search.npz")
    loaded = gloam.Search.load(tmp_path / "search.npz", dms(TorchNetwork(module)))
    assert_same_bits(told(loaded, 2).state, whole.state)


@pytest.mark.slow
def test_a_run_is_resumed_to_the_same_bits(torch, tmp_path):
    module = perceptron(torch)
    options = {"seeds": [2], "progress": False}
    whole = gloam.optimize(evaluate, dms(TorchNetwork(module)), 4, **options)
    gloam.optimize(evaluate, dms(TorchNetwork(module)), 2, run_dir=tmp_path, **options)
    resumed = gloam.optimize(
        evaluate, dms(TorchNetwork(module)), 4, run_dir=tmp_path, resume=True, **options
    )
    assert_same_bits(resumed.elites.store, whole.elites.store)


# What is refused


def test_the_fused_driver_refuses_it(torch):
    algorithm = dms(
        gloam.discounts.Frozen(jnp.ravel, TorchNetwork(perceptron(torch)), measure_shape=30)
    )
    message = r"network: expected one that JAX computes, got a TorchNetwork.*from_torch.*optimize"
    with pytest.raises(ValueError, match=message):
        gloam.run(lambda x: x[:, :30], algorithm, iterations=1, progress=False)
    # In Python it may be a head, too.
    assert told(gloam.Search(algorithm), 1).metrics["epochs"] == 2


def test_what_cannot_serve_is_refused_before_the_search(torch):
    nn = torch.nn

    class Through(nn.Module):
        def __init__(self, function):
            super().__init__()
            self.linear, self.function = nn.Linear(30, 1), function
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x):
            return self.function(self, self.linear(x))

    def counting(self, y):
        self.seen += 1
        return y

    frozen = perceptron(torch).requires_grad_(False)
    for build, message in [
        (lambda: TorchNetwork(nn.ReLU), "module: expected a torch.nn.Module, got type"),
        (lambda: TorchNetwork(nn.LazyLinear(3)), "expected parameters that have a shape, got some"),
        (lambda: TorchNetwork(nn.ReLU()), "expected parameters that require a gradient, got none"),
        (lambda: TorchNetwork(frozen), "expected parameters that require a gradient, got none"),
        (lambda: TorchNetwork(perceptron(torch), threads=0), "threads: expected a whole number"),
        (lambda: dms(TorchNetwork(nn.Linear(30, 2))), r"one number .*got shape \(3, 2\)"),
        (lambda: dms(TorchNetwork(nn.Linear(29, 1))), "mat1 and mat2 shapes"),
        (lambda: dms(TorchNetwork(Through(counting))), "the same output each time, without state"),
        (lambda: dms(TorchNetwork(Through(lambda s, y: y + torch.rand(())))), "may be random"),
        (lambda: dms(TorchNetwork(Through(lambda s, y: y - y.mean()))), "may not mix"),
        (lambda: dms(TorchNetwork(Through(lambda s, y: y.detach()))), "depend on trained"),
    ]:
        with (
            warnings.catch_warnings(action="ignore"),  # lazy layers are experimental, says PyTorch
            pytest.raises(ValueError, match=f"(?s){message}"),
        ):
            build()


def test_without_pytorch_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"TorchNetwork: expected PyTorch .*pip install torch"):
        TorchNetwork(None)


# Sizes of real problems


def test_large_networks_and_batches_do_not_hang(torch):
    network = TorchNetwork(perceptron(torch, 784))
    model = DiscountModel(jnp.zeros(784), jnp.ones(784), network=network, cutoff=0.0)
    centers = jnp.asarray(np.random.default_rng(0).random((2000, 784)), jnp.float32)
    init = jax.jit(lambda key: model.init(centers, jnp.ones(2000, bool), key=key))
    state = init(jax.random.key(0))
    assert np.abs(model.discount(state, centers)).mean() < 0.05  # fitted to f_min, which is 0
    assert int(state.optimizer[0].count) == 5 * 63


@pytest.mark.parametrize("thing", [torch_network.TorchNetwork, from_torch])
def test_the_examples_run_where_pytorch_is(torch, thing):
    text = inspect.getdoc(thing).replace("# doctest: +SKIP", "")
    names = dict(vars(torch_network))
    names["from_torch"] = from_torch
    example = doctest.DocTestParser().get_doctest(text, names, thing.__name__, None, 0)
    assert len(example.examples) > 2
    assert doctest.DocTestRunner().run(example).failed == 0
