"""`gloam lsi`: conversion, checks of files, runs, and studies with LSI."""

import functools
import json
import shutil
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import gloam
import gloam_lab
from gloam.cli import main
from gloam_lab.latent_illumination import StyleGAN3
from gloam_lab.latent_illumination.experiment import (
    SOURCES,
    LsiTimes,
    lsi_domain,
    read_embedder,
    read_landscapes,
)
from tests.cli.conftest import stopped
from tests.helpers import assert_same_bits
from tests.lab.cli.lsi_files import SETTINGS, random_files
from tests.lab.latent_illumination import test_official_pickle as pickles


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache folder of this file's own, where starts and embeddings are kept."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("GLOAM_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="module")
def files(cache, tmp_path_factory):
    return random_files(tmp_path_factory.mktemp("files"))


@pytest.fixture
def copied(files, tmp_path):
    """Files that a test may damage."""
    place = tmp_path / "copied"
    shutil.copytree(files.stylegan.parent, place)
    return type(files)(*(place / path.name for path in files))


def refused(capsys, *arguments):
    """Run a command that fails, and return its message on one line."""
    return " ".join(stopped(capsys, *arguments).split())


def command(files, out, *more, algorithm="dms-paper", iterations=1):
    small = ["--iterations", str(iterations), "--starts", "2", "--log-every", "1", "--quiet"]
    return ["lsi", "run", algorithm, *files.options, "--out", str(out), *small, *more]


# Conversion


@pytest.fixture(scope="module")
def arrays(files):
    """Tensors of a network as official pickles have them."""
    return {
        name: np.asarray(value) for name, value in StyleGAN3.load(files.stylegan).tensors().items()
    }


def test_an_official_pickle_is_converted_once(arrays, tmp_path, capsys):
    assert pickles.SETTINGS == SETTINGS
    source, out = tmp_path / "network.pkl", tmp_path / "new" / "out.safetensors"
    source.write_bytes(pickles.dumped({"G_ema": pickles.network(arrays)}))
    main(["lsi", "convert", str(source), str(out)])
    assert "configuration T, images of 16 x 16 pixels, 5 style layers" in capsys.readouterr().out
    for name, value in StyleGAN3.load(out).tensors().items():
        np.testing.assert_array_equal(value, arrays[name])
    before = out.read_bytes()
    message = refused(capsys, "lsi", "convert", source, out)
    assert message.startswith(f"error: safetensors: expected a new file, got '{out}', which exists")
    assert out.read_bytes() == before


@pytest.mark.parametrize("kind", ["global", "source", "nested"])
def test_hostile_pickles_are_refused_and_nothing_runs(kind, arrays, tmp_path, capsys):
    trace, source, out = (tmp_path / name for name in ("trace", "bad.pkl", "out.safetensors"))
    payload = pickles.touch(trace)
    if kind == "global":
        content = {"G_ema": pickles.network(arrays), "extra": payload}
    elif kind == "source":
        text = f"import os\n\nos.mkdir({str(trace)!r})"
        content = {"G_ema": pickles.network(arrays, text)}
    else:
        zeros = np.zeros(6, np.float32)
        bad = pickles.tensor(zeros, pickles.storage_bytes(zeros, extra=payload))
        content = {"G_ema": pickles.network(arrays, **{"mapping.w_avg": bad})}
    source.write_bytes(pickles.dumped(content))
    message = refused(capsys, "lsi", "convert", source, out)
    name = "source text that does more than define networks"
    assert (name if kind == "source" else "the global 'posix.mkdir'") in message
    assert str(source) in message
    assert not trace.exists()
    assert not out.exists()


# Checks


def test_check_without_files_says_where_they_come_from(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["lsi", "check"])
    assert stop.value.code == 2
    captured = capsys.readouterr()
    for name, source in SOURCES.items():
        assert f"not given: --{name}" in captured.out
        for text in (source.title, source.address, source.licence):
            assert text in captured.out
    assert "stylegan3-t-ffhqu-256x256.pkl" in captured.out
    assert "Missing or not readable: --stylegan, --clip, --landscapes" in captured.err


def test_check_with_files_estimates_the_time(files, capsys, monkeypatch):
    times = LsiTimes(image=2.5, embedding=0.1, search=0.01, batch_size=36)
    monkeypatch.setattr("gloam_lab.latent_illumination.experiment.measure_times", lambda *_: times)
    main(["lsi", "check", *files.options])
    printed = capsys.readouterr().out
    for expected in (
        "configuration T, images of 16 x 16 pixels",
        "images of 8 x 8 pixels in patches of 4, embeddings of 6 numbers",
        "8 different pictures",
        "All files are readable.",
        "one image and its embedding: 2.5 seconds",
        "one iteration of DMS (36 images): 1.5 minutes",
        "choice of the start (512 images, once): 21 minutes",
        "a run of 10,000 iterations, one seed: 10 days",
    ):
        assert expected in printed


def truncated(files):
    files.stylegan.write_bytes(files.stylegan.read_bytes()[:-100])


def of_something_else(files):
    shutil.copy(files.clip / "model.safetensors", files.stylegan)


def other_config(files):
    config = json.loads((files.clip / "config.json").read_text())
    config["vision_config"]["num_hidden_layers"] = 3
    (files.clip / "config.json").write_text(json.dumps(config))


def without_tokenizer(files):
    (files.clip / "merges.txt").unlink()


def pytorch_only(files):
    (files.clip / "model.safetensors").rename(files.clip / "pytorch_model.bin")


def broken_landscape(files):
    path = files.landscapes / "0000003.png"
    path.write_bytes(path.read_bytes()[:200])


def one_landscape(files):
    for path in sorted(files.landscapes.iterdir())[1:]:
        path.unlink()


def equal_landscapes(files):
    for path in files.landscapes.iterdir():
        Image.new("RGB", (12, 12), (10, 90, 30)).save(path)


def no_landscapes(files):
    for path in files.landscapes.iterdir():
        path.unlink()


@pytest.mark.parametrize(
    ("damage", "name", "message"),
    [
        (truncated, "stylegan", "StyleGAN3: expected a safetensors file, got"),
        (of_something_else, "stylegan", "expected a file with 'stylegan3_constructor' in its meta"),
        (other_config, "clip", "CLIP: expected 93 tensors, got a file without 16 of them"),
        (without_tokenizer, "clip", "CLIP: expected tokenizer.json, or vocab.json and merges.txt"),
        (pytorch_only, "clip", "clip: expected model.safetensors, got pytorch_model.bin only"),
        (
            broken_landscape,
            "landscapes",
            "path: expected images that can be read, got 1 broken file in",
        ),
        (one_landscape, "landscapes", "items: expected at least 2 items, got one"),
        (equal_landscapes, "landscapes", "items: expected at least 2"),
        (no_landscapes, "landscapes", "path: expected a folder with images"),
    ],
)
def test_bad_files_are_explained_before_the_search(damage, name, message, copied, tmp_path, capsys):
    damage(copied)
    out = tmp_path / "run"
    assert message in refused(capsys, *command(copied, out))
    assert not out.exists()
    with pytest.raises(SystemExit) as stop:
        main(["lsi", "check", "--no-time", *copied.options])
    assert stop.value.code == 2
    captured = capsys.readouterr()
    assert message in captured.out.partition("not readable: ")[2]
    assert f"Missing or not readable: --{name}." in " ".join(captured.err.split())
    study = ["paper", "--domains", "lsi", "--out", str(out), *copied.options]
    assert message in refused(capsys, *study)
    assert not out.exists()


def test_a_pickle_is_not_loaded_as_a_network(copied, tmp_path, capsys):
    source = tmp_path / "network.pkl"
    source.write_bytes(b"\x80\x04N.")
    message = refused(capsys, *command(copied._replace(stylegan=source), tmp_path / "run"))
    assert f"Convert it: gloam lsi convert {source} {source.with_suffix('.safetensors')}" in message


def test_grey_landscapes_become_color_pictures(copied, capsys):
    path = sorted(copied.landscapes.iterdir())[0]
    pixels = np.random.default_rng(1).integers(0, 256, (30, 40)).astype(np.uint8)
    model = read_embedder(copied.clip)
    Image.fromarray(np.stack([pixels] * 3, axis=2)).save(path)
    color = read_landscapes(copied.landscapes, model)
    Image.fromarray(pixels).save(path)
    gray = read_landscapes(copied.landscapes, model)
    np.testing.assert_array_equal(gray.items, color.items)
    assert gray.images.shape == (8, 128, 128, 3)
    np.testing.assert_array_equal(gray.images, color.images)
    main(["lsi", "check", "--no-time", *copied.options])
    assert "8 different pictures, 1 of them gray (used as color pictures)" in (
        capsys.readouterr().out
    )


# Runs


KILLED = """
import os, signal, sys
from gloam.cli import main
from gloam.formats import RunFolder

write = RunFolder.write_checkpoint

def write_or_die(folder, state, **options):
    if int(state.iteration) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    write(folder, state, **options)

RunFolder.write_checkpoint = write_or_die
main(sys.argv[1:])
"""


def test_a_killed_run_continues_to_the_same_bits_and_a_gallery(
    files, tmp_path, capsys, monkeypatch
):
    killed, whole = (
        command(files, tmp_path / name, "--checkpoint-every", "1", iterations=2)
        for name in ("killed", "whole")
    )
    # The second checkpoint is not written, after its metrics and its archive were.
    process = subprocess.Popen([sys.executable, "-c", KILLED, *killed], stderr=subprocess.PIPE)
    with monkeypatch.context() as patch:  # one gallery is enough
        patch.setattr("gloam.gallery.gallery_run", lambda *_, **__: [])
        main(whole)
    _, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL, errors.decode()
    killed_run, whole_run = (gloam.RunFolder(tmp_path / name) for name in ("killed", "whole"))
    assert killed_run.read_checkpoint_iteration() == 1
    # Neither the cache nor the choice of the start is needed to continue.
    monkeypatch.setenv("GLOAM_CACHE", str(tmp_path / "empty"))
    monkeypatch.setattr("gloam_lab.latent_illumination.domain._best_start", None)
    capsys.readouterr()
    main(killed)
    printed = capsys.readouterr().out
    folders = (whole_run, killed_run)
    assert_same_bits(*(folder.read_archive() for folder in folders))
    tables = [folder.read_metrics().drop(columns="seconds") for folder in folders]
    pd.testing.assert_frame_equal(*tables)
    count = len(killed_run.read_archive())
    items = len(list(files.landscapes.glob("*.png")))
    assert count > 0
    assert f"{count} of {items} items have an elite" in printed
    for name in ("figures/gallery.png", "gallery.html", "matches.csv", "matches.parquet"):
        assert str(killed_run.path / name) in printed
    page = (killed_run.path / "gallery.html").read_text()
    assert "<h1>A photo of the face of a hiker.</h1>" in page
    assert page.count("<img") >= 2 * count
    sheet = np.asarray(Image.open(killed_run.figures / "gallery.png").convert("RGB"), int)
    # The sheet has colors, which gray pictures would not have.
    assert (np.ptp(sheet, axis=2) > 20).sum() > 1000


def test_other_settings_do_not_continue_a_run(files, tmp_path, capsys):
    out = tmp_path / "run"
    main(command(files, out, algorithm="map-elites"))
    for more in (["--prompt", "the sea"], ["--half", "bfloat16"]):
        message = refused(capsys, *command(files, out, *more, algorithm="map-elites"))
        assert "cannot be resumed with other settings or data" in message
    assert "cannot be resumed" in refused(capsys, *command(files, out, algorithm="cma-mae"))
    assert "repeat that command" in refused(capsys, "resume", out)


def test_gradients_need_the_default_search(files, tmp_path, capsys):
    message = refused(capsys, *command(files, tmp_path / "run", "--gradients"))
    assert "gradients: expected the algorithm dms, got with dms-paper" in message


def test_a_run_with_gradients_counts_them(files, tmp_path):
    out = tmp_path / "run"
    main(command(files, out, "--gradients", algorithm="dms"))
    last = gloam.RunFolder(out).read_metrics().iloc[-1]
    assert last["evaluations"] == 2 * last["gradients"] == 36 * last["iteration"]


def test_a_folder_of_another_run_is_refused(files, tmp_path, capsys):
    domain = gloam.domains.LinearProjection(measure_dim=2, solution_dim=4)
    algorithm = gloam.MAPElites(gloam.GridArchive((4, 4), -9, 9), domain.x0, 0.5, batch_size=4)
    gloam.run(domain, algorithm, iterations=1, run_dir=tmp_path / "run", progress=False)
    message = refused(capsys, *command(files, tmp_path / "run"))
    assert "out: expected a run of this command, or none, got another run in" in message


# Studies


STUDY = ["--seeds", "2", "--iterations", "1", "--no-figures"]


def test_a_study_runs_lsi_where_its_files_are_named(files, tmp_path, monkeypatch):
    few_starts = functools.partial(lsi_domain, num_starts=2)
    monkeypatch.setattr("gloam_lab.study.lsi_domain", few_starts)
    out = tmp_path / "study"
    algorithms = ["--algorithms", "map-elites", "dds"]
    main(["paper", "--domains", "lsi", *algorithms, *STUDY, "--out", str(out), *files.options])
    report = (out / "report" / "report.md").read_text()
    assert "LSI (Hiker)" in report
    assert "-18,918 ± 5,700" in report
    assert "needs files" not in report
    folder = gloam.RunFolder(out / "lsi" / "map-elites")
    assert folder.read_config().seeds == (0, 1)
    assert not (out / "lsi" / "dds").exists()
    assert gloam_lab.Study.read(out).lsi.clip == str(files.clip)
    main(["paper-report", str(out), "--no-figures"])


def test_a_study_without_the_files_lists_lsi(tmp_path, capsys):
    out = tmp_path / "study"
    domains = ["--domains", "2d-lp-flat", "lsi", "--algorithms", "map-elites"]
    main(["paper", *domains, *STUDY, "--out", str(out)])
    line = "LSI (Hiker) needs files (StyleGAN3, CLIP, landscapes). To check them: gloam lsi check"
    assert line in capsys.readouterr().out
    report = (out / "report" / "report.md").read_text()
    assert line in report
    assert report.startswith("# 1 domains, 1 algorithms")
    assert not (out / "lsi").exists()
    some = refused(capsys, "paper", "--out", tmp_path / "other", "--clip", "somewhere")
    assert "expected all of --stylegan, --clip and --landscapes, or none, got 1 of them" in some
