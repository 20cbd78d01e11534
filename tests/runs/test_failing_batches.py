"""Batches that fail entirely, in the fused driver: the same outcome wherever stretches end."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gloam
from gloam.domains import Domain
from gloam.runs.fused_driver import FusedDriver
from tests.problems import BATCH, evaluate, small

pytestmark = pytest.mark.slow  # searches of its own are compiled

SEEDS = [4, 5, 6]
FAR = 1e4  # solutions around here fail


class Cliff(Domain):
    """Fails beyond a limit; some seeds have a start of their own, maybe there."""

    start: jax.Array
    some: tuple[int, ...] = eqx.field(static=True)
    name = "cliff"

    @property
    def x0(self):
        """Where the algorithm is built."""
        return jnp.zeros(5)

    def x0_of(self, seed):
        """Where the seed starts."""
        return np.full(5, self.start if seed in self.some else 0.0, np.float32)

    def __call__(self, solutions):
        """NaN beyond the limit."""
        objectives, measures = evaluate(solutions)
        return jnp.where(solutions[:, 0] > FAR / 2, jnp.nan, objectives), measures

    def archive(self):
        """Unused."""
        raise NotImplementedError


class Fails(eqx.Module):
    """A share of the solutions fail, wherever they are; sooner or later a whole batch."""

    share: float

    def __call__(self, solutions):
        """NaN for some."""
        objectives, measures = evaluate(solutions)
        failed = jnp.mod(1000 * solutions[:, 0], 1.0) < self.share
        return jnp.where(failed, jnp.nan, objectives), measures


def two_at_a_time() -> gloam.MAPElites:
    archive = gloam.GridArchive((8, 8), -2.0, 2.0)
    return gloam.MAPElites(archive, np.zeros(5), 0.3, batch_size=2)


def started(domain, algorithm, seeds):
    driver = FusedDriver(domain, algorithm, seeds)
    driver.start()
    return driver


@pytest.mark.parametrize("name", ["cma-mae", pytest.param("dms", marks=pytest.mark.release)])
def test_one_failing_seed_does_not_end_the_others(name):
    algorithm = small(name)
    sound, broken = (Cliff(jnp.float32(start), (5,)) for start in (0.0, FAR))
    whole = started(sound, algorithm, SEEDS)
    whole.advance(6)
    part = started(broken, algorithm, SEEDS)
    with pytest.warns(UserWarning, match=r"30 solutions of seed 5 in iteration 1\."):
        part.advance(2)
    part.advance(4)  # it was said once; a warning here would be an error
    assert part.iteration == 6
    for seed in (0, 2):
        for field in ("solutions", "objectives", "measures"):
            ours, theirs = (getattr(d.checkpoint().store, field)[seed] for d in (part, whole))
            np.testing.assert_array_equal(ours, theirs)
    assert part.checkpoint().failed.tolist() == [0, 6 * BATCH, 0]
    assert [row["failed"] for row in part.metrics()[-1]] == [0, BATCH, 0]
    assert len(part.elites()[1]) == 0
    emitter = part.checkpoint().emitter
    cma = emitter.emitters[0] if name == "dms" else emitter
    # Every instance restarted whenever it had worked. In a mixture, some rest.
    assert int(cma.restarts[1]) >= (1 if name == "dms" else 6 * 3)
    assert not np.any(cma.gaussians.generation[1])


def outcome(domain, algorithm, seeds, lengths):
    """The error, the iteration and the bits of the state, for stretches of some lengths."""
    driver = started(domain, algorithm, seeds)
    error = ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for length in lengths:
            try:
                driver.advance(length)
            except gloam.errors.EvaluationError as raised:
                error = str(raised)
                break
    store = driver.checkpoint().store
    return error, driver.iteration, np.asarray(store.objectives), np.asarray(store.solutions)


@pytest.mark.parametrize(("seeds", "share"), [([4], 0.3), (SEEDS, 0.65)])
def test_the_error_comes_at_the_same_iteration_whatever_the_stretches(seeds, share):
    algorithm, domain = two_at_a_time(), Fails(share)
    error, iteration, *store = outcome(domain, algorithm, seeds, [40])
    assert f"in iteration {iteration}, got none among 2 solutions of each of {len(seeds)}" in error
    # Not the first iteration, nor the last: an outcome by chance of where stretches end would show.
    assert 1 < iteration < 40
    for lengths in ([1] * 40, [3] * 14, [iteration - 1, 40], [iteration, 40]):
        again = outcome(domain, algorithm, seeds, lengths)
        assert again[:2] == (error, iteration)
        for ours, theirs in zip(again[2:], store, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_the_state_of_the_failing_iteration_can_go_on():
    algorithm = small("map-elites-line")
    domain = Cliff(jnp.float32(FAR), tuple(SEEDS))
    driver = started(domain, algorithm, SEEDS)
    for expected in (1, 2):
        with pytest.raises(gloam.errors.EvaluationError, match=f"iteration {expected}, got none"):
            driver.advance(10)
        assert driver.iteration == expected
        assert driver.checkpoint().failed.tolist() == [BATCH * expected] * 3


@pytest.mark.parametrize("log_every", [1, 3, 50])
def test_a_run_ends_alike_however_often_it_logs(log_every, tmp_path):
    algorithm, domain = two_at_a_time(), Fails(0.3)
    expected, iteration, *_ = outcome(domain, algorithm, [4], [40])
    options = {"log_every": log_every, "run_dir": tmp_path / "run", "progress": False}
    with pytest.raises(gloam.errors.EvaluationError) as raised:
        gloam.run(domain, algorithm, seeds=[4], iterations=40, **options)
    assert str(raised.value) == expected
    # What was logged before it is kept.
    metrics = gloam.RunFolder(tmp_path / "run").read_metrics()
    logged = metrics["iteration"].tolist() if len(metrics) else []
    assert logged == list(range(log_every, iteration, log_every))
