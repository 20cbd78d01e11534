"""Answers for new items: laws, and the rule of the choice by brute force."""

from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gloam
from gloam.archives.store import filled_store
from gloam.runs.answers import is_closeness

pytestmark = pytest.mark.slow  # searches of its own are compiled

RANDOM = np.random.default_rng(0)
MATRIX = RANDOM.normal(size=(6, 4)).astype(np.float32)
NUM_ELITES, NUM_ITEMS = 60, 7


def measured(solutions):
    """Measures alone, which are linear."""
    return solutions @ MATRIX


def bent(solutions):
    """Measures alone, which are not."""
    return np.tanh(solutions @ MATRIX / 3) + 0.1 * solutions[:, :4] ** 2


def valued(solutions):
    """Objectives and measures."""
    return 1.0 - np.square(solutions).mean(axis=1), bent(solutions)


def elites_of(evaluate, archive=None, form=None, number=NUM_ELITES, **options):
    """The elites of random solutions, each in a cell of its own."""
    rng = np.random.default_rng(1)
    solutions = rng.normal(size=(number, 6)).astype(np.float32)
    results = evaluate(solutions)
    objectives, measures = results if isinstance(results, tuple) else (None, results)
    if archive is None:
        archive = gloam.CVTArchive(measures, index="exact", **options)
    cells = np.arange(number)
    if objectives is None:
        objectives = np.asarray(archive.closeness(jnp.asarray(measures), jnp.asarray(cells)))
    store = filled_store(archive, solutions, objectives, measures, cells, {})
    return gloam.Elites(archive, store, form=form)


@cache
def items(seed=2, number=NUM_ITEMS):
    solutions = np.random.default_rng(seed).normal(size=(number, 6)).astype(np.float32)
    return bent(solutions)


class Recorder:
    """An evaluation that remembers its solutions and results."""

    def __init__(self, evaluate):
        self.evaluate, self.solutions, self.results = evaluate, [], []

    def __call__(self, solutions):
        result = self.evaluate(solutions)
        self.solutions.append(np.array(solutions))
        self.results.append(result)
        return result

    @property
    def number(self):
        return sum(map(len, self.solutions))


def distances(points, others):
    steps = points[:, None].astype(np.float64) - others[None]
    return np.linalg.norm(steps, axis=2)


@given(st.sampled_from([0, 1, 7, 30]), st.integers(0, 3), st.sampled_from([bent, valued]))
def test_answers_are_never_farther_than_the_nearest_elite(evaluations, seed, evaluate):
    recorder, elites = Recorder(evaluate), elites_of(evaluate)
    result = gloam.answer(recorder, elites, items(), evaluations, seed=seed)
    assert recorder.number == evaluations == result.evaluations_per_seed
    nearest = distances(items(), elites.measures).min(axis=1)
    answered = np.linalg.norm(items() - result.elites.measures, axis=1)
    assert (answered <= nearest + 1e-5).all()
    first, last = result.metrics["mean_distance"].iloc[[0, -1]]
    np.testing.assert_allclose([first, last], [nearest.mean(), answered.mean()], rtol=1e-4)


@pytest.mark.parametrize("evaluate", [bent, valued])
def test_the_choice_is_that_of_brute_force(evaluate):
    recorder, elites = Recorder(evaluate), elites_of(evaluate)
    answers = gloam.answer(recorder, elites, items(), 70).elites
    has_objective = evaluate is valued
    parts = [result if has_objective else (None, result) for result in recorder.results]
    measures = np.concatenate([elites.measures, *(m for _, m in parts)])
    solutions = np.concatenate([elites.solutions, *recorder.solutions])
    far = distances(items(), measures)
    chosen = far.argmin(axis=1)
    if has_objective:
        objectives = np.concatenate([elites.objectives, *(f for f, _ in parts)])
        radius = far[:, : len(elites)].min(axis=1, keepdims=True) / 2
        inside = np.where(far <= radius, objectives, -np.inf)
        chosen = np.where(np.isfinite(inside).any(axis=1), inside.argmax(axis=1), chosen)
        np.testing.assert_allclose(answers.objectives, objectives[chosen], rtol=1e-6)
    else:
        closeness = 1 - np.square(far.min(axis=1)) / 4
        np.testing.assert_allclose(answers.objectives, closeness, atol=1e-5)
    np.testing.assert_array_equal(answers.solutions, solutions[chosen])
    assert (chosen >= len(elites)).any()


@pytest.mark.parametrize(("metric", "within"), [("euclidean", 0.2), ("cosine", 0.003)])
def test_within_a_distance_the_answer_is_the_best_and_beyond_it_there_is_none(metric, within):
    recorder = Recorder(valued)
    elites = elites_of(valued, metric=metric, within=within)
    answers = gloam.answer(recorder, elites, items(), NUM_ITEMS).elites
    objectives, measures = (np.concatenate(parts) for parts in zip(*recorder.results, strict=True))
    objectives = np.concatenate([elites.objectives, objectives])
    measures = np.concatenate([elites.measures, measures])
    if metric == "euclidean":
        far = distances(items(), measures)
    else:
        units = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (items(), measures)]
        far = 1 - units[0] @ units[1].T
    best = np.where(far <= within, objectives, -np.inf).max(axis=1)
    np.testing.assert_array_equal(answers.cells, np.flatnonzero(np.isfinite(best)))
    np.testing.assert_allclose(answers.objectives, best[np.isfinite(best)], rtol=1e-6)
    assert 0 < len(answers) < NUM_ITEMS


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("evaluate", [bent, valued])
def test_measures_of_elites_are_answered_exactly_without_evaluations(evaluate, metric):
    elites = elites_of(evaluate, metric=metric)
    known = elites.measures[[5, 50, 20]]
    result = gloam.answer(pytest.fail, elites, known, 0)
    np.testing.assert_array_equal(result.elites.solutions, elites.solutions[[5, 50, 20]])
    np.testing.assert_allclose(result.elites.objectives, elites.objectives[[5, 50, 20]], rtol=1e-5)
    assert result.evaluations_per_seed == 0
    # An exact answer with its objective stays, whatever is evaluated.
    later = gloam.answer(evaluate, elites, known, 21).elites
    assert (later.objectives >= elites.objectives[[5, 50, 20]] - 1e-5).all()


def test_linear_measures_are_met():
    goals = measured(np.random.default_rng(4).normal(size=(5, 6)).astype(np.float32))
    result = gloam.answer(measured, elites_of(measured), goals, 100)
    far = result.metrics["mean_distance"].to_numpy()
    assert (np.diff(far) <= 1e-6).all()
    assert far[-1] < 0.1 * far[0]
    assert len(far) == 1 + 10


def test_seeds_determine_answers():
    elites = elites_of(bent)
    one, same, other = (
        gloam.answer(bent, elites, items(), 14, seed=s).elites.solutions for s in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


def test_failed_and_infeasible_evaluations_are_masked():
    calls = []

    def failing(solutions):
        rows = np.arange(len(solutions))
        objectives, measures = valued(solutions)
        calls.append(len(solutions))
        measures[rows % 3 == 0] = np.nan
        return objectives + 100, measures, {"violation": (rows % 3 == 1) - 0.5}

    elites = elites_of(valued)
    result = gloam.answer(failing, elites, items(), 30)
    assert result.metrics["failed_total"].iloc[-1] == sum(-(-size // 3) for size in calls)
    assert np.isfinite(result.elites.measures).all()
    all_failed = gloam.answer(lambda x: (np.full(len(x), np.nan), x[:, :4]), elites, items(), 30)
    nearest = gloam.answer(pytest.fail, elites, items(), 0).elites
    np.testing.assert_array_equal(all_failed.elites.solutions, nearest.solutions)
    # Those that succeeded have objectives above 50, and those that did not never count.
    new = result.elites.objectives > 50
    rest = result.elites.solutions[~new]
    assert set(map(bytes, rest)) <= set(map(bytes, elites.solutions))


def test_images_and_datasets():
    shape = (2, 2)

    def images(solutions):
        return bent(solutions).reshape(-1, *shape)

    centroids = elites_of(bent).measures.reshape(-1, *shape)
    archive = gloam.CVTArchive(centroids, 0.0, 1.0, index="exact")
    elites = elites_of(bent, archive)
    data = gloam.datasets.Dataset(items().reshape(-1, *shape), labels=list("abcabca"))
    result = gloam.answer(images, elites, data, 20)
    matches = gloam.datasets.Matches(result.elites, data)
    assert result.elites.measures.shape == (NUM_ITEMS, *shape)
    np.testing.assert_allclose(matches.distances.mean(), result.metrics["mean_distance"].iloc[-1])
    # One item is enough for an array.
    single = gloam.answer(images, elites, items()[:1].reshape(1, 2, 2), 3)
    assert len(single.elites) == 1


def test_variables_and_their_bounds():
    space = gloam.Space(
        width=gloam.Real(-1, 1, shape=(3,)),
        number=gloam.Integer(0, 3),
        kind=gloam.Categorical(["a", "b"]),
        depth=gloam.Real(1, 9, log=True),
    )
    seen = []

    def of_values(values):
        seen.append(values)
        shifted = (
            values["width"] + (values["kind"] == "b")[:, None] + np.log(values["depth"])[:, None]
        )
        return np.concatenate([shifted, values["number"][:, None]], axis=1)

    vectors = space.vectors(
        {
            "width": RANDOM.uniform(-1, 1, (40, 3)),
            "number": RANDOM.integers(0, 4, 40),
            "kind": RANDOM.choice(["a", "b"], 40),
            "depth": RANDOM.uniform(1, 9, 40),
        }
    )
    measures = of_values(space.values(vectors)).astype(np.float32)
    archive = gloam.CVTArchive(measures, index="exact")
    store = filled_store(archive, vectors, np.ones(40), measures, np.arange(40), {})
    elites = gloam.Elites(archive, store, form=space)
    result = gloam.answer(of_values, elites, measures[:3] + 0.05, 30)
    for values in seen:
        assert (abs(values["width"]) <= 1).all()
        assert set(values["number"].tolist()) <= {0, 1, 2, 3}
        assert set(values["kind"].tolist()) <= {"a", "b"}
    assert set(result.elites.to_pandas()) >= {"width_0", "number", "kind", "depth"}


def test_run_folders_have_elites_of_all_seeds_and_bounds(tmp_path):
    archive = gloam.GridArchive((4, 4), -1, [1, 100])
    algorithm = gloam.MAPElites(archive, np.zeros(3), 0.2, bounds=(-0.5, 0.5), batch_size=20)

    def scaled(solutions):
        return solutions.sum(axis=1), solutions[:, :2] * [1, 100]

    gloam.optimize(scaled, algorithm, 2, seeds=2, progress=False, run_dir=tmp_path / "run")
    recorder = Recorder(scaled)
    goals = np.array([[0.6, 10.0], [0.1, 70.0]])
    result = gloam.answer(recorder, tmp_path / "run", goals, 20)
    assert max(abs(solutions).max() for solutions in recorder.solutions) <= 0.5
    # Distances are those of the grid: the second measure does not outweigh the first.
    folder = gloam.RunFolder(tmp_path / "run")
    every = folder.read_archive(0).merged(folder.read_archive(1))
    widths = np.array([0.5, 101 / 4])
    nearest = distances(goals / widths, every.measures / widths).min(axis=1)
    np.testing.assert_allclose(result.metrics["mean_distance"].iloc[0], nearest.mean(), rtol=1e-4)


def test_whether_a_search_had_an_objective():
    assert is_closeness(elites_of(bent))
    assert not is_closeness(elites_of(valued))


def noisy(solutions, *, seeds):
    return bent(solutions) + 1e-6 * np.asarray(seeds)[:, None] / 2**31


def single(solution):
    return bent(solution[None])[0]


@pytest.mark.parametrize(("evaluate", "per_solution"), [(noisy, False), (single, True)])
def test_evaluations_are_those_of_optimize(evaluate, per_solution):
    elites = elites_of(bent)
    result = gloam.answer(evaluate, elites, items(), 7, per_solution=per_solution)
    assert result.evaluations_per_seed == 7
    assert result.metrics["failed_total"].iloc[-1] == 0


def test_wrong_arguments_are_refused_before_an_evaluation(tmp_path):
    elites = elites_of(bent)
    empty = filled_store(elites.archive, np.zeros((0, 6)), [], np.zeros((0, 4)), [], {})
    data = gloam.datasets.Dataset(np.eye(3, dtype=np.float32))
    wrong = [
        ("items", {"items": np.zeros((2, 3))}),
        ("items", {"items": data}),
        ("items", {"items": np.full((2, 4), np.nan)}),
        ("elites", {"elites": gloam.Elites(elites.archive, empty)}),
        ("elites", {"elites": 5}),
        ("evaluations", {"evaluations": -1}),
        ("evaluations", {"evaluations": 1.5}),
        ("evaluate", {"evaluate": None}),
        ("bounds", {"bounds": 3}),
    ]
    for name, change in wrong:
        arguments = {"evaluate": pytest.fail, "elites": elites, "items": items()} | change
        with pytest.raises((ValueError, TypeError), match=f"^{name}"):
            gloam.answer(**arguments)
    with pytest.raises(ValueError, match="run"):
        gloam.answer(pytest.fail, tmp_path / "none", items())
    with pytest.raises(ValueError, match="objectives"):
        gloam.answer(valued, elites, items())
