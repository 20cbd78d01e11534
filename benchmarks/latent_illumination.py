"""Time of one iteration of latent space illumination, with random weights of the paper's sizes.

    python benchmarks/latent_illumination.py [--half bfloat16] [--chunk 36]
    python benchmarks/latent_illumination.py --half bfloat16 --gradients
    python benchmarks/latent_illumination.py --half bfloat16 --layers

A StyleGAN3 of 256 x 256 (configuration T), a CLIP of the size of ViT-B/32, 10,000 cells and the
paper's DMS: one emitter of 36 latents. With ``--gradients``, 18 of the 36 climb by gradients
through both models. Weights are random, because the time does not depend on them. XLA counts the
operations; `research/latent-space-illumination.md` has results.
"""

import argparse
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import gloam
from gloam_lab import preset_algorithm
from gloam_lab.latent_illumination import CLIP, LatentIllumination, StyleGAN3, StyleGAN3Settings
from gloam_lab.latent_illumination.clip import _DEFAULTS, _section, _shapes, _tower
from gloam_lab.latent_illumination.experiment import median_seconds

START = time.perf_counter()
BATCH_SIZE = 36
NUM_CELLS = 10_000


def random_clip(half: str | None) -> CLIP:
    """Build a CLIP of ViT-B/32's size with random weights."""
    config = {name: {} for name in _DEFAULTS} | {"projection_dim": 512}
    vision, text = (_section(config, name) for name in _DEFAULTS)
    shapes = _shapes(config, vision, text, [_tower(vision, None), _tower(text, None)])
    random = np.random.default_rng(0)
    tensors = {
        name: np.float32(0.02) * random.standard_normal(shape, dtype=np.float32)
        for name, shape in shapes.items()
    }
    return CLIP(config, tensors, half=half)


def arithmetic(function, *arguments) -> float:
    """Return the billions of operations of a call, as XLA counts them."""
    analysis = jax.jit(function).lower(*arguments).compile().cost_analysis()
    found = analysis[0] if isinstance(analysis, list) else analysis
    return (found or {}).get("flops", 0.0) / 1e9


def layers(generator: StyleGAN3) -> None:
    """Print the time of every layer for one batch."""
    half = None if generator.half is None else jnp.dtype(generator.half)
    w = jnp.zeros((BATCH_SIZE, generator.w_dim)) + 0.1
    images = generator.input(w)
    for layer in generator.layers:
        step = eqx.filter_jit(lambda layer, images, w: layer(images, w, half))
        kind = half if half is not None and layer.layer.use_fp16 else jnp.float32
        convolution = eqx.filter_jit(
            lambda layer, images, w, kind=kind: layer._modulated(
                images, w, kind, None if half is not None else jax.lax.Precision.HIGHEST
            )
        )
        whole, part = (1000 * median_seconds(f, layer, images, w) for f in (step, convolution))
        print(f"| {layer.layer.name} | {whole:.2f} | {part:.2f} |", flush=True)
        images = step(layer, images, w)


def iteration(domain: LatentIllumination, iterations: int, gradients: bool) -> float:
    """Return the milliseconds of an iteration of the whole search."""
    name, changes = ("dms", {"gradients": True}) if gradients else ("dms-paper", {})
    algorithm = preset_algorithm(name, domain, **changes)
    result = gloam.run(
        domain, algorithm, iterations=iterations, log_every=iterations // 4, progress=False
    )
    rows = result.metrics.sort_values("iteration")
    last, first = rows.iloc[-1], rows.iloc[1]
    spent = last["seconds"] - first["seconds"]
    return 1000 * spent / (last["iteration"] - first["iteration"])


def main() -> None:
    """Print the times of an iteration and of its parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=["float16", "bfloat16"], help="precision of both models")
    parser.add_argument("--chunk", type=int, default=12, help="images at once (12)")
    parser.add_argument("--iterations", type=int, default=80, help="timed iterations (80)")
    parser.add_argument(
        "--gradients", action="store_true", help="gloam's default, half of the batch by gradients"
    )
    parser.add_argument(
        "--layers", action="store_true", help="time the layers of StyleGAN3 instead"
    )
    options = parser.parse_args()
    settings = StyleGAN3Settings(img_resolution=256, channel_base=16384)
    generator = StyleGAN3.random(settings, half=options.half, key=jax.random.key(0))
    if options.layers:
        print("| layer | ms | convolution alone, ms |\n|---|---|---|")
        layers(generator)
        return
    embedder = jax.block_until_ready(random_clip(options.half))
    print(f"models after {time.perf_counter() - START:.1f} s", flush=True)
    cells = np.random.default_rng(1).standard_normal((NUM_CELLS, embedder.embedding_dim))
    prompt = np.ones(embedder.embedding_dim)
    domain = LatentIllumination(
        generator, embedder, prompt, cells, num_starts=16, chunk=options.chunk
    )
    print(f"domain after {time.perf_counter() - START:.1f} s", flush=True)
    w = jnp.zeros((BATCH_SIZE, generator.w_dim)) + 0.1
    made = jnp.zeros((BATCH_SIZE, *generator.image_shape))
    paint = eqx.filter_jit(lambda domain, rows: domain.render(rows))
    embed = eqx.filter_jit(lambda embedder, images: embedder.embed_images(images))
    begin = time.perf_counter()
    whole = iteration(domain, options.iterations, options.gradients)
    searched = time.perf_counter() - begin - options.iterations * whole / 1000
    peak = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0) / 2**30
    print(f"first iteration after {begin - START + searched:.1f} s, peak memory {peak:.1f} GiB")
    print(f"{jax.devices()[0].device_kind}, half {options.half}, chunk {options.chunk}")
    print(
        f"iteration {whole:.1f} ms; images {1000 * median_seconds(paint, domain, w):.1f} ms, ",
        end="",
    )
    print(f"embeddings {1000 * median_seconds(embed, embedder, made):.1f} ms", flush=True)
    print(f"arithmetic of {BATCH_SIZE} images: ", end="")
    print(
        f"{BATCH_SIZE * arithmetic(lambda w: generator.images(w), w[:1]) / 1000:.2f} TFLOP",
        flush=True,
    )


if __name__ == "__main__":
    main()
