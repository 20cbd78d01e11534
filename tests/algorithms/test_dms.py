"""The default search: what it is made of, and the form of the paper."""

import equinox as eqx
import jax
import numpy as np
import pytest

import gloam
from gloam.emitters import (
    AdaptiveMixture,
    CmaEmitters,
    Recombination,
    RestartWhenIdle,
    Swaps,
)
from tests.helpers import refused

ARCHIVE = gloam.GridArchive((8, 8), -1, 1)
FEW = {"num_emitters": 3, "batch_size": 6, "num_init_points": 16}


def test_the_default_mixes_cma_es_and_moves_between_elites():
    emitter = gloam.DMS(ARCHIVE, np.zeros(4), 0.5).emitter
    cma, moves, swaps = emitter.emitters
    assert isinstance(cma, CmaEmitters)
    assert isinstance(moves, Recombination)
    assert isinstance(swaps, Swaps)
    assert (cma.num_solutions, moves.num_solutions, emitter.num_solutions) == (324, 216, 540)
    assert isinstance(cma.restart, RestartWhenIdle)
    assert moves.iso_sigma == pytest.approx(0.04 * 0.5)
    assert moves.best_of == 4


def test_without_moves_the_emitters_are_alone():
    assert isinstance(gloam.DMS(ARCHIVE, np.zeros(4), 0.5, num_moves=0).emitter, CmaEmitters)
    mixed = gloam.DMS(ARCHIVE, np.zeros(4), 0.5, num_moves=7).emitter
    assert isinstance(mixed, AdaptiveMixture)
    assert mixed.num_solutions == 331


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
    key_elites, key_ask = jax.random.split(jax.random.key(1))
    elites = jax.random.uniform(key_elites, (number, 4), minval=-0.5, maxval=0.5)
    solutions = eqx.filter_jit(emitter.ask)(emitter.init(), elites, key=key_ask).solutions
    assert solutions.shape == (30, 4)
    assert np.abs(solutions).max() == 0.5
