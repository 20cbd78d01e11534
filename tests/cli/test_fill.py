"""Filling a dataset from the command line: bad input is told before any search."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from gloam import RunFolder
from gloam.cli import fill, main
from gloam.cli.fill import read_dataset
from gloam.datasets import Matches
from gloam.runs import Interrupted


@pytest.fixture
def problem(tmp_path, monkeypatch):
    """A folder with a function of two numbers, and data of two numbers."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "import numpy as np\nx0 = np.zeros(2)\nsigma0 = 0.3\n"
        "def evaluate(x):\n    return np.tanh(x)\n"
        "def wide(x):\n    return np.zeros((len(x), 3))\n"
        "def tall(x):\n    return np.zeros((len(x), 2, 1))\n"
        "def words(x):\n    return 'far'\n"
    )
    random = np.random.default_rng(0)
    np.save(tmp_path / "data.npy", random.uniform(-1, 1, (20, 2)).astype(np.float32))
    np.savez(tmp_path / "bad.npz", items=np.array([[0.0, np.nan], [1.0, 1.0]]))
    np.save(tmp_path / "same.npy", np.ones((5, 2)))
    np.save(tmp_path / "one.npy", np.ones((1, 2)))
    (tmp_path / "photo.JPG").write_bytes(b"")
    return tmp_path


def refused(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main(["fill", *arguments, "--iterations", "2", "--quiet"])
    assert stopped.value.code == 2
    return " ".join(capsys.readouterr().err.split())


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
        (["mine.py", "--dataset", "bad.npz"], "items: expected finite numbers"),
        (["mine.py", "--dataset", "same.npy"], "at least 2 different items"),
        (["mine.py", "--dataset", "one.npy"], "at least 2 items"),
        (
            ["mine.py:wide", "--dataset", "data.npy"],
            "measures: expected shape (batch, 2), as the items have, got shape (2, 3)",
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
        (
            ["mine.py", "--dataset", "data.npy", "--items", "50"],
            "num_items: expected at most the 20 items",
        ),
    ],
)
def test_wrong_input_is_explained_before_the_search(problem, capsys, arguments, message):
    assert message in refused(capsys, *arguments)
    assert not (problem / "runs").exists()


def test_vectors_without_pictures_end_in_a_table_and_a_page(problem, capsys):
    main(
        [
            "fill",
            "mine.py",
            "--dataset",
            "data.npy",
            "--iterations",
            "2",
            "--quiet",
            "--checkpoint-every",
            "1",
            "--checkpoint-seconds",
            "5",
            "--log-every",
            "1",
            "--out",
            "runs/v",
        ]
    )
    printed = capsys.readouterr().out
    folder = problem / "runs" / "v"
    for name in ("gallery.html", "matches.csv", "matches.parquet"):
        assert f"runs/v/{name}" in printed
    assert not (folder / "figures").exists()
    matches = Matches(RunFolder(folder).read_archive(), RunFolder(folder).read_dataset())
    for table in (pd.read_csv(folder / "matches.csv"), pd.read_parquet(folder / "matches.parquet")):
        assert table["item"].tolist() == matches.table()["item"].tolist()
        np.testing.assert_allclose(table["distance"], matches.table()["distance"], rtol=1e-5)
    page = (folder / "gallery.html").read_text()
    assert page.count("<li>") == len(matches.elites)
    assert "<img" not in page
    assert RunFolder(folder).read_metrics()["iteration"].tolist() == [1, 2]
    assert RunFolder(folder).read_config().plan["checkpoint_every"] == 1
    capsys.readouterr()
    main(["gallery", "runs/v", "--by", "distance"])
    assert pd.read_csv(folder / "matches.csv")["distance"].is_monotonic_increasing


def test_workers_find_the_function_of_a_file(problem, capsys):
    options = ["--dataset", "data.npy", "--iterations", "2", "--quiet", "--batch-size", "6"]
    main(["fill", "mine.py", *options, "--out", "runs/one"])
    main(["fill", "mine.py", *options, "--out", "runs/two", "--workers", "1", "--timeout", "60"])
    one, two = (RunFolder(f"runs/{name}").read_archive() for name in ("one", "two"))
    np.testing.assert_array_equal(one.objectives, two.objectives)
    np.testing.assert_array_equal(one.solutions, two.solutions)
    assert "only a process can be ended" in refused(
        capsys, "mine.py", "--dataset", "data.npy", "--timeout", "5", "--out", "runs/three"
    )


def test_new_does_not_overwrite(problem, capsys):
    main(["new", "begin.py"])
    assert "gloam fill begin.py" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["new", "begin.py"])
    assert "which exists" in capsys.readouterr().err


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    """A folder with pictures of several sizes, in grey, in colour, and with transparency."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pictures").mkdir()
    for number, mode in enumerate(["L", "RGB", "RGBA", "P", "1", "CMYK", "L", "RGB"]):
        picture = Image.new("L", (9 + 4 * number, 20 - number), 30 * number).convert(mode)
        picture.save(tmp_path / "pictures" / f"{number}.{'jpg' if mode == 'CMYK' else 'png'}")
    return tmp_path


@pytest.mark.parametrize(
    ("options", "shape"), [([], "(8, 8)"), (["--size", "5", "7", "--mode", "RGB"], "(5, 7, 3)")]
)
def test_pictures_are_read_as_the_function_draws_them(pictures, capsys, options, shape):
    main(["new", "begin.py", *options])
    dataset = "pictures/" if options else "digits"
    assert f"To run it: gloam fill begin.py --dataset {dataset}" in capsys.readouterr().out
    assert f"gloam fill begin.py --dataset {dataset}\n" in (pictures / "begin.py").read_text()
    main(["fill", "begin.py", "--dataset", "pictures", "--iterations", "2", "--quiet"])
    printed = capsys.readouterr().out
    assert f"items of shape {shape}" in printed
    assert "runs/fill/figures/gallery.png" in printed


def test_a_size_that_the_function_does_not_draw_is_explained(pictures, capsys):
    main(["new", "begin.py"])
    message = refused(capsys, "begin.py", "--dataset", "pictures", "--size", "9", "9")
    assert "measures: expected shape (batch, 9, 9) or (batch, 81)" in message
    assert "or leave out --size and --mode" in message
    message = refused(capsys, "begin.py", "--dataset", "pictures", "--mode", "RGB")
    assert "measures: expected shape (batch, 8, 8, 3) or (batch, 192)" in message


def test_a_table_is_a_dataset(problem, capsys):
    np.savetxt("data.csv", np.load("data.npy"), delimiter=",")
    main(["fill", "mine.py", "--dataset", "data.csv", "--iterations", "2", "--quiet"])
    assert "Dataset(20 items of shape (2,))" in capsys.readouterr().out


def test_the_digits_are_a_dataset_by_name():
    assert len(read_dataset("digits", (28, 28), "L")) == 1797


def test_ctrl_c_says_how_to_go_on(problem, capsys, monkeypatch):
    def stopped(*arguments, run_dir, **options):
        raise Interrupted(run_dir, 7)

    monkeypatch.setattr(fill, "optimize", stopped)
    with pytest.raises(SystemExit) as ended:
        main(["fill", "mine.py", "--dataset", "data.npy", "--quiet"])
    assert ended.value.code == 130
    told = " ".join(capsys.readouterr().err.split())
    # `gloam resume` could not know the function.
    assert told == "stopped after iteration 7; continue with the same command and --resume"


def test_files_of_mnist_are_known_by_their_names(problem):
    header = np.array([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2], np.uint8)
    pixels = np.arange(8, dtype=np.uint8) * 30
    (problem / "train-images-idx3-ubyte").write_bytes(header.tobytes() + pixels.tobytes())
    assert read_dataset("train-images-idx3-ubyte", (28, 28), "L").shape == (2, 2)
    np.save("my-idx.npy", np.eye(3))
    assert read_dataset("my-idx.npy", (28, 28), "L").shape == (3,)
