"""`gloam fill`, `gloam new` and datasets: wrong input is reported before any search."""

import os
import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import gloam
from gloam import RunFolder
from gloam.cli import main
from gloam.cli.fill import read_dataset
from gloam.datasets import Matches
from tests.cli.conftest import DATA, fill, run, stopped
from tests.helpers import assert_same_bits

pytestmark = pytest.mark.slow  # searches of its own are compiled


def refused(capsys, *arguments):
    message = stopped(capsys, "fill", *arguments, "--iterations", "2", "--quiet")
    return " ".join(message.split())


@pytest.fixture
def bad_data(problem):
    np.savez(problem / "bad.npz", items=np.array([[0.0, np.nan], [1.0, 1.0]]))
    np.save(problem / "same.npy", np.ones((5, 2)))
    np.save(problem / "one.npy", np.ones((1, 2)))
    (problem / "photo.JPG").write_bytes(b"")
    return problem


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["mine.py", "--dataset", "nowhere/"],
            "dataset: expected an existing folder of images, an existing file, or digits, got "
            "'nowhere/'. Check the path.",
        ),
        (
            ["mine.py", "--dataset", "photo.JPG"],
            "dataset: expected a folder of images, got the file 'photo.JPG'. Give the folder",
        ),
        (["mine.py", "--dataset", "data.npy", "--sigma0", "0"], "sigma0: expected"),
        (["mine.py", "--dataset", "data.npy", "--within", "0"], "within: expected"),
        (["mine.py", "--dataset", "data.npy", "--bounds", "2", "1"], "lower"),
        (["mine.py", "--dataset", "bad.npz"], "items: expected finite numbers"),
        (["mine.py", "--dataset", "same.npy"], "at least 2 different items"),
        (["mine.py", "--dataset", "one.npy"], "at least 2 items"),
        (
            ["mine.py:wide", "--dataset", "data.npy"],
            "measures: expected shape (batch, 2), like the items, got shape (2, 3)",
        ),
        (
            ["mine.py:tall", "--dataset", "data.npy"],
            "Return measures in the form of the items: measures.reshape(len(measures), -1).",
        ),
        (["mine.py:words", "--dataset", "data.npy"], "evaluate: expected measures"),
        (["mine.py:none", "--dataset", "data.npy"], "function: expected 'none' in mine.py"),
        (["other.py", "--dataset", "data.npy"], "gloam new"),
        (["no.such.module", "--dataset", "data.npy"], "module: expected a module that Python"),
        (["mine.py", "--dataset", "data.npy", "--x0", "zeros:many"], "x0: expected zeros:N"),
        (["mine.py", "--dataset", "data.npy", "--x0", ""], "x0: expected a path, got ''"),
        (["mine.py", "--dataset", "data.npy", "--x0", "zeros:99999999999"], "x0: expected at most"),
        (["mine.py", "--dataset", "data.npy", "--workers", "99999"], "workers: expected a whole"),
        (["mine.py", "--dataset", ""], "dataset: expected a path, got ''"),
        (
            ["mine.py", "--dataset", "data.npy", "--items", "50"],
            "num_items: expected at most the 20 items",
        ),
    ],
)
def test_wrong_input_is_explained_before_the_search(bad_data, capsys, arguments, message):
    assert message in refused(capsys, *arguments)
    assert not (bad_data / "runs").exists()


@pytest.mark.release
def test_vectors_end_in_a_table_a_page_and_a_figure_of_lines(filled):
    folder, printed = filled
    for name in ("figures/gallery.png", "gallery.html", "matches.csv", "matches.parquet"):
        assert f"runs/x/{name}" in printed
        assert (folder / name).is_file()
    assert "Dataset(20 items of shape (2,))" in printed
    matches = Matches(RunFolder(folder).read_archive(), RunFolder(folder).read_dataset())
    for table in (pd.read_csv(folder / "matches.csv"), pd.read_parquet(folder / "matches.parquet")):
        assert table["item"].tolist() == matches.table()["item"].tolist()
        np.testing.assert_allclose(table["distance"], matches.table()["distance"], rtol=1e-5)
    page = (folder / "gallery.html").read_text()
    assert page.count("<li") == len(matches.dataset) == 20
    assert f"Explained variance of all items: {matches.explained:.1%}" in printed
    assert f"not reached: {(~matches.reached).sum()} (no solution found is nearer" in printed
    assert page.count("<img") == 2 * len(matches.dataset)  # solution and item, as lines
    assert RunFolder(folder).read_metrics()["iteration"].tolist() == [1, 2]
    assert RunFolder(folder).read_config().plan["checkpoint_every"] == 1
    main(["gallery", "runs/x", "--by", "distance"])
    assert pd.read_csv(folder / "matches.csv")["distance"].is_monotonic_increasing
    main(["gallery", "runs/x"])
    by_default = pd.read_csv(folder / "matches.csv")
    assert by_default["explained"].is_monotonic_decreasing
    assert len(by_default) == 20


def test_a_run_is_continued_by_the_same_command(filled, capsys):
    message = stopped(capsys, *fill())
    assert "Continue it with the same command and --resume" in message
    assert "resume=True" not in message
    message = stopped(capsys, "resume", "runs/x")
    assert "uses your own function or classes" in message
    assert "gloam fill ... --out runs/x --resume" in message
    run(*fill("--iterations", "3", "--resume"))
    assert RunFolder(filled[0]).read_metrics()["iteration"].max() == 3


@pytest.mark.filterwarnings("ignore:evaluation. expected at least one finite result")
def test_an_error_in_the_users_function_keeps_its_traceback(problem, capsys):
    message = stopped(
        capsys,
        *fill("--checkpoint-every", "1", "--iterations", "6", function="mine.py:breaks"),
        code=1,
    )
    assert "in breaks\n" in message
    assert "ValueError: the [simulator] broke\n" in message
    assert "site-packages" not in message
    assert "host.py" not in message
    last = message.strip().splitlines()[-1]
    assert "the run was saved in 'runs/x' after iteration 5" in last
    assert "continue it with the same command and --resume" in last


@pytest.mark.filterwarnings("default")
def test_a_warning_of_the_users_code_keeps_its_place(problem, capsys):
    (problem / "warns.py").write_text(
        "import warnings\nfrom mine import *\nwarnings.warn('mine to mend')\n"
    )
    shown = []
    with warnings.catch_warnings():
        warnings.showwarning = lambda *arguments: shown.append(arguments)
        run(*fill(function="warns.py"))
    assert [Path(arguments[2]).name for arguments in shown] == ["warns.py"]


@pytest.mark.release  # the other tests of worker processes are with the evaluators
def test_workers_find_the_function_of_a_file(filled):
    run(*fill("--workers", "1", "--timeout", "60", out="runs/workers"))
    assert_same_bits(*(RunFolder(f"runs/{name}").read_archive() for name in ("x", "workers")))


def test_a_time_limit_needs_workers(problem, capsys):
    message = refused(capsys, "mine.py", "--dataset", "data.npy", "--timeout", "5")
    assert "--timeout 5 requires --workers" in message


def test_new_does_not_overwrite(problem, capsys):
    run("new", "begin.py")
    assert "gloam fill begin.py" in capsys.readouterr().out
    assert "which exists" in stopped(capsys, "new", "begin.py")


@pytest.fixture
def pictures(problem):
    """A folder with pictures of several sizes, in gray, in color, and with transparency."""
    (problem / "pictures").mkdir()
    for number, mode in enumerate(["L", "RGB", "RGBA", "P", "1", "CMYK", "L", "RGB"]):
        picture = Image.new("L", (9 + 4 * number, 20 - number), 30 * number).convert(mode)
        picture.save(problem / "pictures" / f"{number}.{'jpg' if mode == 'CMYK' else 'png'}")
    return problem


SHAPES = pytest.mark.parametrize(
    ("options", "shape"),
    [([], "(8, 8)"), (["--size", "5", "7", "--mode", "RGB"], "(5, 7, 3)")],
)


@SHAPES
def test_pictures_are_read_as_the_function_draws_them(
    pictures, capsys, monkeypatch, options, shape
):
    def optimize(*_, **__):
        raise KeyboardInterrupt

    run("new", "begin.py", *options)
    dataset = "pictures/" if options else "digits"
    assert f"To run it: gloam fill begin.py --dataset {dataset}" in capsys.readouterr().out
    assert f"gloam fill begin.py --dataset {dataset}\n" in (pictures / "begin.py").read_text()
    monkeypatch.setattr(gloam, "optimize", optimize)
    with pytest.raises(SystemExit):
        run(*fill(function="begin.py", dataset="pictures"))
    assert f"items of shape {shape}" in capsys.readouterr().out


@pytest.mark.release
@SHAPES
def test_a_search_for_pictures_ends_in_a_gallery(pictures, capsys, options, shape):
    run("new", "begin.py", *options)
    run(*fill(function="begin.py", dataset="pictures"))
    printed = capsys.readouterr().out
    assert f"items of shape {shape}" in printed
    assert "runs/x/figures/gallery.png" in printed


def test_a_size_that_the_function_does_not_draw_is_explained(pictures, capsys):
    run("new", "begin.py")
    message = refused(capsys, "begin.py", "--dataset", "pictures", "--size", "9", "9")
    assert "measures: expected shape (batch, 9, 9) or (batch, 81)" in message
    assert "or leave out --size and --mode" in message
    message = refused(capsys, "begin.py", "--dataset", "pictures", "--mode", "RGB")
    assert "measures: expected shape (batch, 8, 8, 3) or (batch, 192)" in message


def test_datasets_are_read_by_name_and_suffix(problem):
    assert len(read_dataset("digits", (28, 28), "L")) == 1797
    np.savetxt("data.csv", np.load("data.npy"), delimiter=",")
    assert len(read_dataset("data.csv", (28, 28), "L")) == 20
    header = np.array([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2], np.uint8)
    pixels = np.arange(8, dtype=np.uint8) * 30
    (problem / "train-images-idx3-ubyte").write_bytes(header.tobytes() + pixels.tobytes())
    assert read_dataset("train-images-idx3-ubyte", (28, 28), "L").shape == (2, 2)
    np.save("my-idx.npy", np.eye(3))
    assert read_dataset("my-idx.npy", (28, 28), "L").shape == (3,)


def test_names_and_columns_of_a_file_are_chosen(problem, capsys):
    names = [f"item {row}" for row in range(20)]
    np.savez("data.npz", x=DATA, other=DATA + 1, kind=["a", "b"] * 10, title=names)
    options = {"column": ("other",), "label": "kind", "names": "title"}
    data = read_dataset("data.npz", (28, 28), "L", **options)
    np.testing.assert_array_equal(data.items, DATA + 1)
    assert (data.names, data.labels) == (names, ["a", "b"] * 10)
    shown = stopped(capsys, *fill("--names", "title"))
    assert "dataset: expected an .npz, .parquet or .csv file with --column" in shown
    chosen = ["--column", "x", "--labels", "kind", "--names", "title", "--name", "my items"]
    run(*fill(*chosen, dataset="data.npz"))
    page = Path("runs/x/gallery.html").read_text()
    assert "<b>a</b> item " in page
    assert "my items" in page


def test_settings_reach_the_algorithm(problem, monkeypatch):
    built = []

    def optimize(evaluate, algorithm, iterations, **options):
        built.append((algorithm, iterations, options))
        raise KeyboardInterrupt

    monkeypatch.setattr(gloam, "optimize", optimize)
    more = ["--within", "0.25", "--bounds", "-1", "2"]
    with pytest.raises(SystemExit):
        run(*fill("--alpha", "0.5", "--restart", "9", "--seed", "4", "--x0", "zeros:2", *more))
    ((algorithm, iterations, options),) = built
    assert iterations == 2
    assert (options["seeds"], options["progress"]) == ([4], False)
    assert algorithm.discount.alpha == 0.5
    assert algorithm.archive.within == 0.25
    bounds = algorithm.emitter.solution_bounds
    assert (bounds.lower.tolist(), bounds.upper.tolist()) == ([-1, -1], [2, 2])


# What a terminal takes for the title of its window, a bell, text from right to left, and a byte
# that is not a character.
HOSTILE = "\x1b]0;x\x07\u202e" + os.fsdecode(b"\xff")
SHOWN = r"\x1b]0;x\x07\u202e\udcff"


def assert_is_plain(text):
    assert SHOWN in text
    assert all(sign.isprintable() or sign == "\n" for sign in text)


def test_names_and_labels_of_files_are_no_commands_for_the_terminal(problem, capsys):
    labels = [HOSTILE[:-1], "b"] * 10
    np.savez(problem / "data.npz", items=DATA, labels=labels)
    out = f"runs/{HOSTILE}"
    run(*fill(dataset="data.npz", out=out))
    printed = capsys.readouterr().out
    assert_is_plain(printed)
    assert f"{SHOWN[:-6]} " in printed  # the label, in the table of labels
    for command in ("plot", "gallery", "report", "compare"):
        run(command, out)
        shown = "".join(capsys.readouterr())
        # `compare` prints Markdown, which escapes backslashes and brackets.
        assert_is_plain(re.sub(r"\\(\W)", r"\1", shown) if command == "compare" else shown)
    assert_is_plain(stopped(capsys, *fill(out=out)))
    assert_is_plain(stopped(capsys, "resume", out))
    assert_is_plain(stopped(capsys, "plot", f"{out}2"))
    (problem / out / "archive.npz").write_bytes(b"rubbish")
    assert_is_plain(stopped(capsys, "gallery", out))


@pytest.mark.filterwarnings("default")
def test_a_broken_file_with_a_hostile_name_is_told_plainly(problem, capsys):
    (problem / "pictures").mkdir()
    (problem / "pictures" / f"{HOSTILE}.png").write_bytes(b"rubbish")
    message = stopped(capsys, *fill(dataset="pictures"))
    assert_is_plain(message)


@pytest.mark.release
@pytest.mark.filterwarnings("default")
def test_a_broken_file_with_a_hostile_name_is_skipped_in_plain_words(problem, capsys):
    (problem / "pictures").mkdir()
    (problem / "pictures" / f"{HOSTILE}.png").write_bytes(b"rubbish")
    for shade in (0, 255):
        Image.new("L", (1, 2), shade).save(problem / "pictures" / f"{shade}.png")
    (problem / "draws.py").write_text(
        "import numpy as np\nx0, sigma0 = np.zeros(2), 0.3\n"
        "def evaluate(x):\n    return np.tanh(x)[:, :, None]\n"
    )
    run(*fill(function="draws.py", dataset="pictures"))
    assert_is_plain(capsys.readouterr().err)
