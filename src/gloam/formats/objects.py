"""Algorithms and domains as JSON and arrays, without code.

An object of a registered class is its name and the arguments that build it
(`gloam._tools.registry`). An array is named by its digest, so that equal arrays are stored once
and changes are noticed. Objects of other classes are written as *foreign*: only the user's program
can build them.
"""

import ast
import contextlib
import dataclasses
import functools
import hashlib
import inspect
import textwrap
import tokenize
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

# Their classes register themselves when they are imported.
from gloam import algorithms, archives, discounts, domains, emitters, spaces  # noqa: F401
from gloam._tools import checks, registry
from gloam.errors import ForeignError
from gloam.formats.arrays import digest, raw_array

# Arrays up to this size stay readable in the JSON.
_INLINE = 16
_DTYPES = ("bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float16", "float32")
_MAX_DEPTH = 64
_PLAIN = (bool, int, float, str, type(None))


def encode(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Return ``value`` as JSON; large arrays are added to ``arrays`` under the names in the JSON.

    >>> encode((1, 2.5, None), {})
    {'tuple': [1, 2.5, None]}
    """
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        return _encode_array(np.asarray(value), arrays)
    if isinstance(value, jax.ShapeDtypeStruct):
        return {"shape": list(value.shape), "dtype": str(np.dtype(value.dtype))}
    name = registry.name_of(value)
    if name is not None:
        arguments = registry.REGISTRY[name].arguments(value)
        encoded = {key: encode(part, arrays) for key, part in arguments.items()}
        return {"class": name, "arguments": encoded}
    if type(value) is tuple:
        return {"tuple": [encode(item, arrays) for item in value]}
    if type(value) is list:
        return [encode(item, arrays) for item in value]
    if type(value) is dict:
        return {"dict": {str(key): encode(item, arrays) for key, item in value.items()}}
    return _encode_foreign(value)


def _encode_array(array: np.ndarray, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    described = {"dtype": str(array.dtype), "shape": list(array.shape)}
    if array.size <= _INLINE and str(array.dtype) in _DTYPES:
        return {"values": array.tolist()} | described
    name = digest(array)
    arrays[name] = array
    return {"array": name} | described


def _encode_foreign(value: Any) -> dict[str, str]:
    while not hasattr(value, "__qualname__"):  # the function in a partial or another wrapper
        is_partial = isinstance(value, functools.partial)
        inner = value.func if is_partial else getattr(value, "__wrapped__", None)
        if inner is None:
            break
        value = inner
    named = value if hasattr(value, "__qualname__") else type(value)
    content = {"foreign": f"{named.__module__}:{named.__qualname__}"}
    source = _source_digest(named)
    if source is not None:
        content["source"] = source
    if isinstance(value, eqx.Module):
        # Its data can be compared, although it cannot be built.
        leaves = [leaf for leaf in jax.tree.leaves(value) if isinstance(leaf, jax.Array)]
        parts = [digest(raw_array(leaf)) for leaf in leaves] + _static_values(value)
        content["sha256"] = hashlib.sha256("".join(parts).encode()).hexdigest()
    return content


def _source_digest(named: Any) -> str | None:
    """Digest of the source of the user's function or class, if it can be found.

    Comments and line breaks do not count, and classes of gloam may change with its version.
    """
    if named.__module__.partition(".")[0] in ("gloam", "gloam_lab"):
        return None
    try:
        source = textwrap.dedent(inspect.getsource(named))
    except (OSError, TypeError, SyntaxError, tokenize.TokenError):
        return None  # no file, or one that was edited since it was imported
    with contextlib.suppress(SyntaxError):  # a lambda in the middle of an expression
        source = ast.unparse(ast.parse(source))
    return hashlib.sha256(source.encode()).hexdigest()


def _static_values(value: Any) -> list[str]:
    """Plain values in the static fields of a module and of the modules in it, as text.

    Results depend on them as much as on the arrays, for example on the precision of a network.
    Fields with ``metadata={"compared": False}`` are left out, such as the path of a file.
    """
    if isinstance(value, (list, tuple)):
        return [text for item in value for text in _static_values(item)]
    if not isinstance(value, eqx.Module):
        return []
    texts = []
    for field in dataclasses.fields(value):
        content = getattr(value, field.name, None)
        if not field.metadata.get("static"):
            texts += _static_values(content)
        elif field.metadata.get("compared", True) and isinstance(content, _PLAIN):
            texts.append(f"{field.name}={content!r};")
    return texts


def decode(content: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Build the object that `encode` wrote.

    Raises:
        ForeignError: The content names a foreign object.
        ValueError: The content is not what `encode` returns.
    """
    return _decode(content, arrays, 0)


def _decode(content: Any, arrays: dict[str, np.ndarray], depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise ValueError("its objects are nested too deeply")

    def inner(part: Any) -> Any:
        return _decode(part, arrays, depth + 1)

    if isinstance(content, _PLAIN):
        return content
    if isinstance(content, list):
        return [inner(item) for item in content]
    keys = set(content) if isinstance(content, dict) else set()
    if _is_foreign(content):
        raise ForeignError(content["foreign"][:200])
    if keys == {"class", "arguments"} and isinstance(content["class"], str):
        given = content["arguments"]
        if not isinstance(given, dict):
            raise ValueError("the arguments of an object have no names")
        arguments = {name: inner(part) for name, part in given.items()}
        return registry.build(content["class"], arguments)
    if keys == {"array", "dtype", "shape"}:
        return _decode_array(content, arrays)
    if keys == {"values", "dtype", "shape"}:
        return _decode_values(content)
    if keys == {"shape", "dtype"}:
        return jax.ShapeDtypeStruct(_shape(content["shape"]), _dtype(content["dtype"]))
    if keys == {"tuple"} and isinstance(content["tuple"], list):
        return tuple(inner(item) for item in content["tuple"])
    if keys == {"dict"} and isinstance(content["dict"], dict):
        return {name: inner(item) for name, item in content["dict"].items()}
    raise ValueError(f"it has an entry that gloam does not write, with the keys {sorted(keys)}")


def _decode_array(content: dict[str, Any], arrays: dict[str, np.ndarray]) -> jax.Array:
    name = content["array"]
    if not isinstance(name, str) or name not in arrays:
        raise ValueError("it names an array that is missing")
    array = arrays[name]
    described = str(array.dtype) == content["dtype"] and list(array.shape) == content["shape"]
    if not described or digest(array) != name:
        raise ValueError("it names an array that has other content")
    return jnp.asarray(array)


def _decode_values(content: dict[str, Any]) -> jax.Array:
    shape, dtype = _shape(content["shape"]), _dtype(content["dtype"])
    array = np.asarray(content["values"])
    if array.dtype.kind not in "biuf" or array.shape != shape or array.size > _INLINE:
        raise ValueError("it has an array whose values do not fit its shape")
    return jnp.asarray(array.astype(dtype))


def _shape(value: Any) -> tuple[int, ...]:
    is_shape = isinstance(value, list) and all(type(n) is int and 0 <= n < 2**31 for n in value)
    if not is_shape or len(value) > 32:
        raise ValueError("it declares a shape that is not a list of sizes")
    return tuple(value)


def _dtype(value: Any) -> np.dtype:
    if value not in _DTYPES:
        shown = checks.short(value)
        raise ValueError(f"it declares the dtype {shown}, which gloam does not use")
    return np.dtype(value)


def archive_of(algorithm: Any) -> Any:
    """Return the content of an algorithm's archive, given that of the algorithm.

    Raises:
        ForeignError: The algorithm is of a foreign class, whose arguments are not known.
        ValueError: It is not an algorithm.
    """
    if _is_foreign(algorithm):
        raise ForeignError(algorithm["foreign"][:200])
    arguments = algorithm.get("arguments") if isinstance(algorithm, dict) else None
    if not isinstance(arguments, dict) or "archive" not in arguments:
        raise ValueError("its algorithm has no archive")
    return arguments["archive"]


def first_of_class(content: Any, names: tuple[str, ...]) -> Any:
    """Return the first object of one of these classes within a content, or ``None``."""
    if isinstance(content, dict) and content.get("class") in names:
        return content
    items = content.values() if isinstance(content, dict) else content
    if not isinstance(content, (dict, list)):
        return None
    objects = (first_of_class(item, names) for item in items)
    return next((item for item in objects if item is not None), None)


def without_foreign_names(content: Any) -> Any:
    """Return a content without names and sources of foreign objects, which may change.

    >>> without_foreign_names({"tuple": [{"foreign": "__main__:evaluate", "source": "5f2a"}]})
    {'tuple': [{'foreign': ''}]}
    """
    if isinstance(content, list):
        return [without_foreign_names(item) for item in content]
    if not isinstance(content, dict):
        return content
    if _is_foreign(content):
        return {"foreign": ""} | {key: content[key] for key in content.keys() & {"sha256"}}
    return {name: without_foreign_names(item) for name, item in content.items()}


def differences(stored: Any, given: Any, name: str) -> list[str]:
    """Describe where two contents that `encode` returned differ.

    Names of the user's own functions may differ (a script can be renamed), their data may not.

    >>> differences({"tuple": [1, 2]}, {"tuple": [1, 3]}, "canvas")
    ['canvas[1] is 2 in the file and 3 now']
    """
    difference = [f"{name} is {_described(stored)} in the file and {_described(given)} now"]
    if _is_foreign(stored) and _is_foreign(given):
        same = stored.get("sha256") == given.get("sha256")
        return [] if same else [f"the data in {name} is not the data in the file"]
    if isinstance(stored, dict) and isinstance(given, dict) and stored.keys() == given.keys():
        if "array" in stored or stored.get("class") != given.get("class"):
            return [] if stored == given else difference
        # The keys of the JSON mean nothing to a reader of the message.
        hidden = ("arguments", "tuple", "dict", "class", "values")
        return [
            difference
            for key in stored
            for difference in differences(
                stored[key], given[key], name if key in hidden else f"{name}.{key}"
            )
        ]
    if isinstance(stored, list) and isinstance(given, list) and len(stored) == len(given):
        return [
            difference
            for number, pair in enumerate(zip(stored, given, strict=True))
            for difference in differences(*pair, f"{name}[{number}]")
        ]
    return [] if stored == given and type(stored) is type(given) else difference


def changed_sources(stored: Any, given: Any, name: str) -> list[str]:
    """Describe which functions and classes of the user differ from those of the file.

    Names are compared without their modules, because a script can be renamed, and then sources, if
    both are known.

    >>> changed_sources({"foreign": "a:f"}, {"foreign": "b:g"}, "domain")
    ["domain is 'f' in the file and 'g' now"]
    """
    if _is_foreign(stored) and _is_foreign(given):
        names = [content["foreign"].split(":")[-1] for content in (stored, given)]
        if names[0] != names[1]:
            return [f"{name} is {names[0]!r} in the file and {names[1]!r} now"]
        sources = {stored.get("source"), given.get("source")}
        changed = len(sources - {None}) == 2
        return [f"the source of {names[0]!r} ({name}) is not that of the file"] if changed else []
    if isinstance(stored, dict) and isinstance(given, dict):
        pairs = [(stored[key], given[key]) for key in stored if key in given]
    elif isinstance(stored, list) and isinstance(given, list):
        pairs = list(zip(stored, given, strict=False))
    else:
        pairs = []
    return [change for pair in pairs for change in changed_sources(*pair, name)]


def _is_foreign(content: Any) -> bool:
    """Whether a content describes a foreign object."""
    is_entry = isinstance(content, dict) and content.keys() <= {"foreign", "source", "sha256"}
    return is_entry and isinstance(content.get("foreign"), str)


def _described(content: Any) -> str:
    """Return a short description of a content."""
    if isinstance(content, dict):
        if "array" in content:
            return f"an array of shape {tuple(content['shape'])} ({str(content['array'])[:8]})"
        for key in ("class", "foreign"):
            if key in content:
                return str(content[key])
    text = repr(content)
    return text if len(text) <= 60 else text[:57] + "..."
