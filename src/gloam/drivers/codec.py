"""Objects as JSON and arrays: how a run folder remembers its algorithm without a pickle.

Equinox modules are dataclasses, so a module is its class and its fields. Only classes and functions
of gloam, Equinox and JAX are ever looked up by name when reading; anything else is written as
*foreign* and must be handed over again by the user.
"""

import dataclasses
import importlib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from gloam.draws import GENERATOR

_TRUSTED = ("gloam", "equinox", "jax")
# Arrays up to this size stay readable in the JSON.
_INLINE = 16


class ForeignError(ValueError):
    """A file refers to something that only the user's own code can build."""


def encode(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """``value`` as JSON; large arrays are put into ``arrays`` under the names the JSON gives.

    >>> encode(jax.ShapeDtypeStruct((2,), jnp.float32), {})
    {'shape': [2], 'dtype': 'float32'}
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, eqx.Module):
        if not _trusted(type(value).__module__):
            return {"foreign": _name(type(value))}
        fields = {
            field.name: encode(getattr(value, field.name), arrays)
            for field in dataclasses.fields(value)
        }
        return {"class": _name(type(value)), "fields": fields}
    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        array = np.asarray(value)
        if array.size <= _INLINE:
            return {"array": array.tolist(), "dtype": str(array.dtype)}
        name = f"array_{len(arrays)}"
        arrays[name] = array
        return {"stored": name}
    if isinstance(value, jax.ShapeDtypeStruct):
        return {"shape": list(value.shape), "dtype": str(np.dtype(value.dtype))}
    if _has_parts(type(value)):
        parts = {name: encode(part, arrays) for name, part in value.parts().items()}
        return {"object": _name(type(value)), "parts": parts}
    if isinstance(value, tuple):
        return {"tuple": [encode(item, arrays) for item in value]}
    if isinstance(value, list):
        return [encode(item, arrays) for item in value]
    if isinstance(value, dict):
        return {"dict": {str(key): encode(item, arrays) for key, item in value.items()}}
    return {"function": _name(value)} if _is_function(value) else {"foreign": _name(value)}


def decode(content: Any, arrays: dict[str, np.ndarray]) -> Any:
    """The inverse of `encode`.

    Raises:
        ForeignError: The content names something outside gloam, Equinox and JAX.
    """
    if isinstance(content, list):
        return [decode(item, arrays) for item in content]
    if not isinstance(content, dict):
        return content
    if "foreign" in content:
        raise ForeignError(
            f"algorithm: expected parts of gloam, Equinox or JAX, got {content['foreign']}. "
            "It cannot be rebuilt from a file: pass the object itself when you load or resume."
        )
    if "class" in content:
        kind = _look_up(content["class"])
        if not (isinstance(kind, type) and issubclass(kind, eqx.Module)):
            raise ForeignError(f"class: expected an Equinox module, got {content['class']}.")
        module = object.__new__(kind)
        # A file may be older than some field: such a field has a default.
        values = {
            field.name: field.default
            for field in dataclasses.fields(kind)
            if field.default is not dataclasses.MISSING
        }
        values |= {name: decode(item, arrays) for name, item in content["fields"].items()}
        for name, value in values.items():
            object.__setattr__(module, name, value)
        return module
    if "object" in content:
        kind = _look_up(content["object"])
        if not _has_parts(kind):
            raise ForeignError(f"object: expected a class with parts, got {content['object']}.")
        return kind(**{name: decode(part, arrays) for name, part in content["parts"].items()})
    if "array" in content:
        return jnp.asarray(np.asarray(content["array"], dtype=content["dtype"]))
    if "stored" in content:
        return jnp.asarray(arrays[content["stored"]])
    if "shape" in content:
        return jax.ShapeDtypeStruct(tuple(content["shape"]), np.dtype(content["dtype"]))
    if "tuple" in content:
        return tuple(decode(item, arrays) for item in content["tuple"])
    if "function" in content:
        return _look_up(content["function"])
    return {key: decode(item, arrays) for key, item in content["dict"].items()}


def agree(older: Any, newer: Any) -> bool:
    """Whether two contents that `encode` made are the same, one of them perhaps long ago.

    Fields that gloam did not have when ``older`` was written may be anything in ``newer``.

    >>> old, new = ({"class": "A", "fields": fields} for fields in ({"a": 1}, {"a": 1, "b": 2}))
    >>> agree(old, new), agree(new, old)
    (True, False)
    """
    if isinstance(older, dict) and isinstance(newer, dict):
        known = newer
        if "class" in older and "fields" in newer:
            fields = {k: v for k, v in newer["fields"].items() if k in older["fields"]}
            known = newer | {"fields": fields}
        return older.keys() == known.keys() and all(agree(v, known[k]) for k, v in older.items())
    if isinstance(older, list) and isinstance(newer, list):
        return len(older) == len(newer) and all(map(agree, older, newer))
    return older == newer


def leaves(state: Any) -> dict[str, np.ndarray]:
    """The arrays of a state, numbered. Random keys are stored as their raw words."""
    return {f"leaf_{i}": _raw(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}


def from_leaves(like: Any, arrays: dict[str, np.ndarray]) -> Any:
    """A state of the structure of ``like`` (arrays or shapes) from its numbered arrays."""
    expected, structure = jax.tree.flatten(like)
    found = [arrays[f"leaf_{i}"] for i in range(len(arrays)) if f"leaf_{i}" in arrays]
    if len(found) != len(expected):
        raise ValueError(
            f"checkpoint: expected {len(expected)} arrays, got {len(found)}. "
            "It was written for another algorithm or by another version of gloam."
        )
    restored = []
    for i, (shape, array) in enumerate(zip(expected, found, strict=True)):
        if jnp.issubdtype(shape.dtype, jax.dtypes.prng_key):
            leaf = jax.random.wrap_key_data(jnp.asarray(array), impl=GENERATOR)
        else:
            leaf = jnp.asarray(array)
        if leaf.shape != shape.shape or leaf.dtype != shape.dtype:
            raise ValueError(
                f"checkpoint: expected {shape.dtype}{list(shape.shape)} as array {i}, "
                f"got {leaf.dtype}{list(leaf.shape)}. It was written for another algorithm."
            )
        restored.append(leaf)
    return jax.tree.unflatten(structure, restored)


def _raw(leaf: Any) -> np.ndarray:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)


def _name(thing: Any) -> str:
    module = getattr(thing, "__module__", type(thing).__module__)
    return f"{module}:{getattr(thing, '__qualname__', type(thing).__qualname__)}"


def _trusted(module: str) -> bool:
    return module.split(".")[0] in _TRUSTED


def _has_parts(kind: Any) -> bool:
    """Whether a class of gloam says by ``parts()`` what arguments build an object again."""
    return isinstance(kind, type) and _trusted(kind.__module__) and hasattr(kind, "parts")


def _is_function(value: Any) -> bool:
    try:
        return callable(value) and _look_up(_name(value)) is value
    except (ForeignError, AttributeError, ImportError):
        return False


def _look_up(name: str) -> Any:
    module, _, path = name.partition(":")
    if not _trusted(module) or "<" in path:
        raise ForeignError(f"name: expected one of gloam, Equinox or JAX, got {name}.")
    found = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found
