"""Gradients of a PyTorch decoder: the search climbs to images that its archive lacks.

    python examples/torch_gradients.py --iterations 200 --out torch_gradients.png

Each cell of the archive is a handwritten digit, and the measures of a solution are the pixels of
the decoder's image. `vjp` has the gradients of all pixels in one backward pass. Replace `Decoder`
with your own module (and load its weights), and the digits with images like those it makes.
"""

from pathlib import Path

import numpy as np
import tyro

import gloam

try:
    import torch
except ImportError:
    raise SystemExit("This example needs PyTorch: pip install torch") from None

LATENT, STROKES, SIDE = 64, 4, 8


class Decoder(torch.nn.Module):
    """Images from latents: a random linear layer gives the strokes, which are drawn softly."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(LATENT, 5 * STROKES)
        torch.nn.init.orthogonal_(self.layer.weight)
        line = torch.linspace(0, 1, SIDE)
        self.register_buffer("pixels", torch.cartesian_prod(line, line))

    def forward(self, latents: torch.Tensor) -> torch.Tensor:
        numbers = self.layer(latents).reshape(-1, 1, STROKES, 5)
        begin, end, width = torch.sigmoid(numbers).split([2, 2, 1], dim=3)
        along, offset = end - begin, self.pixels[:, None] - begin
        place = (offset * along).sum(3) / (along.square().sum(3) + 1e-4)
        nearest = offset - along * place.clamp(0, 1)[..., None]
        ink = torch.exp(-nearest.square().sum(3) / (0.002 + 0.03 * width[..., 0]))
        return 1 - (1 - ink).prod(dim=2).reshape(-1, SIDE, SIDE)


def search(archive: gloam.archives.Archive, climbing: int) -> gloam.Algorithm:
    """Discount Model Search with 180 solutions per iteration, ``climbing`` of them by gradients."""
    x0, sigma0, rest = np.zeros(LATENT), 0.5, 180 - climbing
    emitters: list[gloam.emitters.Emitter] = [
        gloam.emitters.CmaEmitters(x0, sigma0, num_emitters=3, batch_size=rest // 5),
        gloam.emitters.Recombination(x0, sigma0, batch_size=2 * rest // 5),
    ]
    if climbing:
        emitters.append(gloam.emitters.GradientAscent(x0, sigma0, batch_size=climbing))
    discount = gloam.discounts.DiscountModel()
    return gloam.Algorithm(gloam.emitters.Mixture(emitters), archive, discount)


def main(
    iterations: int = 200,
    out: Path = Path("torch_gradients.png"),
    items: int = 1797,
    device: str = "cpu",
) -> None:
    torch.manual_seed(0)
    data = gloam.datasets.digits().subsample(items)
    evaluate, vjp = gloam.interop.torch_evaluation(Decoder().to(device))
    for climbing in (0, 90):
        algorithm = search(data.archive(), climbing)
        gradients = vjp if climbing else None
        result = gloam.optimize(evaluate, algorithm, iterations, dataset=data, vjp=gradients)
        matches = gloam.datasets.Matches(result.elites, data)
        last = result.metrics.iloc[-1]
        print(
            f"{'with' if climbing else 'without'} gradients: coverage {last['coverage']:.1%}, "
            f"explained variance {matches.explained:.1%}, after {last['evaluations']:,.0f} "
            f"evaluations and {last['gradients']:,.0f} gradients"
        )
    pictures = gloam.gallery.elite_pictures(result.elites, data)
    figure = gloam.gallery.gallery(matches, pictures, count=40, title="Digits by gradients")
    gloam.plots.save(figure, out)


if __name__ == "__main__":
    tyro.cli(main)
