"""Gradients from Python: ask-tell against the fused program, failed rows, and wrong functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gloam
from gloam.runs.fused_driver import FusedDriver
from tests.helpers import assert_same_bits, refused
from tests.problems import BATCH, GRADIENTS, evaluate, small, vjp

pytestmark = pytest.mark.slow  # searches of its own are compiled

# As in `test_agreement`, rounding has not yet changed a ranking or a cell.
FEW = 4


@pytest.fixture(scope="module")
def algorithm():
    return small("climbing")


def advanced(search, iterations, by=vjp):
    for _ in range(iterations):
        search.tell(*evaluate(search.ask()), vjp=by)
    return search


@pytest.mark.parametrize(
    "name", ["aimed-ascent", pytest.param("climbing", marks=pytest.mark.release)]
)
def test_ask_tell_agrees_with_the_fused_program_over_the_first_iterations(name):
    algorithm = small(name)
    fused = gloam.run(evaluate, algorithm, FEW, seeds=[3], log_every=1, progress=False)
    search = advanced(gloam.Search(algorithm, 3), FEW)
    for rows in ("objectives", "solutions", "measures"):
        ours, theirs = (getattr(e.store, rows) for e in (fused.elites, search.elites()))
        np.testing.assert_allclose(ours, theirs, atol=1e-4)
    each = {"aimed-ascent": BATCH, "climbing": GRADIENTS}[name]
    assert fused.metrics["gradients"].tolist() == [each, 2 * each, 3 * each, 4 * each]
    found = search.metrics()
    assert (found["evaluations"], found["gradients"]) == (FEW * BATCH, FEW * each)
    prefixes = {"aimed-ascent": [""], "climbing": ["ascent_", "aimed_ascent_"]}[name]
    assert [found[f"{prefix}gradients_failed"] for prefix in prefixes] == [0] * len(prefixes)
    assert gloam.Search(algorithm).metrics()["gradients"] == 0


@pytest.mark.release  # it compiles programs of its own
def test_images_come_in_their_shape_and_without_objectives_their_weights_are_zero():
    def images(solutions):
        return jnp.tanh(solutions[:, :4]).reshape(-1, 2, 2)

    centers = np.random.default_rng(0).uniform(-1, 1, (20, 2, 2))
    emitter = gloam.emitters.GradientAscent(np.zeros(5), 0.3, batch_size=GRADIENTS)
    discount = gloam.discounts.DiscountModel(num_init_points=20)
    algorithm = gloam.Algorithm(emitter, gloam.CVTArchive(centers, -1, 1), discount)
    seen = []

    def by_jax(solutions, objective_weights, measure_weights):
        seen.append((solutions.shape, objective_weights, measure_weights))
        return jax.vjp(images, solutions)[1](jnp.asarray(measure_weights))[0]

    fused = gloam.run(images, algorithm, FEW, seeds=[3], progress=False)
    search = gloam.Search(algorithm, 3)
    for _ in range(FEW):
        search.tell(None, np.asarray(images(search.ask())), vjp=by_jax)
    ours, theirs = (e.store.objectives for e in (fused.elites, search.elites()))
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    assert len(seen) == FEW
    shape, of_objectives, of_measures = seen[-1]
    assert shape == (GRADIENTS, 5)
    assert of_measures.shape == (GRADIENTS, 2, 2)
    assert not of_objectives.any()
    assert np.abs(of_measures).max() > 0


def test_gradients_that_are_not_finite_are_masked_and_counted(algorithm):
    def bad(solutions, *weights):
        gradients = vjp(solutions, *weights)
        gradients[0, 1], gradients[1, 0] = np.nan, 1e300
        return gradients

    def in_float64(solutions, *weights):
        return bad(solutions.astype(float), *weights)

    search = advanced(gloam.Search(algorithm), 3, in_float64)
    assert search.metrics()["ascent_gradients_failed"] == 6
    assert np.isfinite(search.ask()).all()


def test_a_function_is_not_asked_for_gradients_of_solutions_that_failed(algorithm):
    search, seen = gloam.Search(algorithm), []

    def recorded(solutions, *weights):
        seen.append(solutions)
        solutions[:] = 0  # its arguments are its own
        return vjp(solutions, *weights)

    solutions = search.ask()
    objectives, measures = map(np.array, evaluate(solutions))
    objectives[algorithm.emitter.gradient_rows[1]] = np.nan
    search.tell(objectives, measures, vjp=recorded)
    assert [len(some) for some in seen] == [GRADIENTS - 1]
    assert search.metrics()["ascent_gradients_failed"] == 0
    objectives[:] = np.nan
    objectives[-1] = 1
    search.ask()
    search.tell(objectives, measures, vjp=recorded)
    assert len(seen) == 1


def test_a_search_continues_after_a_file_to_the_same_bits(algorithm, tmp_path):
    whole = advanced(gloam.Search(algorithm, 5), 6)
    advanced(gloam.Search(algorithm, 5), 3).save(tmp_path / "search.gloam")
    loaded = gloam.Search.load(tmp_path / "search.gloam")
    assert_same_bits(advanced(loaded, 3).state, whole.state)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (np.zeros((GRADIENTS, 3)), "one row for each solution, got"),
        (np.zeros(GRADIENTS), "one row for each solution, got"),
        (None, "got NoneType"),
        (np.zeros((GRADIENTS, 5), complex), "got an array of c"),
        ([[object()] * 5] * GRADIENTS, "got an array of object"),
    ],
)
def test_gradients_of_another_form_are_refused_and_the_search_is_unchanged(
    algorithm, returned, message
):
    search = gloam.Search(algorithm)
    solutions = search.ask()
    with refused("vjp: expected gradients of shape (6, 5), " + message):
        search.tell(*evaluate(solutions), vjp=lambda *arguments: returned)
    assert search.iteration == 0
    np.testing.assert_array_equal(search.ask(), solutions)
    advanced(search, 1)


def test_an_error_of_the_function_passes_with_a_note(algorithm):
    def broken(*arguments):
        raise ZeroDivisionError("of the user")

    search = gloam.Search(algorithm)
    with pytest.raises(ZeroDivisionError, match="of the user") as raised:
        advanced(search, 1, broken)
    assert raised.value.__notes__ == ["vjp raised it, for the gradients of 6 solutions."]
    assert search.iteration == 0


def test_a_missing_and_a_needless_function_are_refused(algorithm, dms):
    search = gloam.Search(algorithm)
    needed = "vjp: expected a function, because the emitter needs the gradients of 6 of 30"
    with refused(f"{needed} solutions, got None. Give vjp=..."):
        search.tell(*evaluate(search.ask()))
    with refused(f"{needed} solutions, got int 3. Give vjp=..."):
        search.tell(*evaluate(search.ask()), vjp=3)
    other = gloam.Search(dms)
    with refused("vjp: expected None for an emitter without gradients, got function"):
        other.tell(*evaluate(other.ask()), vjp=vjp)


def test_an_asynchronous_search_has_no_gradients(algorithm):
    with refused("algorithm: expected an emitter without gradients for an asynchronous search"):
        gloam.AsyncSearch(algorithm)


def refuse_domain(domain, algorithm, message):
    with pytest.raises(ValueError, match=message):
        FusedDriver(domain, algorithm, [0])


def test_a_domain_without_gradients_is_refused_before_the_run(algorithm):
    def by_callback(solutions):
        shapes = jax.eval_shape(evaluate, solutions)
        return jax.pure_callback(evaluate, shapes, solutions, vmap_method="sequential")

    def by_loop(solutions):
        objectives, measures = evaluate(solutions)
        step = lambda x: x / 2  # noqa: E731
        return objectives, jax.lax.while_loop(lambda x: x.max() > 1, step, measures)

    message = r"^domain: expected a function that JAX can differentiate.*6 of 30.*gloam.optimize"
    refuse_domain(by_callback, algorithm, message)
    refuse_domain(by_loop, algorithm, message)

    def whole_numbers(solutions):
        objectives, measures = evaluate(solutions)
        return objectives, measures.astype(int)

    message = r"^measures: expected floats, because the emitter needs gradients, got int32"
    refuse_domain(whole_numbers, algorithm, message)
