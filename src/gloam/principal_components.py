"""Principal components: the two directions in which points vary most."""

import numpy as np
from jaxtyping import Float

# Points from which components are found; more would not turn them visibly.
_SAMPLE = 1000


class PrincipalComponents:
    """A plane through points, along the two directions in which they vary most.

    Args:
        points: ``(n, dim)`` points.
        sample: Number of points, drawn with a fixed seed, from which the directions are found.
    """

    def __init__(self, points: Float[np.ndarray, "n dim"], *, sample: int = _SAMPLE):
        self._origin = points.mean(axis=0)
        self._axes = _principal_axes(points - self._origin, sample)
        total = max(float(points.var(axis=0).sum()), 1e-30)
        shares = self.place(points).var(axis=0) / total
        self.labels = (
            f"principal component 1 ({shares[0]:.0%})",
            f"principal component 2 ({shares[1]:.0%})",
        )
        """Names of the axes, with the share of the variance that each shows."""

    def place(self, points: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n 2"]:
        """The places of points in the plane."""
        return (points - self._origin) @ self._axes.T


def _principal_axes(
    centered: Float[np.ndarray, "n dim"], sample: int
) -> Float[np.ndarray, "2 dim"]:
    # Drawn at random: cells of a grid in even steps would share a coordinate.
    count = min(sample, len(centered))
    chosen = np.random.default_rng(0).choice(len(centered), count, replace=False)
    axes = np.zeros((2, centered.shape[1]))
    found = np.linalg.svd(centered[chosen], full_matrices=False)[2][:2]
    # A component may point either way; its largest entry is positive here.
    signs = np.sign(found[np.arange(len(found)), np.abs(found).argmax(axis=1)])
    axes[: len(found)] = found * np.where(signs == 0, 1, signs)[:, None]
    return axes
