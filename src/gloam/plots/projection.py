"""Projections of many measures onto two axes: principal components, UMAP and t-SNE."""

from typing import Literal

import numpy as np
from jaxtyping import Float

from gloam import checks

Method = Literal["pca", "umap", "tsne"]
METHODS: tuple[Method, ...] = ("pca", "umap", "tsne")

# Points from which principal components are found; more would not turn them visibly.
_SAMPLE = 1000


class PrincipalComponents:
    """The two directions in which points vary most.

    Args:
        points: ``(n, meas)`` points.
    """

    def __init__(self, points: Float[np.ndarray, "n meas"]):
        self._origin = points.mean(axis=0)
        self._axes = _principal_axes(points - self._origin)
        total = max(float(points.var(axis=0).sum()), 1e-30)
        shares = self.place(points).var(axis=0) / total
        self.labels = (
            f"principal component 1 ({shares[0]:.0%})",
            f"principal component 2 ({shares[1]:.0%})",
        )
        """Names of the axes, with the share of the variance that each shows."""

    def place(self, points: Float[np.ndarray, "n meas"]) -> Float[np.ndarray, "n 2"]:
        """The places of points in the plane."""
        return (points - self._origin) @ self._axes.T


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


def _principal_axes(centered: Float[np.ndarray, "n meas"]) -> Float[np.ndarray, "2 meas"]:
    # Drawn at random: cells of a grid in even steps would share a coordinate.
    count = min(_SAMPLE, len(centered))
    sample = np.random.default_rng(0).choice(len(centered), count, replace=False)
    axes = np.zeros((2, centered.shape[1]))
    found = np.linalg.svd(centered[sample], full_matrices=False)[2][:2]
    # A component may point either way; its largest entry is positive here.
    signs = np.sign(found[np.arange(len(found)), np.abs(found).argmax(axis=1)])
    axes[: len(found)] = found * np.where(signs == 0, 1, signs)[:, None]
    return axes
