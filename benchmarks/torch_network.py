"""Milliseconds of an iteration of `Search` with a live PyTorch module, converted, and gloam's MLP.

The paper's network (784-128-128-1) on images of 28 x 28, 540 solutions an iteration; the three take
turns. Needs PyTorch.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn

import gloam
from gloam.discounts import TorchNetwork, from_torch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--iterations", type=int, default=40, help="of each turn")
    options = parser.parse_args()
    torch.manual_seed(0)
    layers = (nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))
    module = nn.Sequential(*layers)
    random = np.random.default_rng(0)
    archive = gloam.CVTArchive(random.random((1000, 28, 28), dtype=np.float32), 0, 1)
    mixture = random.normal(size=(50, 784)).astype(np.float32) / 7

    def advance(search: gloam.Search, iterations: int) -> float:
        began = time.perf_counter()
        for _ in range(iterations):
            pictures = np.tanh(search.ask() @ mixture) / 2 + 0.5
            search.tell(None, pictures.reshape(-1, 28, 28))
        search.ask()  # waits for what was told
        return (time.perf_counter() - began) / iterations * 1e3

    networks = {
        "TorchNetwork": TorchNetwork(module, fresh=False),
        "from_torch": from_torch(module),
        "MLP": None,
    }
    searches = {
        name: gloam.Search(gloam.DMS.paper(archive, np.full(50, 0.3), 0.2, network=network), seed=1)
        for name, network in networks.items()
    }
    times = {name: [] for name in searches}
    for turn in range(options.turns + 1):
        for name, search in searches.items():
            taken = advance(search, options.iterations if turn else 3)  # the first compiles
            times[name] += [taken] * (turn > 0)
    for name, each in times.items():
        print(f"{name:>14}: {np.median(each):6.1f} ms, {min(each):.1f} to {max(each):.1f}")


if __name__ == "__main__":
    main()
