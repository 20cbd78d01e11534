"""Conditions of variables: which of them are active, given the values of others."""

import graphlib
from collections.abc import Mapping
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from gloam._tools import checks
from gloam.spaces.variables import Categorical, Integer, Rows, Variable, as_rows, shape_of, when_of

# Largest numbers of names and values in the conditions of a space, which may come from a file.
_MOST_NAMES, _MOST_VALUES = 1000, 10_000


class Conditions:
    """The conditions of the variables of a space.

    A variable is active if all variables that its condition names are active and have one of the
    values that it gives. Values are compared as numbers of a vector: whole numbers, and indices of
    choices.

    Args:
        variables: All variables of the space by name.
    """

    def __init__(self, variables: Mapping[str, Variable]):
        self.variables = variables
        every = [values for variable in variables.values() for _, values in when_of(variable)]
        names, number = len(every), sum(map(len, every))
        expected = f"at most {_MOST_NAMES:,} names and {_MOST_VALUES:,} values in all conditions"
        fits = names <= _MOST_NAMES and number <= _MOST_VALUES
        fix = "Join variables that are active together into arrays."
        checks.expect(fits, "when", expected, f"{names:,} and {number:,}", fix)
        self._accepted: dict[str, list[tuple[str, Float[np.ndarray, " values"]]]] = {}
        for name, variable in variables.items():
            self._accepted[name] = [
                (other, self._checked(name, other, values)) for other, values in when_of(variable)
            ]
        self._check_possible()

    def _checked(
        self, name: str, other: str, values: tuple[object, ...]
    ) -> Float[np.ndarray, " values"]:
        """Return the numbers of the values that a condition gives for another variable."""
        argument, variable = f"when of {name!r}", self.variables.get(other)
        expected = "names of other variables of the space"
        fix = "Rename it, or add the variable."
        checks.expect(variable is not None, argument, expected, repr(other), fix)
        expected = "an Integer or Categorical of one value"
        got = f"{other!r}, which is {type(variable).__name__} of shape {shape_of(variable)}"
        fits = isinstance(variable, (Integer, Categorical)) and shape_of(variable) == ()
        fix = "Add a Categorical that says when the variable matters."
        checks.expect(fits, argument, expected, got, fix)
        assert variable is not None
        return variable.encoded(f"{argument}: {other!r}", as_rows(list(values)))

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Names of the variables, each after those of its condition.

        Raises:
            ValueError: The conditions form a circle.
        """
        graph = {name: [other for other, _ in of] for name, of in self._accepted.items()}
        try:
            return tuple(graphlib.TopologicalSorter(graph).static_order())
        except graphlib.CycleError as error:
            circle = " <- ".join(error.args[1][:8])
            fix = "Remove one of these conditions."
            checks.expect(False, "when", "conditions without a circle", circle, fix)
            raise

    def _check_possible(self) -> None:
        """Raise if a variable is never active, because conditions contradict each other."""
        accepted: dict[str, dict[str, set[float]]] = {}
        for name in self.order:
            accepted[name] = {}
            for other, values in self._accepted[name]:
                for root, numbers in {**accepted[other], other: set(values.tolist())}.items():
                    known = accepted[name].get(root)
                    both = numbers if known is None else known & numbers
                    expected, got = f"values that {root!r} can have together", "none"
                    fix = f"Remove one of the conditions on {root!r}."
                    checks.expect(len(both) > 0, f"when of {name!r}", expected, got, fix)
                    accepted[name][root] = both

    @cached_property
    def named(self) -> tuple[str, ...]:
        """Names of the variables on which others depend."""
        return tuple(dict.fromkeys(other for of in self._accepted.values() for other, _ in of))

    def is_active(
        self, name: str, numbers: Mapping[str, Rows], masks: Mapping[str, Rows]
    ) -> Bool[Rows, " *batch"]:
        """Return the mask of the solutions in which a variable is active.

        Args:
            name: Name of the variable.
            numbers: Numbers of the variables in `named` that come before it in `order`.
            masks: The masks of these variables.
        """
        mask = np.ones((), bool)
        for other, accepted in self._accepted[name]:
            has_one = (numbers[other][..., None] == accepted).any(axis=-1)
            mask = mask & masks[other] & has_one
        return mask

    def masks(self, numbers: Mapping[str, Rows], shape: tuple[int, ...]) -> dict[str, Rows]:
        """Return the masks of all variables, of the shape of the batch.

        Args:
            numbers: Numbers of the variables in `named`, of this shape.
            shape: Shape of the batch.
        """
        masks: dict[str, Rows] = {}
        for name in self.order:
            masks[name] = self.is_active(name, numbers, masks)
        of = jnp if any(isinstance(rows, jax.Array) for rows in numbers.values()) else np
        return {name: of.broadcast_to(masks[name], shape) for name in self.variables}

    def numbers_of(self, name: str, values: object) -> Float[Rows, " *batch"]:
        """Return the numbers of a variable's values; JAX has indices of choices already."""
        if isinstance(values, jax.Array):
            return values.astype(jnp.float32)
        return self.variables[name].encoded(name, as_rows(values))

    def described(self, name: str) -> str:
        """Return the condition of a variable in words."""
        parts = [
            f"{other} is {checks.one_of([repr(value) for value in values[:8]])}"
            for other, values in when_of(self.variables[name])
        ]
        return " and ".join(parts)
