"""pyribs archives round-trip, and the discount model trains like pyribs' own."""

import warnings

import numpy as np
import optax
import pytest

import gloam
from tests.helpers import assert_same_bits, refused

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    archives = pytest.importorskip("ribs.archives", reason="needs gloam[ribs]")

from gloam.interop.ribs import DiscountModelManager, from_ribs, to_ribs

RANDOM = np.random.default_rng(0)
FIELDS = {"weight": ((), np.float64), "pair": ((2,), np.int64), "is_odd": ((), bool)}


def their_archive(kind, **settings):
    ranges = [(-1, 2), (0, 5)]
    if kind == "grid":
        theirs = archives.GridArchive(solution_dim=3, dims=(4, 7), ranges=ranges, **settings)
    else:
        points = RANDOM.uniform((-1, 0), (2, 5), (12, 2))
        theirs = archives.CVTArchive(solution_dim=3, centroids=points, ranges=ranges, **settings)
    number = 40
    theirs.add(
        RANDOM.normal(size=(number, 3)),
        RANDOM.uniform(-3, 5, number),
        RANDOM.uniform((-2, -1), (3, 6), (number, 2)),
        **(
            {
                "weight": RANDOM.normal(size=number),
                "pair": RANDOM.integers(-9, 9, (number, 2)),
                "is_odd": RANDOM.integers(0, 2, number).astype(bool),
            }
            if "extra_fields" in settings
            else {}
        ),
    )
    return theirs


@pytest.mark.parametrize("kind", ["grid", "cvt"])
def test_elites_of_pyribs_keep_their_cells_and_numbers(kind):
    theirs = their_archive(kind, extra_fields=FIELDS, qd_score_offset=-3.0)
    ours = from_ribs(theirs)
    data = theirs.data()
    order = np.argsort(data["index"])
    np.testing.assert_array_equal(ours.cells, data["index"][order])
    for name, found in (
        ("solution", ours.solutions),
        ("objective", ours.objectives),
        ("measures", ours.measures),
        *((name, ours.field(name)) for name in FIELDS),
    ):
        np.testing.assert_array_equal(found, data[name][order].astype(found.dtype))
    assert ours.qd_score == pytest.approx(theirs.stats.qd_score, rel=1e-5)
    assert ours.coverage == pytest.approx(theirs.stats.coverage)
    np.testing.assert_allclose(ours.archive.lower, theirs.lower_bounds)


@pytest.mark.parametrize("kind", ["grid", "cvt"])
def test_there_and_back_changes_no_bit(kind):
    ours = from_ribs(their_archive(kind, extra_fields=FIELDS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of borders
        theirs = to_ribs(ours)
    back = from_ribs(theirs)
    assert_same_bits(back, ours)
    assert back.archive.fields == ours.archive.fields


def test_an_archive_of_a_search_goes_to_pyribs():
    archive = gloam.GridArchive((5, 5), -2, 2, f_min=-1.0)
    search = gloam.Search(gloam.MAPElites(archive, np.zeros(3), 0.8, batch_size=30))
    x = search.ask()
    search.tell(-np.square(x).mean(axis=1), x[:, :2])
    theirs = to_ribs(search.elites(), seed=3)
    assert theirs.stats.qd_score == pytest.approx(search.elites().qd_score, rel=1e-5)
    assert theirs.stats.num_elites == len(search.elites())
    assert len(to_ribs(gloam.Search(search.algorithm).elites())) == 0


def test_an_elite_on_a_border_is_told_of():
    archive = gloam.GridArchive((2,), 0, 2)
    just_below = np.float32(1.0) - np.finfo(np.float32).eps
    elites = gloam.interop.elites_from_arrays(archive, [[1.0]], [1.0], [[just_below]])
    assert elites.cells.tolist() == [0]
    with pytest.warns(UserWarning, match="1 of 1 elites lie on a border"):
        to_ribs(elites)


def test_what_cannot_be_converted_is_refused():
    with refused("archive: expected a GridArchive or a CVTArchive of pyribs"):
        from_ribs(gloam.GridArchive((2,), 0, 1))
    cosine = gloam.CVTArchive(np.eye(2), metric="cosine")
    elites = gloam.interop.elites_from_arrays(cosine, [[1.0]], [1.0], [[1.0, 0.0]], cells=[0])
    with refused("archive: expected a GridArchive or a CVTArchive with the Euclidean metric"):
        to_ribs(elites)
    theirs = archives.GridArchive(
        solution_dim=1, dims=(2,), ranges=[(0, 1)], extra_fields={"name": ((), object)}
    )
    with refused("field 'name': expected numbers"):
        from_ribs(theirs)


# The discount model

SETTINGS = {"train_epochs": 4, "train_cutoff_loss": 0.0, "train_batch_size": 64}


@pytest.fixture(scope="module")
def torch():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("torch", reason="pyribs' manager needs PyTorch")


def managers(torch, optimizer, **settings):
    """pyribs' manager and ours, with networks of the same weights."""
    from ribs.discount_models import MLP
    from ribs.discount_models import DiscountModelManager as Theirs

    for kind in (Theirs, DiscountModelManager):
        torch.manual_seed(1)
        network = MLP([(2, 16), (16, 8, False), (8, 1)], torch.nn.ReLU)
        yield kind(network, optimizer(network.parameters()), torch.device("cpu"), **settings)


def data(number=50):
    rows = np.random.default_rng(1).uniform((-2, 0), (1, 9), (number, 2))
    return rows, np.sin(rows.sum(axis=1)) - 3


@pytest.mark.parametrize(
    "name",
    [
        "Adam",
        "SGD",
        pytest.param("AdamW", marks=pytest.mark.slow),
        pytest.param("momentum", marks=pytest.mark.slow),
    ],
)
def test_training_is_that_of_pyribs(torch, name):
    """One minibatch has all rows, so that their order does not count."""
    optimizer = {
        "Adam": lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.8, 0.95), eps=1e-6),
        "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
        "SGD": lambda p: torch.optim.SGD(p, lr=0.01),
        "momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.7, nesterov=True),
    }[name]
    normalized = {
        "normalize_measures": "negative_one_one",
        "measures_low": [-2, 0],
        "measures_high": [1, 9],
        "normalize_discount": "zero_one",
        "discount_low": -4.0,
        "discount_high": -2.0,
    }
    theirs, ours = managers(torch, optimizer, **SETTINGS, **normalized)
    rows, targets = data()
    np.testing.assert_allclose(ours.inference(rows), theirs.inference(rows), rtol=1e-5)
    for _ in range(2):  # the memory of the optimiser goes on
        np.testing.assert_allclose(
            ours.training_loop(rows, targets), theirs.training_loop(rows, targets), rtol=1e-4
        )
    np.testing.assert_allclose(ours.inference(rows), theirs.inference(rows), rtol=1e-4)
    for one, other in zip(ours.model.parameters(), theirs.model.parameters(), strict=True):
        np.testing.assert_allclose(one.detach(), other.detach(), rtol=1e-3, atol=1e-5)


def test_minibatches_learn_as_well_and_end_at_the_cutoff(torch):
    settings = SETTINGS | {"train_batch_size": 8, "train_epochs": 60, "train_cutoff_loss": 0.5}
    theirs, ours = managers(torch, lambda p: torch.optim.Adam(p, lr=0.01), **settings)
    rows, targets = data()
    found, expected = ours.training_loop(rows, targets), theirs.training_loop(rows, targets)
    for losses in (found, expected):
        assert len(losses) < 60
        assert losses[-1] <= 0.5 < min(losses[:-1])
    assert abs(len(found) - len(expected)) <= 0.5 * len(expected)


def test_rows_that_fill_up_a_program_are_not_trained_on():
    rows, targets = data(130)
    settings = SETTINGS | {"train_epochs": 1, "train_batch_size": 256}
    # Without a step size the weights stay, so that all losses are those of the same network.
    ours = DiscountModelManager(gloam.discounts.MLP(2, (8,)), optax.sgd(0.0), **settings)
    errors = np.square(ours.inference(rows) - targets)
    for n in (1, 127, 128, 130):
        assert ours.training_loop(rows[:n], targets[:n]) == [pytest.approx(errors[:n].mean(), 1e-5)]


def trained(seed):
    """A manager of an Equinox network after a few epochs of small minibatches."""
    small = SETTINGS | {"train_batch_size": 8}
    network = gloam.discounts.MLP(2, (8,))
    ours = DiscountModelManager(network, optax.adam(0.1), seed=seed, **small)
    ours.training_loop(*data(70))
    return ours


@pytest.fixture(scope="module")
def manager():
    return trained(seed=1)


def test_inference_in_parts_is_inference(manager):
    rows, _ = data(70)
    whole = manager.inference(rows)
    assert whole.shape == (70,)
    assert whole.dtype == np.float32
    for size in (1, 33, 70, 200):
        np.testing.assert_allclose(manager.inference(rows, batch_size=size), whole, rtol=1e-5)
    np.testing.assert_allclose(whole, [manager.model(row) for row in rows], rtol=1e-5)
    assert manager.inference(np.zeros((0, 2))).shape == (0,)


def test_a_seed_gives_the_same_weights_and_another_does_not(manager):
    rows, _ = data(70)
    expected = manager.inference(rows).tobytes()
    assert trained(seed=1).inference(rows).tobytes() == expected
    assert trained(seed=2).inference(rows).tobytes() != expected


def test_it_serves_an_archive_and_a_scheduler_of_pyribs(torch):
    from ribs.emitters import EvolutionStrategyEmitter
    from ribs.schedulers import Scheduler

    _, manager = managers(torch, lambda p: torch.optim.Adam(p), **SETTINGS)
    result = archives.GridArchive(solution_dim=4, dims=(5, 5), ranges=[(-1, 1)] * 2)
    guide = archives.DiscountArchive(
        solution_dim=4,
        measure_dim=2,
        learning_rate=0.1,
        threshold_min=0.0,
        discount_model_manager=manager,
        result_archive=result,
        init_train_points=20,
        empty_points=5,
        seed=1,
    )
    guide.init_discount_model()
    settings = {"x0": np.zeros(4), "sigma0": 0.3, "batch_size": 8, "seed": 2}
    # Not CMA-ES, which Numba compiles for five seconds.
    emitter = EvolutionStrategyEmitter(guide, es="openai_es", **settings)
    scheduler = Scheduler(guide, [emitter], result_archive=result)
    for _ in range(3):
        x = scheduler.ask()
        scheduler.tell(1 - np.square(x).mean(axis=1), np.tanh(x[:, :2]))
        info = guide.train_discount_model()
        assert info["epochs"] == len(info["losses"]) >= 1
    assert result.stats.num_elites > 0


def test_normalization_by_hand():
    settings = SETTINGS | {"measures_low": [-2, -5], "measures_high": [3, 5]}
    points = [[-2.0, -5.0], [3.0, 5.0], [0.5, 0.0], [-4.5, 10.0]]
    for name, expected in (
        ("zero_one", [[0, 0], [1, 1], [0.5, 0.5], [-0.5, 1.5]]),
        ("negative_one_one", [[-1, -1], [1, 1], [0, 0], [-2, 2]]),
    ):
        ours = DiscountModelManager(
            gloam.discounts.MLP(2), optax.adam(0.1), normalize_measures=name, **settings
        )
        bounds = name, ours.measures_low, ours.measures_high
        np.testing.assert_allclose(ours._normalize(points, *bounds), expected, atol=1e-6)
        np.testing.assert_allclose(ours._unnormalize(expected, *bounds), points, atol=1e-6)


def test_wrong_arguments_are_refused(torch):
    network, rule = gloam.discounts.MLP(2), optax.adam(0.1)
    with refused("normalize_measures: measures_low and measures_high must be given as well."):
        DiscountModelManager(network, rule, normalize_measures="zero_one", **SETTINGS)
    with refused("normalize_discount: expected"):
        DiscountModelManager(network, rule, normalize_discount="z-score", **SETTINGS)
    with refused("model: expected a network"):
        DiscountModelManager("mlp", rule, **SETTINGS)
    with refused("optimizer: expected an optimiser"):
        DiscountModelManager(network, "adam", **SETTINGS)
    module = torch.nn.Sequential(torch.nn.Linear(2, 1))
    with refused("optimizer: expected torch.optim.Adam, AdamW or SGD, got RMSprop"):
        DiscountModelManager(module, torch.optim.RMSprop(module.parameters()), **SETTINGS)
    used = torch.optim.Adam(module.parameters())
    module(torch.zeros(1, 2)).sum().backward()
    used.step()
    with refused("optimizer: expected one without steps"):
        DiscountModelManager(module, used, **SETTINGS)
    ours = DiscountModelManager(network, rule, **SETTINGS)
    with refused("targets: expected shape (3,)"):
        ours.training_loop(np.zeros((3, 2)), np.zeros((3, 1)))
