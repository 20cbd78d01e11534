"""`gloam run`: domains and algorithms by name, with the paper's settings."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from tyro.conf import subcommand

import gloam
import gloam_lab
from gloam._tools.progress import print_line
from gloam.cli.options import (
    FollowOptions,
    SavingOptions,
    print_metrics,
    restart_rule,
    show_matches,
)

if TYPE_CHECKING:
    from gloam.datasets import Dataset
    from gloam.domains import Domain


# Domains. Each class is a subcommand, and its fields are the options.


class _Problem:
    iterations: ClassVar[int] = 10_000
    """Default number of iterations; the paper's."""

    def dataset(self) -> "Dataset | None":
        """Return the dataset whose items are the cells of the archive, if there is one."""
        return None


@dataclasses.dataclass(frozen=True)
class LpChoice(_Problem):
    """Linear projection: every measure is the sum of one block of the solution."""

    measures: int = 2
    """Number of measures. 2 uses a grid of 100 x 100 cells, others 10,000 centroids."""
    objective: Literal["sphere", "rastrigin", "flat"] = "sphere"
    """Objective function to maximize."""
    solution: int = 100
    """Number of variables of a solution; a multiple of the number of measures."""
    centroids: Path | None = None
    """File (.npy) with the centroids. Default: they are computed once and cached."""

    def build(self) -> "Domain":
        """Build the domain."""
        return gloam.domains.LinearProjection(
            self.measures, self.objective, solution_dim=self.solution, centroids=self.centroids
        )


@dataclasses.dataclass(frozen=True)
class ArmChoice(_Problem):
    """Arm repertoire: reach every point of the plane with a planar arm."""

    joints: int = 100
    """Number of joints; each link has length 1."""

    def build(self) -> "Domain":
        """Build the domain."""
        return gloam.domains.Arm(self.joints)


@dataclasses.dataclass(frozen=True)
class LatentDigitsChoice(_Problem):
    """Latent digits: search a small generator for a picture of each of 1,000 handwritten digits.

    Generator and digits come with gloam. The settings are gloam's own, not the paper's. The run
    ends with a gallery.
    """

    items: int | None = None
    """Number of digits to use, drawn at random. Default: all 1,000."""

    iterations: ClassVar[int] = 3000

    def build(self) -> "Domain":
        """Build the domain."""
        data = self.dataset()
        return gloam_lab.LatentDigits(data.items.reshape(-1, *data.shape))

    def dataset(self) -> "Dataset":
        """Return the digits."""
        data = gloam.datasets.handwritten_digits()
        return data if self.items is None else data.subsample(self.items)


DomainChoice = (
    Annotated[LpChoice, subcommand("lp")]
    | Annotated[ArmChoice, subcommand("arm")]
    | Annotated[LatentDigitsChoice, subcommand("latent-digits")]
)


# Algorithms. Options that are not given (None) keep the value of the preset for the domain.


@dataclasses.dataclass(frozen=True)
class _CmaOptions:
    domain: DomainChoice
    sigma0: float | None = None
    """Standard deviation of the first solutions around the start, and after restarts."""
    restart: str | None = None
    """When CMA-ES instances restart: idle, basic, no-improvement, or a number of iterations."""
    emitters: int | None = None
    """Number of CMA-ES instances."""
    batch_size: int | None = None
    """Number of solutions per instance and iteration."""
    strategy: Literal["full", "separable", "limited-memory", "pyribs"] | None = None
    """Evolution strategy. full is for up to 1,000 variables; the papers used pyribs' variant."""


@dataclasses.dataclass(frozen=True)
class DmsPaperChoice(_CmaOptions):
    """Discount Model Search with the paper's settings for the domain."""

    alpha: float | None = None
    """Archive learning rate: 0 optimizes only, 1 explores only."""
    empty_points: int | None = None
    """Number of empty cells per iteration that the discount model is trained to be low at."""

    name = "dms-paper"


@dataclasses.dataclass(frozen=True)
class DmsChoice(DmsPaperChoice):
    """Discount Model Search with gloam's defaults, and a step size for the domain."""

    gradients: bool = False
    """Let half of each batch climb by gradients through the discount model."""

    name = "dms"


@dataclasses.dataclass(frozen=True)
class CmaMaeChoice(_CmaOptions):
    """CMA-MAE: one threshold per cell, with the paper's settings for the domain."""

    alpha: float | None = None
    """Archive learning rate: 0 optimizes only, 1 is CMA-ME."""

    name = "cma-mae"


@dataclasses.dataclass(frozen=True)
class DdsChoice(_CmaOptions):
    """Density Descent Search (KDE), with the paper's settings for the domain."""

    bandwidth: float | None = None
    """Standard deviation of the kernel, in units of the measures."""

    name = "dds"


@dataclasses.dataclass(frozen=True)
class CmaMegaChoice(_CmaOptions):
    """CMA-MEGA: points branch along the gradients of objective and measures. Not for images.

    An instance of CMA-ES for each point adapts the coefficients of the gradients.
    """

    sigma0: float | None = None
    """Standard deviation of the first steps along the gradients, and after restarts."""
    learning_rate: float | None = None
    """Share of the step to the mean of the best branches; with --adam, its step size."""
    adam: bool | None = None
    """Move points by Adam instead of plain gradient ascent."""

    name = "cma-mega"


@dataclasses.dataclass(frozen=True)
class CmaMaegaChoice(CmaMegaChoice):
    """CMA-MAEGA: as CMA-MEGA, with the thresholds of CMA-MAE. Not for images."""

    alpha: float | None = None
    """Archive learning rate: 0 optimizes only, 1 explores only."""

    name = "cma-maega"


@dataclasses.dataclass(frozen=True)
class MapElitesChoice:
    """MAP-Elites, with the paper's settings for the domain."""

    domain: DomainChoice
    sigma0: float | None = None
    """Standard deviation of the Gaussian noise."""
    batch_size: int | None = None
    """Number of solutions per iteration."""

    name = "map-elites"


@dataclasses.dataclass(frozen=True)
class MapElitesLineChoice(MapElitesChoice):
    """MAP-Elites (line), with the paper's settings for the domain."""

    line_sigma: float | None = None
    """Standard deviation along the line to a second elite."""

    name = "map-elites-line"


AlgorithmChoice = (
    Annotated[DmsChoice, subcommand("dms")]
    | Annotated[DmsPaperChoice, subcommand("dms-paper")]
    | Annotated[CmaMaeChoice, subcommand("cma-mae")]
    | Annotated[DdsChoice, subcommand("dds")]
    | Annotated[MapElitesChoice, subcommand("map-elites")]
    | Annotated[MapElitesLineChoice, subcommand("map-elites-line")]
    | Annotated[CmaMegaChoice, subcommand("cma-mega")]
    | Annotated[CmaMaegaChoice, subcommand("cma-maega")]
)


# Classes of `gloam.emitters` with their arguments, by values of --strategy.
_STRATEGIES: dict[str, tuple[str, dict[str, Any]]] = {
    "full": ("CMAES", {}),
    "separable": ("SepCMAES", {}),
    "limited-memory": ("LMMAES", {}),
    "pyribs": ("CMAES", {"pyribs_covariance": True}),
}
# Options whose argument in Python has another name.
_ARGUMENTS = {"emitters": "num_emitters", "empty_points": "num_empty_points"}


def build_algorithm(choice: "AlgorithmChoice", domain: "Domain") -> "gloam.Algorithm":
    """Build the algorithm of a choice: the preset for the domain, changed by the given options."""
    options = {field.name: getattr(choice, field.name) for field in dataclasses.fields(choice)}
    del options["domain"]
    given = {name: value for name, value in options.items() if value is not None}
    if "strategy" in given:
        kind, arguments = _STRATEGIES[given["strategy"]]
        given["strategy"] = getattr(gloam.emitters, kind)(**arguments)
    if "restart" in given:
        given["restart"] = restart_rule(given["restart"])
    changes = {_ARGUMENTS.get(name, name): value for name, value in given.items()}
    return gloam_lab.preset_algorithm(choice.name, domain, **changes)


@dataclasses.dataclass(frozen=True)
class Run:
    """Search with one algorithm on one domain, with all seeds at once.

    Examples: gloam run dms lp --measures 10 --iterations 10000 --seeds 3 --out runs/x,
    gloam run dms latent-digits --out runs/digits
    """

    algorithm: AlgorithmChoice
    """Algorithm, then its domain."""
    out: Path
    """Run folder for metrics, archives, checkpoints and figures."""
    iterations: int | None = None
    """Number of iterations. Default: 10,000, as in the paper; 3,000 on latent-digits."""
    seeds: int = 1
    """Number of seeds."""
    seed: int = 0
    """First seed; the others follow it."""
    start_from: Path | None = None
    """Run folder whose elites the search starts from."""
    reevaluate_start: bool = False
    """Evaluate the solutions of --start-from again."""
    snapshots: tuple[int, ...] = ()
    """Iterations at which `gloam plot` shows the archive and the discount. Default: the last."""
    saving: SavingOptions = dataclasses.field(default_factory=SavingOptions)
    follow: FollowOptions = dataclasses.field(default_factory=FollowOptions)

    @property
    def continuation(self) -> str:
        """How to continue this run, for messages."""
        return f"`gloam resume {self.out}`"

    def __call__(self) -> None:
        """Run the search."""
        gloam.RunFolder(self.out).check_new()
        chosen = self.algorithm.domain
        domain, data = chosen.build(), chosen.dataset()
        iterations = chosen.iterations if self.iterations is None else self.iterations
        result = gloam.run(
            domain,
            build_algorithm(self.algorithm, domain),
            iterations,
            seeds=range(self.seed, self.seed + self.seeds),
            run_dir=self.out,
            snapshots=self.snapshots or (iterations,),
            dataset=data,
            start_from=self.start_from,
            reevaluate_start=self.reevaluate_start,
            **dataclasses.asdict(self.saving),
            **self.follow.arguments(),
        )
        print_metrics(result)
        print_line(f"To draw figures: gloam plot {self.out}")
        if data is not None:
            show_matches(gloam.datasets.Matches(result.elites, data), self.out)
