"""A study: algorithms on domains, each pair ("cell") in run folders that can be continued."""

import dataclasses
import itertools
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import jax
import pandas as pd

from gloam import step
from gloam._tools import checks
from gloam._tools.devices import memory_bytes, runs_on_cpu
from gloam._tools.draws import root_key
from gloam._tools.progress import Display
from gloam._tools.warn import warn
from gloam.algorithms import Algorithm
from gloam.domains import Arm, Domain, LinearProjection, Triangles
from gloam.emitters import CMAES, BasicRestart, RestartEvery
from gloam.errors import DamagedFileError
from gloam.formats import RunFolder
from gloam.formats.documents import is_document, read_document, write_document
from gloam.runs import run
from gloam.runs.fused_driver import FusedDriver
from gloam_lab.latent_illumination.experiment import (
    IMAGES_AT_ONCE,
    LsiFiles,
    low_objectives_expected,
    lsi_domain,
    read_embedder,
    read_generator,
    read_landscapes,
    stored_start,
)
from gloam_lab.presets import (
    ALGORITHMS,
    ARBORESCENCE_SETTINGS,
    STUDY_ALGORITHMS,
    preset_algorithm,
)
from gloam_lab.published import title

DOMAINS = (
    "2d-lp-sphere",
    "10d-lp-sphere",
    "20d-lp-sphere",
    "50d-lp-sphere",
    "2d-lp-rastrigin",
    "10d-lp-rastrigin",
    "2d-lp-flat",
    "10d-lp-flat",
    "arm",
)
"""Domains of the paper that need no files."""
IMAGE_DOMAINS = {"ta-mnist": "mnist_1000.npy", "ta-fashion-mnist": "fashion_mnist_1000.npy"}
"""Domains on images, with the files of their centroids."""
LSI = "lsi"
"""Latent space illumination, which needs models and landscapes."""
_KNOWN_DOMAINS = (*DOMAINS, *IMAGE_DOMAINS, LSI)

ABLATIONS: dict[str, dict[str, dict[str, Any]]] = {
    "alpha": {f"dms-paper-alpha-{a:g}": {"alpha": a} for a in (0.0, 0.001, 0.01, 0.1, 1.0)},
    "empty": {f"dms-paper-empty-{n}": {"num_empty_points": n} for n in (0, 10, 100, 1000)},
    "restart": {
        "dms-paper-restart-basic": {"restart": BasicRestart()},
        "dms-paper-restart-100": {"restart": RestartEvery(100)},
    },
}
"""The paper's ablations of DMS (appendix D): variants by name, with the arguments they change."""
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = (
    {name: (name, {}) for name in ALGORITHMS}
    | {"dms-gradients": ("dms", {"gradients": True})}
    # The paper's results were computed with pyribs' CMA-ES; see `gloam.emitters.CMAES`.
    | {
        f"{name}-pyribs": (name, {"strategy": CMAES(pyribs_covariance=True)})
        for name in ("dms-paper", "cma-mae", "dds", *ARBORESCENCE_SETTINGS)
    }
    | {
        name: ("dms-paper", changes)
        for variants in ABLATIONS.values()
        for name, changes in variants.items()
    }
)
"""Names that a study accepts as algorithms: the preset, and the arguments that differ from it."""

# Number of programs that are compiled ahead on a GPU, where the smallest run for two seconds.
_AHEAD = 4
# Share of the device's memory for the states of one program; the rest is for temporary arrays.
_STATE_SHARE = 0.25
_CPU_BYTES = 8 * 2**30


@dataclasses.dataclass(frozen=True)
class Cell:
    """One algorithm on one domain, with all seeds."""

    domain: str
    algorithm: str
    path: Path

    def folders(self) -> list[RunFolder]:
        """Return the run folders of the cell: one, or one for each group of seeds."""
        if RunFolder(self.path).holds_run:
            return [RunFolder(self.path)]
        return [RunFolder(part) for part in sorted(self.path.glob("part-*"))]

    def results(self) -> list[tuple[RunFolder, pd.DataFrame]]:
        """Return the run folders with their metrics so far, without empty and damaged ones.

        A warning names what is damaged.
        """
        readable = []
        for folder in self.folders():
            try:
                metrics = folder.read_metrics()
            except DamagedFileError as error:
                warn(f"{error} The report is without this run.")
                continue
            if len(metrics):
                readable.append((folder, metrics))
        return readable

    def metrics(self) -> pd.DataFrame:
        """Return the metrics of all seeds so far; ``part`` is the index of the run folder."""
        tables = [table.assign(part=part) for part, (_, table) in enumerate(self.results())]
        return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


@dataclasses.dataclass(frozen=True)
class Study:
    """Algorithms, domains and seeds of a study, and its folder.

    Args:
        path: The study folder; cells are in ``path/DOMAIN/ALGORITHM``.
        domains: Some of `DOMAINS`, of `IMAGE_DOMAINS`, and `LSI`.
        algorithms: Names of algorithms, or of the variants of an ablation.
        num_seeds: Number of seeds (0, 1, ...) of every cell.
        iterations: Number of iterations of every seed.
        centroids_dir: See `domain_named`.
        log_every: Number of iterations between two rows of metrics.
        lsi: Files of the domain `LSI`. Without them it is not run: see `domains_without_files`.
    """

    path: Path
    domains: tuple[str, ...] = DOMAINS
    algorithms: tuple[str, ...] = STUDY_ALGORITHMS
    num_seeds: int = 20
    iterations: int = 10_000
    centroids_dir: str | None = None
    log_every: int = 50
    lsi: LsiFiles | None = None

    def __post_init__(self) -> None:
        for name, known in (("domains", _KNOWN_DOMAINS), ("algorithms", tuple(VARIANTS))):
            for given in getattr(self, name):
                checks.expect(given in known, name, f"some of {', '.join(known)}", repr(given))
        runs = [name for name in self.domains if name not in self.domains_without_files]
        on_images = [name for name in runs if name in (*IMAGE_DOMAINS, LSI)]
        needs = [name for name in self.algorithms if VARIANTS[name][0] in ARBORESCENCE_SETTINGS]
        checks.expect(
            not (on_images and needs),
            "algorithms",
            f"some that need no Jacobian, which has hundreds of rows on {', '.join(on_images)}",
            ", ".join(needs),
            "Leave them out, or these domains.",
        )
        if self.centroids_dir is not None:
            checks.instance("centroids_dir", self.centroids_dir, str)
        if self.lsi is not None:
            checks.instance("lsi", self.lsi, LsiFiles)
        for name in ("log_every", "num_seeds", "iterations"):
            checks.integer(name, getattr(self, name), minimum=1)

    @property
    def domains_without_files(self) -> tuple[str, ...]:
        """Domains of the study that are not run because their files were not given."""
        return (LSI,) if LSI in self.domains and self.lsi is None else ()

    def cells(self) -> Iterator[Cell]:
        """Yield the cells that can run, domain by domain."""
        for domain in self.domains:
            if domain in self.domains_without_files:
                continue
            for algorithm in self.algorithms:
                on_images = domain in (*IMAGE_DOMAINS, LSI)
                if on_images and VARIANTS[algorithm][0] == "dds":
                    continue  # the paper has no settings for it
                yield Cell(domain, algorithm, self.path / domain / algorithm)

    def finished(self, cell: Cell) -> bool:
        """Whether every seed of the cell has run to its end."""
        done: set[int] = set()
        for folder in cell.folders():
            # Metrics are written before the state, and may be damaged.
            if folder.holds_checkpoint and folder.read_checkpoint_iteration() >= self.iterations:
                done |= set(folder.read_config().seeds)
        return set(range(self.num_seeds)) <= done

    def write(self) -> None:
        """Write the study to its folder.

        Raises:
            ValueError: The folder has a ``study.json`` that gloam did not write.
        """
        path = self.path / "study.json"
        is_free = not path.exists() or is_document(path, "study")
        expected = "a folder without a study.json of another program"
        checks.expect(is_free, "out", expected, f"'{path}'", "Choose another folder.")
        content = dataclasses.asdict(self)
        del content["path"]
        # For the explorer, which knows no names of studies.
        content["titles"] = {name: title(name) for name in (*self.domains, *self.algorithms)}
        write_document(path, content, kind="study")

    @staticmethod
    def read(path: str | os.PathLike) -> "Study":
        """Read the study in a folder.

        Raises:
            DamagedFileError: The file is damaged or was not written by gloam.
        """
        fix = "Give the folder that `gloam paper --out` wrote."
        file = checks.existing_file("study", Path(path) / "study.json", fix)
        content = read_document(file, kind="study", fix=fix)
        content.pop("titles", None)
        try:
            for name in ("domains", "algorithms"):
                content[name] = tuple(content[name])
            if content.get("lsi") is not None:
                content["lsi"] = LsiFiles(**content["lsi"])
            return Study(Path(path), **content)
        except (TypeError, KeyError, ValueError) as error:
            raise DamagedFileError(file, str(error), fix) from None


def compiled_ahead(study: Study) -> Iterator[Cell]:
    """Yield the cells that can run. While one of them runs, the next programs are compiled."""
    groups = _by_program(study)
    number = 1 if runs_on_cpu() else _AHEAD
    # One thread traces programs. XLA compiles them in others, without the interpreter.
    with ThreadPoolExecutor(1) as pool:
        later = iter(groups[1:])  # the first program is compiled by its own run
        for started, group in enumerate(groups):
            for cells in itertools.islice(later, number if started == 0 else 1):
                pool.submit(_compile_ahead, study, cells)
            yield from group


def _by_program(study: Study) -> list[list[Cell]]:
    """Return the cells in the order in which they run, those of one program together.

    Objectives of linear projection with the same number of measures share programs. The last
    algorithms go first: in `STUDY_ALGORITHMS` they compile fastest, and the device can begin.
    """
    cells = sorted(study.cells(), key=lambda cell: study.algorithms[::-1].index(cell.algorithm))
    domains = {name: name.split("-lp-")[0] for name in study.domains}
    order = list(dict.fromkeys(domains.values()))
    cells.sort(key=lambda cell: order.index(domains[cell.domain]))
    by_program = itertools.groupby(cells, lambda cell: (domains[cell.domain], cell.algorithm))
    return [list(group) for _, group in by_program]


def _compile_ahead(study: Study, cells: list[Cell]) -> None:
    """Compile the programs of cells that share them. They are kept for their runs."""
    cell = next((cell for cell in cells if not study.finished(cell)), None)
    if cell is None or cell.domain == LSI:  # which reads models and chooses its start first
        return
    with suppress(Exception):  # the run itself reports what is wrong
        domain, algorithm = build_cell(study, cell)
        FusedDriver(domain, algorithm, _groups(study, cell, algorithm)[0]).start()


def _groups(study: Study, cell: Cell, algorithm: Algorithm) -> list[list[int]]:
    """Return the seeds in groups that fit in memory."""
    seeds = list(range(study.num_seeds))
    # On LSI states are small, but each seed generates images, too.
    size = seeds_that_fit(algorithm, IMAGES_AT_ONCE if cell.domain == LSI else len(seeds))
    return [seeds[start : start + size] for start in range(0, len(seeds), size)]


def run_cell(study: Study, cell: Cell, display: Display | bool) -> None:
    """Run or continue one cell: all seeds as one program, or in groups that fit in memory."""
    if study.finished(cell):
        return
    domain, algorithm = build_cell(study, cell)
    groups = _groups(study, cell, algorithm)
    snapshots = {max(1, study.iterations * share // 100) for share in (1, 10, 50, 100)}
    with low_objectives_expected() if cell.domain == LSI else nullcontext():
        for number, group in enumerate(groups):
            run(
                domain,
                algorithm,
                seeds=group,
                iterations=study.iterations,
                run_dir=cell.path if len(groups) == 1 else cell.path / f"part-{number:02d}",
                resume=True,
                log_every=study.log_every,
                checkpoint_seconds=120.0,
                progress=display,
                snapshots=sorted(snapshots),
            )


def build_cell(study: Study, cell: Cell) -> tuple[Domain, Algorithm]:
    """Build the domain and the algorithm of a cell."""
    if cell.domain == LSI:
        assert study.lsi is not None, "cells() yields such cells only if there are files"
        embedder, folders = read_embedder(study.lsi.clip), cell.folders()
        domain = lsi_domain(
            read_generator(study.lsi.stylegan),
            embedder,
            read_landscapes(study.lsi.landscapes, embedder, progress=True),
            x0=stored_start(folders[0]) if folders else None,
            num_seeds=study.num_seeds,
            progress=True,
        )
    else:
        domain = domain_named(cell.domain, study.centroids_dir)
    algorithm, changes = VARIANTS[cell.algorithm]
    return domain, preset_algorithm(algorithm, domain, **changes)


def domain_named(name: str, centroids_dir: str | os.PathLike | None = None) -> Domain:
    """Build a domain of the paper by its short name.

    Args:
        name: One of `DOMAINS` or `IMAGE_DOMAINS`.
        centroids_dir: Folder with the paper's own centroids, ``lp_{k}d.npy``. By default they are
            computed once and cached. Image domains require it, with ``mnist_1000.npy`` and so on:
            rows of 784 pixels from 0 to 1.
    """
    known = (*DOMAINS, *IMAGE_DOMAINS)
    checks.expect(name in known, "domain", f"one of {', '.join(known)}", repr(name))
    folder = None if centroids_dir is None else Path(centroids_dir)
    if name == "arm":
        return Arm()
    if name in IMAGE_DOMAINS:
        expected = f"a folder with {IMAGE_DOMAINS[name]}, the images of {name}"
        fix = "Give --centroids-dir DIR."
        checks.expect(folder is not None, "centroids_dir", expected, "none", fix)
        assert folder is not None
        return Triangles(folder / IMAGE_DOMAINS[name], name=name)
    size, _, objective = name.split("-")
    measures = int(size[:-1])
    file = None if folder is None or measures == 2 else folder / f"lp_{measures}d.npy"
    return LinearProjection(measures, objective, centroids=file)  # pyright: ignore[reportArgumentType]


def seeds_that_fit(algorithm: Algorithm, wanted: int) -> int:
    """Return the number of seeds, up to ``wanted``, that one program can hold on this device."""
    state: Any = jax.eval_shape(lambda key: step.init(algorithm, key), root_key(0))
    size = sum(leaf.size * 4 for leaf in jax.tree.leaves(state))
    return max(1, min(wanted, int(memory_bytes(_CPU_BYTES) * _STATE_SHARE // size)))
