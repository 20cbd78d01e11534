"""`fit` against Adam written again in NumPy and against PyTorch's, and its masks."""

import inspect
import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gloam._tools import devices
from gloam.discounts import MLP
from gloam.discounts.training import Trained, fit

LEARNING_RATE = 1e-3
OPTIMIZER = optax.adam(LEARNING_RATE)


def forward(network, inputs):
    return jax.vmap(network)(inputs)


@partial(jax.jit, static_argnames=("batch_size", "epochs"))
def fitted(trained, inputs, targets, real, cutoff, key, *, batch_size, epochs):
    # One program serves every cutoff, so that here it is traced, no float. Where the run checks
    # types, `unwrap` goes past that check.
    return inspect.unwrap(fit)(
        forward,
        OPTIMIZER,
        trained,
        inputs,
        targets,
        real,
        batch_size=batch_size,
        epochs=epochs,
        cutoff=cutoff,
        key=key,
    )


def fresh():
    network = MLP(3, (8, 8), key=jax.random.key(0))
    return Trained(network, OPTIMIZER.init(network))


def problem(size, seed=0):
    rng = np.random.default_rng(seed)
    inputs = rng.uniform(-1, 1, (size, 3)).astype(np.float32)
    targets = (np.sin(3 * inputs[:, 0]) + inputs[:, 1] * inputs[:, 2]).astype(np.float32)
    return inputs, targets


def order_of(key, epoch, real):
    """The documented shuffle: rows by their random ticket, those that are not real last."""
    tickets = np.asarray(jax.random.uniform(jax.random.fold_in(key, epoch), (len(real),)))
    order = np.argsort(np.where(real, tickets, 2.0), kind="stable")
    return order[: int(np.sum(real))]


class NumpyAdam:
    """Fully connected layers, their gradient and Adam (Kingma and Ba, algorithm 1) in float64."""

    def __init__(self, network):
        self.weights = [np.asarray(w, np.float64) for w in network.weights]
        self.biases = [np.asarray(b, np.float64) for b in network.biases]
        self.first = [np.zeros_like(p) for p in self.params]
        self.second = [np.zeros_like(p) for p in self.params]
        self.count = 0

    @property
    def params(self):
        return self.weights + self.biases

    def gradient(self, x, y):
        layers = [x]
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            layers.append(np.maximum(layers[-1] @ weight + bias, 0))
        error = (layers[-1] @ self.weights[-1] + self.biases[-1])[:, 0] - y
        back = 2 * error[:, None] / len(y)
        by_weight, by_bias = [], []
        for below, weight in zip(layers[::-1], self.weights[::-1], strict=True):
            by_weight.insert(0, below.T @ back)
            by_bias.insert(0, back.sum(axis=0))
            back = (back @ weight.T) * (below > 0)
        return np.mean(error**2), by_weight + by_bias

    def step(self, x, y):
        loss, gradient = self.gradient(x, y)
        self.count += 1
        for param, first, second, g in zip(
            self.params, self.first, self.second, gradient, strict=True
        ):
            first += 0.1 * (g - first)
            second += 0.001 * (g**2 - second)
            corrected = second / (1 - 0.999**self.count)
            param -= LEARNING_RATE * first / (1 - 0.9**self.count) / (np.sqrt(corrected) + 1e-8)
        return loss

    def fit(self, inputs, targets, real, *, batch_size, epochs, key):
        """Losses of the epochs, each the mean over its rows as they were trained on."""
        losses = []
        for epoch in range(epochs):
            order = order_of(key, epoch, real)
            parts = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
            total = sum(self.step(inputs[p], targets[p]) * len(p) for p in parts)
            losses.append(float(total / len(order)))
        return losses


def agrees_with_numpy(trained, reference):
    # float32 against float64 over up to 75 steps. A step is the ratio of two gradients' means,
    # so that an error of 1e-7 in a small gradient shows as some 1e-6 of a weight; one step left
    # out or taken twice would show as 1e-3.
    got = [*trained.params.weights, *trained.params.biases]
    memory = trained.optimizer[0]
    assert memory.count == reference.count
    for leaf, want in zip(got, reference.params, strict=True):
        np.testing.assert_allclose(leaf, want, rtol=1e-4, atol=2e-5)
    for mine, theirs in ((memory.mu, reference.first), (memory.nu, reference.second)):
        for leaf, want in zip([*mine.weights, *mine.biases], theirs, strict=True):
            np.testing.assert_allclose(leaf, want, rtol=2e-3, atol=2e-6)


def same(got, want, *, rtol=1e-5, atol=1e-6):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


def identical(got, want):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_array_equal(a, b)


# Against independent implementations


def test_fit_is_adam_written_again_in_numpy():
    trained = fresh()
    reference = NumpyAdam(trained.params)
    for call in range(3):
        inputs, targets = problem(40, seed=call)
        real = np.ones(40, bool)
        key = jax.random.key(100 + call)
        trained, loss, epochs = fitted(
            trained, inputs, targets, real, 0.0, key, batch_size=8, epochs=5
        )
        losses = reference.fit(inputs, targets, real, batch_size=8, epochs=5, key=key)
        assert epochs == 5
        np.testing.assert_allclose(loss, losses[-1], rtol=1e-4)
        agrees_with_numpy(trained, reference)


def test_a_gpus_loop_trains_as_a_cpus_does(monkeypatch):
    # Forty rows in minibatches of eight, of which the last two have no real row.
    inputs, targets = problem(40)
    real = np.arange(40) < 22
    arguments = fresh(), inputs, targets, real, 0.0, jax.random.key(3)
    want = fitted(*arguments, batch_size=8, epochs=3)
    monkeypatch.setattr(devices, "platform", lambda: "gpu")
    program = jax.jit(fitted.__wrapped__, static_argnames=("batch_size", "epochs"))
    got = program(*arguments, batch_size=8, epochs=3)
    assert got[0].optimizer[0].count == 9
    same(got, want)


def test_fit_is_adam_of_pytorch():
    with warnings.catch_warnings():
        # What importing PyTorch warns of is no concern of these tests.
        warnings.simplefilter("ignore")
        torch = pytest.importorskip("torch")

    trained = fresh()
    sizes = [(3, 8), (8, 8), (8, 1)]
    layers = [torch.nn.Linear(*size, dtype=torch.float64) for size in sizes]
    with torch.no_grad():
        for layer, weight, bias in zip(
            layers, trained.params.weights, trained.params.biases, strict=True
        ):
            layer.weight.copy_(torch.tensor(np.asarray(weight).T))
            layer.bias.copy_(torch.tensor(np.asarray(bias)))
    network = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1], torch.nn.ReLU(), layers[2])
    adam = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)

    for call in range(3):
        inputs, targets = problem(40, seed=call)
        real = np.arange(40) % 4 != 2  # 30 rows: minibatches of 8, 8, 8, 6 and none
        key = jax.random.key(call)
        trained, _, _ = fitted(trained, inputs, targets, real, 0.0, key, batch_size=8, epochs=5)
        for epoch in range(5):
            order = order_of(key, epoch, real)
            for part in (order[i : i + 8] for i in range(0, len(order), 8)):
                adam.zero_grad()
                output = network(torch.tensor(inputs[part], dtype=torch.float64))[:, 0]
                goal = torch.tensor(targets[part], dtype=torch.float64)
                torch.nn.functional.mse_loss(output, goal).backward()
                adam.step()

    for layer, weight, bias in zip(
        layers, trained.params.weights, trained.params.biases, strict=True
    ):
        # As for NumPy: float32 against float64 over 60 steps.
        np.testing.assert_allclose(weight, layer.weight.detach().T, rtol=1e-4, atol=2e-5)
        np.testing.assert_allclose(bias, layer.bias.detach(), rtol=1e-4, atol=2e-5)


# Masks


def with_garbage(inputs, targets, extra, seed=0):
    """The same rows among ``extra`` others of large finite garbage, and which rows are real."""
    size = len(targets)
    rng = np.random.default_rng(seed)
    real = np.zeros(size + extra, bool)
    real[rng.permutation(size + extra)[:size]] = True
    x = np.full((size + extra, 3), 1e6, np.float32)
    y = np.full(size + extra, -1e6, np.float32)
    x[real], y[real] = inputs, targets
    return x, y, real


def alone_and_among_garbage(rows):
    """The first ``rows`` of 21 rows fitted in one minibatch, and the same among 64 rows in two.

    The shuffle depends on the number of rows, but cannot matter to a single minibatch. Of the two,
    the first holds all real rows and the second is padding alone.
    """
    inputs, targets = problem(21)
    x, y, real = with_garbage(inputs[:rows], targets[:rows], 64 - rows)
    key = jax.random.key(1)
    options = {"batch_size": 32, "epochs": 5}
    alone = fitted(fresh(), inputs, targets, np.arange(21) < rows, 0.0, key, **options)
    return alone, fitted(fresh(), x, y, real, 0.0, key, **options)


def test_rows_that_are_not_real_change_nothing():
    alone, among_garbage = alone_and_among_garbage(21)
    # The sums run in another order.
    same(among_garbage, alone, rtol=1e-4, atol=1e-6)


def test_a_minibatch_of_padding_alone_is_no_step():
    # With one real row there is no sum whose order could differ: equal to the bit.
    alone, among_garbage = alone_and_among_garbage(1)
    assert among_garbage[0].optimizer[0].count == 5
    identical(among_garbage, alone)


@pytest.mark.parametrize("size", [21, 24, 5])
def test_minibatches_are_those_of_the_real_rows_alone(size):
    inputs, targets = problem(size)
    x, y, real = with_garbage(inputs, targets, 40 - size)
    trained = fresh()
    reference = NumpyAdam(trained.params)
    key = jax.random.key(2)
    trained, loss, _ = fitted(trained, x, y, real, 0.0, key, batch_size=8, epochs=5)
    losses = reference.fit(x, y, real, batch_size=8, epochs=5, key=key)
    assert reference.count == 5 * -(-size // 8)
    np.testing.assert_allclose(loss, losses[-1], rtol=1e-4)
    agrees_with_numpy(trained, reference)


def test_without_any_real_row_nothing_changes():
    inputs, targets = problem(40)
    options = {"batch_size": 8, "epochs": 5}
    key = jax.random.key(0)
    start, _, _ = fitted(fresh(), inputs, targets, np.ones(40, bool), 0.0, key, **options)
    got, _, epochs = fitted(start, inputs, targets, np.zeros(40, bool), 0.0, key, **options)
    assert epochs == 0
    identical(got, start)


def test_a_vmap_over_masks_is_a_call_for_each():
    inputs, targets = problem(40)
    rows = np.arange(40)
    # All rows; seven of them, so that most minibatches are padding; and none.
    masks = np.stack([rows < 40, rows % 6 == 1, rows < 0])
    start, keys = fresh(), jax.random.split(jax.random.key(4), 3)
    options = {"batch_size": 8, "epochs": 5}
    # The cutoff lets the masks stop after different numbers of epochs.
    singles = [
        fitted(start, inputs, targets, mask, 0.6, key, **options)
        for mask, key in zip(masks, keys, strict=True)
    ]
    together = jax.vmap(
        lambda mask, key: fitted(start, inputs, targets, mask, 0.6, key, **options)
    )(jnp.asarray(masks), keys)
    for i, single in enumerate(singles):
        # Batched products round differently.
        same(jax.tree.map(lambda leaf, i=i: leaf[i], together), single, rtol=1e-4, atol=1e-6)


# When to stop


def losses_by_epoch():
    inputs, targets = problem(40)
    reference = NumpyAdam(fresh().params)
    real = np.ones(40, bool)
    return reference.fit(inputs, targets, real, batch_size=8, epochs=5, key=jax.random.key(5))


def stopped(cutoff):
    inputs, targets = problem(40)
    _, loss, number = fitted(
        fresh(),
        inputs,
        targets,
        np.ones(40, bool),
        cutoff,
        jax.random.key(5),
        batch_size=8,
        epochs=5,
    )
    return float(loss), int(number)


@pytest.mark.parametrize("last", [1, 2, 3])
def test_training_stops_after_the_first_epoch_at_or_below_the_cutoff(last):
    losses = losses_by_epoch()
    assert losses[last - 1] > losses[last]
    loss, number = stopped((losses[last - 1] + losses[last]) / 2)
    assert number == last + 1
    # float32 against float64, as in `agrees_with_numpy`.
    np.testing.assert_allclose(loss, losses[last], rtol=1e-4)


def test_a_loss_equal_to_the_cutoff_is_low_enough():
    losses = losses_by_epoch()
    loss, number = stopped((losses[1] + losses[2]) / 2)
    assert number == 3
    assert stopped(loss) == (loss, 3)


def test_training_takes_one_epoch_at_least_and_the_given_number_at_most():
    assert stopped(1e6)[1] == 1
    assert stopped(0.0)[1] == 5


def test_every_epoch_and_every_key_shuffles_anew():
    real = np.ones(40, bool)
    orders = [tuple(order_of(jax.random.key(s), e, real)) for s in (0, 1) for e in (0, 1)]
    assert len(set(orders)) == 4
    inputs, targets = problem(40)
    # So high a cutoff that one epoch is enough.
    first, second = (
        fitted(fresh(), inputs, targets, real, 1e6, jax.random.key(s), batch_size=8, epochs=5)[0]
        for s in (0, 1)
    )
    assert not np.allclose(first.params.weights[0], second.params.weights[0], rtol=0, atol=1e-5)
