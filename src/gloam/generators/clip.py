"""CLIP: embeddings of images and of texts in one space (Radford et al., 2021), in JAX."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

from gloam import checks
from gloam.generators.clip_tokens import Tokenizer
from gloam.generators.clip_towers import (
    TextTower,
    TowerSettings,
    VisionTower,
    layer_shapes,
    prepared,
)
from gloam.generators.protocols import Embedder
from gloam.generators.tensor_files import check_shapes, read_tensors

_FIX = "Fetch a CLIP model with a ViT again, such as openai/clip-vit-base-patch32."
# What Hugging Face's classes have where config.json is silent: ViT-B/32.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "vision_config": {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "image_size": 224,
        "patch_size": 32,
        "num_channels": 3,
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
        tensors: Every weight by the name that Hugging Face's ``CLIPModel`` gives it.
        tokenizer: Tokens of texts; without it only images and tokens can be embedded.
        half: ``"float16"`` or ``"bfloat16"``: precision of the factors of products in the towers.
            By default everything is float32.
    """

    vision: VisionTower
    text: TextTower
    image_size: int = eqx.field(static=True)
    tokenizer_folder: str | None = eqx.field(static=True, metadata={"compared": False})
    """Folder that the tokenizer was read from."""

    def __init__(
        self,
        config: Mapping[str, Any],
        tensors: Mapping[str, np.ndarray],
        tokenizer: Tokenizer | None = None,
        half: str | None = None,
    ):
        checks.expect(
            half in (None, "float16", "bfloat16"),
            "half",
            "'float16', 'bfloat16' or None",
            repr(half),
        )
        vision, text = (_section(config, name) for name in _DEFAULTS)
        sizes = [_tower(section, half) for section in (vision, text)]
        check_shapes("CLIP", _shapes(config, vision, text, sizes), tensors, _FIX)
        # Files older than the field have 2 in it, which no text ends with.
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
        place = Path(folder)
        checks.expect(
            place.is_dir(), "CLIP", "an existing folder", f"'{folder}'", "Check the path."
        )
        path = checks.existing_file("CLIP", place / "config.json", _FIX)
        weights = checks.existing_file("CLIP", place / "model.safetensors", _FIX)
        try:
            config = json.loads(path.read_text("utf-8"))
        except ValueError as error:
            raise ValueError(f"CLIP: expected JSON, got '{path}' ({error}). {_FIX}") from None
        text = _section(config, "text_config")
        tokenizer = Tokenizer(place, text["max_position_embeddings"], text["vocab_size"])
        tensors, _ = read_tensors("CLIP", weights)
        return CLIP(config, tensors, tokenizer, half)

    @property
    def embedding_dim(self) -> int:
        """Number of numbers in an embedding."""
        return self.vision.projection.shape[0]

    def embed_images(
        self,
        images: Float[Array, "n 3 height width"] | UInt8[Array, "n height width *channels"],
    ) -> Float[Array, "n embedding"]:
        """Embeddings of images, of length one. JAX can trace it.

        Args:
            images: Floats in [-1, 1] with channels first, as generators make them, or bytes with
                channels last (or without channels: grey), as datasets hold them; of any size. The
                shorter side is resized to the model's (224) with antialiasing, and the middle
                kept. For bytes that is OpenAI's pipeline to the bit; floats are not rounded.
        """
        return unit_rows(self.vision(prepared(images, self.image_size)))

    def embed_texts(self, texts: Sequence[str]) -> Float[Array, "n embedding"]:
        """Embeddings of texts, of length one. On the host: JAX cannot trace texts."""
        wrong = isinstance(texts, str) or not texts
        checks.expect(not wrong, "texts", "a list of texts", repr(texts), "Write [text].")
        return self.embed_tokens(jnp.asarray(self.tokens(texts)))

    def embed_tokens(self, tokens: Int[Array, "n length"]) -> Float[Array, "n embedding"]:
        """Embeddings, of length one, of the tokens of texts."""
        return unit_rows(self.text(tokens))

    def tokens(self, texts: Sequence[str]) -> Int[np.ndarray, "n length"]:
        """Tokens of texts as OpenAI's tokenizer gives them."""
        folder = self.tokenizer_folder
        checks.expect(
            folder is not None,
            "CLIP",
            "a tokenizer",
            "a model without one",
            "Load the model by CLIP.load(folder).",
        )
        length, size = self.text.positions.shape[0], self.text.embedding.shape[0]
        return Tokenizer(Path(str(folder)), length, size)(texts)


def unit_rows(rows: Float[Array, "n d"]) -> Float[Array, "n d"]:
    """Rows divided by their lengths."""
    return rows / jnp.linalg.norm(rows, axis=1, keepdims=True)


def _section(config: Any, name: str) -> dict[str, Any]:
    """One tower's part of ``config.json``, with defaults, checked."""
    found: Any = config.get(name) if isinstance(config, Mapping) else None
    checks.expect(
        isinstance(found, Mapping),
        "config.json",
        f"a section '{name}'",
        sorted(config) if isinstance(config, Mapping) else type(config).__name__,
        _FIX,
    )
    section = _DEFAULTS[name] | {key: found[key] for key in _DEFAULTS[name] if key in found}
    for key, value in section.items():
        if isinstance(_DEFAULTS[name][key], int):
            section[key] = checks.integer(f"config.json: {key}", value, minimum=1, fix=_FIX)
    activation = section["hidden_act"]
    checks.expect(
        activation in ("quick_gelu", "gelu"),
        "config.json: hidden_act",
        "'quick_gelu' or 'gelu'",
        repr(activation),
        _FIX,
    )
    checks.number("config.json: layer_norm_eps", section["layer_norm_eps"], above=0)
    even = section["hidden_size"] % section["num_attention_heads"] == 0
    checks.expect(
        even,
        "config.json: hidden_size",
        "a multiple of num_attention_heads",
        section["hidden_size"],
        _FIX,
    )
    return section


def _tower(section: dict[str, Any], half: str | None) -> TowerSettings:
    return TowerSettings(
        hidden_size=section["hidden_size"],
        intermediate_size=section["intermediate_size"],
        num_layers=section["num_hidden_layers"],
        num_heads=section["num_attention_heads"],
        activation=section["hidden_act"],
        epsilon=section["layer_norm_eps"],
        half=half,
    )


def _shapes(
    config: Mapping[str, Any],
    vision: dict[str, Any],
    text: dict[str, Any],
    sizes: list[TowerSettings],
) -> dict[str, tuple[int, ...]]:
    """Shape of every tensor that the model needs, by name."""
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
        for layer in range(settings.num_layers):
            place = f"{tower}_model.encoder.layers.{layer}"
            shapes |= {f"{place}.{name}": size for name, size in layer_shapes(settings).items()}
    return shapes
