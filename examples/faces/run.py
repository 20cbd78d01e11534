"""Find a face for every landscape, and write galleries.

    python run.py --weights weights --data DATA --out runs/faces

Needs the files that `convert.py` writes, and pictures: a folder ``landscapes`` of image files and
``landscapes_crops64.npz`` with an array ``images``. There is no text model and hence no prompt: a
face has to match its landscape and to stay near the mean face. It matches by colour, light and
texture, see `embedder.py`.
"""

import argparse
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
from efficientnet import EfficientNet
from embedder import NUM_BLOCKS, MatchedEmbedder
from mobile_stylegan import MobileStyleGAN
from neighbours import neighbour_sheet, relation

import gloam
from gloam._tools import files
from gloam.datasets import Dataset, Matches
from gloam.gallery import gallery, page
from gloam.plots import style
from gloam_lab.generator import read_tensors
from gloam_lab.latent_illumination import LatentIllumination

_TITLE = "A face for each of {count} {name}, by colour and light"
_TRUNCATION = 0.7
_PAPER_FREE_NORM = 0.35
_PAIRS_ON_PAGE = 300
_SEARCHES = ("paper", "default", "gradients")


def main() -> None:
    given = _options()
    generator = MobileStyleGAN.load(
        given.weights / "faces.safetensors", given.resolution, half=given.half
    )
    tensors, _ = read_tensors("embedder", given.weights / "efficientnet_lite0.safetensors")
    network = EfficientNet(tensors, NUM_BLOCKS)
    faces = random_faces(generator, given.samples, given.chunk)
    for name in given.datasets:
        dataset = read_pictures(given.data, name)
        fill(name, dataset, generator, MatchedEmbedder(network, pixels(dataset), faces), given)


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--weights", type=Path, default=Path("weights"))
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--out", type=Path, default=Path("runs/faces"))
    names = ("landscapes", "crops")
    options.add_argument("--datasets", nargs="+", choices=names, default=list(names))
    options.add_argument("--iterations", type=int, default=1000)
    options.add_argument("--seeds", type=int, default=1, help="number of seeds")
    options.add_argument(
        "--search",
        choices=_SEARCHES,
        default="paper",
        help="DMS as in the paper, gloam's default, or gloam's default with gradients",
    )
    options.add_argument("--emitters", type=int, default=5, help="slots of 36 faces in a batch")
    options.add_argument("--sigma0", type=float, default=0.3)
    options.add_argument("--restart", type=int, default=50, help="iterations between restarts")
    options.add_argument("--free-norm", type=float, default=0.6, help="of the mean; paper: 0.35")
    options.add_argument("--resolution", type=int, default=256)
    options.add_argument("--half", action="store_true", help="compute images in float16")
    options.add_argument("--chunk", type=int, default=36, help="images generated at a time")
    options.add_argument("--samples", type=int, default=512, help="random faces for the embedder")
    return options.parse_args()


def read_pictures(folder: Path, name: str) -> Dataset:
    """Read the photographs of a folder, or crops of them from an ``.npz`` file."""
    if name == "landscapes":
        return gloam.datasets.from_folder(folder / name, (256, 256), "RGB", progress=False)
    with np.load(folder / "landscapes_crops64.npz", allow_pickle=False) as arrays:
        return gloam.datasets.from_array(arrays["images"])


def pixels(dataset: Dataset) -> np.ndarray:
    """Return all pictures of a dataset as bytes."""
    return np.stack([dataset.image(item) for item in range(len(dataset))])


def random_faces(generator: MobileStyleGAN, count: int, chunk: int) -> np.ndarray:
    """Generate faces from random latents, with a truncation similar to that of the search."""
    make = eqx.filter_jit(lambda generator, z: generator.images(generator.map(z, _TRUNCATION)))
    keys = jax.random.split(jax.random.key(0), -(-count // chunk))
    batches = [
        np.asarray(make(generator, jax.random.normal(key, (chunk, generator.z_dim))))
        for key in keys
    ]
    return np.concatenate(batches)[:count]


def fill(
    name: str,
    dataset: Dataset,
    generator: MobileStyleGAN,
    embedder: MatchedEmbedder,
    given: argparse.Namespace,
) -> None:
    """Search faces for the pictures of a dataset, print the scores and write the galleries."""
    data = LatentIllumination.embedded(dataset, embedder, cache=False, progress=False)
    # The search starts at the mean face. The paper chooses the best of 512 random latents, but it
    # does so by the prompt.
    domain = LatentIllumination(
        generator,
        embedder,
        None,
        data,
        x0=np.zeros(generator.w_dim),
        chunk=given.chunk,
        name=f"faces-{name}",
    )
    # Images of this generator are good up to a truncation of about 0.7. With the paper's 0.35 and
    # without a prompt, most faces would look like the mean face.
    free_norm = domain.free_norm * given.free_norm / _PAPER_FREE_NORM
    domain = eqx.tree_at(lambda domain: domain.free_norm, domain, free_norm)
    common = {"sigma0": given.sigma0, "num_emitters": given.emitters, "batch_size": 36}
    if given.search == "paper":
        restart = gloam.emitters.RestartEvery(given.restart)
        common |= {"alpha": 1.0, "restart": restart}
        algorithm = gloam.DMS.paper(domain.archive(), domain.x0, **common)
    else:
        # The penalty has no lower bound, and faces with objectives below 0 are of no use.
        common |= {"floor": 0.0, "gradients": given.search == "gradients"}
        algorithm = gloam.DMS(domain.archive(), domain.x0, **common)
    result = gloam.run(
        domain,
        algorithm,
        iterations=given.iterations,
        seeds=given.seeds,
        dataset=data,
        log_every=max(1, min(50, given.iterations // 2)),
        progress=False,
    )
    print_scores(name, result)
    show(name, domain, Matches(result.elites, data), given.out / name)
    files.write_table(given.out / name / "metrics.parquet", result.metrics)
    solutions = {"solutions": result.elites.solutions, "cells": result.elites.cells}
    files.write_arrays(given.out / name / "elites.npz", solutions)


def print_scores(name: str, result: gloam.Result) -> None:
    """Print the scores of every seed, and the time per iteration without compilation."""
    for seed, rows in result.metrics.groupby("seed"):
        last = rows.iloc[-1]
        print(
            f"{name}, seed {seed}: QD score {last['qd_score']:.2f}, coverage "
            f"{last['coverage']:.1%}, best objective {last['best_objective']:.3f} "
            f"after {int(last['iteration'])} iterations, {int(last['evaluations'])} faces",
            flush=True,
        )
    rows = result.metrics[result.metrics["seed"] == result.metrics["seed"].iloc[0]]
    if len(rows) > 2:
        first, last = rows.iloc[len(rows) // 2], rows.iloc[-1]
        steps = last["iteration"] - first["iteration"]
        print(f"{name}: {1e3 * (last['seconds'] - first['seconds']) / steps:.0f} ms per iteration")


def show(name: str, domain: LatentIllumination, matches: Matches, folder: Path) -> None:
    """Write a picture of some pairs, a page with all pairs, and a picture of neighbours."""
    render = eqx.filter_jit(lambda domain, solutions: domain.render(solutions))
    faces = _rendered(lambda rows: render(domain, rows), matches.elites.solutions, domain.chunk)
    title = _TITLE.format(count=len(matches.dataset), name=name)
    text = page(matches, lambda rows: faces[rows], title=title, limit=_PAIRS_ON_PAGE)
    files.write_bytes(folder / "gallery.html", text.encode())
    sheet = gallery(matches, lambda rows: faces[rows], by="distance", title=title)
    style.save(sheet, folder / "gallery.png")
    neighbour_sheet(matches, faces, folder / "neighbours.png")
    print(f"{name}: {relation(matches, faces)}", flush=True)


def _rendered(render, solutions: np.ndarray, chunk: int) -> np.ndarray:
    """Return pictures of all elites as bytes, rendered in padded batches of one size."""
    pictures = []
    for start in range(0, len(solutions), chunk):
        rows = solutions[start : start + chunk]
        filled = np.concatenate([rows, np.zeros((chunk - len(rows), rows.shape[1]), rows.dtype)])
        made = np.rint(255 * np.clip(np.asarray(render(filled)), 0, 1)).astype(np.uint8)
        pictures.append(made[: len(rows)])
    return np.concatenate(pictures)


if __name__ == "__main__":
    main()
