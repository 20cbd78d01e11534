"""Resumes with one changed ingredient: accepted with a warning, or refused with a sentence."""

import copy
import functools
import json
import linecache
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest

import gloam
from gloam.formats import checkpoints
from gloam.formats.arrays import read_arrays, write_arrays
from gloam.formats.config import RunConfig
from gloam.formats.documents import read_document, write_document
from tests import problems
from tests.helpers import assert_same_bits, refused


@pytest.fixture(scope="module")
def begun(tmp_path_factory) -> Callable[[str], Path]:
    """Runs of two iterations, on a domain that gloam builds from the file."""

    @functools.cache
    def run_of(name: str) -> Path:
        folder = tmp_path_factory.mktemp(name)
        start = gloam.optimize if name == "dds" else gloam.run
        start(problems.ARM, problems.small(name), 2, run_dir=folder, progress=False)
        return folder

    return run_of


def whole_numbers(content, path=()):
    """The places of whole numbers in the settings, except sizes of arrays that are in the file."""
    if isinstance(content, dict):
        parts = [(key, part) for key, part in content.items() if key not in ("shape", "values")]
    elif isinstance(content, list):
        parts = list(enumerate(content))
    else:
        parts = []
        if type(content) is int:
            yield path
    for key, part in parts:
        yield from whole_numbers(part, (*path, key))


def changed(content, path, value):
    if not path:
        return value
    content = copy.copy(content)
    content[path[0]] = changed(content[path[0]], path[1:], value)
    return content


def rewrite(source: Path, target: Path, content: dict, *, keep_checkpoint: bool) -> None:
    """Copy a run with other settings, sealed as someone who knows the format can do it."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    parts = {name: part for name, part in content.items() if name != "identity"}
    config = RunConfig(**parts | {"seeds": tuple(parts["seeds"])})
    write_document(target / "config.json", config.to_json(), kind="run")
    files = {target / "config.npz": "config"}
    for file in (target / "checkpoint").iterdir():
        if keep_checkpoint:
            files[file] = "checkpoint"
        else:
            file.unlink()
    for file, kind in files.items():
        arrays, about = read_arrays(file, kind=kind, fix="")
        write_arrays(file, arrays, kind=kind, about=about | {"run": config.identity})


@pytest.mark.parametrize("keep_checkpoint", [True, False])
@pytest.mark.parametrize("name", ["map-elites-line", "dms"])
def test_settings_that_ask_for_too_much_are_refused(begun, tmp_path, name, keep_checkpoint):
    """No raw error of a library, and nothing is compiled or allocated before."""
    content = read_document(begun(name) / "config.json", kind="run", fix="")
    places = [("algorithm", *place) for place in whole_numbers(content["algorithm"])]
    places += [("domain", *place) for place in whole_numbers(content["domain"])]
    places = [place for place in places if place[-1] != "max_epochs"]  # time, and not memory
    assert len(places) >= 2
    values = [(place, value) for place in places for value in (2**31 - 1, 2**31, 2**62, 10**30)]
    for place, value in [*values, (("seeds",), list(range(100_000)))]:
        hostile = changed(content, place, value)
        rewrite(begun(name), tmp_path / "run", hostile, keep_checkpoint=keep_checkpoint)
        with pytest.raises(
            ValueError, match=r"^'.*config\.json' cannot be used: .*(expected|names)"
        ):
            gloam.resume(tmp_path / "run", iterations=3, progress=False)


def test_a_saved_search_that_asks_for_too_much_is_refused(tmp_path):
    search = gloam.Search(problems.small("dms"))
    search.save(tmp_path / "a.npz")
    arrays, about = read_arrays(tmp_path / "a.npz", kind="search", fix="")
    for place in whole_numbers(about["algorithm"]):
        if place[-1] == "max_epochs":
            continue
        for value in (2**31 - 1, 10**30):
            hostile = about | {"algorithm": changed(about["algorithm"], place, value)}
            write_arrays(tmp_path / "b.npz", arrays, kind="search", about=hostile)
            with refused(f"'{tmp_path / 'b.npz'}' cannot be used: "):
                gloam.Search.load(tmp_path / "b.npz")


# Another function


def defined(text: str, folder: Path, name: str = "evaluate"):
    """A function with a source of its own, as in a user's script."""
    file = folder / "script.py"
    file.write_text(text)
    space: dict = {"__name__": "script", "np": np}
    exec(compile(text, file, "exec"), space)
    linecache.checkcache(str(file))
    return space[name]


def resumed(folder: Path, function, **options):
    algorithm = problems.small("map-elites-line")
    options = {"run_dir": folder, "resume": True, "progress": False} | options
    return gloam.optimize(function, algorithm, options.pop("iterations", 4), **options)


SOURCE = '''
def evaluate(x):
    """Objective and measures."""
    return 100 - np.square(x).sum(axis=1), x[:, :2]  # a comment
'''


def test_another_function_is_named_in_a_warning(tmp_path):
    first = defined(SOURCE, tmp_path)
    resumed(tmp_path / "run", first, iterations=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resumed(tmp_path / "run", first, iterations=3)
        reformatted = SOURCE.replace("  # a comment", "").replace("100 - np", "100  -  np")
        resumed(tmp_path / "run", defined(reformatted, tmp_path), iterations=4)
    other = defined(SOURCE.replace("100 - np", "99 - np"), tmp_path)
    with pytest.warns(UserWarning, match=r"the source of 'evaluate' \(evaluation\) is not that"):
        resumed(tmp_path / "run", other, iterations=5)
    renamed = defined(SOURCE.replace("def evaluate", "def fitness"), tmp_path, "fitness")
    with pytest.warns(UserWarning, match="evaluation is 'evaluate' in the file and 'fitness' now"):
        resumed(tmp_path / "run", renamed, iterations=6)


# Other data, seeds and versions


def test_other_seeds_and_data_are_refused(tmp_path):
    pictures = np.random.default_rng(0).random((12, 2, 3)).astype(np.float32)
    data = gloam.datasets.from_array(pictures)
    other = gloam.datasets.from_array(pictures, labels=list("abcabcabcabc"))

    def start(iterations, dataset=data, seeds=(1, 2), **options):
        algorithm = gloam.MAPElites(dataset.archive(), np.zeros(6), 0.5, batch_size=6)
        return gloam.optimize(
            lambda x: x,
            algorithm,
            iterations,
            seeds=seeds,
            dataset=dataset,
            run_dir=tmp_path,
            progress=False,
            **options,
        )

    start(1)
    for changes, what in (
        ({"seeds": (1, 3)}, "seeds is [1, 2] in the file and [1, 3] now"),
        ({"seeds": (2, 1)}, "seeds is [1, 2] in the file and [2, 1] now"),
        ({"seeds": (1,)}, "seeds is [1, 2] in the file and [1] now"),
        ({"dataset": other}, "dataset has other items, labels or names than the file says"),
        ({"asynchronous": True}, "driver is 'ask-tell' in the file and 'asynchronous' now"),
    ):
        with pytest.raises(ValueError, match="cannot be resumed with other settings") as raised:
            start(2, resume=True, **changes)
        assert what in str(raised.value)
    assert start(2, resume=True).metrics["iteration"].max() == 2


@pytest.mark.parametrize(
    ("written_by", "problem"),
    [
        ({"jax_enable_x64": "on"}, "jax_enable_x64 was on and is off. Resume the run with what"),
        ({"JAX": "0.1.2"}, f"JAX was 0.1.2 and is {jax.__version__}. Resume the run with what"),
        ({"gloam": "9.9"}, "gloam was 9.9 and is"),
        ({}, "although its settings are those of the run. Restore it from a copy"),
        (None, "although its settings are those of the run. Restore it from a copy"),
        ("odd", "although its settings are those of the run. Restore it from a copy"),
    ],
)
def test_a_checkpoint_that_does_not_fit_says_what_has_changed(begun, tmp_path, written_by, problem):
    shutil.copytree(begun("map-elites-line"), tmp_path / "run")
    (file,) = (tmp_path / "run" / "checkpoint").iterdir()
    arrays, about = read_arrays(file, kind="checkpoint", fix="")
    arrays[".store.objectives"] = arrays[".store.objectives"].astype(np.float64)
    if isinstance(written_by, dict):
        written_by = checkpoints._versions() | written_by
    write_arrays(file, arrays, kind="checkpoint", about=about | {"written_by": written_by})
    with pytest.raises(gloam.errors.DamagedFileError) as raised:
        gloam.resume(tmp_path / "run", iterations=3, progress=False)
    message = str(raised.value)
    assert "its array '.store.objectives' is float64[1, 50] instead of float32[1, 50]" in message
    assert problem in message


def test_another_version_alone_is_no_obstacle(begun, tmp_path):
    shutil.copytree(begun("map-elites-line"), tmp_path / "run")
    (file,) = (tmp_path / "run" / "checkpoint").iterdir()
    arrays, about = read_arrays(file, kind="checkpoint", fix="")
    other = {"gloam": "9.9", "JAX": "0.1", "jax_enable_x64": "on"}
    write_arrays(file, arrays, kind="checkpoint", about=about | {"written_by": other})
    found = gloam.resume(tmp_path / "run", iterations=3, progress=False)
    expected = gloam.run(problems.ARM, problems.small("map-elites-line"), 3, progress=False)
    assert_same_bits(found.elites, expected.elites)


def test_the_settings_are_json_without_surprises(begun):
    """The places that the tests above change are there."""
    content = json.loads((begun("dms") / "config.json").read_text())
    names = {place[-1] for place in whole_numbers(content["algorithm"])}
    assert {"batch_size", "num_emitters", "num_init_points", "train_batch_size"} <= names
