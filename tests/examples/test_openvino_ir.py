"""Graphs in OpenVINO's format: each operation as NumPy has it, and hostile files refused."""

import re

import jax
import numpy as np
import pytest

from .ir_files import GraphFile

openvino_ir = pytest.importorskip("openvino_ir")
RANDOM = np.random.default_rng(0)


def values(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


def evaluated(kind, inputs, attributes=None, outputs=1):
    """Outputs of one operation: the first input is the graph's parameter, the others constants."""
    file = GraphFile()
    places = [file.parameter(), *(file.constant(array) for array in inputs[1:])]
    file.layer(kind, places, attributes, outputs=outputs, name="it")
    graph = openvino_ir.Graph(file.xml(), file.weights)
    wanted = tuple(("it", port) for port in range(outputs))
    return [np.asarray(found) for found in graph({"x": inputs[0]}, wanted)]


def ints(*numbers):
    return np.array(numbers, np.int64)


X, Y = values(2, 3, 4, 5), values(3, 1, 5)
CASES = {
    "Add": ([X, Y], {"auto_broadcast": "numpy"}, X + Y),
    "Multiply": ([X, Y], {}, X * Y),
    "Power": ([np.abs(X), np.float32([[2.5]])], {}, np.abs(X) ** 2.5),
    "PReLU": ([X, np.float32([0.2])], {}, np.where(X < 0, 0.2 * X, X)),
    "PReLU by channel": (
        [X, np.float32([0.1, 0.2, 0.3])],
        {},
        np.where(X < 0, np.float32([0.1, 0.2, 0.3])[:, None, None] * X, X),
    ),
    "MatMul": ([X, values(5, 2)], {}, None),
    "MatMul transposed": ([X, values(2, 4)], {"transpose_a": "true", "transpose_b": "true"}, None),
    "ReduceMean": ([X, ints(1, 3)], {"keep_dims": "true"}, X.mean((1, 3), keepdims=True)),
    "ReduceMean flat": ([X, ints(1)], {"keep_dims": "false"}, X.mean(1)),
    "ShapeOf": ([X], {"output_type": "i64"}, ints(2, 3, 4, 5)),
    "Gather": ([X, ints(2, 0), ints(1)[0]], {"batch_dims": "0"}, X[:, [2, 0]]),
    "Concat": ([X, X[:, :1]], {"axis": "1"}, np.concatenate([X, X[:, :1]], 1)),
    "Squeeze": ([X[:, :1], ints(1)], {}, X[:, 0]),
    "Unsqueeze": ([X, ints(0, 3)], {}, np.expand_dims(X, (0, 3))),
    "Reshape": ([X, ints(0, -1, 2)], {"special_zero": "true"}, X.reshape(2, -1, 2)),
    "Broadcast": ([Y, ints(2, 3, 4, 5)], {"mode": "numpy"}, np.broadcast_to(Y, X.shape)),
    "Broadcast both": (
        [Y, ints(4, 1)],
        {"mode": "bidirectional"},
        np.broadcast_to(Y, (3, 4, 5)),
    ),
    "Tile": ([X, ints(2, 1, 1, 3)], {}, np.tile(X, (2, 1, 1, 3))),
    "Result": ([X], {}, X),
}
CASES["MatMul"] = (*CASES["MatMul"][:2], X @ CASES["MatMul"][0][1])
CASES["MatMul transposed"] = (
    *CASES["MatMul transposed"][:2],
    X.swapaxes(2, 3) @ CASES["MatMul transposed"][0][1].T,
)


@pytest.mark.parametrize("name", CASES)
def test_operations_are_those_of_numpy(name):
    inputs, attributes, wanted = CASES[name]
    (found,) = evaluated(name.split()[0], inputs, attributes)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_split():
    found = evaluated("VariadicSplit", [X, ints(3)[0], ints(1, -1, 2)], outputs=3)
    for got, want in zip(found, np.split(X, [1, 3], axis=3), strict=True):
        np.testing.assert_array_equal(got, want)


def convolved(x, kernels, strides, dilations, pads):
    """A convolution by its definition; kernels (groups, out, in, height, width)."""
    x = np.pad(x, ((0, 0), (0, 0), *pads))
    groups, out, per_group, *sides = kernels.shape
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, sides, strict=True)]
    shape = [(n - r) // s + 1 for n, r, s in zip(x.shape[2:], reach, strides, strict=True)]
    total = np.zeros((len(x), groups * out, *shape))
    for g, o, row, column in np.ndindex(groups, out, *shape):
        for i, a, b in np.ndindex(per_group, *sides):
            place = row * strides[0] + a * dilations[0], column * strides[1] + b * dilations[1]
            part = kernels[g, o, i, a, b] * x[:, g * per_group + i, place[0], place[1]]
            total[:, g * out + o, row, column] += part
    return total


def transposed(x, kernels, strides, dilations, pads, extra):
    """Each number of ``x`` adds its kernel, at its place times the stride."""
    groups, per_group, out, *sides = kernels.shape
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, sides, strict=True)]
    full = [
        (n - 1) * s + r + e for n, s, r, e in zip(x.shape[2:], strides, reach, extra, strict=True)
    ]
    total = np.zeros((len(x), groups * out, *full))
    for g, i, o in np.ndindex(groups, per_group, out):
        for row, column, a, b in np.ndindex(*x.shape[2:], *sides):
            place = row * strides[0] + a * dilations[0], column * strides[1] + b * dilations[1]
            part = x[:, g * per_group + i, row, column] * kernels[g, i, o, a, b]
            total[:, g * out + o, place[0], place[1]] += part
    (top, bottom), (left, right) = pads
    return total[:, :, top : full[0] - bottom, left : full[1] - right]


def window(strides, dilations, pads, **more):
    begin, end = zip(*pads, strict=True)
    pairs = {"strides": strides, "dilations": dilations, "pads_begin": begin, "pads_end": end}
    texts = {name: f"{pair[0]}, {pair[1]}" for name, pair in (pairs | more).items()}
    return texts | {"auto_pad": "explicit"}


PLAIN = ((1, 1), (1, 1), ((0, 0), (0, 0)))
WINDOWS = [PLAIN, ((1, 1), (1, 1), ((1, 2), (0, 1))), ((2, 1), (1, 2), ((1, 0), (2, 1)))]


@pytest.mark.parametrize("sides", [(1, 1), (3, 2)])
@pytest.mark.parametrize("place", range(3))
def test_convolutions(sides, place):
    x, kernels = values(2, 4, 5, 6), values(6, 4, *sides)
    (found,) = evaluated("Convolution", [x, kernels], window(*WINDOWS[place]))
    wanted = convolved(x, kernels[None], *WINDOWS[place])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("weights", [(4, 1, 1, 3, 3), (2, 3, 2, 2, 3)], ids=str)
@pytest.mark.parametrize("place", range(3))
def test_convolutions_in_groups(weights, place):
    x, kernels = values(2, 4, 6, 7), values(*weights)
    (found,) = evaluated("GroupConvolution", [x, kernels], window(*WINDOWS[place]))
    wanted = convolved(x, kernels, *WINDOWS[place])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("weights", "strides", "dilations", "pads", "extra"),
    [
        # Kernels side by side, as in a Haar transform; then kernels that overlap.
        ((4, 1, 1, 2, 1), (2, 1), (1, 1), ((0, 0), (0, 0)), (0, 0)),
        ((4, 1, 1, 1, 2), (1, 2), (1, 1), ((0, 0), (0, 0)), (0, 0)),
        ((4, 1, 1, 2, 2), (2, 1), (1, 1), ((0, 0), (0, 0)), (0, 0)),
        ((2, 2, 3, 3, 2), (2, 3), (1, 1), ((1, 0), (0, 1)), (1, 0)),
        ((1, 4, 2, 2, 2), (1, 2), (2, 1), ((0, 1), (0, 0)), (0, 1)),
    ],
    ids=str,
)
def test_transposed_convolutions(weights, strides, dilations, pads, extra):
    x, kernels = values(2, 4, 3, 4), values(*weights)
    attributes = window(strides, dilations, pads, output_padding=extra)
    (found,) = evaluated("GroupConvolutionBackpropData", [x, kernels], attributes)
    wanted = transposed(x, kernels, strides, dilations, pads, extra)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_every_operation_has_a_test():
    tested = {name.split()[0] for name in CASES} | {"VariadicSplit", "Convolution"}
    tested |= {"GroupConvolution", "GroupConvolutionBackpropData"}
    assert tested == set(openvino_ir.OPERATIONS)


def modulated() -> GraphFile:
    """Rows of x, as many as there are, reshaped by a shape that the graph computes."""
    file = GraphFile()
    x = file.parameter()
    product = file.layer("MatMul", [x, file.constant(values(3, 4))], name="product")
    shape = file.layer("ShapeOf", [product])
    size = file.layer("Gather", [shape, file.constant(ints(0)), file.constant(ints(0)[0])])
    sides = file.layer("Concat", [size, file.constant(ints(2, 2))], {"axis": "0"})
    image = file.layer("Reshape", [product, sides], {"special_zero": "true"}, name="image")
    file.layer("Result", [image])
    return file


def test_the_batch_axis_is_free_under_jit_and_outputs_can_be_taken_anywhere():
    file = modulated()
    graph = openvino_ir.Graph(file.xml(), file.weights)
    (kernel,) = graph.constants.values()
    for batch_size in (1, 5):
        x = values(batch_size, 3)
        product, image = jax.jit(lambda x: graph({"x": x}, (("product", 0), ("image", 0))))(x)
        np.testing.assert_allclose(product, x @ np.asarray(kernel), rtol=1e-5)
        np.testing.assert_array_equal(image, np.asarray(product).reshape(-1, 2, 2))


def test_constants_may_be_given_by_layer_instead_of_bytes():
    file, x = modulated(), values(2, 3)
    graph = openvino_ir.Graph(file.xml(), file.weights)
    arrays = {key: np.asarray(array, np.float16) for key, array in graph.constants.items()}
    arrays |= {key: np.array(v, np.int64).reshape(shape) for key, shape, v in graph.integers}
    again = openvino_ir.Graph(file.xml(), arrays)
    found, wanted = (g({"x": x}, (("image", 0),))[0] for g in (again, graph))
    np.testing.assert_allclose(found, wanted, rtol=1e-2, atol=1e-2)
    del arrays["1"]
    with refused("constant 'Const_1': expected an array of that id, got none"):
        openvino_ir.Graph(file.xml(), arrays)


def refused(message):
    return pytest.raises(openvino_ir.GraphError, match=re.escape(message))


def constants(values, **replaced) -> GraphFile:
    file = GraphFile()
    file.constant(values, **replaced)
    return file


ENTITY = '<!DOCTYPE net [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]>'
BAD_CONSTANTS = {
    "outside": ({"offset": 4}, "expected bytes inside the weights, got bytes 4 to 16 of 12"),
    "negative": ({"offset": -4}, "expected bytes inside the weights, got bytes -4 to 8 of 12"),
    "far": ({"offset": 2**70}, "expected bytes inside the weights"),
    "size": ({"size": 8}, "expected 3 numbers of f32, got 8 bytes"),
    "large": ({"shape": "1000000, 1000000, 1000000"}, "expected 1000000000000000000 numbers"),
    "sides": ({"shape": "-1, -3"}, "expected sides of at least 0, got (-1, -3)"),
    "type": ({"element_type": "object"}, "expected one of f32, f16, i64, i32, got 'object'"),
    "text": ({"offset": "__import__('os')"}, "expected shape, offset and size"),
}


@pytest.mark.parametrize("name", BAD_CONSTANTS)
def test_constants_lie_inside_the_weights(name):
    replaced, message = BAD_CONSTANTS[name]
    file = constants(np.float32([1, 2, 3]), **replaced)
    with refused(f"constant 'Const_0': {message}"):
        openvino_ir.Graph(file.xml(), file.weights)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.float32([np.nan]), "expected finite numbers, got NaN or infinity"),
        (np.arange(65), "expected at most 64 integers, got 65"),
    ],
)
def test_constants_are_usable(values, message):
    file = constants(values)
    with refused(message):
        openvino_ir.Graph(file.xml(), file.weights)


@pytest.mark.parametrize(
    ("xml", "message"),
    [
        (modulated().xml(ENTITY), "XML: expected no document type and no entities"),
        (modulated().xml('<!DOCTYPE net SYSTEM "file:///x">'), "XML: expected no document type"),
        (modulated().xml()[:-20], "XML: expected a graph, got a text that is not XML"),
        (b"", "XML: expected a graph, got a text that is not XML"),
        (b"<net>" * 17, "XML: expected at most 16 levels, got more"),
        (b"<html><layers/></html>", "XML: expected <net> with a section <layers>, got <html>"),
        (b"<net><layers/></net>", "XML: expected <net> with a section <edges>"),
        (b"<net><layers><layer/></layers><edges/></net>", "layer: expected an id"),
        (
            modulated().xml().replace(b'type="MatMul"', b'type="Loop"'),
            "layer 'product': expected one of Add, Broadcast",
        ),
        (
            modulated().xml().replace(b'from-layer="1"', b'from-layer="99"'),
            "edge: expected layers that exist, got 99 to 2",
        ),
        (
            modulated()
            .xml()
            .replace(b'from-layer="1" from-port="0"', b'from-layer="1" from-port="7"'),
            "layer 'product': expected an output of ['0'], got '7'",
        ),
        (
            modulated().xml().replace(b'to-layer="2" to-port="0"', b'to-layer="2" to-port="5"'),
            "layer 'product': expected an edge to each input, got none",
        ),
        (
            modulated().xml().replace(b'to-layer="2" to-port="0"', b'to-layer="2" to-port="1"'),
            "edge: expected one edge for each input, got 2:1",
        ),
        (
            modulated().xml().replace(b'layer id="0"', b'layer id="1"'),
            "layers: expected different ids, got 1",
        ),
    ],
)
def test_hostile_graphs_are_refused(xml, message):
    with refused(message):
        openvino_ir.Graph(xml, modulated().weights)


def test_cycles_are_refused():
    file = GraphFile()
    x = file.parameter()
    first = file.layer("Add", [x, (2, 2)])
    file.layer("Add", [first, x])
    with refused("edges: expected a graph without cycles, got a cycle among 2 layers"):
        openvino_ir.Graph(file.xml(), b"")


@pytest.mark.parametrize(
    ("kind", "inputs", "attributes", "message"),
    [
        ("Tile", [X, ints(10**9, 10**9, 1, 1)], {}, "expected at most 268435456 numbers"),
        ("Broadcast", [Y, ints(10**9, 3, 10**9, 5)], {}, "expected at most 268435456 numbers"),
        ("Gather", [X, ints(3), ints(1)[0]], {}, "expected places below 3, got [3]"),
        ("Reshape", [X, ints(7, 7)], {}, "expected inputs that fit together, got shapes"),
        ("Reshape", [X, values(2)], {}, "expected integers known in advance"),
        ("Add", [X, values(7)], {}, "expected inputs that fit together"),
        ("Add", [X, Y], {"auto_broadcast": "pdpd"}, "expected auto_broadcast 'numpy', got 'pdpd'"),
        ("Concat", [X, X], {}, "expected inputs that fit together"),
        ("VariadicSplit", [X, ints(1)[0], ints(1, 1)], {}, "expected lengths that sum to 3"),
        (
            "Convolution",
            [X, values(1, 3, 1, 1)],
            {"strides": "1, 99999"},
            "expected strides: two small integers, got '1, 99999'",
        ),
        (
            "Convolution",
            [X, values(1, 3, 1, 1)],
            {"auto_pad": "same_upper"},
            "expected auto_pad 'explicit', got 'same_upper'",
        ),
    ],
)
def test_operations_that_do_not_fit_are_refused(kind, inputs, attributes, message):
    with refused(f"{kind} 'it': {message}"):
        evaluated(kind, inputs, attributes)


def test_shapes_that_grow_without_end_are_refused():
    file = GraphFile()
    place = file.layer("ShapeOf", [file.parameter()])
    for _ in range(40):
        place = file.layer("Concat", [place, place], {"axis": "0"})
    file.layer("Result", [place], name="end")
    graph = openvino_ir.Graph(file.xml(), b"")
    with refused("expected at most 64 numbers, got 128"):
        graph({"x": X}, (("end", 0),))


def test_unknown_outputs_and_missing_inputs_are_refused():
    file = modulated()
    graph = openvino_ir.Graph(file.xml(), file.weights)
    with refused("outputs: expected the name of a layer, got 'nothing'"):
        graph({"x": X}, (("nothing", 0),))
    with refused("graph: expected an output below 1, got output 3"):
        graph({"x": values(1, 3)}, (("product", 3),))
    with refused("inputs: expected an array 'x', got ['y']"):
        graph({"y": X}, (("product", 0),))


def test_files_are_read_from_disk_and_missing_ones_are_named(tmp_path):
    file = modulated()
    xml, weights = tmp_path / "graph.xml", tmp_path / "graph.bin"
    xml.write_bytes(file.xml())
    with refused("graph: expected an existing file"):
        openvino_ir.read_graph(xml, weights)
    weights.write_bytes(file.weights)
    assert len(openvino_ir.read_graph(xml, weights).layers) == file.count
    weights.write_bytes(file.weights[:-1])
    with refused("expected bytes inside the weights"):
        openvino_ir.read_graph(xml, weights)
