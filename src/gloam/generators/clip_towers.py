"""The two towers of CLIP (Radford et al., 2021): transformers over patches and over tokens.

Tensors are taken by the names of Hugging Face's ``CLIPModel``.
"""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

Tensors = Mapping[str, np.ndarray]
_LINEAR = ("q_proj", "k_proj", "v_proj", "out_proj")


class TowerSettings(eqx.Module):
    """Sizes of one tower."""

    hidden_size: int = eqx.field(static=True)
    intermediate_size: int = eqx.field(static=True)
    num_layers: int = eqx.field(static=True)
    num_heads: int = eqx.field(static=True)
    activation: str = eqx.field(static=True)
    epsilon: float = eqx.field(static=True)
    half: str | None = eqx.field(static=True)
    """Precision of products, ``None`` for float32."""


class Transformer(eqx.Module):
    """Layers of attention and MLP, each applied to the normalised input and added to it."""

    layers: dict[str, Array]
    """Every tensor of a layer by its name, stacked over the layers."""
    settings: TowerSettings

    def __init__(self, settings: TowerSettings, tensors: Tensors, place: str):
        self.settings = settings
        self.layers = {
            name: jnp.stack([tensors[f"{place}.{i}.{name}"] for i in range(settings.num_layers)])
            for name in layer_shapes(settings)
        }

    def __call__(
        self, rows: Float[Array, "n length hidden"], allowed: Bool[Array, "length length"] | None
    ) -> Float[Array, "n length hidden"]:
        """Apply all layers; a token attends to those ``allowed`` in its row, or to all."""

        def layer(rows: Array, tensors: dict[str, Array]) -> tuple[Array, None]:
            rows = rows + self._attention(self._normalized(rows, tensors, 1), tensors, allowed)
            inner = self._linear(self._normalized(rows, tensors, 2), tensors, "mlp.fc1")
            if self.settings.activation == "quick_gelu":
                inner = inner * jax.nn.sigmoid(1.702 * inner)
            else:
                inner = jax.nn.gelu(inner, approximate=False)
            return rows + self._linear(inner, tensors, "mlp.fc2"), None

        return jax.lax.scan(layer, rows, self.layers)[0]

    def _attention(self, rows: Array, tensors: dict[str, Array], allowed: Array | None) -> Array:
        n, length, hidden = rows.shape
        heads = self.settings.num_heads
        query, key, value = (
            self._linear(rows, tensors, f"self_attn.{name}").reshape(n, length, heads, -1)
            for name in _LINEAR[:3]
        )
        scale = (hidden // heads) ** -0.5
        scores = product("nqhd,nkhd->nhqk", scale * query, key, self.settings.half)
        if allowed is not None:
            scores = jnp.where(allowed, scores, -jnp.inf)
        weights = jax.nn.softmax(scores, axis=-1)
        mixed = product("nhqk,nkhd->nqhd", weights, value, self.settings.half)
        return self._linear(mixed.reshape(n, length, hidden), tensors, "self_attn.out_proj")

    def _linear(self, rows: Array, tensors: dict[str, Array], name: str) -> Array:
        weight, bias = tensors[f"{name}.weight"], tensors[f"{name}.bias"]
        return product("nli,oi->nlo", rows, weight, self.settings.half) + bias

    def _normalized(self, rows: Array, tensors: dict[str, Array], number: int) -> Array:
        name = f"layer_norm{number}"
        weight, bias = tensors[f"{name}.weight"], tensors[f"{name}.bias"]
        return normalized(rows, weight, bias, self.settings.epsilon)


class VisionTower(eqx.Module):
    """From pixels to features: patches, a transformer, the class token, a projection."""

    patches: Float[Array, "hidden 3 patch patch"]
    class_token: Float[Array, " hidden"]
    positions: Float[Array, "length hidden"]
    before: tuple[Array, Array]
    after: tuple[Array, Array]
    projection: Float[Array, "embedding hidden"]
    transformer: Transformer

    def __init__(self, settings: TowerSettings, tensors: Tensors):
        place = "vision_model.embeddings"
        self.patches = jnp.asarray(tensors[f"{place}.patch_embedding.weight"])
        self.class_token = jnp.asarray(tensors[f"{place}.class_embedding"])
        self.positions = jnp.asarray(tensors[f"{place}.position_embedding.weight"])
        self.before = _norm(tensors, "vision_model.pre_layrnorm")  # spelt so in the files
        self.after = _norm(tensors, "vision_model.post_layernorm")
        self.projection = jnp.asarray(tensors["visual_projection.weight"])
        self.transformer = Transformer(settings, tensors, "vision_model.encoder.layers")

    def __call__(self, pixels: Float[Array, "n 3 size size"]) -> Float[Array, "n embedding"]:
        """Features of prepared pixels, of any length."""
        settings = self.transformer.settings
        n, (hidden, channels, patch, _) = pixels.shape[0], self.patches.shape
        side = pixels.shape[2] // patch
        # A convolution whose stride is its size is a product of cut-out patches.
        cut = pixels.reshape(n, channels, side, patch, side, patch)
        cut = cut.transpose(0, 2, 4, 1, 3, 5).reshape(n, side * side, -1)
        rows = product("nli,oi->nlo", cut, self.patches.reshape(hidden, -1), settings.half)
        first = jnp.broadcast_to(self.class_token, (n, 1, hidden))
        rows = jnp.concatenate([first, rows], axis=1) + self.positions
        rows = normalized(rows, *self.before, settings.epsilon)
        rows = self.transformer(rows, None)
        pooled = normalized(rows[:, 0], *self.after, settings.epsilon)
        return product("ni,oi->no", pooled, self.projection, None)


class TextTower(eqx.Module):
    """From tokens to features: a causal transformer, the token that ends the text, a projection."""

    embedding: Float[Array, "vocabulary hidden"]
    positions: Float[Array, "length hidden"]
    after: tuple[Array, Array]
    projection: Float[Array, "embedding hidden"]
    transformer: Transformer
    end: int | None = eqx.field(static=True)
    """Token that ends a text; ``None`` if it is the largest token of each text."""

    def __init__(self, settings: TowerSettings, tensors: Tensors, end: int | None):
        place = "text_model.embeddings"
        self.embedding = jnp.asarray(tensors[f"{place}.token_embedding.weight"])
        self.positions = jnp.asarray(tensors[f"{place}.position_embedding.weight"])
        self.after = _norm(tensors, "text_model.final_layer_norm")
        self.projection = jnp.asarray(tensors["text_projection.weight"])
        self.transformer = Transformer(settings, tensors, "text_model.encoder.layers")
        self.end = end

    def __call__(self, tokens: Int[Array, "n length"]) -> Float[Array, "n embedding"]:
        """Features of tokens, of any length. What stands after the end does not matter."""
        settings, length = self.transformer.settings, tokens.shape[1]
        rows = self.embedding[tokens] + self.positions[:length]
        rows = self.transformer(rows, jnp.tril(jnp.ones((length, length), bool)))
        ends = jnp.argmax(tokens if self.end is None else tokens == self.end, axis=1)
        pooled = jnp.take_along_axis(rows, ends[:, None, None], axis=1)[:, 0]
        pooled = normalized(pooled, *self.after, settings.epsilon)
        return product("ni,oi->no", pooled, self.projection, None)


def layer_shapes(settings: TowerSettings) -> dict[str, tuple[int, ...]]:
    """Shape of every tensor of one layer of a transformer."""
    hidden, inner = settings.hidden_size, settings.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {}
    for name in _LINEAR:
        shapes[f"self_attn.{name}.weight"] = (hidden, hidden)
        shapes[f"self_attn.{name}.bias"] = (hidden,)
    for name in ("layer_norm1", "layer_norm2"):
        shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (hidden,)
    shapes |= {"mlp.fc1.weight": (inner, hidden), "mlp.fc1.bias": (inner,)}
    return shapes | {"mlp.fc2.weight": (hidden, inner), "mlp.fc2.bias": (hidden,)}


def product(subscripts: str, a: Array, b: Array, half: Any) -> Array:
    """A sum of products in float32, of factors in float32 or in a half precision."""
    if half is None:
        return jnp.einsum(subscripts, a, b, precision=jax.lax.Precision.HIGHEST)
    kind = jnp.dtype(half)
    return jnp.einsum(
        subscripts, a.astype(kind), b.astype(kind), preferred_element_type=jnp.float32
    )


def normalized(rows: Array, weight: Array, bias: Array, epsilon: float) -> Array:
    """Layer normalisation over the last axis."""
    centered = rows - jnp.mean(rows, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(centered), axis=-1, keepdims=True)
    return centered * jax.lax.rsqrt(variance + epsilon) * weight + bias


def _norm(tensors: Tensors, name: str) -> tuple[Array, Array]:
    return jnp.asarray(tensors[f"{name}.weight"]), jnp.asarray(tensors[f"{name}.bias"])
