"""Welch's one-way ANOVA and Games-Howell comparisons, as the paper reports them."""

import itertools
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


def _values(groups: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    values = [np.asarray(group, dtype=np.float64) for group in groups.values()]
    if len(values) < 2 or min(len(group) for group in values) < 2:
        sizes = {name: len(group) for name, group in groups.items()}
        raise ValueError(
            f"groups: expected at least two groups of at least two values, got {sizes}."
        )
    return values


def welch_anova(groups: Mapping[str, np.ndarray]) -> Anova | None:
    """Welch's one-way ANOVA.

    Args:
        groups: Trials by name of group.

    Returns:
        The test, or ``None`` where a group does not vary at all and the test is undefined.
    """
    from scipy import stats  # lazily: a second that no other command need wait for

    values = _values(groups)
    number = np.array([len(group) for group in values])
    error = np.array([group.var(ddof=1) for group in values]) / number
    if not (error > 0).all():
        return None
    f, p = stats.f_oneway(*values, equal_var=False)
    # SciPy does not return the degrees of freedom of the denominator, which the paper reports.
    k, share = len(values), (1 / error) / np.sum(1 / error)
    within = (k**2 - 1) / (3 * np.sum(np.square(1 - share) / (number - 1)))
    return Anova(float(f), float(k - 1), float(within), float(p))


def games_howell(groups: Mapping[str, np.ndarray]) -> dict[tuple[str, str], Comparison]:
    """Games-Howell comparison of every ordered pair of groups.

    Where neither of two groups varies, the comparison is exact: p is 0 or 1.
    """
    from scipy import stats  # lazily, as above

    values = _values(groups)
    constant = [group.var() == 0 for group in values]
    with np.errstate(divide="ignore", invalid="ignore"):  # pairs that do not vary
        found = stats.tukey_hsd(*values, equal_var=False)
    result = {}
    for (i, one), (j, other) in itertools.permutations(enumerate(groups), 2):
        difference, p = float(found.statistic[i, j]), float(np.clip(found.pvalue[i, j], 0, 1))
        if constant[i] and constant[j]:
            p = float(difference == 0)
        result[one, other] = Comparison(difference, p)
    return result
