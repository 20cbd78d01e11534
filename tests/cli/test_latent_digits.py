"""`gloam run ALGORITHM latent-digits`, from the command line to the gallery."""

import subprocess
import sys
import time

import numpy as np
import pytest

import gloam
from gloam.cli import main
from gloam.cli.choices import LatentDigitsChoice
from gloam.experiments import preset_algorithm
from gloam.experiments.presets import LATENT_DIGITS
from tests.helpers import assert_same_bits

TINY = ["latent-digits", "--items", "30", "--quiet"]
SMALL_CMA = ["--emitters", "2", "--batch-size", "4"]


def test_a_run_ends_in_a_gallery_and_can_be_resumed_and_plotted(tmp_path, capsys):
    out = tmp_path / "run"
    main(["run", "dms", *TINY, *SMALL_CMA, "--iterations", "3", "--out", str(out)])
    shown = capsys.readouterr().out
    assert "of 30 items have an elite" in shown
    for path in (out / "figures" / "gallery.png", out / "gallery.html"):
        assert str(path) in shown
        assert path.stat().st_size > 5000
    main(["resume", str(out), "--iterations", "5", "--quiet"])
    assert f"gloam gallery {out}" in capsys.readouterr().out
    folder = gloam.RunFolder(out)
    assert folder.read_metrics()["iteration"].max() == 5
    assert folder.read_part("domain").archive().num_cells == 30
    (out / "gallery.html").unlink()
    main(["gallery", str(out), "--by", "label"])
    assert (out / "gallery.html").is_file()
    main(["plot", str(out)])
    assert (out / "figures" / "discount.png").is_file()


@pytest.mark.parametrize("name", [name for name in LATENT_DIGITS if name != "dms"])
def test_the_other_algorithms_run(name, tmp_path, capsys):
    out = tmp_path / "run"
    size = ["--batch-size", "8"] + (["--emitters", "1"] if name == "cma-mae" else [])
    main(["run", name, *TINY, *size, "--iterations", "2", "--out", str(out)])
    assert str(out / "gallery.html") in capsys.readouterr().out


def test_the_whole_dataset_and_its_iterations_are_the_default():
    chosen = LatentDigitsChoice()
    assert len(chosen.dataset()) == chosen.build().archive().num_cells == 1000
    np.testing.assert_array_equal(chosen.build().archive().centroids, chosen.dataset().items)
    assert 1000 <= chosen.iterations < 10_000


@pytest.mark.slow
def test_a_killed_run_is_resumed_to_the_same_bits(tmp_path):
    out = tmp_path / "killed"
    options = [*TINY, *SMALL_CMA, "--iterations", "100000", "--checkpoint-every", "5"]
    code = "import sys; from gloam.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "run", "dms", *options, "--out", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not gloam.RunFolder(out).holds_checkpoint:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline, "no checkpoint was written"
        time.sleep(0.02)
    process.kill()
    process.communicate()
    iterations = gloam.RunFolder(out).read_checkpoint_iteration() + 20
    resumed = gloam.resume(out, iterations=iterations, progress=False)
    domain = LatentDigitsChoice(items=30).build()
    algorithm = preset_algorithm("dms", domain, num_emitters=2, batch_size=4)
    whole = gloam.run(domain, algorithm, iterations=iterations, progress=False)
    assert_same_bits(whole.elites, resumed.elites)
