"""Projections of many measures onto two axes: principal components, UMAP and t-SNE."""

from typing import Literal

import numpy as np
from jaxtyping import Float

from gloam import checks
from gloam.principal_components import PrincipalComponents

Method = Literal["pca", "umap", "tsne"]
METHODS: tuple[Method, ...] = ("pca", "umap", "tsne")


def project(
    points: Float[np.ndarray, "n meas"], method: Method, *, seed: int = 0
) -> tuple[Float[np.ndarray, "n 2"], tuple[str, str]]:
    """The places of points in the plane, and the names of its axes.

    Raises:
        ImportError: The package of the method is not installed.
    """
    checks.choice("method", method, METHODS)
    if method == "pca":
        found = PrincipalComponents(points)
        return found.place(points), found.labels
    if len(points) < 5:
        few = f"'pca' for {len(points)} points"
        checks.expect(False, "method", few, f"'{method}'", "It needs 5 points or more.")
    return (_umap if method == "umap" else _tsne)(points, seed)


def _umap(points: np.ndarray, seed: int) -> tuple[np.ndarray, tuple[str, str]]:
    try:
        from umap import UMAP  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ImportError(_missing("umap", "umap-learn")) from None
    neighbors = min(15, len(points) - 1)
    # With a seed UMAP uses one thread, and warns if it was not told so.
    model = UMAP(n_components=2, n_neighbors=neighbors, random_state=seed, n_jobs=1)
    return np.asarray(model.fit_transform(points)), ("UMAP 1", "UMAP 2")


def _tsne(points: np.ndarray, seed: int) -> tuple[np.ndarray, tuple[str, str]]:
    try:
        from sklearn.manifold import TSNE
    except ImportError:
        raise ImportError(_missing("tsne", "scikit-learn")) from None
    perplexity = min(30.0, (len(points) - 1) / 3)
    model = TSNE(2, perplexity=perplexity, init="pca", random_state=seed)
    return np.asarray(model.fit_transform(points)), ("t-SNE 1", "t-SNE 2")


def _missing(method: str, package: str) -> str:
    return (
        f"method: expected the package {package} for '{method}', got none. "
        f"Install it: pip install {package}. Or use method='pca', which needs no package."
    )
