"""Search quality on 2D LP (Sphere), fixed seeds; a change of the search that makes it worse fails.

Bounds come from seeds 0 to 7 at 400 iterations: mean minus four standard deviations.
"""

import pytest

import gloam
from gloam.experiments import paper_algorithm


@pytest.mark.parametrize(
    ("name", "bound"),
    [
        ("dms", 4860),  # 4985 to 5187, mean 5127, deviation 66
        ("cma-mae", 3960),  # 4206 to 4493, mean 4346, deviation 96
        ("map-elites-line", 3180),  # 3314 to 3441, mean 3375, deviation 45
    ],
)
def test_qd_score_after_400_iterations(name, bound):
    domain = gloam.domains.LinearProjection(measures=2)
    result = gloam.run(
        domain, paper_algorithm(name, domain), seeds=[0], iterations=400, progress=False
    )  # fmt: skip
    assert result.metrics["qd_score"].iloc[-1] > bound
