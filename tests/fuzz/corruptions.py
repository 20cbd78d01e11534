"""Corrupted run folders: every reader refuses them by name, or gives what it gave before."""

import json
import os
import shutil
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import gloam
from gloam.explorer.app import explorer_app
from gloam.explorer.library import Library
from tests.formats.conftest import small_run
from tests.formats.test_crafted import Payload, hostile_member, pickled
from tests.formats.test_damage import READERS, continued
from tests.helpers import assert_same_bits
from tests.run_folders import snapshots_of, write_grid_run

from .attack import SECRET, Attack, check_refusal
from .command_lines import called
from .damage import damaged_bytes
from .requests import ask, every_view

ITERATIONS = 4
_SEED = 0
_COLUMNS = 3000
_MEMBERS = (
    hostile_member((2**50,), "<f4"),
    hostile_member((2**32, 2**32), "<f4"),
    hostile_member((-1,), "<f4"),
    hostile_member((4,), "|O"),
    hostile_member((1,), "<U1000000000"),
    b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535,
    pickled(Payload()),
)
_NUMBERS = ("inf", "-inf", "nan", "1e400", "-1", "1.5", "99999999999999999999", "", "0", "=1+1")


class Corruptions:
    """A run folder with one or two corrupted files, read in every way.

    Args:
        work: A folder.
    """

    def __init__(self, work: Path):
        folder = work / "corruptions"
        self._root = folder / "runs"
        self._run = self._root / "run"
        self._sound, self._other = folder / "sound", folder / "other"
        self._outside = folder / "outside"
        self._whole = small_run(folder / "whole", iterations=2 * ITERATIONS)
        for path, seed in ((self._sound, _SEED), (self._other, _SEED + 1)):
            small_run(path, iterations=ITERATIONS, seeds=(seed,))
            gloam.RunFolder(path).write_failures(_failures(seed))
        write_grid_run(self._root / "neighbour")
        self._outside.write_text(SECRET)
        self._renew()
        run = gloam.RunFolder(self._run)
        self._expected = {name: read(run) for name, read in READERS.items()}
        self._snapshots = snapshots_of(run)
        self._failures = run.read_failures()
        self._names = sorted(
            str(path.relative_to(self._sound))
            for path in self._sound.rglob("*")
            if path.is_file() and path.name != ".lock"
        )

    def draw(self, rng: np.random.Generator) -> Attack:
        """Corrupt the folder, and return the way in which it is read."""
        self._renew()
        told = []
        names = rng.choice(self._names, 1 + (rng.random() < 0.2), replace=False).tolist()
        for name in ["metrics.csv"] if rng.random() < 0.2 else names:
            told.append(f"{name} {self._corrupt(name, rng)}")
        ways = (self._read, self._resume, self._explore, self._plot, self._report, self._compare)
        ways += (self._gallery, self._read, self._explore)
        way = ways[rng.integers(len(ways))]
        return Attack(f"{', '.join(told)}: {way.__name__.strip('_')}", way)

    def _renew(self) -> None:
        shutil.rmtree(self._run, ignore_errors=True)
        shutil.copytree(self._sound, self._run)

    # Corruptions

    def _corrupt(self, name: str, rng: np.random.Generator) -> str:
        path, source = self._run / name, self._sound / name
        if name == "metrics.csv" and rng.random() < 0.7:
            how, content = _other_rows(source.read_bytes(), rng)
            path.write_bytes(content)
            return how
        way = rng.integers(14)
        if way < 5 or (way == 5 and not name.endswith(".npz")):
            how, content = damaged_bytes(source.read_bytes(), rng)
            path.write_bytes(content)
            return how
        _remove(path)
        match way:
            case 5:
                member = int(rng.integers(len(_MEMBERS)))
                with zipfile.ZipFile(path, "w") as archive:
                    archive.writestr("gloam.npy", _MEMBERS[member])
                return f"with the hostile member {member}"
            case 6:
                path.mkdir()
                if rng.random() < 0.5:
                    (path / "x").write_text("x")
                return "a folder"
            case 7:
                path.symlink_to(self._outside)
                return "a link to a file outside"
            case 8:
                path.symlink_to(source)
                return "a link to the same content outside"
            case 9:
                target = str(rng.choice(["/dev/zero", "/proc/self/mem", path.name, "nowhere"]))
                path.symlink_to(target)
                return f"a link to {target}"
            case 10:
                os.mkfifo(path)
                return "a pipe"
            case 11:
                shutil.copy(self._other / name, path)
                return "of another run"
            case 12:
                others = [other for other in self._names if other != name]
                other = str(rng.choice(others))
                shutil.copy(self._sound / other, path)
                return f"replaced by {other}"
            case _:
                if rng.random() < 0.5:
                    path.touch()
                    return "empty"
                return "gone"

    # Readers

    def _read(self) -> None:
        run = gloam.RunFolder(self._run)
        for name, read in READERS.items():
            if name.startswith("checkpoint"):  # its reader removes the archive
                continue
            if name.startswith("snapshots"):  # one that is gone is not missed
                continue
            self._check(lambda read=read: read(run), self._expected[name])
        for at in run.snapshot_iterations:
            expected = self._snapshots[at]
            shots = _outcome(lambda at=at: run.read_snapshot(at), self._run)
            if shots is not None:
                assert_same_bits(shots, expected)
        self._check(run.check_number_of_seeds, None)
        self._check(lambda: [run.read_checkpoint_iteration()], [ITERATIONS])
        self._check_metrics(run.read_metrics)
        failures = _outcome(run.read_failures, self._run)
        if failures is not None and len(failures):
            pd.testing.assert_frame_equal(failures, self._failures)
        _remove(self._run / "archive.npz")  # the elites are then those of the checkpoint
        name = f"checkpoint/{ITERATIONS:07}.npz"
        self._check(lambda: READERS[name](run), self._expected[name])

    def _check(self, read: Callable[[], Any], expected: Any) -> None:
        value = _outcome(read, self._run)
        if value is not None and expected is not None:
            for got, want in zip(value, expected, strict=True):
                assert np.array_equal(got, want), "other numbers"

    def _check_metrics(self, read: Callable[[], pd.DataFrame]) -> None:
        """Digits may have changed, but rows belong to the run."""
        table = _outcome(read, self._run)
        config = _outcome(gloam.RunFolder(self._run).read_config, self._run)
        if table is None or not len(table) or config is None:  # nothing to compare rows with
            return
        assert set(table["seed"]) == {_SEED}, f"rows of the seeds {set(table['seed'])}"
        assert table["iteration"].is_unique, "repeated iterations"
        assert table["iteration"].between(1, ITERATIONS).all(), "rows of other iterations"

    def _resume(self) -> None:
        before = _contents(self._run)
        try:
            resumed, told = continued(self._run)
        except Exception as error:
            check_refusal(error, naming=self._run)
            assert _contents(self._run) == before, "a refused resume changed files"
            return
        assert all(str(self._run) in message for message in told), told
        assert_same_bits(resumed.elites, self._whole.elites)
        self._check_resumed(resumed.metrics)

    def _check_resumed(self, table: pd.DataFrame) -> None:
        assert set(table["seed"]) == {_SEED}, f"rows of the seeds {set(table['seed'])}"
        new, whole = (t[t["iteration"] > ITERATIONS] for t in (table, self._whole.metrics))
        columns = whole.columns.drop("seconds")
        pd.testing.assert_frame_equal(
            new[columns].reset_index(drop=True),
            whole[columns].reset_index(drop=True),
            check_dtype=False,
        )

    def _explore(self) -> None:
        app = explorer_app(Library(self._root))
        answer = ask(app, "api/folder").check()
        assert answer.status == 200, answer.content
        runs = {run["name"]: run for run in json.loads(answer.content)["runs"]}
        assert runs["neighbour"]["state"] == "finished", runs["neighbour"]
        if "run" not in runs:  # without a config.json
            return
        for path in every_view(runs["run"]["id"]):
            ask(app, path).check()
        both = f"{runs['run']['id']};{runs['neighbour']['id']}"
        ask(app, f"api/compare?groups={both}").check()

    def _plot(self) -> None:
        self._command("plot", self._run)

    def _report(self) -> None:
        self._command("report", self._run)

    def _compare(self) -> None:
        self._command("compare", self._run, self._other)

    def _gallery(self) -> None:
        self._command("gallery", self._run)

    def _command(self, *arguments: Any) -> None:
        code, out, err = called([str(argument) for argument in arguments])
        assert code in (0, 2), f"exit code {code}: {err}"
        assert SECRET not in out + err
        is_named = str(self._run) in err or "runs['run']" in err or "at least one row" in err
        assert code == 0 or is_named, f"the message does not name the file: {err}"


def _outcome(read: Callable[[], Any], folder: Path) -> Any:
    """What a reader gives, or ``None`` if it refuses the folder by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            return read()
        except Exception as error:
            check_refusal(error, naming=folder)
            return None


def _contents(folder: Path) -> dict[str, Any]:
    """The files of a folder; of what is no file, its kind."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        if path.is_file() and not path.is_symlink()
        else path.lstat().st_mode
        for path in folder.rglob("*")
        if path.name != ".lock"
    }


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _failures(seed: int) -> pd.DataFrame:
    rows = [
        {
            "seed": seed,
            "iteration": at,
            "row": at,
            "kind": "exception",
            "error": "ValueError('x')",
            "traceback": "Traceback",
            "solution": np.full(3, at, np.float32),
        }
        for at in (1, 2)
    ]
    return pd.DataFrame(rows)


def _other_rows(content: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    """Rows of metrics that do not fit the run."""
    header, *rows = content.decode().splitlines()
    names = header.split(",")
    at = int(rng.integers(len(rows)))
    match rng.integers(9):
        case 0:
            rows.insert(at, rows[at])
            how = "with a row twice"
        case 1:
            cells, number = rows[at].split(","), str(rng.choice(_NUMBERS))
            place = int(rng.integers(3)) if rng.random() < 0.7 else int(rng.integers(len(names)))
            cells[place] = number
            rows[at] = ",".join(cells)
            how = f"with {names[place]} {number!r}"
        case 2:
            rows += [",".join([str(rng.integers(9)), *rows[at].split(",")[1:]])]
            how = "with a row of another seed"
        case 3:
            count = int(rng.choice([10, 1000, _COLUMNS]))
            header = ",".join([*names, *(f"x{n}" for n in range(count))])
            rows = [row + ",1" * count for row in rows]
            how = f"with {count} more columns"
        case 4:
            place = int(rng.integers(len(names)))
            header = ",".join(names[:place] + names[place + 1 :])
            rows = [",".join(p for n, p in enumerate(row.split(",")) if n != place) for row in rows]
            how = f"without {names[place]}"
        case 5:
            place = int(rng.integers(len(names)))
            names[place] = str(rng.choice([names[0], "", "x" * 70_000, "\033[31m", "seed", "a b"]))
            header = ",".join(names)
            how = f"with the column {names[place][:20]!r}"
        case 6:
            rows = rows * int(rng.choice([2, 2000]))
            how = f"with {len(rows)} rows"
        case 7:
            rows.insert(at, "\0" * int(rng.choice([1, 100_000])))
            how = "with zero bytes"
        case _:
            rows = rows[::-1]
            how = "in another order"
    return how, "\n".join([header, *rows, ""]).encode()
