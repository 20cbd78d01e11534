"""Welch's one-way ANOVA and Games-Howell comparisons, as the paper reports them.

Written out over SciPy's distributions, because the package that has both would bring half of the
scientific Python world into the core install. It is the oracle in the tests instead.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np


class Anova(NamedTuple):
    """Welch's F test that all groups have one mean, without assuming one variance."""

    f: float
    between: float
    """Degrees of freedom of the numerator."""
    within: float
    """Degrees of freedom of the denominator."""
    p: float

    def __str__(self) -> str:
        level = "p < 0.001" if self.p < 0.001 else f"p = {self.p:.3f}"
        return f"F({self.between:.0f}, {self.within:.1f}) = {self.f:.1f}, {level}"


class Comparison(NamedTuple):
    """Games-Howell comparison of one group with another."""

    difference: float
    p: float

    @property
    def sign(self) -> str:
        """``>`` or ``<`` when the means differ significantly (p < 0.05), else ``-``."""
        if not self.p < 0.05:
            return "-"
        return ">" if self.difference > 0 else "<"


class _Moments(NamedTuple):
    number: np.ndarray
    mean: np.ndarray
    error: np.ndarray
    """Squared standard error of the mean."""


def _moments(groups: Mapping[str, np.ndarray]) -> _Moments:
    values = [np.asarray(group, dtype=np.float64) for group in groups.values()]
    if len(values) < 2 or min(len(group) for group in values) < 2:
        sizes = {name: len(group) for name, group in groups.items()}
        raise ValueError(
            f"groups: expected at least two groups of at least two trials, got {sizes}."
        )
    number = np.array([len(group) for group in values], dtype=np.float64)
    mean = np.array([group.mean() for group in values])
    variance = np.array([group.var(ddof=1) for group in values])
    return _Moments(number, mean, variance / number)


def welch_anova(groups: Mapping[str, np.ndarray]) -> Anova | None:
    """Welch's one-way ANOVA.

    Args:
        groups: Trials by name of group.

    Returns:
        The test, or ``None`` where a group does not vary at all and the test is undefined.
    """
    from scipy import stats  # lazily: a second that no other command need wait for

    number, mean, error = _moments(groups)
    if not (error > 0).all():
        return None
    k = len(mean)
    weight = 1 / error
    total = weight.sum()
    center = (weight * mean).sum() / total
    spread = (weight * np.square(mean - center)).sum() / (k - 1)
    tail = (np.square(1 - weight / total) / (number - 1)).sum()
    f = spread / (1 + 2 * (k - 2) / (k**2 - 1) * tail)
    within = (k**2 - 1) / (3 * tail)
    return Anova(float(f), float(k - 1), float(within), float(stats.f.sf(f, k - 1, within)))


def games_howell(groups: Mapping[str, np.ndarray]) -> dict[tuple[str, str], Comparison]:
    """Games-Howell comparison of every ordered pair of groups.

    Where neither of two groups varies, the comparison is exact: p is 0 or 1.
    """
    from scipy import stats  # lazily, as above

    number, mean, error = _moments(groups)
    names = list(groups)
    result = {}
    for i, one in enumerate(names):
        for j, other in enumerate(names):
            if i == j:
                continue
            difference = float(mean[i] - mean[j])
            joint = error[i] + error[j]
            if joint == 0:
                p = float(difference == 0)
            else:
                freedom = joint**2 / (
                    error[i] ** 2 / (number[i] - 1) + error[j] ** 2 / (number[j] - 1)
                )
                q = abs(difference) / np.sqrt(joint / 2)
                p = float(np.clip(stats.studentized_range.sf(q, len(names), freedom), 0, 1))
            result[one, other] = Comparison(difference, p)
    return result
