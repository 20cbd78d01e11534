"""The two towers of CLIP (Radford et al., 2021), and the preprocessing of images.

Tensors have the names of Hugging Face's ``CLIPModel``. Images are resized with a bicubic filter so
that the shorter side fits, cropped at the center and normalized. OpenAI's pipeline resizes bytes
with Pillow: byte images go through the same fixed-point arithmetic here, bit by bit. Images of
floats are resized with the same filter, without rounding to bytes.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt8

from gloam_lab.generator import on_device

Tensors = Mapping[str, np.ndarray]
_LINEAR = ("q_proj", "k_proj", "v_proj", "out_proj")
_MEAN = (0.48145466, 0.4578275, 0.40821073)
_STD = (0.26862954, 0.26130258, 0.27577711)
# Pillow's fixed-point coefficients have 32 - 8 - 2 fractional bits.
_BITS = 22


class TowerSettings(eqx.Module):
    """Sizes of one tower, as in ``config.json``, and its precision."""

    hidden_size: int = eqx.field(static=True)
    intermediate_size: int = eqx.field(static=True)
    num_hidden_layers: int = eqx.field(static=True)
    num_attention_heads: int = eqx.field(static=True)
    hidden_act: str = eqx.field(static=True)
    layer_norm_eps: float = eqx.field(static=True)
    half: str | None = eqx.field(static=True)
    """dtype of the factors of products; ``None`` for float32."""


class Transformer(eqx.Module):
    """Pre-norm transformer layers: attention and MLP with residual connections."""

    layers: dict[str, Array]
    """Tensors of a layer by name, stacked over the layers."""
    settings: TowerSettings

    def __init__(self, settings: TowerSettings, tensors: Tensors, prefix: str):
        self.settings = settings
        layers = [f"{prefix}.{i}" for i in range(settings.num_hidden_layers)]
        self.layers = {
            name: on_device(np.stack([tensors[f"{layer}.{name}"] for layer in layers]))
            for name in layer_shapes(settings)
        }

    def __call__(
        self, rows: Float[Array, "n length hidden"], allowed: Bool[Array, "length length"] | None
    ) -> Float[Array, "n length hidden"]:
        """Apply all layers; ``allowed`` masks the tokens that each token attends to."""

        def layer(rows: Array, tensors: dict[str, Array]) -> tuple[Array, None]:
            rows = rows + self._attention(self._normalized(rows, tensors, 1), tensors, allowed)
            inner = self._linear(self._normalized(rows, tensors, 2), tensors, "mlp.fc1")
            if self.settings.hidden_act == "quick_gelu":
                inner = inner * jax.nn.sigmoid(1.702 * inner)
            else:
                inner = jax.nn.gelu(inner, approximate=False)
            return rows + self._linear(inner, tensors, "mlp.fc2"), None

        return jax.lax.scan(layer, rows, self.layers)[0]

    def _attention(self, rows: Array, tensors: dict[str, Array], allowed: Array | None) -> Array:
        n, length, hidden = rows.shape
        heads = self.settings.num_attention_heads
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
        return normalized(rows, weight, bias, self.settings.layer_norm_eps)


class VisionTower(eqx.Module):
    """Features of pixels: patches, a transformer, the class token, a projection."""

    patches: Float[Array, "hidden 3 patch patch"]
    class_token: Float[Array, " hidden"]
    positions: Float[Array, "length hidden"]
    before: tuple[Array, Array]
    after: tuple[Array, Array]
    projection: Float[Array, "embedding hidden"]
    transformer: Transformer

    def __init__(self, settings: TowerSettings, tensors: Tensors):
        prefix = "vision_model.embeddings"
        self.patches = on_device(tensors[f"{prefix}.patch_embedding.weight"])
        self.class_token = on_device(tensors[f"{prefix}.class_embedding"])
        self.positions = on_device(tensors[f"{prefix}.position_embedding.weight"])
        self.before = _norm(tensors, "vision_model.pre_layrnorm")  # spelled like this in the files
        self.after = _norm(tensors, "vision_model.post_layernorm")
        self.projection = on_device(tensors["visual_projection.weight"])
        self.transformer = Transformer(settings, tensors, "vision_model.encoder.layers")

    def __call__(self, pixels: Float[Array, "n 3 size size"]) -> Float[Array, "n embedding"]:
        """Return the features of `prepared` pixels, not normalized."""
        settings = self.transformer.settings
        n, (hidden, channels, patch, _) = pixels.shape[0], self.patches.shape
        side = pixels.shape[2] // patch
        # A convolution whose stride is its kernel size is a matrix product with the patches.
        cut = pixels.reshape(n, channels, side, patch, side, patch)
        cut = cut.transpose(0, 2, 4, 1, 3, 5).reshape(n, side * side, -1)
        rows = product("nli,oi->nlo", cut, self.patches.reshape(hidden, -1), settings.half)
        first = jnp.broadcast_to(self.class_token, (n, 1, hidden))
        rows = jnp.concatenate([first, rows], axis=1) + self.positions
        rows = normalized(rows, *self.before, settings.layer_norm_eps)
        rows = self.transformer(rows, None)
        pooled = normalized(rows[:, 0], *self.after, settings.layer_norm_eps)
        return product("ni,oi->no", pooled, self.projection, None)


class TextTower(eqx.Module):
    """Features of tokens: a causal transformer, the end-of-text token, a projection."""

    embedding: Float[Array, "vocabulary hidden"]
    positions: Float[Array, "length hidden"]
    after: tuple[Array, Array]
    projection: Float[Array, "embedding hidden"]
    transformer: Transformer
    end: int | None = eqx.field(static=True)
    """End-of-text token; ``None`` if it is the largest token of each text."""

    def __init__(self, settings: TowerSettings, tensors: Tensors, end: int | None):
        prefix = "text_model.embeddings"
        self.embedding = on_device(tensors[f"{prefix}.token_embedding.weight"])
        self.positions = on_device(tensors[f"{prefix}.position_embedding.weight"])
        self.after = _norm(tensors, "text_model.final_layer_norm")
        self.projection = on_device(tensors["text_projection.weight"])
        self.transformer = Transformer(settings, tensors, "text_model.encoder.layers")
        self.end = end

    def __call__(self, tokens: Int[Array, "n length"]) -> Float[Array, "n embedding"]:
        """Return the features of tokens, not normalized. Tokens after the end have no effect."""
        settings, length = self.transformer.settings, tokens.shape[1]
        rows = self.embedding[tokens] + self.positions[:length]
        rows = self.transformer(rows, jnp.tril(jnp.ones((length, length), bool)))
        ends = jnp.argmax(tokens if self.end is None else tokens == self.end, axis=1)
        pooled = jnp.take_along_axis(rows, ends[:, None, None], axis=1)[:, 0]
        pooled = normalized(pooled, *self.after, settings.layer_norm_eps)
        return product("ni,oi->no", pooled, self.projection, None)


def layer_shapes(settings: TowerSettings) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor of one transformer layer."""
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
    """Compute an einsum in float32, with factors rounded to ``half`` if it is given."""
    if half is None:
        return jnp.einsum(subscripts, a, b, precision=jax.lax.Precision.HIGHEST)
    a, b = a.astype(half), b.astype(half)
    return jnp.einsum(subscripts, a, b, preferred_element_type=jnp.float32)


def normalized(rows: Array, weight: Array, bias: Array, epsilon: float) -> Array:
    """Apply layer normalization to the last axis."""
    centered = rows - jnp.mean(rows, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(centered), axis=-1, keepdims=True)
    return centered * jax.lax.rsqrt(variance + epsilon) * weight + bias


def _norm(tensors: Tensors, name: str) -> tuple[Array, Array]:
    return on_device(tensors[f"{name}.weight"]), on_device(tensors[f"{name}.bias"])


def prepared(
    images: Float[Array, "n 3 height width"] | UInt8[Array, "n height width *channels"], size: int
) -> Float[Array, "n 3 size size"]:
    """Resize, crop and normalize images for the vision tower.

    Args:
        images: Floats in [-1, 1] with channels first, as generators return them, or bytes with
            channels last (or without channels: grayscale), as datasets store them. Of any size.
        size: Height and width of the result.
    """
    if jnp.issubdtype(images.dtype, jnp.floating):
        images = jnp.moveaxis(images, 1, 3)
        pixels = _resized(0.5 * (jnp.clip(images, -1, 1) + 1), size)
    else:
        images = jnp.repeat(images[..., None], 3, axis=3) if images.ndim == 3 else images
        pixels = _resized_bytes(images, size).astype(jnp.float32) / 255
    return jnp.moveaxis((pixels - jnp.array(_MEAN)) / jnp.array(_STD), 3, 1)


class _Windows(NamedTuple):
    """First source element and weights for each element of a resized axis."""

    starts: Int[np.ndarray, " out"]
    weights: Float[np.ndarray, "out taps"]


def _bicubic_windows(old: int, new: int, first: int, count: int) -> _Windows:
    """Return the windows of ``count`` elements from ``first`` of an axis resized to ``new``.

    As in Pillow, the filter is Keys' bicubic kernel with a = -0.5. It is widened if the axis
    shrinks (antialiasing) and truncated at the ends.
    """
    scale = old / new
    widening = max(scale, 1.0)
    support = 2.0 * widening
    taps = math.ceil(support) * 2 + 1
    starts, weights = np.zeros(count, np.int64), np.zeros((count, taps))
    for row in range(count):
        center = (first + row + 0.5) * scale
        low = max(int(center - support + 0.5), 0)
        high = min(int(center + support + 0.5), old)
        distance = np.abs((np.arange(low, high) - center + 0.5) / widening)
        near = (1.5 * distance - 2.5) * distance * distance + 1
        far = ((distance - 5) * distance + 8) * distance - 4
        values = np.where(distance < 1, near, np.where(distance < 2, -0.5 * far, 0.0))
        starts[row] = low
        weights[row, : high - low] = values / values.sum()
    return _Windows(starts, weights)


def _axis_windows(shape: tuple[int, int], size: int) -> tuple[_Windows, _Windows]:
    """Return windows of rows and columns that resize the shorter side and crop at the center."""
    shorter = min(shape)
    windows = []
    for old in shape:
        new = size if old == shorter else int(size * old / shorter)
        windows.append(_bicubic_windows(old, new, round((new - size) / 2), size))
    return windows[0], windows[1]


def _resized(
    images: Float[Array, "n height width channels"], size: int
) -> Float[Array, "n size size channels"]:
    height, width = images.shape[1:3]
    rows, columns = _axis_windows((height, width), size)
    exact = jax.lax.Precision.HIGHEST
    wide = jnp.einsum("ij,nhjc->nhic", _matrix(columns, width), images, precision=exact)
    wide = jnp.clip(wide, 0.0, 1.0)  # the filter overshoots at edges; bytes saturate, too
    both = jnp.einsum("ij,njwc->niwc", _matrix(rows, height), wide, precision=exact)
    return jnp.clip(both, 0.0, 1.0)


def _matrix(windows: _Windows, old: int) -> Float[Array, "new old"]:
    matrix = np.zeros((len(windows.starts), old + windows.weights.shape[1]))
    for row, (start, weights) in enumerate(zip(*windows, strict=True)):
        matrix[row, start : start + len(weights)] = weights
    return jnp.asarray(matrix[:, :old], jnp.float32)


def _resized_bytes(
    images: UInt8[Array, "n height width channels"], size: int
) -> Int[Array, "n size size channels"]:
    height, width = images.shape[1:3]
    rows, columns = _axis_windows((height, width), size)
    values = images.astype(jnp.int32)
    for axis, windows in ((2, columns), (1, rows)):  # Pillow's order; both passes round to bytes
        fixed = np.trunc(windows.weights * 2**_BITS + np.copysign(0.5, windows.weights))
        total = jnp.int32(1 << (_BITS - 1))
        for tap in range(fixed.shape[1]):
            indices = np.minimum(windows.starts + tap, values.shape[axis] - 1)
            weights = jnp.asarray(fixed[:, tap], jnp.int32)
            taken = jnp.take(values, jnp.asarray(indices), axis=axis)
            total = total + taken * weights.reshape((-1,) + (1,) * (3 - axis))
        values = jnp.clip(total >> _BITS, 0, 255)
    return values
