"""The units of solutions, variable by variable: a search does not depend on them."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gloam
from gloam.discounts import NoDiscount
from gloam.emitters import AimedCmaEmitters, AimedMoves, Mixture, SepCMAES, Swaps
from tests.helpers import assert_same_bits, refused

pytestmark = pytest.mark.slow  # searches of its own are compiled

SOL = 4
X0 = np.array([0.5, -1.0, 2.0, 0.25])
LOWER, UPPER = X0 - np.array([1, 2, 0.5, 4]), X0 + np.array([1, 1, 3, 4])
SIGMA0 = np.array([0.5, 1.0, 0.25, 2.0])
ARCHIVE = gloam.GridArchive((6, 6), -3, 3, f_min=-50)
CMA = {"num_emitters": 2, "batch_size": 6}
# Powers of two are exact, so that every bit can be compared.
SCALES = st.lists(st.integers(-20, 20).map(lambda power: 2.0**power), min_size=SOL, max_size=SOL)


def aimed(archive, x0, step, **options):
    emitter = AimedCmaEmitters(x0, step, **options, **CMA)
    return gloam.Algorithm(emitter, archive, NoDiscount())


def aimed_moves(archive, x0, step, **options):
    """Moves that aim, and some variations to fill the first cells."""
    emitters = [kind(x0, step, batch_size=8, **options) for kind in (AimedMoves, Swaps)]
    return gloam.Algorithm(Mixture(emitters), archive, NoDiscount())


ALGORITHMS = {
    "aimed": aimed,
    "aimed moves": aimed_moves,
    "DMS": functools.partial(gloam.DMS, num_init_points=5, **CMA),
    "CMA-MAE (sep)": functools.partial(gloam.CMAMAE, strategy=SepCMAES(), **CMA),
    "MAP-Elites (line)": functools.partial(gloam.MAPElitesLine, batch_size=12),
}


def found(build, scales, *, boxed: bool):
    """Elites of a search in other units, converted back."""
    bounds = (LOWER * scales, UPPER * scales) if boxed else None
    step = 0.2 if boxed else SIGMA0 * scales
    search = gloam.Search(build(ARCHIVE, X0 * scales, step, bounds=bounds), seed=3)
    for _ in range(4):
        solutions = search.ask() / np.float32(scales)
        if boxed:
            assert ((solutions >= np.float32(LOWER)) & (solutions <= np.float32(UPPER))).all()
        search.tell(1 - np.square(solutions).mean(axis=1), solutions[:, :2])
    elites = search.elites()
    return elites.cells, elites.objectives, elites.solutions / np.float32(scales)


@pytest.mark.parametrize(
    ("name", "boxed"),
    [
        ("MAP-Elites (line)", True),
        ("CMA-MAE (sep)", False),
        ("aimed", False),
        pytest.param("aimed", True, marks=pytest.mark.release),
        ("aimed moves", True),
        pytest.param("aimed moves", False, marks=pytest.mark.release),
        pytest.param("MAP-Elites (line)", False, marks=pytest.mark.release),
        pytest.param("CMA-MAE (sep)", True, marks=pytest.mark.release),
        pytest.param("DMS", True, marks=pytest.mark.release),
        pytest.param("DMS", False, marks=pytest.mark.release),
    ],
)
@settings(max_examples=5)
@given(scales=SCALES)
def test_a_search_does_not_depend_on_units_of_variables(name, boxed, scales):
    plain = found(ALGORITHMS[name], np.ones(SOL), boxed=boxed)
    assert_same_bits(found(ALGORITHMS[name], np.array(scales), boxed=boxed), plain)


def test_equal_steps_are_one_number():
    """A vector of equal steps is a number, up to rounding in the first batch."""
    first, second = (
        gloam.Search(gloam.CMAMAE(ARCHIVE, X0, step, **CMA)).ask()
        for step in (0.5, np.full(4, 0.5))
    )
    np.testing.assert_allclose(first, second, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["aimed", pytest.param("aimed moves", marks=pytest.mark.release)])
def test_a_search_does_not_depend_on_units_of_measures(name):
    def elites_in(units):
        used = ALGORITHMS[name](gloam.GridArchive((6, 8), -3 * units, 3 * units), X0, 0.5)
        search = gloam.Search(used, seed=3)
        for _ in range(8):
            solutions = search.ask()
            measures = np.float32(units) * solutions[:, :2]
            search.tell(1 - np.square(solutions).mean(axis=1), measures)
        elites = search.elites()
        return elites.cells, elites.objectives, elites.solutions

    assert_same_bits(elites_in(np.array([2.0**12, 2.0**-9])), elites_in(np.ones(2)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"sigma0": 500.0},
            "sigma0: expected a finite number > 0 and <= 1, got 500.0. With",
        ),
        ({"sigma0": SIGMA0}, "sigma0: expected a finite number > 0 and <= 1, got array"),
        ({"sigma0": SIGMA0[:3], "bounds": None}, "sigma0: expected one number, or 4 for the"),
        ({"sigma0": -SIGMA0, "bounds": None}, "sigma0: expected numbers between 1e-11 and 1e11"),
        ({"sigma0": None, "bounds": (LOWER, None)}, "sigma0: expected a number for solutions"),
    ],
)
def test_steps_that_do_not_fit_are_refused(options, message):
    with refused(message):
        gloam.CMAMAE(ARCHIVE, X0, **({"bounds": (LOWER, UPPER)} | options))
