"""The default search: what it is made of, and the form of the paper."""

import jax
import numpy as np
import pytest

import gloam
from gloam.emitters import (
    AdaptiveMixture,
    AimedCmaEmitters,
    AimedMoves,
    CmaEmitters,
    GradientAscent,
    Recombination,
    RestartWhenIdle,
    Swaps,
)
from tests.helpers import refused, targets_near

ARCHIVE = gloam.GridArchive((8, 8), -1, 1)
FEW = {"num_emitters": 3, "batch_size": 6, "num_init_points": 16}


def test_the_default_mixes_emitters_that_can_each_fill_the_batch():
    emitter = gloam.DMS(ARCHIVE, np.zeros(4), 0.5).emitter
    assert isinstance(emitter, AdaptiveMixture)
    by_kind = {type(part): part for part in emitter.emitters}
    assert by_kind.keys() >= {CmaEmitters, AimedCmaEmitters, AimedMoves, Recombination, Swaps}
    assert {part.num_solutions for part in emitter.emitters} == {emitter.num_solutions} == {540}
    cma, moves = by_kind[CmaEmitters], by_kind[Recombination]
    assert isinstance(cma.restart, RestartWhenIdle)
    assert moves.iso_sigma == pytest.approx(0.04 * 0.5)
    assert moves.best_of == 4


@pytest.mark.parametrize("gradients", [False, True])
def test_each_kind_of_cma_es_has_a_fifth_of_the_batch_at_first(gradients):
    emitter = gloam.DMS(ARCHIVE, np.zeros(4), 0.5, gradients=gradients).emitter
    others = len(emitter.emitters) - 2
    assert others == (6 if gradients else 3)
    np.testing.assert_allclose(emitter.least, [0.2, 0.2, *[0.02] * others], rtol=1e-6)
    assert isinstance(emitter.emitters[0], CmaEmitters)
    assert isinstance(emitter.emitters[1], AimedCmaEmitters)


def test_among_sequences_alone_cma_es_has_the_smallest_share_of_the_others():
    word = gloam.Categorical(["a", "b", "c"], shape=(4,), padding="a")
    alone, beside = gloam.Space(a=word, b=word), gloam.Space(a=word, z=gloam.Integer(0, 3))
    plain = gloam.Space(a=gloam.Categorical(["a", "b", "c"], shape=(4,)))
    for space, share in ((alone, 0.02), (beside, 0.2), (plain, 0.2)):
        least = gloam.DMS(ARCHIVE, space).emitter.least
        np.testing.assert_allclose(least, [share] * 2 + [0.02] * 3, rtol=1e-6)


def test_without_a_mixture_the_emitters_are_alone():
    emitter = gloam.DMS(ARCHIVE, np.zeros(4), 0.5, mixture=False).emitter
    assert isinstance(emitter, CmaEmitters)
    assert emitter.num_solutions == 540
    with refused("gradients: expected False without a mixture"):
        gloam.DMS(ARCHIVE, np.zeros(4), 0.5, mixture=False, gradients=True)


@pytest.mark.parametrize("num_emitters", [1, 2, 15])
def test_each_kind_of_gradients_has_at_most_about_half_of_the_batch(num_emitters):
    used = gloam.DMS(ARCHIVE, np.zeros(4), 0.5, num_emitters=num_emitters, gradients=True)
    climbing = [part for part in used.emitter.emitters if isinstance(part, GradientAscent)]
    assert {part.goal for part in climbing} == {"target", "improvement", "objective"}
    half = {1: 36, 2: 36, 15: 288}[num_emitters]
    assert {part.num_solutions for part in climbing} == {half}
    np.testing.assert_array_equal(used.emitter.gradient_rows, np.arange(half))


@pytest.mark.parametrize("algorithm", [gloam.DMS, gloam.CMAMAE])
def test_a_box_gives_a_step_size(algorithm):
    built = algorithm(ARCHIVE, np.zeros(4), bounds=([-1, -2, -2, -9], [1, 2, 2, 9]))
    cma = built.emitter.emitters[0] if algorithm is gloam.DMS else built.emitter
    assert cma.sigma0 == 0.2  # of the width of each variable
    with refused("sigma0: expected a number for solutions without bounds on both sides, got None"):
        algorithm(ARCHIVE, np.zeros(4))


def test_solutions_stay_in_the_box():
    emitter = gloam.DMS(ARCHIVE, np.zeros(4), 1.0, bounds=(-0.5, 0.5), **FEW).emitter
    number = sum(draw.number for draw in emitter.elites_to_ask)
    elites = jax.random.uniform(jax.random.key(0), (number, 4), minval=-0.5, maxval=0.5)

    @jax.jit
    def ask(key):
        return emitter.ask(emitter.init(), elites, key=key, targets=targets_near(elites)).solutions

    solutions = np.stack([ask(jax.random.key(seed)) for seed in range(5)])
    assert solutions.shape == (5, 18, 4)
    assert np.abs(solutions).max() == 0.5
