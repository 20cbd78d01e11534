"""Whole numbers and categories in emitters: no variable of a batch ever keeps one value.

Emitters search in real numbers, which are rounded to the values of the space. When steps fall below
the distance of two values, rounding would give the same value for ever. Every emitter therefore
gives each discrete variable another value with at least a small probability `least`, such that
about a quarter of all solutions has at least one change (Hamano et al., CatCMA with margin, 2024).

CMA-ES emitters keep it by a margin: means and deviations of integers are corrected (Hamano et al.,
CMA-ES with margin, 2022), and categories have probabilities of their own (CatCMA, 2024). Emitters
that vary elites copy and change values. In sequences, they insert, remove and replace choices, and
join two of them, as genetic algorithms do.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from gloam._tools.draws import uniforms
from gloam.spaces import Discrete

# Share of solutions that the margin leaves unchanged, by CatCMA.
_UNCHANGED = 0.73
# Largest distance between the places where a crossover cuts two sequences.
_LARGEST_SHIFT = 3
# Smallest deviation of an integer in units of a step, so that float32 holds the margin.
_LEAST_DEVIATION = 0.02


def least(discrete: Discrete) -> float:
    """Return the smallest probability with which a variable takes another value."""
    return 1 - _UNCHANGED ** (1 / int(discrete.is_discrete.sum()))


def with_margin(
    discrete: Discrete,
    mean: Float[Array, "*n sol"],
    deviation: Float[Array, "*n sol"],
    margin: float,
) -> tuple[Float[Array, "*n sol"], Float[Array, "*n sol"]]:
    """Correct a Gaussian so that integers leave the value of the mean often enough.

    Args:
        discrete: The columns of whole numbers.
        mean: Means in the unit box, in which the values of an integer have equal shares.
        deviation: Standard deviations in the unit box.
        margin: Smallest probability of another value, by `least`.

    Returns:
        Means and deviations, which differ in the columns of integers only.
    """
    number = jnp.asarray(np.maximum(discrete.num_values, 1), jnp.float32)
    # In units of the distance between two values.
    at, spread = mean * number, jnp.maximum(deviation * number, _LEAST_DEVIATION)
    value = jnp.clip(jnp.floor(at), 0, number - 1)
    # The first and the last value have one neighbor: the mean comes near to it.
    reach = -ndtri(margin) * spread
    first, last = jnp.maximum(at, value + 1 - reach), jnp.minimum(at, value + reach)
    # Others have two: the probabilities of both, and of the value itself, have a lower limit.
    half = margin / 2
    below, above = ndtr((value - at) / spread), ndtr((at - value - 1) / spread)
    chances = jnp.stack([below, 1 - below - above, above])
    raised = jnp.maximum(chances, half)
    excess = jnp.sum(raised, axis=0) - 1
    fair = raised - (raised - half) * excess / (jnp.sum(raised, axis=0) - 3 * half)
    lower, upper = -ndtri(fair[0]), -ndtri(fair[2])
    is_low = jnp.any(chances < half, axis=0)
    middle = jnp.where(is_low, value + lower / (lower + upper), at)
    width = jnp.where(is_low, 1 / (lower + upper), spread)

    is_first, is_last = value == 0, value == number - 1
    at = jnp.where(is_first, first, jnp.where(is_last, last, middle))
    spread = jnp.where(is_first | is_last, spread, width)
    is_integer = discrete.is_discrete & ~discrete.is_category
    return (
        jnp.where(is_integer, at / number, mean),
        jnp.where(is_integer, spread / number, deviation),
    )


class Categories:
    """The categories of a space, whose probabilities CMA-ES emitters learn.

    Probabilities are ``(emitters, categories, most)`` numbers, where ``most`` is the largest number
    of choices.
    """

    def __init__(self, discrete: Discrete):
        self.columns = np.flatnonzero(discrete.is_category)
        self.num_values = discrete.num_values[self.columns]
        self.is_choice: Bool[np.ndarray, "categories most"] = (
            np.arange(self.num_values.max(initial=1)) < self.num_values[:, None]
        )
        margin = least(discrete) / np.maximum(self.num_values - 1, 1)
        self.smallest = np.where(self.is_choice, margin[:, None], 0).astype(np.float32)

    def fresh(self, solutions: Float[Array, "emitters sol"]) -> Float[Array, "emitters cats most"]:
        """Return equal probabilities for half of the draws, and the values given for the others."""
        equal = jnp.asarray(self.is_choice / self.num_values[:, None], jnp.float32)
        return 0.5 * equal + 0.5 * self._one_hot(solutions)

    def draw(
        self, probabilities: Float[Array, "emitters cats most"], each: int, *, key: PRNGKeyArray
    ) -> Float[Array, "emitters each cats"]:
        """Draw the indices of choices for ``each`` solutions of every emitter."""
        emitters, categories, _ = probabilities.shape
        drawn = uniforms(key, emitters * each * categories).reshape(emitters, each, categories)
        limits = jnp.cumsum(probabilities, axis=2)[:, None]
        index = jnp.sum(drawn[..., None] >= limits, axis=3).astype(jnp.float32)
        return jnp.minimum(index, self.num_values - 1.0)

    def learned(
        self,
        probabilities: Float[Array, "emitters cats most"],
        solutions: Float[Array, "emitters each sol"],
        weights: Float[Array, "emitters each"],
        rate: float,
        active: Bool[Array, "emitters each sol"] | None = None,
    ) -> Float[Array, "emitters cats most"]:
        """Move probabilities towards the weighted solutions, and keep them above the margin.

        Categories learn from the solutions in which they are ``active``; ``None`` if all are.
        """
        if active is None:
            total = jnp.sum(weights, axis=1)[:, None, None]
            target = jnp.einsum("ei,eicm->ecm", weights, self._one_hot(solutions))
        else:
            of_active = weights[..., None] * active[..., self.columns]
            total = jnp.sum(of_active, axis=1)[..., None]
            target = jnp.einsum("eic,eicm->ecm", of_active, self._one_hot(solutions))
        moved = probabilities + rate * (target - total * probabilities)
        raised = jnp.maximum(moved, self.smallest)
        spare = raised - self.smallest
        room = 1 - self.smallest.sum(axis=1)[:, None]
        return self.smallest + spare * room / jnp.sum(spare, axis=2, keepdims=True)

    def _one_hot(self, solutions: Float[Array, "*n sol"]) -> Float[Array, "*n cats most"]:
        chosen = solutions[..., self.columns, None]
        return (chosen == np.arange(self.is_choice.shape[1])).astype(jnp.float32)


def changed(
    discrete: Discrete, solutions: Float[Array, "batch sol"], *, key: PRNGKeyArray
) -> Float[Array, "batch sol"]:
    """Give whole numbers and categories another value with probability `least`.

    Categories take any other value with equal probability. Integers move up or down, by steps whose
    logarithm is uniform. Sequences stay as they are: `spliced` changes them.
    """
    key_change, key_size, key_side = jax.random.split(key, 3)
    shape = solutions.shape

    def drawn(key: PRNGKeyArray) -> Float[Array, "batch sol"]:
        return uniforms(key, solutions.size).reshape(shape)

    most = jnp.asarray(np.maximum(discrete.num_values - 1, 1), jnp.float32)
    size = drawn(key_size)
    whole = solutions - discrete.lower
    other = jnp.mod(whole + 1 + jnp.floor(size * most), most + 1)
    step = jnp.floor(most**size)
    up, down = whole + step, whole - step
    goes_up = (up <= most) & ((drawn(key_side) < 0.5) | (down < 0))
    moved = jnp.where(goes_up, up, jnp.maximum(down, 0))
    new = discrete.lower + jnp.where(discrete.is_category, other, moved)
    may_change = discrete.is_discrete & (discrete.sequence == 0)
    is_changed = (drawn(key_change) < least(discrete)) & may_change
    return jnp.where(is_changed, new, solutions)


def spliced(
    discrete: Discrete,
    solutions: Float[Array, "batch sol"],
    first: Float[Array, "batch sol"],
    second: Float[Array, "batch sol"],
    *,
    key: PRNGKeyArray,
) -> Float[Array, "batch sol"]:
    """Give solutions new sequences: the beginning of one, a new choice or none, the end of another.

    Half of them are crossovers of the first and the second elite, cut at nearly the same place. The
    others are the first elite with a choice removed, replaced by a random one, or inserted from a
    random place of the second, where frequent choices are frequent.
    """
    first, second = without_gaps(discrete, first), without_gaps(discrete, second)
    for number, columns, padding in _sequences(discrete):
        drawn = uniforms(jax.random.fold_in(key, number), 4 * len(first)).reshape(4, -1, 1)
        start, other = first[:, columns], second[:, columns]
        start_length, other_length = (
            jnp.sum(rows != padding, axis=1, keepdims=True) for rows in (start, other)
        )
        kind = jnp.floor(6 * drawn[0])
        replaces, inserts, is_crossover = kind == 0, kind == 1, kind > 2
        cut = jnp.floor(drawn[1] * (start_length + 1))
        shift = jnp.floor(drawn[2] * (2 * _LARGEST_SHIFT + 1)) - _LARGEST_SHIFT
        other_cut = jnp.clip(cut + shift, 0, other_length)
        new = jnp.floor(drawn[3] * (discrete.num_values[columns[0]] - 1))
        new += new >= padding
        copied = jnp.floor(drawn[3] * other_length).astype(jnp.int32)
        copied = jnp.take_along_axis(other, copied, axis=1)
        new = jnp.where(inserts & (other_length > 0), copied, new)

        has_new = replaces | inserts
        rest = jnp.where(is_crossover, other, start)
        rest_cut = jnp.where(is_crossover, other_cut, jnp.where(inserts, cut, cut + 1))
        position = jnp.arange(len(columns))
        source = (position - cut - has_new + rest_cut).astype(jnp.int32)
        end = jnp.take_along_axis(rest, jnp.clip(source, 0, len(columns) - 1), axis=1)
        end = jnp.where(source < len(columns), end, padding)
        end = jnp.where(has_new & (position == cut), new, end)
        child = jnp.where(position < cut, start, end)
        solutions = solutions.at[:, columns].set(child)
    return solutions


def without_gaps(
    discrete: Discrete, solutions: Float[Array, "batch sol"]
) -> Float[Array, "batch sol"]:
    """Return solutions in whose sequences all padding is at the end."""
    for _, columns, padding in _sequences(discrete):
        rows = solutions[:, columns]
        order = jnp.argsort(rows == padding, axis=1, stable=True)
        solutions = solutions.at[:, columns].set(jnp.take_along_axis(rows, order, axis=1))
    return solutions


def _sequences(discrete: Discrete) -> list[tuple[int, Int[np.ndarray, " n"], int]]:
    """Return number, columns and padding of each sequence."""
    numbers = np.unique(discrete.sequence[discrete.sequence > 0]).tolist()
    columns = [np.flatnonzero(discrete.sequence == number) for number in numbers]
    return [(n, of, int(discrete.padding[of[0]])) for n, of in zip(numbers, columns, strict=True)]
