"""gloam's own settings for domains that the paper does not have."""

from typing import Any

from gloam import checks
from gloam.algorithms import Algorithm
from gloam.domains import Domain, LatentDigits
from gloam.emitters import RestartEvery
from gloam.experiments.presets import ALGORITHMS, paper_algorithm

_CMA = {"num_emitters": 5, "restart": RestartEvery(25)}

# By algorithm: what the constructor takes besides archive and x0. How they were chosen:
# docs/results/README.md.
LATENT_DIGITS: dict[str, dict[str, Any]] = {
    "dms-default": {"sigma0": 0.5, "batch_size": 12},
    "dms": {**_CMA, "sigma0": 0.5, "alpha": 0.01},
    "cma-mae": {**_CMA, "sigma0": 1.0, "alpha": 0.1},
    "map-elites-line": {"sigma": 0.1, "line_sigma": 0.5, "batch_size": 180},
    "map-elites": {"sigma": 0.3, "batch_size": 180},
}


def preset_algorithm(name: str, domain: Domain, **changes: Any) -> Algorithm:
    """An algorithm with the settings that gloam has for a domain, and the changes named.

    They are the paper's (`paper_algorithm`), or gloam's own for `LatentDigits`.

    Args:
        name: A key of `gloam.experiments.presets.ALGORITHMS`.
        domain: Where it will run.
        changes: Constructor arguments that differ.

    Example:
        >>> preset_algorithm("map-elites", LatentDigits(), batch_size=36).emitter.batch_size
        36
    """
    if not isinstance(domain, LatentDigits):
        return paper_algorithm(name, domain, **changes)
    expected = f"one of {', '.join(LATENT_DIGITS)} for {domain.name}"
    fix = "Build the algorithm yourself."
    checks.expect(name in LATENT_DIGITS, "algorithm", expected, repr(name), fix)
    return ALGORITHMS[name](domain.archive(), domain.x0, **LATENT_DIGITS[name] | changes)
