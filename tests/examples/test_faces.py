"""The faces example with small networks: files, images, embeddings, and a search to galleries."""

import functools
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from gloam_lab.generator import read_tensors, write_tensors

from .ir_files import GraphFile

efficientnet = pytest.importorskip("efficientnet")
embedder = pytest.importorskip("embedder")
mobile_stylegan = pytest.importorskip("mobile_stylegan")
openvino_ir = pytest.importorskip("openvino_ir")
run = pytest.importorskip("run")
RANDOM = np.random.default_rng(0)
W_DIM = 4
SIDE = 64


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Smaller images than those of the real networks: 64 pixels a side, embedded at 32."""
    monkeypatch.setattr(mobile_stylegan, "_HALF", SIDE)
    monkeypatch.setattr(embedder, "_SIZE", 32)


def ints(*numbers):
    return np.array(numbers, np.int64)


def mapping() -> GraphFile:
    file = GraphFile()
    z = file.layer("Parameter", [], {"shape": f"1, {W_DIM}", "element_type": "f32"}, name="var")
    kernel = file.constant(np.float32(RANDOM.integers(-4, 5, (W_DIM, W_DIM)) / 4))
    product = file.layer("MatMul", [z, kernel])
    file.layer("Add", [product, file.constant(np.float32([1, 2, 3, 4]))], name="style")
    return file


def synthesis() -> GraphFile:
    """Images of one colour: the low band of the latent's first numbers, and no detail."""
    file = GraphFile()
    w = file.parameter("style")
    colours = np.zeros((W_DIM, 12), np.float32)
    colours[:3, :3] = np.eye(3) / 8
    row = file.layer("MatMul", [w, file.constant(colours)])
    pixel = file.layer("Reshape", [row, file.constant(ints(0, 12, 1, 1))], {"special_zero": "true"})
    bands = file.layer("Tile", [pixel, file.constant(ints(1, 1, SIDE, SIDE))])
    split = [bands, file.constant(ints(1)[0]), file.constant(ints(3, 9))]
    file.layer("VariadicSplit", split, outputs=2, name="Slice_764/Split")
    return file


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A folder of converted files, as `convert.py` writes it."""
    folder, files = tmp_path_factory.mktemp("weights"), (mapping(), synthesis())
    graphs = [openvino_ir.Graph(file.xml(), file.weights) for file in files]
    texts = [file.xml() for file in files]
    path = folder / "faces.safetensors"
    mobile_stylegan.save(path, texts[0], graphs[0], texts[1], graphs[1])
    tensors = {
        name: np.float16(RANDOM.normal(size=shape) / np.sqrt(np.prod(shape[1:]) + 1))
        for name, shape in efficientnet.tensor_shapes(embedder.NUM_BLOCKS).items()
    }
    path = folder / "efficientnet_lite0.safetensors"
    write_tensors(path, tensors, {})
    return folder


def network(folder):
    tensors, _ = read_tensors("test", folder / "efficientnet_lite0.safetensors")
    return efficientnet.EfficientNet(tensors, embedder.NUM_BLOCKS)


def test_the_generator_maps_truncates_and_averages_pixels(weights):
    generator = mobile_stylegan.MobileStyleGAN.load(weights / "faces.safetensors", 32)
    assert (generator.z_dim, generator.w_dim, generator.num_ws) == (W_DIM, W_DIM, 1)
    np.testing.assert_allclose(generator.w_avg, [1, 2, 3, 4], atol=0.1)
    z = jnp.asarray(RANDOM.normal(size=(5, W_DIM)), jnp.float32)
    w = generator.map(z)
    np.testing.assert_allclose(
        generator.map(z, 0.5), 0.5 * (w + generator.w_avg), rtol=1e-5, atol=1e-5
    )
    images = generator.images(w)
    assert images.shape == (5, *generator.image_shape) == (5, 3, 32, 32)
    # The low band of a Haar transform is twice the colour.
    colours = np.clip(np.asarray(w)[:, :3, None, None] / 16, -1, 1)
    np.testing.assert_allclose(images, np.broadcast_to(colours, images.shape), atol=1e-5)
    half = mobile_stylegan.MobileStyleGAN.load(weights / "faces.safetensors", 32, half=True)
    assert half.images(w).dtype == jnp.float32
    np.testing.assert_allclose(half.images(w), images, atol=2e-3)
    with pytest.raises(ValueError, match=r"^resolution:.*1024.*1024"):
        mobile_stylegan.MobileStyleGAN.load(weights / "faces.safetensors", 100)


def test_converted_files_that_do_not_fit_are_refused(weights):
    with pytest.raises(ValueError, match=r"^faces:.*'mapping'"):
        mobile_stylegan.MobileStyleGAN.load(weights / "efficientnet_lite0.safetensors")
    with pytest.raises(ValueError, match=r"^EfficientNet:.*30"):
        efficientnet.EfficientNet({}, embedder.NUM_BLOCKS)


def test_convolutions_cover_images_as_tensorflow_does():
    """Against XLA's own convolution with its rule "SAME", for a kernel that steps over pixels."""
    kernels = RANDOM.normal(size=(6, 1, 5, 5)).astype(np.float32)
    tensors = {
        name: np.zeros(shape, np.float32)
        for name, shape in efficientnet.tensor_shapes(embedder.NUM_BLOCKS).items()
    }
    model = efficientnet.EfficientNet(tensors, embedder.NUM_BLOCKS)
    model.tensors.update({"x.weight": jnp.asarray(kernels), "x.bias": jnp.ones(6)})
    images = RANDOM.normal(size=(2, 6, 7, 8)).astype(np.float32)
    for stride in (1, 2):
        wanted = jax.lax.conv_general_dilated(
            images, kernels, (stride, stride), "SAME", feature_group_count=6
        )
        layer = functools.partial(model._layer, "x", stride=stride, activated=False)
        found = jax.jit(layer)(images)
        np.testing.assert_allclose(found, wanted + 1, rtol=1e-4, atol=1e-4)


def test_normalisations_are_folded_into_kernels():
    """A folded convolution is the convolution, normalised by the statistics."""
    state = {}
    names = {"stem": ("_conv_stem", "_bn0"), "head": ("_conv_head", "_bn1")}
    for place in range(16):
        for ours, layer, norm in (
            ("expand", "_expand_conv", "_bn0"),
            ("depthwise", "_depthwise_conv", "_bn1"),
            ("project", "_project_conv", "_bn2"),
        ):
            theirs = f"_blocks.{place}."
            names[f"blocks.{place}.{ours}"] = (theirs + layer, theirs + norm)
    shapes = efficientnet.tensor_shapes()
    for ours, (layer, norm) in names.items():
        if f"{ours}.weight" in shapes:
            shape = shapes[f"{ours}.weight"]
            state[f"{layer}.weight"] = RANDOM.normal(size=shape).astype(np.float32)
            for part in ("weight", "bias", "running_mean", "running_var"):
                state[f"{norm}.{part}"] = RANDOM.uniform(0.5, 2, shape[0]).astype(np.float32)
    folded = efficientnet.folded(state)
    assert {name: array.shape for name, array in folded.items()} == shapes
    x = RANDOM.normal(size=3).astype(np.float32)
    plain = state["_conv_stem.weight"][:, :, 1, 1] @ x
    scaled = (plain - state["_bn0.running_mean"]) / np.sqrt(state["_bn0.running_var"] + 1e-3)
    wanted = scaled * state["_bn0.weight"] + state["_bn0.bias"]
    found = folded["stem.weight"][:, :, 1, 1] @ x + folded["stem.bias"]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_faces_and_items_have_equal_moments_in_the_embedding(weights):
    pictures = RANDOM.integers(0, 256, (12, 16, 16, 3)).astype(np.uint8)
    pictures = pictures // RANDOM.integers(1, 5, (12, 1, 1, 3)).astype(np.uint8)
    faces = RANDOM.uniform(-1, 1, (12, 3, 16, 16)).astype(np.float32)
    faces *= RANDOM.uniform(0.1, 1, (12, 3, 1, 1)).astype(np.float32)
    model = embedder.MatchedEmbedder(network(weights), pictures, faces, num_axes=4)
    embed = eqx.filter_jit(lambda model, images: model.embed_images(images))
    items, made = (np.asarray(embed(model, images)) for images in (pictures, faces))
    for rows in (items, made):
        assert rows.shape == (12, model.embedding_dim) == (12, 5)
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)
    # The last number was 1 before the length was made one.
    flat = [rows[:, :-1] / rows[:, -1:] for rows in (items, made)]
    np.testing.assert_allclose(flat[0].mean(axis=0), flat[1].mean(axis=0), atol=1e-3)
    np.testing.assert_allclose(flat[0].std(axis=0), flat[1].std(axis=0), rtol=1e-2)
    np.testing.assert_allclose(np.square(flat[0]).sum(axis=1).mean(), 1, rtol=1e-2)
    with pytest.raises(NotImplementedError, match="Leave the prompt out"):
        model.embed_texts(["a hiker"])
    with pytest.raises(ValueError, match=r"^images:"):
        model.embed_images(pictures[..., 0])


@pytest.mark.slow
def test_a_search_ends_in_galleries(weights, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "landscapes"
    folder.mkdir()
    for place in range(6):
        colour = RANDOM.integers(0, 256, (8, 8, 3)).astype(np.uint8)
        Image.fromarray(colour).resize((16, 16)).save(folder / f"{place}.png")
    options = {"weights": weights, "data": tmp_path, "out": tmp_path / "out"}
    options |= {"datasets": "landscapes", "iterations": 2, "emitters": 1, "resolution": 16}
    options |= {"chunk": 4, "samples": 8, "sigma0": 0.5, "seeds": 2}
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    monkeypatch.setattr(sys, "argv", ["run.py", "--half", *words])
    run.main()
    printed = capsys.readouterr().out
    assert "landscapes, seed 1: QD score" in printed
    assert "distance between faces of neighbours" in printed
    found = {path.name for path in (tmp_path / "out" / "landscapes").iterdir()}
    pictures = {"gallery.png", "gallery.html", "neighbours.png"}
    assert found == pictures | {"metrics.parquet", "elites.npz"}
    with np.load(tmp_path / "out" / "landscapes" / "elites.npz") as arrays:
        assert arrays["solutions"].shape == (len(arrays["cells"]), W_DIM)
