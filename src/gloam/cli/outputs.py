"""Checks before a command writes: a file that gloam did not write is never replaced."""

from pathlib import Path

from gloam import checks

_OF_BENCH = ("bench.md", "bench.csv", "bench.png")
_BENCH_HEADER = b"algorithm,measure_dim,contender,"
_FIX = "Choose another folder by --out, or move the file away."


def check_bench(path: Path) -> None:
    """Refuse to replace files in a folder unless they are of an earlier `gloam bench`."""
    table = path / "bench.csv"
    if table.is_file():
        with open(table, "rb") as file:
            if file.read(len(_BENCH_HEADER)) == _BENCH_HEADER:
                return
    _check_free(path, _OF_BENCH)


def write_new(path: Path, text: str) -> None:
    """Write a file that must not exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        checks.expect(False, "file", "a new name", f"'{path}', which exists")


def _check_free(path: Path, names: tuple[str, ...]) -> None:
    found = next((path / name for name in names if (path / name).exists()), None)
    expected = "a folder without files of other programs"
    checks.expect(found is None, "out", expected, f"'{found}'", _FIX)
