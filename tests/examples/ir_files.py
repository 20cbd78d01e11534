"""Small graphs in OpenVINO's format, built by hand."""

from xml.sax.saxutils import quoteattr

import numpy as np

_KINDS = {"float32": "f32", "float16": "f16", "int64": "i64", "int32": "i32"}


class GraphFile:
    """Collects layers, edges and weights, and writes them as OpenVINO does."""

    def __init__(self):
        self.layers, self.edges, self.weights, self.count = [], [], b"", 0

    def constant(self, values, **replaced) -> tuple[int, int]:
        array = np.asarray(values)
        data = {
            "element_type": _KINDS[array.dtype.name],
            "shape": ", ".join(map(str, array.shape)),
            "offset": len(self.weights),
            "size": array.nbytes,
        }
        self.weights += array.tobytes()
        return self.layer("Const", [], data | replaced)

    def parameter(self, name="x") -> tuple[int, int]:
        return self.layer("Parameter", [], {"shape": "1, 1", "element_type": "f32"}, name=name)

    def layer(self, kind, inputs, data=None, *, outputs=1, name=None) -> tuple[int, int]:
        """Add a layer; the result is its id and the port of its first output."""
        key, self.count = self.count, self.count + 1
        attributes = " ".join(f"{k}={quoteattr(str(v))}" for k, v in (data or {}).items())
        ports = [f'<port id="{place}"/>' for place in range(len(inputs) + outputs)]
        for place, (start, port) in enumerate(inputs):
            self.edges.append((start, port, key, place))
        self.layers.append(
            f'<layer id="{key}" name={quoteattr(name or f"{kind}_{key}")} type="{kind}">'
            f"<data {attributes}/><input>{''.join(ports[: len(inputs)])}</input>"
            f"<output>{''.join(ports[len(inputs) :])}</output></layer>"
        )
        return key, len(inputs)

    def xml(self, before="") -> bytes:
        edges = "".join(
            f'<edge from-layer="{a}" from-port="{b}" to-layer="{c}" to-port="{d}"/>'
            for a, b, c, d in self.edges
        )
        layers = "".join(self.layers)
        text = f"<net><layers>{layers}</layers><edges>{edges}</edges></net>"
        return f'<?xml version="1.0"?>{before}{text}'.encode()
