"""gloam's own settings for latent digits; other domains keep the paper's."""

import numpy as np
import pytest

from gloam.domains import Arm, LatentDigits
from gloam.experiments import paper_algorithm, preset_algorithm
from gloam.experiments.presets import ALGORITHMS, LATENT_DIGITS
from gloam.formats import objects
from tests.helpers import refused, small_decoder

IMAGES = np.random.default_rng(0).random((12, 8, 8), dtype=np.float32)


@pytest.mark.parametrize("name", LATENT_DIGITS)
def test_every_algorithm_evaluates_180_solutions_an_iteration(name):
    domain = LatentDigits(IMAGES, small_decoder())
    algorithm = preset_algorithm(name, domain)
    built = ALGORITHMS[name](domain.archive(), domain.x0, **LATENT_DIGITS[name])
    assert objects.encode(algorithm, {}) == objects.encode(built, {})
    assert algorithm.emitter.num_solutions == 180
    changed = preset_algorithm(name, domain, lower=-9.0, upper=9.0)
    assert objects.encode(changed, {}) != objects.encode(built, {})


def test_algorithms_without_settings_are_refused():
    with refused("algorithm: expected one of dms-default, dms, cma-mae, map-elites-line"):
        preset_algorithm("dds", LatentDigits(IMAGES, small_decoder()))


def test_other_domains_have_the_papers_settings():
    for name in ALGORITHMS:
        pair = (preset_algorithm(name, Arm(), lower=-9.0), paper_algorithm(name, Arm(), lower=-9.0))
        one, other = (objects.encode(algorithm, {}) for algorithm in pair)
        assert one == other
