"""Train the decoder of `gloam_lab.Decoder.digits` on MNIST, and write the held-out digits.

    python scripts/train_digit_decoder.py --images mnist_10k.npz

The decoder is that of a variational autoencoder. The input is a file with the first 10,000 training
images of MNIST (``images``: uint8, ``labels``). The first 9,000 are trained on; the last 1,000
become the dataset `gloam.datasets.handwritten_digits`. Both files go into the package, or into the
folder ``--out``. The seed is fixed, but another machine or version of JAX rounds differently and
gives slightly different weights.
"""

import argparse
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gloam._tools import files
from gloam.datasets.digits import HANDWRITTEN_FILE
from gloam_lab import Decoder
from gloam_lab.decoder import DIGITS_FILE, logits_of

SEED = 0
NUM_TRAINED = 9000
LATENT_DIM = 16
HIDDEN_DIM = 192
SIDE = 7
CHANNELS = (16, 8)
ENCODER_DIM = 512
BATCH_SIZE = 128
LEARNING_RATE = 2e-3
SHIFT = 1
METADATA = {
    "script": "scripts/train_digit_decoder.py",
    "seed": str(SEED),
    "data": "MNIST, training images 0 to 8999 (Yann LeCun and Corinna Cortes, CC BY-SA 3.0)",
}


def layer(key: Any, *shape: int) -> dict[str, jax.Array]:
    """Initialize the weight (scaled by the number of inputs) and bias of a layer."""
    inputs = int(np.prod(shape[:-1]))
    weight = jnp.sqrt(2.0 / inputs) * jax.random.normal(key, shape)
    return {"weight": weight, "bias": jnp.zeros(shape[-1])}


def first_weights(key: Any) -> dict[str, dict[str, jax.Array]]:
    """Initialize the decoder and the encoder."""
    keys = jax.random.split(key, 7)
    first, second = CHANNELS
    layers = {
        "hidden": layer(keys[0], LATENT_DIM, HIDDEN_DIM),
        "maps": layer(keys[1], HIDDEN_DIM, SIDE * SIDE * first),
        "middle": layer(keys[2], 3, 3, first, 4 * second),
        "pixels": layer(keys[3], 3, 3, second, 4),
    }
    encoder = {
        "first": layer(keys[4], (4 * SIDE) ** 2, ENCODER_DIM),
        "second": layer(keys[5], ENCODER_DIM, ENCODER_DIM),
        "latent": layer(keys[6], ENCODER_DIM, 2 * LATENT_DIM),
    }
    decoder = {f"{name}.{part}": value for name, w in layers.items() for part, value in w.items()}
    return {"decoder": decoder, "encoder": encoder}


def encoded(encoder: Any, images: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return mean and log variance of the latents of images."""
    rows = images.reshape(images.shape[0], -1)
    for name in ("first", "second"):
        rows = jax.nn.relu(rows @ encoder[name]["weight"] + encoder[name]["bias"])
    found = rows @ encoder["latent"]["weight"] + encoder["latent"]["bias"]
    return found[:, :LATENT_DIM], found[:, LATENT_DIM:]


def loss(weights: Any, images: jax.Array, key: Any) -> jax.Array:
    """Return the negative evidence lower bound of a batch: cross entropy plus divergence."""
    mean, log_variance = encoded(weights["encoder"], images)
    latents = mean + jnp.exp(0.5 * log_variance) * jax.random.normal(key, mean.shape)
    logits = logits_of(weights["decoder"], latents)
    pixels = jnp.sum(optax.sigmoid_binary_cross_entropy(logits, images), axis=(1, 2))
    divergence = 0.5 * jnp.sum(jnp.exp(log_variance) + mean**2 - 1 - log_variance, axis=1)
    return jnp.mean(pixels + divergence)


def shifted(images: jax.Array, key: Any) -> jax.Array:
    """Shift images by up to `SHIFT` pixels, which augments the small training set."""
    down, across = jax.random.randint(key, (2,), -SHIFT, SHIFT + 1)
    return jnp.roll(images, (down, across), (1, 2))


def train(images: np.ndarray, epochs: int) -> dict[str, jax.Array]:
    """Train, and return the tensors of the decoder."""
    key_start, key_run = jax.random.split(jax.random.key(SEED))
    weights = first_weights(key_start)
    num_batches = len(images) // BATCH_SIZE
    schedule = optax.cosine_decay_schedule(LEARNING_RATE, epochs * num_batches)
    optimizer = optax.adam(schedule)
    state = optimizer.init(weights)
    data = jnp.asarray(images, jnp.float32) / 255

    @jax.jit
    def update(weights: Any, state: Any, batch: Any, key: Any) -> tuple[Any, Any, Any]:
        key_shift, key_latent = jax.random.split(key)
        value, slope = jax.value_and_grad(loss)(
            weights, shifted(data[batch], key_shift), key_latent
        )
        change, state = optimizer.update(slope, state, weights)
        return optax.apply_updates(weights, change), state, value

    for epoch in range(epochs):
        key_epoch = jax.random.fold_in(key_run, epoch)
        order = np.asarray(jax.random.permutation(key_epoch, len(images)))
        batches = order[: num_batches * BATCH_SIZE].reshape(num_batches, BATCH_SIZE)
        total = 0.0
        for number, batch in enumerate(batches):
            key = jax.random.fold_in(key_epoch, number)
            weights, state, value = update(weights, state, batch, key)
            total += float(value)
        print(f"epoch {epoch + 1} of {epochs}: loss {total / num_batches:.2f}", flush=True)
    return weights["decoder"]


def main() -> None:
    """Train, and write both files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--out", type=Path, help="folder for both files; default: the package")
    options = parser.parse_args()
    weights_file, digits_file = DIGITS_FILE, HANDWRITTEN_FILE
    if options.out is not None:
        weights_file, digits_file = (options.out / file.name for file in (DIGITS_FILE, digits_file))
    with np.load(options.images, allow_pickle=False) as data:
        images, labels = data["images"], data["labels"]
    Decoder(train(images[:NUM_TRAINED], options.epochs)).save(weights_file, METADATA)
    held_out = {
        "images": images[NUM_TRAINED:],
        "labels": labels[NUM_TRAINED:],
        "places": np.arange(NUM_TRAINED, len(images)),
    }
    files.write(digits_file, lambda file: np.savez_compressed(file, **held_out))
    for file in (weights_file, digits_file):
        print(f"{file}: {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
