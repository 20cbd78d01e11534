"""The compiled iteration: what it copies."""

import re

import jax.numpy as jnp
import numpy as np
import pytest

import gloam
from gloam.runs.fused_driver import FusedDriver


@pytest.mark.parametrize("num_seeds", [1, 3])
@pytest.mark.parametrize(
    "kind", [gloam.MAPElitesLine, pytest.param(gloam.DMS, marks=pytest.mark.slow)]
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
