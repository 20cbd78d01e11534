"""Networks in OpenVINO's intermediate representation: a graph (.xml) and its weights (.bin).

The files are not trusted: only known operations are accepted, nothing is executed, and all sizes
and offsets are validated before they are used.
"""

import math
import os
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from ir_operations import OPERATIONS, OperationError
from jaxtyping import Array

_DTYPES = {"f32": np.float32, "f16": np.float16, "i64": np.int64, "i32": np.int32}
_LARGEST_XML = 16 << 20
_LARGEST_BIN = 1 << 30
_DEEPEST = 16
# Integers are shapes and axes. There are few of them, and they stay on the host.
_MOST_INTEGERS = 64
_MOST_NUMBERS = 1 << 31
_FIX = "The file may be damaged or have another version: download it again."


class GraphError(ValueError):
    """A file that is not a valid graph, or a graph that is not supported."""


class Layer(NamedTuple):
    """One operation of a graph."""

    id: str
    name: str
    kind: str
    attributes: tuple[tuple[str, str], ...]
    inputs: tuple[tuple[str, int], ...]
    """Source of each input: a layer id and the number of its output."""


class Graph(eqx.Module):
    """A network: its layers in topological order, and its constants.

    Args:
        xml: Content of the ``.xml`` file.
        weights: Content of the ``.bin`` file, or all constants by layer id.
    """

    constants: dict[str, Array]
    """Floating-point constants by layer id, in float32."""
    integers: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...] = eqx.field(static=True)
    """Layer id, shape and values of the integer constants."""
    layers: tuple[Layer, ...] = eqx.field(static=True)

    def __init__(self, xml: bytes, weights: "bytes | dict[str, np.ndarray]"):
        root = _parsed(xml)
        elements = {}
        for element in _section(root, "layers"):
            _expect(element.get("id") not in elements, "layers", "different ids", _id(element))
            elements[_id(element)] = element
        self.layers = _ordered(_layers(elements, _section(root, "edges")))
        floats, integers, total = {}, [], 0
        for layer in self.layers:
            if layer.kind == "Const":
                array = _constant(layer, weights)
                total += array.size
                _expect(total <= _MOST_NUMBERS, layer.name, "fewer numbers in all", total)
                if array.dtype.kind == "f":
                    floats[layer.id] = jnp.asarray(array, jnp.float32)
                else:
                    values = tuple(array.reshape(-1).tolist())
                    integers.append((layer.id, array.shape, values))
        self.constants, self.integers = floats, tuple(integers)

    def __call__(self, inputs: dict[str, Array], outputs: tuple[tuple[str, int], ...]) -> list[Any]:
        """Compute some outputs of layers. JAX can trace it, with batches of any size.

        Args:
            inputs: Arrays by the names of the graph's parameters.
            outputs: Name of a layer and number of its output, for each result. Layers that they do
                not depend on are not computed.
        """
        ids = {layer.name: layer.id for layer in self.layers}
        for name, _ in outputs:
            _expect(name in ids, "outputs", "the name of a layer", repr(name))
        wanted = [(ids[name], port) for name, port in outputs]
        values: dict[str, tuple[Any, ...]] = {
            key: (array,) for key, array in self.constants.items()
        }
        for key, shape, numbers in self.integers:
            values[key] = (np.array(numbers, np.int64).reshape(shape),)
        needed = _needed(self.layers, {key for key, _ in wanted})
        for layer in self.layers:
            if layer.id not in needed or layer.id in values:
                continue
            if layer.kind == "Parameter":
                _expect(layer.name in inputs, "inputs", f"an array '{layer.name}'", sorted(inputs))
                values[layer.id] = (jnp.asarray(inputs[layer.name]),)
                continue
            sources = [_output(values, *place) for place in layer.inputs]
            values[layer.id] = _evaluated(layer, sources)
        return [_output(values, *place) for place in wanted]


def read_graph(xml: str | os.PathLike, weights: str | os.PathLike) -> Graph:
    """Read a network from an ``.xml`` and a ``.bin`` file."""
    return Graph(_content(xml, _LARGEST_XML), _content(weights, _LARGEST_BIN))


def _evaluated(layer: Layer, inputs: list[Any]) -> tuple[Any, ...]:
    what = f"{layer.kind} '{layer.name}'"
    try:
        results = OPERATIONS[layer.kind](inputs, dict(layer.attributes))
    except OperationError as error:
        raise GraphError(f"{what}: {error}. {_FIX}") from None
    except (TypeError, ValueError, IndexError, KeyError, OverflowError) as error:
        shapes = [getattr(value, "shape", ()) for value in inputs]
        raise GraphError(
            f"{what}: expected inputs that fit together, got shapes {shapes} ({error}). {_FIX}"
        ) from None
    # NumPy returns scalars in place of arrays without axes.
    results = tuple(np.asarray(each) if np.isscalar(each) else each for each in results)
    for result in results:
        most = _MOST_INTEGERS if isinstance(result, np.ndarray) else _MOST_NUMBERS
        size = math.prod(result.shape)
        _expect(size <= most, what, f"at most {most} numbers", size)
    return results


def _output(values: dict[str, tuple[Any, ...]], key: str, port: int) -> Any:
    found = values[key]
    _expect(0 <= port < len(found), "graph", f"an output below {len(found)}", f"output {port}")
    return found[port]


def _expect(holds: bool, what: str, expected: str, got: Any) -> None:
    if not holds:
        raise GraphError(f"{what}: expected {expected}, got {got}. {_FIX}")


def _content(path: str | os.PathLike, limit: int) -> bytes:
    place = Path(path)
    _expect(place.is_file(), "graph", "an existing file", f"'{path}'")
    size = place.stat().st_size
    _expect(size <= limit, f"'{path}'", f"at most {limit} bytes", size)
    return place.read_bytes()


def _parsed(xml: bytes) -> Element:
    """Parse XML without a document type, and hence without custom entities."""
    _expect(len(xml) <= _LARGEST_XML, "XML", f"at most {_LARGEST_XML} bytes", len(xml))
    builder, parser, depth = TreeBuilder(), expat.ParserCreate(), 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        _expect(depth <= _DEEPEST, "XML", f"at most {_DEEPEST} levels", "more")
        builder.start(tag, attributes)

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(tag)

    def refuse(*_: Any) -> None:
        _expect(False, "XML", "no document type and no entities", "a document type")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    try:
        parser.Parse(xml, True)
    except expat.ExpatError as error:
        raise GraphError(f"XML: expected a graph, got a text that is not XML ({error})") from None
    return builder.close()


def _section(root: Element, name: str) -> Element:
    found = root.find(name)
    if root.tag != "net" or found is None:
        raise GraphError(f"XML: expected <net> with a section <{name}>, got <{root.tag}>. {_FIX}")
    return found


def _id(element: Element) -> str:
    found = element.get("id")
    if found is None:
        raise GraphError(f"layer: expected an id, got <{element.tag}> without one. {_FIX}")
    return found


def _layers(elements: dict[str, Element], edges: Element) -> dict[str, Layer]:
    """Return the layers by id, after checking that all edges connect existing layers."""
    sources: dict[tuple[str, str], tuple[str, str]] = {}
    names = ("from-layer", "from-port", "to-layer", "to-port")
    for edge in edges:
        start, port, end, place = (edge.get(name, "") for name in names)
        known = start in elements and end in elements
        _expect(known, "edge", "layers that exist", f"{start} to {end}")
        _expect((end, place) not in sources, "edge", "one edge for each input", f"{end}:{place}")
        sources[end, place] = (start, port)
    layers, seen = {}, set()
    for key, element in elements.items():
        kind, name = element.get("type", ""), element.get("name", key)
        known = kind in OPERATIONS or kind in ("Const", "Parameter")
        _expect(known, f"layer '{name}'", f"one of {', '.join(sorted(OPERATIONS))}", repr(kind))
        _expect(name not in seen, "layers", "different names", repr(name))
        seen.add(name)
        data = element.find("data")
        attributes = () if data is None else tuple(sorted(data.attrib.items()))
        inputs = []
        for port in _ports(element, "input"):
            _expect((key, port) in sources, f"layer '{name}'", "an edge to each input", "none")
            start, output = sources[key, port]
            given = _ports(elements[start], "output")
            _expect(output in given, f"layer '{name}'", f"an output of {given}", repr(output))
            inputs.append((start, given.index(output)))
        layers[key] = Layer(key, name, kind, attributes, tuple(inputs))
    return layers


def _ports(element: Element, side: str) -> list[str]:
    return [port.get("id", "") for port in element.findall(f"{side}/port")]


def _ordered(layers: dict[str, Layer]) -> tuple[Layer, ...]:
    """Return the layers in topological order: each comes after its inputs."""
    waiting = {key: {start for start, _ in layer.inputs} for key, layer in layers.items()}
    users: dict[str, list[str]] = {key: [] for key in layers}
    for key, starts in waiting.items():
        for start in starts:
            users[start].append(key)
    free = [key for key, starts in waiting.items() if not starts]
    order = []
    while free:
        key = free.pop()
        order.append(layers[key])
        for user in users[key]:
            waiting[user].discard(key)
            if not waiting[user]:
                free.append(user)
    left = len(layers) - len(order)
    _expect(left == 0, "edges", "a graph without cycles", f"a cycle among {left} layers")
    return tuple(order)


def _needed(layers: tuple[Layer, ...], wanted: set[str]) -> set[str]:
    needed = set(wanted)
    for layer in reversed(layers):
        if layer.id in needed:
            needed |= {start for start, _ in layer.inputs}
    return needed


def _constant(layer: Layer, weights: "bytes | dict[str, np.ndarray]") -> np.ndarray:
    what, data = f"constant '{layer.name}'", dict(layer.attributes)
    kind = data.get("element_type", "")
    _expect(kind in _DTYPES, what, f"one of {', '.join(_DTYPES)}", repr(kind))
    try:
        shape = tuple(int(side) for side in data.get("shape", "").split(",") if side.strip())
        offset, size = int(data["offset"]), int(data["size"])
    except (KeyError, ValueError) as error:
        raise GraphError(f"{what}: expected shape, offset and size, got {error}. {_FIX}") from None
    dtype, count = np.dtype(_DTYPES[kind]).newbyteorder("<"), math.prod(shape)
    _expect(min(shape, default=0) >= 0, what, "sides of at least 0", shape)
    _expect(count * dtype.itemsize == size, what, f"{count} numbers of {kind}", f"{size} bytes")
    if dtype.kind == "i":
        _expect(count <= _MOST_INTEGERS, what, f"at most {_MOST_INTEGERS} integers", count)
    if isinstance(weights, bytes):
        inside = 0 <= offset <= len(weights) - size
        place = f"bytes {offset} to {offset + size} of {len(weights)}"
        _expect(inside, what, "bytes inside the weights", place)
        array = np.frombuffer(weights, dtype, count, offset).reshape(shape)
    else:
        _expect(layer.id in weights, what, "an array of that id", "none")
        array = weights[layer.id]
        _expect(array.shape == shape, what, f"shape {shape}", f"shape {array.shape}")
        _expect(array.dtype.kind == dtype.kind, what, f"numbers of {kind}", array.dtype)
    finite = dtype.kind == "i" or bool(np.isfinite(array).all())
    _expect(finite, what, "finite numbers", "NaN or infinity")
    return array
