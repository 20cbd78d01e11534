"""Parts of emitters: they ask and adapt one by one as the emitter does with all of them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gloam.emitters import (
    CMAES,
    LMMAES,
    BasicRestart,
    CmaEmitters,
    FilterSelection,
    RestartEvery,
    RestartWhenIdle,
    RestartWithoutImprovement,
    SepCMAES,
    Variation,
)
from gloam.records import Feedback, Proposal
from tests.helpers import assert_same_bits

PARTS, EACH, SOL = 4, 8, 6
X0 = np.linspace(-1, 1, SOL)


def feedback(iteration: int, seed: int = 0) -> Feedback:
    random = np.random.default_rng(seed + 100 * iteration)
    improved = jnp.asarray(random.random(PARTS * EACH) < 0.1)
    return Feedback(
        jnp.asarray(random.normal(size=PARTS * EACH), jnp.float32),
        improved,
        improved & jnp.asarray(random.random(PARTS * EACH) < 0.5),
        jnp.asarray(random.random(PARTS * EACH) < 0.8),
        jnp.asarray(iteration, jnp.int32),
    )


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"strategy": CMAES(), "restart": RestartEvery(2)}, marks=pytest.mark.slow),
        {"strategy": CMAES(), "restart": RestartWhenIdle(1e-9, window=1e30)},
        {"strategy": SepCMAES(), "restart": RestartWithoutImprovement()},
        {"strategy": LMMAES(), "restart": BasicRestart(), "selection": FilterSelection()},
    ],
    ids=["cma-es", "idle", "sep-cma-es", "lm-ma-es"],
)
def test_parts_adapt_one_by_one_as_all_do_together(settings):
    batch_size = 2 if isinstance(settings["strategy"], LMMAES) else EACH
    emitter = CmaEmitters(X0, 0.5, num_emitters=PARTS, batch_size=batch_size, **settings)
    part = emitter.part(PARTS)
    assert emitter.num_parts * part.num_solutions == emitter.num_solutions
    ask, adapt = eqx.filter_jit(emitter.ask), eqx.filter_jit(emitter.adapt)
    adapt_part = eqx.filter_jit(part.adapt)
    part_state, with_part_state = map(eqx.filter_jit, (emitter.part_state, emitter.with_part_state))
    together = one_by_one = emitter.init()
    size = batch_size
    for iteration in range(1, 4):
        proposal = ask(together, jnp.zeros((0, SOL)), key=jax.random.key(iteration))
        told = jax.tree.map(
            lambda leaf: leaf[: PARTS * size] if leaf.ndim else leaf, feedback(iteration)
        )
        elites = jnp.asarray(
            np.random.default_rng(iteration).normal(size=(PARTS, SOL)), jnp.float32
        )
        together = adapt(together, proposal, told, elites)
        for index in (2, 0, 3, 1):
            rows = slice(index * size, (index + 1) * size)
            own = Proposal(proposal.solutions[rows], proposal.aux[index : index + 1])
            own_told = jax.tree.map(lambda leaf, r=rows: leaf[r] if leaf.ndim else leaf, told)
            state = part_state(one_by_one, jnp.asarray(index), PARTS)
            adapted = adapt_part(state, own, own_told, elites[index : index + 1])
            one_by_one = with_part_state(one_by_one, jnp.asarray(index), PARTS, adapted)
        jax.tree.map(
            lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6),
            one_by_one,
            together,
        )


def test_a_part_of_variation_is_variation_with_a_smaller_batch():
    emitter = Variation(X0, 0.1, line_sigma=0.2, batch_size=540, bounds=(-3, 3))
    part = emitter.part(15)
    assert (emitter.num_parts, part.num_solutions) == (15, 36)
    same = Variation(X0, 0.1, line_sigma=0.2, batch_size=36, bounds=(-3, 3))
    assert_same_bits(part, same)
    assert Variation(X0, 0.1, batch_size=37).num_parts == 37
    assert Variation(X0, 0.1, batch_size=20).num_parts == 1


def test_the_box_of_a_part_is_that_of_the_emitter():
    emitter = CmaEmitters(X0, 0.5, num_emitters=2, batch_size=EACH, bounds=(-1.0, None))
    assert_same_bits(
        emitter.part(2), CmaEmitters(X0, 0.5, num_emitters=1, batch_size=EACH, bounds=(-1.0, None))
    )
