"""The compiled iteration: what it copies, and what it leaves out."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gloam
from gloam.runs.fused_driver import FusedDriver
from tests.problems import evaluate, small

pytestmark = pytest.mark.slow  # searches of its own are compiled


@pytest.mark.parametrize("num_seeds", [1, 3])
@pytest.mark.parametrize(
    "kind", [gloam.MAPElitesLine, pytest.param(gloam.DMS, marks=pytest.mark.release)]
)
def test_an_iteration_does_not_copy_the_store(kind, num_seeds):
    archive = gloam.GridArchive((11, 13), lower=-1, upper=1)
    algorithm = kind(archive, np.zeros(7), 0.2)

    def evaluate(solutions):
        return -jnp.square(solutions).sum(axis=1), solutions[:, :2]

    driver = FusedDriver(evaluate, algorithm, list(range(num_seeds)))
    driver.start()
    driver.advance(1)
    text = driver._programs._compiled_loop.result().as_text()  # pyright: ignore
    shape = rf"f32\[(?:{num_seeds},)?143,7\]"
    assert re.search(shape, text)
    in_loops = [part for part in text.split("\n\n") if not part.startswith("ENTRY")]
    assert not [part for part in in_loops if re.search(rf"= {shape}\S* copy\(", part)]


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="a GPU runs all seeds at once")
def test_on_a_cpu_a_slot_computes_its_own_emitter_alone_for_any_number_of_seeds():
    def num_conditions(num_seeds: int) -> int:
        driver = FusedDriver(evaluate, small("dms"), list(range(num_seeds)))
        programs, arrays = driver._programs, driver._arrays
        state = programs.state_shapes(arrays, driver._keys, driver._x0s)
        text = programs._loop.lower(arrays, state, np.ones(2, np.int32)).as_text()
        return text.count("stablehlo.case")

    # A batch of seeds would compute both branches of a condition.
    assert num_conditions(3) == num_conditions(1) > 1
