"""CLIP against PyTorch's attention, Pillow, a plain tokenizer, and recorded official results."""

import gzip
import html
import importlib.util
import json
import re
import shutil
import sys
from itertools import pairwise
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

from gloam.formats import objects
from gloam_lab.latent_illumination import CLIP
from gloam_lab.latent_illumination.clip import END, START, Tokenizer, cleaned
from gloam_lab.latent_illumination.clip_towers import prepared

torch = pytest.importorskip("torch", reason="no PyTorch, the oracle of the towers")

features_of_images = eqx.filter_jit(lambda model, pixels: model.vision(pixels))
embeddings_of_images = eqx.filter_jit(lambda model, images: model.embed_images(images))
features_of_tokens = eqx.filter_jit(lambda model, tokens: model.text(tokens))

VISION = {
    "hidden_size": 12,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "image_size": 8,
    "patch_size": 4,
    "hidden_act": "quick_gelu",
}
TEXT = {
    "hidden_size": 8,
    "intermediate_size": 10,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 9,
    "vocab_size": 300,
    "hidden_act": "gelu",
    "eos_token_id": 299,
}
CONFIG = {"projection_dim": 6, "vision_config": VISION, "text_config": TEXT}


def layer_shapes(tower, place):
    hidden, inner = tower["hidden_size"], tower["intermediate_size"]
    shapes = {}
    for i in range(tower["num_hidden_layers"]):
        name = f"{place}.encoder.layers.{i}"
        for part in ("q", "k", "v", "out"):
            shapes[f"{name}.self_attn.{part}_proj.weight"] = (hidden, hidden)
            shapes[f"{name}.self_attn.{part}_proj.bias"] = (hidden,)
        for part in ("layer_norm1", "layer_norm2"):
            shapes[f"{name}.{part}.weight"] = shapes[f"{name}.{part}.bias"] = (hidden,)
        shapes |= {f"{name}.mlp.fc1.weight": (inner, hidden), f"{name}.mlp.fc1.bias": (inner,)}
        shapes |= {f"{name}.mlp.fc2.weight": (hidden, inner), f"{name}.mlp.fc2.bias": (hidden,)}
    return shapes


def random_tensors(seed=0):
    shapes = layer_shapes(VISION, "vision_model") | layer_shapes(TEXT, "text_model")
    shapes |= {
        "vision_model.embeddings.class_embedding": (12,),
        "vision_model.embeddings.patch_embedding.weight": (12, 3, 4, 4),
        "vision_model.embeddings.position_embedding.weight": (5, 12),
        "text_model.embeddings.token_embedding.weight": (300, 8),
        "text_model.embeddings.position_embedding.weight": (9, 8),
        "visual_projection.weight": (6, 12),
        "text_projection.weight": (6, 8),
    }
    for name, size in {
        "vision_model.pre_layrnorm": 12,
        "vision_model.post_layernorm": 12,
        "text_model.final_layer_norm": 8,
    }.items():
        shapes |= {f"{name}.weight": (size,), f"{name}.bias": (size,)}
    rng = np.random.default_rng(seed)
    return {n: rng.normal(0, 0.5, s).astype(np.float32) for n, s in shapes.items()}


def torch_tower(rows, tensors, tower, place, mask=None):
    """The layers by PyTorch's own modules."""
    hidden = tower["hidden_size"]
    t = {name: torch.from_numpy(value) for name, value in tensors.items()}
    for i in range(tower["num_hidden_layers"]):
        name = f"{place}.encoder.layers.{i}"
        attention = torch.nn.MultiheadAttention(
            hidden, tower["num_attention_heads"], batch_first=True
        ).requires_grad_(False)
        parts = [f"{name}.self_attn.{part}_proj" for part in "qkv"]
        with torch.no_grad():
            attention.in_proj_weight.copy_(torch.cat([t[f"{part}.weight"] for part in parts]))
            attention.in_proj_bias.copy_(torch.cat([t[f"{part}.bias"] for part in parts]))
            attention.out_proj.weight.copy_(t[f"{name}.self_attn.out_proj.weight"])
            attention.out_proj.bias.copy_(t[f"{name}.self_attn.out_proj.bias"])

        def norm(x, part, name=name):
            weight, bias = t[f"{name}.{part}.weight"], t[f"{name}.{part}.bias"]
            return torch.nn.functional.layer_norm(x, (hidden,), weight, bias)

        x = norm(rows, "layer_norm1")
        rows = rows + attention(x, x, x, attn_mask=mask, need_weights=False)[0]
        x = norm(rows, "layer_norm2") @ t[f"{name}.mlp.fc1.weight"].T
        x = x + t[f"{name}.mlp.fc1.bias"]
        quick = tower["hidden_act"] == "quick_gelu"
        x = x * torch.sigmoid(1.702 * x) if quick else torch.nn.functional.gelu(x)
        rows = rows + x @ t[f"{name}.mlp.fc2.weight"].T + t[f"{name}.mlp.fc2.bias"]
    return rows


def torch_norm(rows, tensors, name):
    weight, bias = (torch.from_numpy(tensors[f"{name}.{kind}"]) for kind in ("weight", "bias"))
    return torch.nn.functional.layer_norm(rows, (rows.shape[-1],), weight, bias)


def test_the_vision_tower_is_pytorchs():
    tensors = random_tensors()
    pixels = np.random.default_rng(1).standard_normal((3, 3, 8, 8)).astype(np.float32)
    t = {name: torch.from_numpy(value) for name, value in tensors.items()}
    place = "vision_model.embeddings"
    kernel = t[f"{place}.patch_embedding.weight"]
    images = torch.from_numpy(pixels).requires_grad_()
    rows = torch.nn.functional.conv2d(images, kernel, stride=4)
    rows = rows.flatten(2).transpose(1, 2)
    first = t[f"{place}.class_embedding"].expand(3, 1, -1)
    rows = torch.cat([first, rows], dim=1) + t[f"{place}.position_embedding.weight"]
    rows = torch_norm(rows, tensors, "vision_model.pre_layrnorm")
    rows = torch_tower(rows, tensors, VISION, "vision_model")[:, 0]
    expected = torch_norm(rows, tensors, "vision_model.post_layernorm")
    expected = expected @ t["visual_projection.weight"].T
    model = CLIP(CONFIG, tensors)
    found, pull = jax.vjp(lambda pixels: features_of_images(model, pixels), jnp.asarray(pixels))
    np.testing.assert_allclose(found, expected.detach().numpy(), rtol=0, atol=1e-5)
    weights = np.random.default_rng(2).standard_normal(expected.shape).astype(np.float32)
    expected.backward(torch.from_numpy(weights))
    assert images.grad is not None
    np.testing.assert_allclose(pull(weights)[0], images.grad.numpy(), rtol=0, atol=1e-5)


def tokens():
    rows = np.random.default_rng(2).integers(0, 298, (4, 9)).astype(np.int32)
    for row, end in enumerate((8, 4, 1, 6)):
        rows[row, 0], rows[row, end] = 298, 299
        rows[row, end + 1 :] = 0
    return rows


def test_the_text_tower_is_pytorchs_and_ends_at_the_end():
    tensors, rows = random_tensors(), tokens()
    t = {name: torch.from_numpy(value) for name, value in tensors.items()}
    place = "text_model.embeddings"
    x = t[f"{place}.token_embedding.weight"][torch.from_numpy(rows).long()]
    x = x + t[f"{place}.position_embedding.weight"]
    mask = torch.triu(torch.full((9, 9), -torch.inf), diagonal=1)
    x = torch_tower(x, tensors, TEXT, "text_model", mask)
    x = torch_norm(x, tensors, "text_model.final_layer_norm")
    x = x[torch.arange(4), torch.tensor([8, 4, 1, 6])]
    expected = (x @ t["text_projection.weight"].T).numpy()
    model = CLIP(CONFIG, tensors)
    np.testing.assert_allclose(features_of_tokens(model, rows), expected, rtol=0, atol=1e-5)
    # What follows the end does not matter: zeros, or the end again.
    ended = np.where(np.cumsum(rows == 299, axis=1) > 0, 299, rows)
    np.testing.assert_allclose(features_of_tokens(model, ended), expected, rtol=0, atol=1e-5)
    older = CLIP(CONFIG | {"text_config": TEXT | {"eos_token_id": 2}}, tensors)
    np.testing.assert_allclose(features_of_tokens(older, rows), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("half", "tolerance"), [("float16", 0.01), ("bfloat16", 0.05)])
def test_half_precision_is_near_float32(half, tolerance):
    tensors = random_tensors()
    images = np.random.default_rng(3).uniform(-1, 1, (2, 3, 9, 11)).astype(np.float32)
    exact = embeddings_of_images(CLIP(CONFIG, tensors), images)
    found = embeddings_of_images(CLIP(CONFIG, tensors, half=half), images)
    assert found.dtype == jnp.float32
    error = float(jnp.abs(found - exact).max())
    assert 0 < error < tolerance


def test_a_run_folder_holds_a_digest_of_a_model_only():
    arrays = {}
    first, again = (objects.encode(CLIP(CONFIG, random_tensors()), arrays) for _ in range(2))
    assert arrays == {}
    assert first.keys() == {"foreign", "sha256"}
    assert first == again


# Pixels

MEAN = np.array([0.48145466, 0.4578275, 0.40821073])
STD = np.array([0.26862954, 0.26130258, 0.27577711])
SIZES = [(256, 256), (97, 150), (31, 640), (500, 333), (17, 16)]


prepared_at_64 = jax.jit(lambda images: prepared(images, 64))


def by_pillow(image, size):
    """OpenAI's pipeline: shorter side to ``size`` by Pillow, center crop, normalization."""
    picture = Image.fromarray(image).convert("RGB")
    width, height = picture.size
    shorter = min(width, height)
    new = (int(size * width / shorter), int(size * height / shorter))
    picture = picture.resize(new, Image.Resampling.BICUBIC)
    left, top = round((new[0] - size) / 2), round((new[1] - size) / 2)
    picture = picture.crop((left, top, left + size, top + size))
    return ((np.asarray(picture) / 255 - MEAN) / STD).transpose(2, 0, 1)


@pytest.mark.parametrize("shape", SIZES)
def test_byte_images_are_prepared_as_by_pillow(shape):
    rng = np.random.default_rng(sum(shape))
    smooth = rng.integers(0, 256, (*(-(-side // 8) for side in shape), 3)).astype(np.uint8)
    image = np.array(Image.fromarray(smooth).resize(shape[::-1], Image.Resampling.BILINEAR))
    image[::5, ::3] = rng.integers(0, 256, image[::5, ::3].shape)  # edges that overshoot
    found = prepared_at_64(image[None])[0]
    np.testing.assert_allclose(found, by_pillow(image, 64), rtol=0, atol=1e-5)
    # Floats are not rounded to bytes on the way, which is within one level or two.
    floats = (image[None].transpose(0, 3, 1, 2) / 127.5 - 1).astype(np.float32)
    unrounded = prepared_at_64(floats)[0]
    difference = np.abs(np.asarray(unrounded) - by_pillow(image, 64))
    assert difference.max() < 2 / 255 / STD.min()


def test_grey_images_are_color_images_of_equal_channels():
    gray = np.random.default_rng(0).integers(0, 256, (2, 30, 40)).astype(np.uint8)
    both = prepared_at_64(gray), prepared_at_64(np.repeat(gray[..., None], 3, axis=3))
    np.testing.assert_array_equal(*both)


@pytest.mark.parametrize(
    "images",
    [
        np.zeros((1, 8, 8, 3), np.float32),
        np.zeros((3, 8, 8), np.float32),
        np.zeros((1, 3, 8, 8), int),
        np.zeros((1, 3, 8, 8), np.uint8),
        np.zeros((8, 8), np.uint8),
    ],
)
def test_images_of_another_layout_are_refused(images):
    with pytest.raises(ValueError, match=r"^images:.*3"):
        CLIP(CONFIG, random_tensors()).embed_images(images)


# Texts


def characters():
    """Bytes as the characters that byte-level vocabularies write."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(others)}


def plain_tokens(text, merges, vocabulary):
    """Byte-pair encoding by its definition: the first pair of the list is joined, repeatedly."""
    text = " ".join(html.unescape(text).split()).lower()
    pattern = r"'s|'t|'re|'ve|'m|'ll|'d|[^\W\d_]+|\d|(?:[^\s\w]|_)+"
    ranks = {pair: i for i, pair in enumerate(merges)}
    found = []
    for word in re.findall(pattern, text):
        parts = [characters()[b] for b in word.encode()]
        parts[-1] += "</w>"
        while True:
            pairs = [(ranks.get(pair, 1e9), i) for i, pair in enumerate(pairwise(parts))]
            if not pairs or min(pairs)[0] == 1e9:
                break
            i = min(pairs)[1]
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
        found += [vocabulary[part] for part in parts]
    return found


MERGES = [
    ("t", "h"),
    ("th", "e</w>"),
    ("a", "n"),
    ("h", "i"),
    ("k", "e"),
    ("ke", "r</w>"),
    ("hi", "ker</w>"),
    ("i", "n"),
    ("o", "u"),
    ("Ã", "©"),
]


def write_vocabulary(folder, merges=MERGES):
    names = list(characters().values())
    names += [f"{name}</w>" for name in names] + ["".join(pair) for pair in merges]
    vocabulary = {name: i for i, name in enumerate([*names, START, END])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merges), ""]
    (folder / "merges.txt").write_text("\n".join(lines))
    return vocabulary


SENTENCES = [
    "The hiker's hike",
    "",
    "  an   Énd & 4x in THE thé ",
    "a — “b” & c",
    "🏔 mountain",
    "1234",
]


@pytest.mark.parametrize("whole", [False, True], ids=["vocab and merges", "tokenizer.json"])
def test_tokens_are_byte_pairs(tmp_path, whole):
    vocabulary = write_vocabulary(tmp_path)
    tokenizer = Tokenizer(tmp_path, 30, 600)
    if whole:
        tokenizer._tokenizer.save(str(tmp_path / "tokenizer.json"))
        (tmp_path / "vocab.json").unlink()
        tokenizer = Tokenizer(tmp_path, 30, 600)
    found = tokenizer(SENTENCES)
    for row, text in zip(found, SENTENCES, strict=True):
        expected = plain_tokens(cleaned(text), MERGES, vocabulary)[:28]
        expected = [vocabulary[START], *expected, vocabulary[END]]
        assert row.tolist() == expected + [0] * (30 - len(expected))
    assert tokenizer(["a b " * 50])[0].tolist()[-1] == vocabulary[END]


def test_texts_are_cleaned_as_by_openai():
    assert cleaned(" ‘a’ “b” &amp;lt; \n\t c ") == "'a' \"b\" < c"
    assert cleaned("ﬁne Ｈｉ！") == "fine Hi!"
    assert cleaned("e\u0301") == "\u00e9"


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"package tokenizers.* pip install 'gloam\[lsi\]'"):
        Tokenizer(tmp_path, 77, 100)


# Folders


def write_folder(place):
    """A random small CLIP in Hugging Face's layout."""
    place.mkdir()
    count = len(write_vocabulary(place))
    config = CONFIG | {"text_config": TEXT | {"vocab_size": count, "eos_token_id": count - 1}}
    (place / "config.json").write_text(json.dumps(config))
    tensors = random_tensors()
    rng = np.random.default_rng(5)
    tensors["text_model.embeddings.token_embedding.weight"] = rng.normal(0, 0.5, (count, 8)).astype(
        np.float32
    )
    extra = {"text_model.embeddings.position_ids": np.arange(9)[None], "logit_scale": np.ones(())}
    save_file(tensors | extra, place / "model.safetensors")
    return place


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "clip")


def test_a_folder_is_loaded_and_embeds_texts_and_images(folder):
    model = CLIP.load(folder)
    assert model.embedding_dim == 6
    texts = model.embed_texts(["the hiker", "an", "the hiker"])
    np.testing.assert_allclose(np.linalg.norm(texts, axis=1), 1.0, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(texts[0], texts[2])
    assert float(jnp.abs(texts[0] - texts[1]).max()) > 1e-3
    images = np.random.default_rng(0).integers(0, 256, (2, 20, 30, 3)).astype(np.uint8)
    found = embeddings_of_images(model, images)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, rtol=0, atol=1e-6)
    for wrong in ("the hiker", []):
        with pytest.raises(ValueError, match=r"^texts:"):
            model.embed_texts(wrong)


def without(name):
    return lambda folder: (folder / name).unlink()


def changed(part, **values):
    def change(folder):
        config = json.loads((folder / "config.json").read_text())
        config[part] = (config.get(part) or {}) | values
        (folder / "config.json").write_text(json.dumps(config))

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (shutil.rmtree, "CLIP: expected an existing folder"),
        (without("config.json"), "CLIP: expected an existing file, got .*config.json"),
        (without("model.safetensors"), "CLIP: expected an existing file, got .*model.safetensors"),
        (without("vocab.json"), "CLIP: expected tokenizer.json, or vocab.json and merges.txt"),
        (lambda f: (f / "config.json").write_text("{"), "CLIP: expected JSON, got"),
        (lambda f: (f / "config.json").write_text("[]"), "config.json: expected a section"),
        (lambda f: (f / "vocab.json").write_text("{}"), "CLIP: expected the files of a tokenizer"),
        (lambda f: (f / "tokenizer.json").write_text("{}"), "CLIP: expected the files of a token"),
        (lambda f: (f / "model.safetensors").write_bytes(b"12345"), "expected a safetensors file"),
        (
            changed("vision_config", hidden_act="relu"),
            "hidden_act: expected 'quick_gelu' or 'gelu'",
        ),
        (changed("vision_config", num_hidden_layers=3), r"without 16 of them \(vision_model"),
        (changed("vision_config", hidden_size=13), "hidden_size: expected a multiple of num_att"),
        (changed("vision_config", patch_size="four"), "patch_size: expected a whole number"),
        (
            changed("vision_config", patch_size=2),
            r"expected shape \(12, 3, 2, 2\), got shape \(12, 3",
        ),
        (changed("text_config", vocab_size=100), "at most 100 tokens, as in the model"),
    ],
)
def test_wrong_folders_are_refused(folder, change, message):
    change(folder)
    with pytest.raises(ValueError, match=message):
        CLIP.load(folder)


# The official model


def recorded(shared_data, name):
    path = shared_data / "clip" / name
    if not path.is_file():
        pytest.skip(f"no '{path}': the recorded model is not here")
    return path


def test_features_are_the_official_ones(shared_data):
    config = json.loads(recorded(shared_data, "tiny_clip_config.json").read_text())["hf"]
    tensors = dict(np.load(recorded(shared_data, "tiny_clip_hf_state.npz")))
    expected = dict(np.load(recorded(shared_data, "tiny_clip_io.npz")))
    model = CLIP(config, tensors)
    images = features_of_images(model, expected["pixel_values"])
    np.testing.assert_allclose(images, expected["image_features"], rtol=0, atol=1e-4)
    texts = features_of_tokens(model, expected["token_ids"])
    np.testing.assert_allclose(texts, expected["text_features"], rtol=0, atol=1e-4)
    units = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (images, texts)]
    logits = np.exp(tensors["logit_scale"]) * units[0] @ units[1].T
    np.testing.assert_allclose(logits, expected["logits_per_image"], rtol=0, atol=1e-4)


def test_the_preprocessing_is_the_official_one(shared_data):
    oracle = dict(np.load(recorded(shared_data, "preprocess_oracle.npz")))
    found = jax.jit(lambda images: prepared(images, 224))(oracle["image"][None])[0]
    np.testing.assert_allclose(found, oracle["openclip"], rtol=0, atol=1e-4)


def test_tokens_are_the_official_ones(shared_data, tmp_path):
    oracle = dict(np.load(recorded(shared_data, "tokens_oracle.npz")))
    package = importlib.util.find_spec("open_clip")
    if package is None or package.origin is None:
        pytest.skip("no package open_clip_torch, which carries the official vocabulary")
    file = Path(package.origin).parent / "bpe_simple_vocab_16e6.txt.gz"
    lines = gzip.decompress(file.read_bytes()).decode().split("\n")[1 : 49152 - 256 - 1]
    write_vocabulary(tmp_path, [tuple(line.split()) for line in lines])
    found = Tokenizer(tmp_path, 77, 49408)(oracle["texts"].tolist())
    np.testing.assert_array_equal(found, oracle["ids_openclip"])
