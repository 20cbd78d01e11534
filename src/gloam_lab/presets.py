"""Presets: the paper's settings by domain, and gloam's own for its default and for latent digits.

`PAPER_SETTINGS` are hyperparameters by algorithm and column of the paper's table (appendix C). The
printed table and the released experiment differ in three places. The released experiment produced
the published figures, so its values are used:

* MAP-Elites on the arm: sigma (and sigma_1 of the line form) is 0.1, printed 0.5.
* DDS: restart rule *basic*, printed *no improvement*.
* DDS: selection *mu*, printed *filter*.

`DEFAULT_SETTINGS` and `LATENT_DIGITS_SETTINGS` are not from the paper. `ARBORESCENCE_SETTINGS` are
those of the experiments of CMA-MEGA and CMA-MAEGA.
"""

from collections.abc import Callable
from typing import Any

from gloam._tools import checks
from gloam.algorithms import CMAMAE, DMS, Algorithm, MAPElites, MAPElitesLine
from gloam.domains import Arm, Domain, LinearProjection, Triangles
from gloam.emitters import RestartEvery
from gloam_lab.arborescences import CMAMAEGA, CMAMEGA, check_jacobians
from gloam_lab.density_descent import DDS
from gloam_lab.latent_digits import LatentDigits
from gloam_lab.latent_illumination import LatentIllumination

Settings = dict[str, Any]
"""Arguments of a constructor besides the archive and ``x0``."""

_LP = ("2d-lp", "10d-lp", "20d-lp", "50d-lp")
_TA = ("ta-mnist", "ta-fashion-mnist")
_TRIANGLES = {"sigma0": 0.1, "num_emitters": 5, "restart": RestartEvery(50)}

PAPER_SETTINGS: dict[str, dict[str, Settings]] = {
    "dms-paper": {
        "2d-lp": {"sigma0": 0.5, "alpha": 0.1},
        **{name: {"sigma0": 0.5, "alpha": 0.1, "restart": RestartEvery(100)} for name in _LP[1:]},
        "arm": {"sigma0": 0.2, "alpha": 0.001},
        "ta-mnist": {**_TRIANGLES, "alpha": 0.001},
        "ta-fashion-mnist": {**_TRIANGLES, "alpha": 0.1},
        "lsi": {"sigma0": 0.02, "num_emitters": 1, "alpha": 1.0},
    },
    "cma-mae": {
        **{name: {"sigma0": 0.5, "alpha": 0.01} for name in _LP},
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
        **{name: {"sigma0": 0.5, "line_sigma": 0.2} for name in _LP},
        "arm": {"sigma0": 0.1, "line_sigma": 0.2},
        **{name: {"sigma0": 0.1, "line_sigma": 0.2, "batch_size": 180} for name in _TA},
        "lsi": {"sigma0": 0.1, "line_sigma": 0.2, "batch_size": 36},
    },
    "map-elites": {
        **{name: {"sigma0": 0.5} for name in _LP},
        "arm": {"sigma0": 0.1},
        **{name: {"sigma0": 0.1, "batch_size": 180} for name in _TA},
        "lsi": {"sigma0": 0.1, "batch_size": 36},
    },
}
"""The paper's settings by algorithm and column."""

DEFAULT_SETTINGS: dict[str, Settings] = {
    **{name: {"sigma0": 0.5} for name in _LP},
    "arm": {"sigma0": 0.2},
    **{name: {"sigma0": 0.1, "num_emitters": 5} for name in _TA},
    # The penalty of LSI has no lower bound, and latents with objectives below 0 are of no use.
    # With gradients, half of the 36 latents may climb.
    "lsi": {"sigma0": 0.02, "num_emitters": 2, "batch_size": 18, "floor": 0.0},
}
"""Settings of ``dms`` by column: the paper's step size and number of evaluations per
iteration, otherwise the defaults of `gloam.DMS`."""

ARBORESCENCE_SETTINGS: dict[str, dict[type[Domain], Settings]] = {
    "cma-mega": {LinearProjection: {"sigma0": 10.0}, Arm: {"sigma0": 0.05}},
    "cma-maega": {
        LinearProjection: {"sigma0": 10.0, "alpha": 0.01},
        Arm: {"sigma0": 0.05, "alpha": 0.01},
    },
}
"""Settings of the algorithms that need Jacobians, by algorithm and domain: the step sizes of their
papers' experiments, the archive learning rate of pyribs' example, otherwise the defaults."""

_CMA = {"num_emitters": 5, "restart": RestartEvery(25)}
LATENT_DIGITS_SETTINGS: dict[str, Settings] = {
    "dms": {"sigma0": 0.5, "batch_size": 12},
    "dms-paper": {**_CMA, "sigma0": 0.5, "alpha": 0.01},
    "cma-mae": {**_CMA, "sigma0": 1.0, "alpha": 0.1},
    "map-elites-line": {"sigma0": 0.1, "line_sigma": 0.5, "batch_size": 180},
    "map-elites": {"sigma0": 0.3, "batch_size": 180},
}
"""gloam's settings for `LatentDigits` by algorithm; `research/study.md` says how they were
chosen."""

ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    "dms": DMS,
    "dms-paper": DMS.paper,
    "cma-mae": CMAMAE,
    "dds": DDS,
    "map-elites-line": MAPElitesLine,
    "map-elites": MAPElites,
    "cma-mega": CMAMEGA,
    "cma-maega": CMAMAEGA,
}
"""Constructors by name: ``dms`` is gloam's default, ``cma-mega`` and ``cma-maega`` need Jacobians,
the others are the paper's."""
STUDY_ALGORITHMS = tuple(name for name in ALGORITHMS if name not in ARBORESCENCE_SETTINGS)
"""Algorithms of a study unless others are named."""


def preset_algorithm(name: str, domain: Domain, **changes: Any) -> Algorithm:
    """Build an algorithm with its preset for a domain.

    Args:
        name: A key of `gloam_lab.presets.ALGORITHMS`.
        domain: The domain.
        changes: Constructor arguments that differ from the preset.

    Example:
        >>> preset_algorithm("map-elites", LatentDigits(), batch_size=36).emitter.batch_size
        36
    """
    if name in ARBORESCENCE_SETTINGS:
        settings = _arborescence_settings(name, domain)
    elif isinstance(domain, LatentDigits):
        expected = f"one of {', '.join(LATENT_DIGITS_SETTINGS)} for {domain.name}"
        fix = "Build the algorithm yourself."
        checks.expect(name in LATENT_DIGITS_SETTINGS, "algorithm", expected, repr(name), fix)
        settings = LATENT_DIGITS_SETTINGS[name]
    elif name == "dms":
        settings = DEFAULT_SETTINGS[column(domain)]
    else:
        return paper_algorithm(name, domain, **changes)
    return ALGORITHMS[name](domain.archive(), domain.x0, **settings | changes)


def _arborescence_settings(name: str, domain: Domain) -> Settings:
    settings = ARBORESCENCE_SETTINGS[name].get(type(domain))
    if settings is None:
        # Says why there are none on images.
        check_jacobians(1, domain.archive().measure_dim, domain.x0.size)
        expected = f"one with settings for {domain.name}"
        checks.expect(False, "algorithm", expected, repr(name), "Build the algorithm yourself.")
    assert settings is not None
    return settings


def paper_algorithm(name: str, domain: Domain, **changes: Any) -> Algorithm:
    """Build an algorithm with the paper's settings for a domain.

    Args:
        name: A key of `gloam_lab.presets.PAPER_SETTINGS`.
        domain: The domain.
        changes: Constructor arguments that differ from the paper's.

    Example:
        >>> domain = LinearProjection(measure_dim=2)
        >>> paper_algorithm("dms-paper", domain, num_empty_points=10).discount.num_empty_points
        10
    """
    checks.choice("algorithm", name, tuple(PAPER_SETTINGS))
    problem, fix = column(domain), "Build the algorithm yourself."
    is_known, expected = problem in PAPER_SETTINGS[name], f"one that the paper ran on {problem}"
    checks.expect(is_known, "algorithm", expected, repr(name), fix)
    settings = PAPER_SETTINGS[name][problem] | changes
    return ALGORITHMS[name](domain.archive(), domain.x0, **settings)


def column(domain: Domain) -> str:
    """Return the column of the paper's table to which a domain belongs.

    >>> column(LinearProjection(measure_dim=20))
    '20d-lp'
    """
    if isinstance(domain, LinearProjection):
        # Other numbers of measures use the nearest column.
        nearest = min((2, 10, 20, 50), key=lambda k: abs(k - domain.measure_dim))
        return f"{nearest}d-lp"
    if isinstance(domain, Arm):
        return "arm"
    expected = (
        "LinearProjection, Arm, Triangles named ta-mnist or ta-fashion-mnist, or "
        "LatentIllumination named lsi"
    )
    is_named = isinstance(domain, (Triangles, LatentIllumination)) and domain.name in (*_TA, "lsi")
    fix = "The paper has no settings for it: build the algorithm yourself."
    checks.expect(is_named, "domain", expected, type(domain).__name__, fix)
    return domain.name
