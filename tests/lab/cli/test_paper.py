"""`gloam bench`; `gloam paper` is tested with the study."""

import pandas as pd
import pytest

from gloam.cli import main
from gloam_lab.contenders import PEERS
from tests.cli.conftest import stopped
from tests.lab.test_speed import Missing


def bench(out):
    sizes = ["--measures", "2", "--repeats", "1", "--seconds", "0.01", "--warm-up", "3"]
    main(["bench", "--algorithms", "map-elites-line", *sizes, "--out", str(out)])


def test_bench_writes_a_table_a_csv_and_a_picture(tmp_path, capsys, monkeypatch):
    # gloam's two drivers are enough to test the command.
    monkeypatch.setitem(PEERS, "map-elites-line", (Missing,))
    bench(tmp_path)
    printed = capsys.readouterr().out
    assert "pyribs is missing" in printed
    assert "| map-elites-line | 2 | gloam fused |" in printed
    assert {path.name for path in tmp_path.iterdir()} == {"bench.md", "bench.csv", "bench.png"}
    assert len(pd.read_csv(tmp_path / "bench.csv")) == 2
    bench(tmp_path)  # its own files may be replaced


def test_bench_without_algorithms_is_refused(tmp_path, capsys):
    told = stopped(capsys, "bench", "--algorithms", "--measures", "2", "--out", tmp_path)
    assert "algorithms, measures: expected at least one of each" in told


@pytest.mark.parametrize("name", ["bench.md", "bench.csv", "bench.png"])
def test_bench_does_not_replace_files_of_others(name, tmp_path, capsys):
    (tmp_path / name).write_text("my own, 1, 2")
    assert name in stopped(capsys, "bench", "--out", tmp_path)
    assert (tmp_path / name).read_text() == "my own, 1, 2"
    assert len(list(tmp_path.iterdir())) == 1
