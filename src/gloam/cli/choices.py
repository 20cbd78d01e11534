"""Domains and algorithms that the command line can name, with their options.

Only this module maps strings to objects.
"""

import dataclasses
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from tyro.conf import subcommand

from gloam.algorithms import Algorithm
from gloam.datasets import Dataset, handwritten_digits
from gloam.domains import Arm, Domain, LatentDigits, LinearProjection
from gloam.emitters import (
    CMAES,
    LMMAES,
    BasicRestart,
    RestartEvery,
    RestartRule,
    RestartWhenIdle,
    RestartWithoutImprovement,
    SepCMAES,
)
from gloam.experiments import preset_algorithm


@dataclasses.dataclass(frozen=True)
class _DomainOptions:
    iterations: ClassVar[int] = 10_000
    """Number of iterations where the command line gives none; the paper runs 10,000."""

    def dataset(self) -> Dataset | None:
        """The dataset whose items are the cells of the archive, if there is one."""
        return None


@dataclasses.dataclass(frozen=True)
class LpChoice(_DomainOptions):
    """Linear projection: every measure is the sum of one block of the solution."""

    measures: int = 2
    """Number of measures. 2 uses a grid of 100 x 100 cells, others 10,000 centroids."""
    objective: Literal["sphere", "rastrigin", "flat"] = "sphere"
    """Objective function to maximise."""
    solution: int = 100
    """Number of variables of a solution; a multiple of the number of measures."""
    centroids: Path | None = None
    """File (.npy) with the centroids. Default: they are computed once and cached."""

    def build(self) -> Domain:
        """The domain."""
        return LinearProjection(
            self.measures, self.objective, solution_dim=self.solution, centroids=self.centroids
        )


@dataclasses.dataclass(frozen=True)
class ArmChoice(_DomainOptions):
    """Arm repertoire: reach every point of the plane with a planar arm."""

    joints: int = 100
    """Number of joints; each link has length 1."""

    def build(self) -> Domain:
        """The domain."""
        return Arm(self.joints)


@dataclasses.dataclass(frozen=True)
class LatentDigitsChoice(_DomainOptions):
    """Latent digits: search a small generator for a picture of each of 1,000 handwritten digits.

    Generator and digits come with gloam. The settings are gloam's own, not the paper's. The run
    ends with a gallery.
    """

    items: int | None = None
    """Number of digits to use, drawn at random. Default: all 1,000."""

    iterations: ClassVar[int] = 3000

    def build(self) -> Domain:
        """The domain."""
        data = self.dataset()
        return LatentDigits(data.items.reshape(-1, *data.shape))

    def dataset(self) -> Dataset:
        """The digits."""
        data = handwritten_digits()
        return data if self.items is None else data.subsample(self.items)


DomainChoice = (
    Annotated[LpChoice, subcommand("lp")]
    | Annotated[ArmChoice, subcommand("arm")]
    | Annotated[LatentDigitsChoice, subcommand("latent-digits")]
)


@dataclasses.dataclass(frozen=True)
class _CmaOptions:
    domain: DomainChoice
    sigma0: float | None = None
    """Standard deviation of the first solutions around the start, and after restarts."""
    restart: str | None = None
    """When emitters restart: idle, basic, no-improvement, or a number of iterations."""
    emitters: int | None = None
    """Number of CMA-ES emitters."""
    batch_size: int | None = None
    """Number of solutions per emitter and iteration."""
    strategy: Literal["full", "separable", "limited-memory", "pyribs"] | None = None
    """Evolution strategy: full CMA-ES (for up to 1,000 variables), separable CMA-ES,
    limited-memory MA-ES, or pyribs' variant of CMA-ES, which the paper used."""


@dataclasses.dataclass(frozen=True)
class DmsChoice(_CmaOptions):
    """Discount Model Search as in the paper. Defaults are its settings for the domain."""

    alpha: float | None = None
    """Archive learning rate: 0 optimises only, 1 explores only."""
    empty_points: int | None = None
    """Number of empty cells trained to f_min in each iteration."""

    name = "dms"


@dataclasses.dataclass(frozen=True)
class DmsDefaultChoice(DmsChoice):
    """Discount Model Search with gloam's defaults, the same on every domain."""

    moves: int | None = None
    """Number of solutions per iteration by moves between elites."""

    name = "dms-default"


@dataclasses.dataclass(frozen=True)
class CmaMaeChoice(_CmaOptions):
    """CMA-MAE: one threshold per cell. Defaults are the paper's settings for the domain."""

    alpha: float | None = None
    """Archive learning rate: 0 optimises only, 1 is CMA-ME."""

    name = "cma-mae"


@dataclasses.dataclass(frozen=True)
class DdsChoice(_CmaOptions):
    """Density Descent Search (KDE). Defaults are the paper's settings for the domain."""

    bandwidth: float | None = None
    """Standard deviation of the kernel, in units of the measures."""

    name = "dds"


@dataclasses.dataclass(frozen=True)
class MapElitesChoice:
    """MAP-Elites. Defaults are the paper's settings for the domain."""

    domain: DomainChoice
    sigma: float | None = None
    """Standard deviation of the Gaussian noise."""
    batch_size: int | None = None
    """Number of solutions per iteration."""

    name = "map-elites"


@dataclasses.dataclass(frozen=True)
class MapElitesLineChoice(MapElitesChoice):
    """MAP-Elites (line). Defaults are the paper's settings for the domain."""

    line_sigma: float | None = None
    """Standard deviation along the line to a second elite."""

    name = "map-elites-line"


AlgorithmChoice = (
    Annotated[DmsDefaultChoice, subcommand("dms-default")]
    | Annotated[DmsChoice, subcommand("dms")]
    | Annotated[CmaMaeChoice, subcommand("cma-mae")]
    | Annotated[DdsChoice, subcommand("dds")]
    | Annotated[MapElitesChoice, subcommand("map-elites")]
    | Annotated[MapElitesLineChoice, subcommand("map-elites-line")]
)


_STRATEGIES = {
    "full": CMAES(),
    "separable": SepCMAES(),
    "limited-memory": LMMAES(),
    "pyribs": CMAES(pyribs_covariance=True),
}


# Options with a shorter name than the argument in Python.
_ARGUMENTS = {
    "emitters": "num_emitters",
    "empty_points": "num_empty_points",
    "moves": "num_moves",
}


def build_algorithm(choice: Any, domain: Domain) -> Algorithm:
    """The algorithm of a choice: the preset of the domain, changed by the options given."""
    changes = {
        _ARGUMENTS.get(field.name, field.name): getattr(choice, field.name)
        for field in dataclasses.fields(choice)
        if field.name != "domain" and getattr(choice, field.name) is not None
    }
    if "strategy" in changes:
        changes["strategy"] = _STRATEGIES[changes["strategy"]]
    if "restart" in changes:
        changes["restart"] = restart_rule(changes["restart"])
    return preset_algorithm(choice.name, domain, **changes)


def restart_rule(text: str) -> RestartRule:
    """The restart rule that the option --restart names."""
    if text == "idle":
        return RestartWhenIdle()
    if text == "basic":
        return BasicRestart()
    if text == "no-improvement":
        return RestartWithoutImprovement()
    if text.isdigit():
        return RestartEvery(int(text))
    raise ValueError(
        f"restart: expected idle, basic, no-improvement or a number of iterations, got {text!r}."
    )
