"""CLIP: embeddings of images and texts in one space (Radford et al., 2021), and its tokenizer.

Texts need the package `tokenizers`, an extra of gloam.
"""

import html
import json
import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

from gloam._tools import checks
from gloam_lab.generator import check_shapes, read_tensors
from gloam_lab.latent_illumination.clip_towers import (
    TextTower,
    TowerSettings,
    VisionTower,
    layer_shapes,
    prepared,
)
from gloam_lab.latent_illumination.embedder import Embedder

START, END = "<|startoftext|>", "<|endoftext|>"
_WORDS = (
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
)
_FIX = "Download a CLIP model with a ViT again, such as openai/clip-vit-base-patch32."
# Defaults of Hugging Face's classes for keys that config.json omits: ViT-B/32.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "vision_config": {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "image_size": 224,
        "patch_size": 32,
        "hidden_act": "quick_gelu",
        "layer_norm_eps": 1e-5,
    },
    "text_config": {
        "hidden_size": 512,
        "intermediate_size": 2048,
        "num_hidden_layers": 12,
        "num_attention_heads": 8,
        "max_position_embeddings": 77,
        "vocab_size": 49408,
        "hidden_act": "quick_gelu",
        "layer_norm_eps": 1e-5,
        "eos_token_id": 2,
    },
}


class CLIP(Embedder):
    """CLIP with a vision transformer.

    Args:
        config: Content of the model's ``config.json``.
        tensors: Every weight by its name in Hugging Face's ``CLIPModel``.
        tokenizer: Tokenizer of the model; without one, texts cannot be embedded.
        half: ``"float16"`` or ``"bfloat16"``: precision of the factors of products in the towers.
            By default everything is float32.
    """

    vision: VisionTower
    text: TextTower
    image_size: int = eqx.field(static=True)
    tokenizer_folder: str | None = eqx.field(static=True, metadata={"compared": False})
    """Folder from which the tokenizer was read."""

    def __init__(
        self,
        config: Mapping[str, Any],
        tensors: Mapping[str, np.ndarray],
        tokenizer: "Tokenizer | None" = None,
        half: str | None = None,
    ):
        if half is not None:
            checks.choice("half", half, ("float16", "bfloat16"))
        vision, text = (_section(config, name) for name in _DEFAULTS)
        sizes = [_tower(section, half) for section in (vision, text)]
        check_shapes("CLIP", _shapes(config, vision, text, sizes), tensors, _FIX)
        # Files older than this field contain 2, which is not the end of any text.
        end = None if text["eos_token_id"] == 2 else text["eos_token_id"]
        self.vision = VisionTower(sizes[0], tensors)
        self.text = TextTower(sizes[1], tensors, end)
        self.image_size = vision["image_size"]
        self.tokenizer_folder = None if tokenizer is None else str(tokenizer.folder)

    @staticmethod
    def load(folder: str | os.PathLike, *, half: str | None = None) -> "CLIP":
        """Read a folder in Hugging Face's layout.

        Args:
            folder: Folder with ``config.json``, ``model.safetensors``, and ``tokenizer.json`` or
                ``vocab.json`` and ``merges.txt``.
            half: As in `CLIP`.
        """
        root = Path(folder)
        exists = root.is_dir()
        checks.expect(exists, "CLIP", "an existing folder", f"'{folder}'", "Check the path.")
        path = checks.existing_file("CLIP", root / "config.json", _FIX)
        weights = checks.existing_file("CLIP", root / "model.safetensors", _FIX)
        try:
            config = json.loads(path.read_text("utf-8"))
        except ValueError as error:
            raise ValueError(f"CLIP: expected JSON, got '{path}' ({error}). {_FIX}") from None
        text = _section(config, "text_config")
        tokenizer = Tokenizer(root, text["max_position_embeddings"], text["vocab_size"])
        tensors, _ = read_tensors("CLIP", weights)
        return CLIP(config, tensors, tokenizer, half)

    @property
    def embedding_dim(self) -> int:
        """Dimension of an embedding."""
        return self.vision.projection.shape[0]

    def embed_images(
        self,
        images: Float[Array, "n 3 height width"] | UInt8[Array, "n height width *channels"],
    ) -> Float[Array, "n embedding"]:
        """Embed images, as vectors of length one. JAX can trace it.

        Args:
            images: Floats in [-1, 1] with channels first, as generators return them, or bytes with
                channels last (or without channels: grayscale), as datasets store them. The shorter
                side is resized to the model's size (224) with antialiasing, and the center is
                kept. Bytes give the same bits as OpenAI's pipeline; floats are not rounded.
        """
        shape, dtype = jnp.shape(images), images.dtype
        if jnp.issubdtype(dtype, jnp.floating):
            fits = len(shape) == 4 and shape[1] == 3
        else:
            fits = dtype == jnp.uint8 and (len(shape) == 3 or shape[3:] == (3,))
        expected = "floats (n, 3, height, width) or bytes (n, height, width[, 3])"
        checks.expect(fits, "images", expected, f"{dtype} {shape}")
        return unit_rows(self.vision(prepared(jnp.asarray(images), self.image_size)))

    def embed_texts(self, texts: Sequence[str]) -> Float[Array, "n embedding"]:
        """Embed texts, as vectors of length one. Runs on the host: JAX cannot trace texts."""
        is_list = bool(texts) and not isinstance(texts, str)
        checks.expect(is_list, "texts", "a list of texts", repr(texts), "Write [text].")
        return self.embed_tokens(jnp.asarray(self.tokens(texts)))

    def embed_tokens(self, tokens: Int[Array, "n length"]) -> Float[Array, "n embedding"]:
        """Embed the tokens of texts, as vectors of length one."""
        return unit_rows(self.text(tokens))

    def tokens(self, texts: Sequence[str]) -> Int[np.ndarray, "n length"]:
        """Return the tokens of texts, as OpenAI's tokenizer does."""
        if self.tokenizer_folder is None:
            raise ValueError(
                "CLIP: expected a tokenizer, got a model without one. "
                "Load the model with CLIP.load(folder)."
            )
        length, size = self.text.positions.shape[0], self.text.embedding.shape[0]
        return Tokenizer(Path(self.tokenizer_folder), length, size)(texts)


def unit_rows(rows: Float[Array, "n d"]) -> Float[Array, "n d"]:
    """Scale rows to length one."""
    return rows / jnp.linalg.norm(rows, axis=1, keepdims=True)


def _section(config: Any, name: str) -> dict[str, Any]:
    """Return the settings of one tower in ``config.json``, validated and with defaults."""
    given: Any = config.get(name) if isinstance(config, Mapping) else None
    got = sorted(config) if isinstance(config, Mapping) else type(config).__name__
    is_section = isinstance(given, Mapping)
    checks.expect(is_section, "config.json", f"a section '{name}'", got, _FIX)
    section = _DEFAULTS[name] | {key: given[key] for key in _DEFAULTS[name] if key in given}
    for key, value in section.items():
        if isinstance(_DEFAULTS[name][key], int):
            section[key] = checks.integer(f"config.json: {key}", value, minimum=1, fix=_FIX)
    checks.choice("config.json: hidden_act", section["hidden_act"], ("quick_gelu", "gelu"), _FIX)
    checks.number("config.json: layer_norm_eps", section["layer_norm_eps"], above=0)
    size, expected = section["hidden_size"], "a multiple of num_attention_heads"
    is_even = size % section["num_attention_heads"] == 0
    checks.expect(is_even, "config.json: hidden_size", expected, size, _FIX)
    return section


def _tower(section: dict[str, Any], half: str | None) -> TowerSettings:
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    names += ("hidden_act", "layer_norm_eps")
    return TowerSettings(half=half, **{name: section[name] for name in names})


def _shapes(
    config: Mapping[str, Any],
    vision: dict[str, Any],
    text: dict[str, Any],
    sizes: list[TowerSettings],
) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor of the model by name."""
    dim = checks.integer("projection_dim", config.get("projection_dim", 512), minimum=1, fix=_FIX)
    patch, hidden, width = vision["patch_size"], vision["hidden_size"], text["hidden_size"]
    length = (vision["image_size"] // patch) ** 2 + 1
    shapes: dict[str, tuple[int, ...]] = {
        "vision_model.embeddings.class_embedding": (hidden,),
        "vision_model.embeddings.patch_embedding.weight": (hidden, 3, patch, patch),
        "vision_model.embeddings.position_embedding.weight": (length, hidden),
        "text_model.embeddings.token_embedding.weight": (text["vocab_size"], width),
        "text_model.embeddings.position_embedding.weight": (text["max_position_embeddings"], width),
        "visual_projection.weight": (dim, hidden),
        "text_projection.weight": (dim, width),
    }
    norms = {"vision_model.pre_layrnorm": hidden, "vision_model.post_layernorm": hidden}
    for name, size in (norms | {"text_model.final_layer_norm": width}).items():
        shapes |= {f"{name}.weight": (size,), f"{name}.bias": (size,)}
    for tower, settings in zip(("vision", "text"), sizes, strict=True):
        for layer in range(settings.num_hidden_layers):
            prefix = f"{tower}_model.encoder.layers.{layer}"
            shapes |= {f"{prefix}.{name}": size for name, size in layer_shapes(settings).items()}
    return shapes


class Tokenizer:
    """Turns texts into tokens.

    Args:
        folder: Folder with ``tokenizer.json``, or with ``vocab.json`` and ``merges.txt``.
        length: Number of tokens of a text, including start and end.
        vocabulary_size: Number of tokens of the model.
    """

    def __init__(self, folder: Path, length: int, vocabulary_size: int):
        self.folder, self.length = folder, length
        self._tokenizer = _read_tokenizer(folder)
        name, ends = f"tokenizer in '{folder}'", (START, END)
        self._start, self._end = ids = [self._tokenizer.token_to_id(token) for token in ends]
        checks.expect(None not in ids, name, f"the tokens {START} and {END}", ids, _FIX)
        size, expected = self._tokenizer.get_vocab_size(), f"at most {vocabulary_size} tokens"
        checks.expect(size <= vocabulary_size, name, f"{expected}, as in the model", size, _FIX)

    def __call__(self, texts: Sequence[str]) -> Int[np.ndarray, "n length"]:
        """Return the tokens of texts: start, text (truncated if too long), end, zeros."""
        tokens = np.zeros((len(texts), self.length), np.int32)
        for row, text in enumerate(texts):
            ids = self._tokenizer.encode(cleaned(text), add_special_tokens=False).ids
            whole = [self._start, *ids[: self.length - 2], self._end]
            tokens[row, : len(whole)] = whole
        return tokens


def cleaned(text: str) -> str:
    """Clean a text like OpenAI's tokenizer.

    OpenAI uses the package `ftfy`, which also repairs texts that were decoded with a wrong
    encoding. These repairs are not implemented.

    Example:
        >>> cleaned(' “fish”  &amp;amp; ﬁsh ')
        '"fish" & fish'
    """
    text = re.sub("[\u02bc\u2018-\u201b]", "'", text)
    text = re.sub("[\u201c-\u201f]", '"', text)
    # Ligatures, and full-width and half-width forms.
    text = re.sub(
        "[\ufb00-\ufb06\uff01-\uffef\u3000]",
        lambda match: unicodedata.normalize("NFKC", match.group()),
        text,
    )
    text = html.unescape(html.unescape(unicodedata.normalize("NFC", text)))
    return re.sub(r"\s+", " ", text).strip()


def _read_tokenizer(folder: Path) -> Any:
    try:
        import tokenizers  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ImportError(
            "Texts need the package tokenizers. Install it: pip install 'gloam[lsi]'."
        ) from None
    whole = folder / "tokenizer.json"
    vocabulary, merges = folder / "vocab.json", folder / "merges.txt"
    has_files = whole.is_file() or (vocabulary.is_file() and merges.is_file())
    expected = "tokenizer.json, or vocab.json and merges.txt, in the folder"
    checks.expect(has_files, "CLIP", expected, f"neither in '{folder}'", _FIX)
    try:
        if whole.is_file():
            return tokenizers.Tokenizer.from_file(str(whole))
        return _built(tokenizers, json.loads(vocabulary.read_text("utf-8")), _pairs(merges))
    except Exception as error:  # the type that the package raises
        raise ValueError(
            f"CLIP: expected the files of a tokenizer, got '{folder}' ({error}). {_FIX}"
        ) from None


def _pairs(merges: Path) -> list[tuple[str, str]]:
    lines = merges.read_text("utf-8").split("\n")
    pairs = [tuple(line.split()) for line in lines if line and not line.startswith("#version")]
    return [pair for pair in pairs if len(pair) == 2]


def _built(tokenizers: Any, vocabulary: dict[str, int], merges: list[tuple[str, str]]) -> Any:
    """Build a tokenizer: byte-level BPE on lower-case words."""
    model = tokenizers.models.BPE(
        vocab=vocabulary,
        merges=merges,
        continuing_subword_prefix="",
        end_of_word_suffix="</w>",
        unk_token=END,
    )
    tokenizer = tokenizers.Tokenizer(model)
    steps = tokenizers.normalizers
    tokenizer.normalizer = steps.Sequence([steps.NFC(), steps.Lowercase()])
    splits = tokenizers.pre_tokenizers
    words = splits.Split(tokenizers.Regex(_WORDS), behavior="removed", invert=True)
    tokenizer.pre_tokenizer = splits.Sequence([words, splits.ByteLevel(add_prefix_space=False)])
    return tokenizer
