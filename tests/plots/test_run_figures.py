"""All figures of a run, and their refusals."""

import shutil

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.image
import numpy as np
import pytest

import gloam
from gloam.formats.config import describe
from gloam.formats.tables import MetricsFile
from gloam.plots import discount_panels, plot_run
from gloam.plots.run_figures import algorithm_name, domain_name
from tests.plots.conftest import bowl
from tests.plots.test_style import png_size
from tests.run_folders import small_dms, write_run

pytestmark = pytest.mark.slow  # searches of its own are compiled


def test_a_run_is_drawn_into_its_figures_folder(run_3d):
    settings = dict(matplotlib.rcParams)
    paths = plot_run(run_3d.path, pdf=True)
    stems = ("curves", "archive", "pairwise", "discount")
    names = [f"{stem}.{kind}" for stem in stems for kind in ("png", "pdf")]
    assert [path.name for path in paths] == names
    assert all(path.parent == run_3d.figures for path in paths)
    assert png_size(paths[0]) == (1380, 945)
    for path in paths[::2]:
        width, height = png_size(path)
        assert 600 < width < 2400
        assert 400 < height < 1500
        image = matplotlib.image.imread(path)[..., :3]
        assert image.std() > 0.05
        # Nothing touches the border, so nothing was cut off.
        border = np.concatenate([image[0], image[-1], image[:, 0], image[:, -1]])
        assert (border > 0.99).all()
    assert all(path.read_bytes()[:5] == b"%PDF-" for path in paths[1::2])
    assert sorted(p.name for p in run_3d.figures.iterdir()) == sorted(names)
    assert dict(matplotlib.rcParams) == settings


@pytest.mark.parametrize(
    ("domain", "name"),
    [
        (gloam.domains.LinearProjection(10), "10d-lp-sphere"),
        (gloam.domains.Triangles(np.zeros((2, 28, 28)), name="mine"), "mine"),
        (bowl, "bowl"),
        (lambda solutions: solutions, "your function"),
    ],
)
def test_names_come_from_the_configuration(domain, name):
    algorithm = gloam.MAPElites(gloam.GridArchive((4, 4), -1, 1), np.zeros(2), 0.3)
    settings = {"driver": "fused", "seeds": [0], "dataset": None, "plan": {}}
    config, _ = describe(algorithm, domain, **settings)
    assert (algorithm_name(config), domain_name(config)) == ("MAP-Elites", name)


def test_an_algorithm_without_a_model_has_no_discount_figure(tmp_path):
    archive = gloam.GridArchive((4, 4), -1, 1)
    write_run(tmp_path, gloam.MAPElites(archive, np.zeros(2), 0.3), bowl, seeds=[1])
    assert [path.name for path in plot_run(tmp_path)] == ["curves.png", "archive.png"]
    with pytest.raises(ValueError, match=r"discount: .*NoDiscount"):
        discount_panels(gloam.RunFolder(tmp_path))


class OwnNetwork(eqx.Module):
    weights: jax.Array

    def __call__(self, measures):
        return jnp.dot(self.weights, measures)


def test_an_algorithm_with_own_parts_is_handed_over(tmp_path):
    archive = gloam.GridArchive((4, 4), -1, 1)
    algorithm = small_dms(archive, np.zeros(4), network=OwnNetwork(jnp.ones(2)))
    write_run(tmp_path, algorithm, bowl, seeds=[1])
    with pytest.raises(ValueError, match=r"OwnNetwork.* never loaded from a file"):
        plot_run(tmp_path)
    assert len(plot_run(tmp_path, algorithm=algorithm)) == 3


def test_a_folder_without_a_run_is_refused(tmp_path, run_2d):
    with pytest.raises(ValueError, match=r"^run folder:.*nowhere"):
        plot_run(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"^run folder:"):
        discount_panels(gloam.RunFolder(tmp_path))
    started = gloam.RunFolder(tmp_path / "started")
    unwritten = shutil.ignore_patterns("snapshots", "checkpoint")
    shutil.copytree(run_2d.path, started.path, ignore=unwritten)
    MetricsFile(started.path).write(started.read_metrics().iloc[:0])
    with pytest.raises(ValueError, match=r"^metrics:.*none"):
        plot_run(started.path)
    with pytest.raises(ValueError, match=r"^run folder:"):
        discount_panels(started)
