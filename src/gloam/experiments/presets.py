"""The paper's settings, as data: hyperparameters by algorithm and domain.

The printed table (appendix C) and the released experiment differ in three places. The released
experiment made the published figures, so it decides:

* MAP-Elites on the arm: sigma (and sigma_1 of the line form) is 0.1, printed 0.5.
* DDS: restart rule *basic*, printed *no improvement*.
* DDS: selection *mu*, printed *filter*.

gloam's own settings for domains that the paper does not have.
"""

from collections.abc import Callable
from typing import Any

from gloam import checks
from gloam.algorithms import CMAMAE, DDS, DMS, Algorithm, MAPElites, MAPElitesLine
from gloam.domains import Arm, Domain, LatentDigits, LatentIllumination, LinearProjection, Triangles
from gloam.emitters import RestartEvery

_TRIANGLES = {"sigma0": 0.1, "num_emitters": 5, "restart": RestartEvery(50)}

# By algorithm, then by column of the table: what the constructor takes besides archive and x0.
SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    # Not of the paper: the defaults of `gloam.DMS` in the paper's units and with its batches.
    "dms-default": {
        "2d-lp": {"sigma0": 0.5},
        "10d-lp": {"sigma0": 0.5},
        "20d-lp": {"sigma0": 0.5},
        "50d-lp": {"sigma0": 0.5},
        "arm": {"sigma0": 0.2},
        "ta-mnist": {"sigma0": 0.1, "batch_size": 12},
        "ta-fashion-mnist": {"sigma0": 0.1, "batch_size": 12},
        "lsi": {"sigma0": 0.02, "num_emitters": 1, "batch_size": 22},
    },
    "dms": {
        "2d-lp": {"sigma0": 0.5, "alpha": 0.1},
        "10d-lp": {"sigma0": 0.5, "alpha": 0.1, "restart": RestartEvery(100)},
        "20d-lp": {"sigma0": 0.5, "alpha": 0.1, "restart": RestartEvery(100)},
        "50d-lp": {"sigma0": 0.5, "alpha": 0.1, "restart": RestartEvery(100)},
        "arm": {"sigma0": 0.2, "alpha": 0.001},
        "ta-mnist": {**_TRIANGLES, "alpha": 0.001},
        "ta-fashion-mnist": {**_TRIANGLES, "alpha": 0.1},
        "lsi": {"sigma0": 0.02, "num_emitters": 1, "alpha": 1.0},
    },
    "cma-mae": {
        "2d-lp": {"sigma0": 0.5, "alpha": 0.01},
        "10d-lp": {"sigma0": 0.5, "alpha": 0.01},
        "20d-lp": {"sigma0": 0.5, "alpha": 0.01},
        "50d-lp": {"sigma0": 0.5, "alpha": 0.01},
        "arm": {"sigma0": 0.2, "alpha": 0.01},
        "ta-mnist": {**_TRIANGLES, "alpha": 0.001},
        "ta-fashion-mnist": {**_TRIANGLES, "alpha": 0.1},
        "lsi": {"sigma0": 0.02, "num_emitters": 1, "alpha": 0.01},
    },
    "dds": {
        "2d-lp": {"sigma0": 1.5, "bandwidth": 25.6},
        "10d-lp": {"sigma0": 1.5, "bandwidth": 5.12},
        "20d-lp": {"sigma0": 1.5, "bandwidth": 2.56},
        "50d-lp": {"sigma0": 1.5, "bandwidth": 1.024},
        "arm": {"sigma0": 0.5, "bandwidth": 10.0},
    },
    "map-elites-line": {
        "2d-lp": {"sigma": 0.5, "line_sigma": 0.2},
        "10d-lp": {"sigma": 0.5, "line_sigma": 0.2},
        "20d-lp": {"sigma": 0.5, "line_sigma": 0.2},
        "50d-lp": {"sigma": 0.5, "line_sigma": 0.2},
        "arm": {"sigma": 0.1, "line_sigma": 0.2},
        "ta-mnist": {"sigma": 0.1, "line_sigma": 0.2, "batch_size": 180},
        "ta-fashion-mnist": {"sigma": 0.1, "line_sigma": 0.2, "batch_size": 180},
        "lsi": {"sigma": 0.1, "line_sigma": 0.2, "batch_size": 36},
    },
    "map-elites": {
        "2d-lp": {"sigma": 0.5},
        "10d-lp": {"sigma": 0.5},
        "20d-lp": {"sigma": 0.5},
        "50d-lp": {"sigma": 0.5},
        "arm": {"sigma": 0.1},
        "ta-mnist": {"sigma": 0.1, "batch_size": 180},
        "ta-fashion-mnist": {"sigma": 0.1, "batch_size": 180},
        "lsi": {"sigma": 0.1, "batch_size": 36},
    },
}

ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    "dms-default": DMS,
    "dms": DMS.paper,
    "cma-mae": CMAMAE,
    "dds": DDS,
    "map-elites-line": MAPElitesLine,
    "map-elites": MAPElites,
}


def column(domain: Domain) -> str:
    """The column of the paper's table that a domain belongs to.

    >>> column(LinearProjection(measure_dim=20))
    '20d-lp'
    """
    if isinstance(domain, LinearProjection):
        # Sizes that the paper has not take the settings of the nearest one it has.
        nearest = min((2, 10, 20, 50), key=lambda k: abs(k - domain.measure_dim))
        return f"{nearest}d-lp"
    if isinstance(domain, Arm):
        return "arm"
    named = isinstance(domain, (Triangles, LatentIllumination))
    if named and domain.name in SETTINGS["dms"]:
        return domain.name
    raise ValueError(
        "domain: expected LinearProjection, Arm, Triangles named ta-mnist or ta-fashion-mnist, "
        f"or LatentIllumination named lsi, got {type(domain).__name__}. "
        "The paper has no settings for it: build the algorithm yourself."
    )


def paper_algorithm(name: str, domain: Domain, **changes: Any) -> Algorithm:
    """An algorithm with the paper's settings for a domain, and the changes named.

    Args:
        name: A key of `ALGORITHMS`.
        domain: Where it will run.
        changes: Constructor arguments that differ from the paper's.

    Example:
        >>> domain = LinearProjection(measure_dim=2)
        >>> paper_algorithm("dms", domain, num_empty_points=10).discount.num_empty_points
        10
    """
    if name not in ALGORITHMS:
        raise ValueError(f"algorithm: expected one of {', '.join(ALGORITHMS)}, got {name!r}.")
    place = column(domain)
    if place not in SETTINGS[name]:
        raise ValueError(
            f"algorithm: expected one that the paper ran on {place}, got {name!r}. "
            "Build the algorithm yourself."
        )
    settings = SETTINGS[name][place] | changes
    return ALGORITHMS[name](domain.archive(), domain.x0, **settings)


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
