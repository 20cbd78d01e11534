"""A PyTorch model on its own device: images of a generator, by brightness and detail.

    python examples/torch_model.py --device cuda --iterations 80 --out torch.png

The search runs in JAX and the model in PyTorch. They exchange NumPy arrays, so they can run on
different devices. Replace `Generator` with your own module (and load its weights).
"""

from pathlib import Path

import numpy as np
import tyro

import gloam

try:
    import torch
except ImportError:
    raise SystemExit("This example needs PyTorch: pip install torch") from None

LATENT, SIDE = 12, 20


class Generator(torch.nn.Module):
    """Greyscale images from latents: a network (here with random weights) computes each pixel."""

    def __init__(self):
        super().__init__()
        layers = [torch.nn.Linear(LATENT + 3, 24), torch.nn.Tanh(), torch.nn.Linear(24, 24)]
        self.layers = torch.nn.Sequential(*layers, torch.nn.Tanh(), torch.nn.Linear(24, 1))
        for layer in self.layers[::2]:
            torch.nn.init.normal_(layer.weight, std=1.2)

    def forward(self, latents: torch.Tensor) -> torch.Tensor:
        line = torch.linspace(-2, 2, SIDE, device=latents.device)
        x, y = (axis.reshape(-1) for axis in torch.meshgrid(line, line, indexing="xy"))
        pixels = torch.stack([x, y, torch.hypot(x, y)], dim=1).expand(len(latents), -1, -1)
        inputs = torch.cat([latents[:, None].expand(-1, SIDE * SIDE, -1), pixels], dim=2)
        return torch.sigmoid(self.layers(inputs)).reshape(-1, SIDE, SIDE)


class Evaluation:
    """Computes the symmetry (objective) and the brightness and detail (measures) of images."""

    def __init__(self, device: str):
        torch.manual_seed(0)
        self.device, self.generator = device, Generator().to(device).eval()

    @torch.inference_mode()
    def images(self, solutions: np.ndarray) -> torch.Tensor:
        return self.generator(torch.tensor(solutions, device=self.device))

    def __call__(self, solutions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        images = self.images(solutions)
        symmetry = 1 - (images - images.flip(2)).abs().mean(dim=(1, 2))
        detail = sum(images.diff(dim=axis).abs().mean(dim=(1, 2)) for axis in (1, 2))
        measures = torch.stack([images.mean(dim=(1, 2)), detail], dim=1)
        return symmetry.cpu().numpy(), measures.cpu().numpy()


def picture(elites: gloam.Elites, evaluate: Evaluation, out: Path) -> None:
    figure = gloam.plots.archive_figure(elites, title="Pictures by brightness and detail")
    axes = figure.axes[0]
    for x in np.arange(0.05, 1, 0.1):
        for y in np.arange(0.0125, 0.25, 0.025):
            distances = np.linalg.norm((elites.measures - [x, y]) / [1, 0.25], axis=1)
            if distances.min() < 0.04:
                (image,) = evaluate.images(elites.solutions[[distances.argmin()]]).cpu().numpy()
                box = (x - 0.04, x + 0.04, y - 0.01, y + 0.01)
                axes.imshow(image, "gray", vmin=0, vmax=1, extent=box, aspect="auto", zorder=2)
    axes.set(xlabel="brightness", ylabel="detail", xlim=(0, 1), ylim=(0, 0.25))
    gloam.plots.save(figure, out)


def main(iterations: int = 80, out: Path = Path("torch.png"), device: str = "cpu") -> gloam.Elites:
    evaluate = Evaluation(device)
    archive = gloam.GridArchive(shape=(40, 40), lower=0, upper=[1, 0.25])
    algorithm = gloam.DMS(archive, x0=np.zeros(LATENT), sigma0=0.5, num_emitters=5)
    result = gloam.optimize(evaluate, algorithm, iterations)
    print(result.elites)
    picture(result.elites, evaluate, out)
    return result.elites


if __name__ == "__main__":
    tyro.cli(main)
