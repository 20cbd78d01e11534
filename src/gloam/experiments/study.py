"""The paper's domains by their short names, with the files that some of them need.

A study: algorithms by domains, each cell one run folder; finished cells are kept.
"""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jax
import pandas as pd

from gloam import checks
from gloam.algorithms import Algorithm
from gloam.devices import memory_bytes
from gloam.domains import Arm, Domain, LinearProjection, Triangles
from gloam.draws import root_key
from gloam.emitters import CMAES, BasicRestart, RestartEvery
from gloam.experiments.lsi import (
    IMAGES_AT_ONCE,
    LsiFiles,
    low_objectives_expected,
    lsi_domain,
    read_embedder,
    read_generator,
    read_landscapes,
    stored_start,
)
from gloam.experiments.presets import ALGORITHMS, SETTINGS, paper_algorithm
from gloam.formats import DamagedFileError, RunFolder
from gloam.formats.documents import is_document, read_document, write_document
from gloam.progress import Display
from gloam.runs import run

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

# On images of a dataset. They need the images as centroids, so that no study has them by default.
IMAGE_DOMAINS = {"ta-mnist": "mnist_1000.npy", "ta-fashion-mnist": "fashion_mnist_1000.npy"}
LSI = "lsi"
"""Latent space illumination, which needs models and landscapes."""
KNOWN_DOMAINS = (*DOMAINS, *IMAGE_DOMAINS, LSI)


def domain_named(name: str, centroids_dir: str | os.PathLike | None = None) -> Domain:
    """A domain of the paper by its short name, other than `LSI`.

    Args:
        name: One of `DOMAINS` or `IMAGE_DOMAINS`.
        centroids_dir: Folder with ``lp_{k}d.npy``, the paper's own centroids; without it they
            are computed once and cached. For image domains, with ``mnist_1000.npy`` and so on:
            rows of 784 pixels from 0 to 1.
    """
    known = (*DOMAINS, *IMAGE_DOMAINS)
    checks.expect(name in known, "domain", f"one of {', '.join(known)}", repr(name))
    if name in IMAGE_DOMAINS:
        checks.expect(
            centroids_dir is not None,
            "centroids_dir",
            f"a folder with {IMAGE_DOMAINS[name]}, the images of {name}",
            "none",
            "Give --centroids-dir DIR.",
        )
        assert centroids_dir is not None
        return Triangles(Path(centroids_dir) / IMAGE_DOMAINS[name], name=name)
    if name == "arm":
        return Arm()
    size, _, objective = name.split("-")
    measures = int(size[:-1])
    file = None
    if centroids_dir is not None and measures != 2:
        file = Path(centroids_dir) / f"lp_{measures}d.npy"
    return LinearProjection(measures, objective, centroids=file)  # pyright: ignore[reportArgumentType]


def lsi_from_files(files: LsiFiles, num_seeds: int, folders: list[RunFolder]) -> Domain:
    """The domain `LSI`, with the start of an earlier run in the first of ``folders`` if any.

    Args:
        files: Models and landscapes.
        num_seeds: Number of seeds that run at once.
        folders: Run folders of the search, which may be empty.
    """
    embedder = read_embedder(files.clip)
    return lsi_domain(
        read_generator(files.stylegan),
        embedder,
        read_landscapes(files.landscapes, embedder, progress=True),
        x0=stored_start(folders[0]) if folders else None,
        num_seeds=num_seeds,
        progress=True,
    )


# The paper's ablations of DMS (appendix D): variants by name, with what they change.
ABLATIONS: dict[str, dict[str, dict[str, Any]]] = {
    "alpha": {f"dms-alpha-{a:g}": {"alpha": a} for a in (0.0, 0.001, 0.01, 0.1, 1.0)},
    "empty": {f"dms-empty-{n}": {"num_empty_points": n} for n in (0, 10, 100, 1000)},
    "restart": {
        "dms-restart-basic": {"restart": BasicRestart()},
        "dms-restart-100": {"restart": RestartEvery(100)},
    },
}
# Everything a study can name: the algorithm it is, and what it changes in the paper's settings.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = (
    {name: (name, {}) for name in ALGORITHMS}
    # The paper's figures were made with pyribs' CMA-ES; see `gloam.emitters.CMAES`.
    | {
        f"{name}-pyribs": (name, {"strategy": CMAES(pyribs_covariance=True)})
        for name in ("dms", "cma-mae", "dds")
    }
    | {name: ("dms", changes) for some in ABLATIONS.values() for name, changes in some.items()}
)

# Share of the device's memory that the states of one program may take; the rest is for temporaries.
_STATE_SHARE = 0.25
_CPU_BYTES = 8 * 2**30


@dataclasses.dataclass(frozen=True)
class Cell:
    """One algorithm on one domain, all seeds."""

    domain: str
    algorithm: str
    path: Path

    def folders(self) -> list[RunFolder]:
        """The run folders of the cell: one, or one for each group of seeds."""
        if RunFolder(self.path).holds_run:
            return [RunFolder(self.path)]
        return [RunFolder(part) for part in sorted(self.path.glob("part-*"))]

    def metrics(self) -> pd.DataFrame:
        """Metrics of all seeds so far; ``part`` tells the run folders of the cell apart."""
        tables = [folder.read_metrics() for folder in self.folders()]
        tables = [table.assign(part=part) for part, table in enumerate(tables) if len(table)]
        return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


@dataclasses.dataclass(frozen=True)
class Study:
    """What a study runs, and where.

    Args:
        path: The study folder; cells are in ``path/DOMAIN/ALGORITHM``.
        domains: Some of `DOMAINS`, of `IMAGE_DOMAINS`, and `LSI`.
        algorithms: Names of algorithms, or of the variants of an ablation.
        num_seeds: Number of seeds (0, 1, ...) of every cell.
        iterations: Number of iterations of every seed.
        centroids_dir: See `domain_named`.
        log_every: Iterations between two rows of metrics.
        lsi: Files of the domain `LSI`. Without them it is not run: see `domains_without_files`.
    """

    path: Path
    domains: tuple[str, ...] = DOMAINS
    algorithms: tuple[str, ...] = tuple(ALGORITHMS)
    num_seeds: int = 20
    iterations: int = 10_000
    centroids_dir: str | None = None
    log_every: int = 50
    lsi: LsiFiles | None = None

    def __post_init__(self) -> None:
        for domain in self.domains:
            known = f"some of {', '.join(KNOWN_DOMAINS)}"
            checks.expect(domain in KNOWN_DOMAINS, "domains", known, repr(domain))
        for algorithm in self.algorithms:
            checks.expect(
                algorithm in VARIANTS,
                "algorithms",
                f"some of {', '.join(VARIANTS)}",
                repr(algorithm),
            )
        if self.centroids_dir is not None:
            checks.instance("centroids_dir", self.centroids_dir, str)
        if self.lsi is not None:
            checks.instance("lsi", self.lsi, LsiFiles)
        checks.integer("log_every", self.log_every, minimum=1)
        checks.integer("num_seeds", self.num_seeds, minimum=1)
        checks.integer("iterations", self.iterations, minimum=1)

    @property
    def domains_without_files(self) -> tuple[str, ...]:
        """Domains of the study that are not run, because they need files that it does not name."""
        return tuple(domain for domain in self.domains if domain == LSI and self.lsi is None)

    def cells(self) -> Iterator[Cell]:
        """All cells that can run, domain by domain."""
        for domain in self.domains:
            if domain in self.domains_without_files:
                continue
            for algorithm in self.algorithms:
                on_images = domain in (*IMAGE_DOMAINS, LSI)
                if on_images and domain not in SETTINGS[VARIANTS[algorithm][0]]:
                    continue  # the paper could not run DDS on images
                yield Cell(domain, algorithm, self.path / domain / algorithm)

    def finished(self, cell: Cell) -> bool:
        """True when every seed of the cell has run to its end."""
        done: set[int] = set()
        for folder in cell.folders():
            # The metrics are ahead of the state, and may be damaged.
            if folder.holds_checkpoint and folder.read_checkpoint_iteration() >= self.iterations:
                done |= set(folder.read_config().seeds)
        return set(range(self.num_seeds)) <= done

    def write(self) -> None:
        """Remember the study in its folder.

        Raises:
            ValueError: The folder has a ``study.json`` that gloam did not write.
        """
        path = self.path / "study.json"
        checks.expect(
            not path.exists() or is_document(path, "study"),
            "out",
            "a folder without a study.json of another program",
            f"'{path}'",
            "Choose another folder.",
        )
        content = dataclasses.asdict(self)
        del content["path"]
        write_document(path, content, kind="study")

    @staticmethod
    def read(path: str | os.PathLike) -> "Study":
        """The study in a folder.

        Raises:
            DamagedFileError: The file is damaged or was not written by gloam.
        """
        fix = "Give the folder that `gloam paper --out` wrote."
        file = checks.existing_file("study", Path(path) / "study.json", fix)
        content = read_document(file, kind="study", fix=fix)
        try:
            for name in ("domains", "algorithms"):
                content[name] = tuple(content[name])
            if content.get("lsi") is not None:
                content["lsi"] = LsiFiles(**content["lsi"])
            return Study(Path(path), **content)
        except (TypeError, KeyError, ValueError) as error:
            raise DamagedFileError(file, str(error), fix) from None


def build_cell(study: Study, cell: Cell) -> tuple[Domain, Algorithm]:
    """The domain and the algorithm of a cell."""
    algorithm, changes = VARIANTS[cell.algorithm]
    if cell.domain == LSI:
        assert study.lsi is not None, "cells() has such cells only if there are files"
        domain = lsi_from_files(study.lsi, study.num_seeds, cell.folders())
    else:
        domain = domain_named(cell.domain, study.centroids_dir)
    return domain, paper_algorithm(algorithm, domain, **changes)


def run_cell(study: Study, cell: Cell, display: Display | bool) -> None:
    """Run, continue or skip one cell: all seeds as one program, or in groups that fit."""
    if study.finished(cell):
        return
    domain, algorithm = build_cell(study, cell)
    seeds = list(range(study.num_seeds))
    # States of LSI are small, but each seed generates images, too.
    size = seeds_that_fit(algorithm, IMAGES_AT_ONCE if cell.domain == LSI else len(seeds))
    groups = [seeds[start : start + size] for start in range(0, len(seeds), size)]
    quarters = [max(1, study.iterations * part // 100) for part in (1, 10, 50, 100)]
    quiet = low_objectives_expected() if cell.domain == LSI else nullcontext()
    with quiet:
        for number, group in enumerate(groups):
            path = cell.path if len(groups) == 1 else cell.path / f"part-{number:02d}"
            run(
                domain,
                algorithm,
                seeds=group,
                iterations=study.iterations,
                run_dir=path,
                resume=True,
                log_every=study.log_every,
                checkpoint_seconds=120.0,
                progress=display,
                snapshots=sorted(set(quarters)),
            )


def seeds_that_fit(algorithm: Algorithm, wanted: int) -> int:
    """How many seeds one program may hold on this device."""
    from gloam import step

    state: Any = jax.eval_shape(lambda key: step.init(algorithm, key), root_key(0))
    size = sum(leaf.size * 4 for leaf in jax.tree.leaves(state))
    memory = memory_bytes(_CPU_BYTES)
    return max(1, min(wanted, int(memory * _STATE_SHARE // size)))


def ablation(name: str) -> Sequence[str]:
    """The variants of an ablation."""
    checks.expect(name in ABLATIONS, "ablation", f"one of {', '.join(ABLATIONS)}", repr(name))
    return tuple(ABLATIONS[name])
