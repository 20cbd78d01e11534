"""What can be named on the command line: domains and algorithms, with their options.

Only here do strings choose objects.
"""

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import subcommand

from gloam.algorithms import Algorithm
from gloam.domains import Arm, Domain, LinearProjection
from gloam.emitters import (
    CMAES,
    LMMAES,
    BasicRestart,
    RestartEvery,
    RestartRule,
    RestartWithoutImprovement,
    SepCMAES,
)
from gloam.experiments import paper_algorithm


@dataclasses.dataclass(frozen=True)
class LpChoice:
    """Linear projection: every measure is the sum of one block of the solution."""

    measures: int = 2
    """Number of measures; 2 has a grid of 100 x 100 cells, more have 10,000 centroids."""
    objective: Literal["sphere", "rastrigin", "flat"] = "sphere"
    """What is to be maximised."""
    solution: int = 100
    """Numbers in a solution, a multiple of the measures."""
    centroids: Path | None = None
    """A .npy file of centroids. Without it they are made once and cached."""

    def build(self) -> Domain:
        """The domain."""
        return LinearProjection(
            self.measures, self.objective, solution_dim=self.solution, centroids=self.centroids
        )


@dataclasses.dataclass(frozen=True)
class ArmChoice:
    """Arm repertoire: reach every point of the plane with a many-jointed arm."""

    joints: int = 100
    """Joints, each with a link of length 1."""

    def build(self) -> Domain:
        """The domain."""
        return Arm(self.joints)


DomainChoice = Annotated[LpChoice, subcommand("lp")] | Annotated[ArmChoice, subcommand("arm")]


@dataclasses.dataclass(frozen=True)
class _CmaOptions:
    domain: DomainChoice
    sigma0: float | None = None
    """Standard deviation of the first solutions, and after restarts."""
    restart: str | None = None
    """basic, no-improvement, or a number of iterations."""
    emitters: int | None = None
    """CMA-ES instances."""
    batch_size: int | None = None
    """Solutions per instance and iteration."""
    strategy: Literal["full", "separable", "limited-memory", "pyribs"] | None = None
    """The Gaussians: full CMA-ES (best up to 1,000 numbers), sep-CMA-ES, LM-MA-ES, or pyribs'
    variant of CMA-ES, with which the paper's figures were made."""


@dataclasses.dataclass(frozen=True)
class DmsChoice(_CmaOptions):
    """Discount Model Search. What you do not set is as in the paper for the domain."""

    alpha: float | None = None
    """Archive learning rate: 0 optimises only, 1 explores only."""
    empty_points: int | None = None
    """Empty cells trained to f_min in each iteration."""

    name = "dms"


@dataclasses.dataclass(frozen=True)
class CmaMaeChoice(_CmaOptions):
    """CMA-MAE: one threshold per cell. What you do not set is as in the paper for the domain."""

    alpha: float | None = None
    """Archive learning rate: 0 optimises only, 1 is CMA-ME."""

    name = "cma-mae"


@dataclasses.dataclass(frozen=True)
class DdsChoice(_CmaOptions):
    """Density Descent Search (KDE). What you do not set is as in the paper for the domain."""

    bandwidth: float | None = None
    """Standard deviation of the kernel, in units of the measures."""

    name = "dds"


@dataclasses.dataclass(frozen=True)
class MapElitesChoice:
    """MAP-Elites. What you do not set is as in the paper for the domain."""

    domain: DomainChoice
    sigma: float | None = None
    """Standard deviation of the noise."""
    batch_size: int | None = None
    """Solutions per iteration."""

    name = "map-elites"


@dataclasses.dataclass(frozen=True)
class MapElitesLineChoice(MapElitesChoice):
    """MAP-Elites (line). What you do not set is as in the paper for the domain."""

    line_sigma: float | None = None
    """Standard deviation along the line to a second elite."""

    name = "map-elites-line"


AlgorithmChoice = (
    Annotated[DmsChoice, subcommand("dms")]
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


def build_algorithm(choice: Any, domain: Domain) -> Algorithm:
    """The algorithm of a choice: the paper's settings but for the options that were given."""
    changes = {
        field.name: getattr(choice, field.name)
        for field in dataclasses.fields(choice)
        if field.name != "domain" and getattr(choice, field.name) is not None
    }
    if "strategy" in changes:
        changes["strategy"] = _STRATEGIES[changes["strategy"]]
    if "restart" in changes:
        changes["restart"] = _restart(changes["restart"])
    return paper_algorithm(choice.name, domain, **changes)


def _restart(text: str) -> RestartRule:
    if text == "basic":
        return BasicRestart()
    if text == "no-improvement":
        return RestartWithoutImprovement()
    if text.isdigit():
        return RestartEvery(int(text))
    raise ValueError(
        f"restart: expected basic, no-improvement or a number of iterations, got {text!r}."
    )
