"""The paper's domains by their short names, with the files that some of them need."""

import os
from pathlib import Path

from gloam import checks
from gloam.domains import Arm, Domain, LinearProjection, Triangles
from gloam.experiments.lsi import (
    LsiFiles,
    lsi_domain,
    read_embedder,
    read_generator,
    read_landscapes,
    stored_start,
)
from gloam.formats import RunFolder

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
