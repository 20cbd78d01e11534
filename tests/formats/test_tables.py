"""Metrics as CSV that pandas reads, and the table of failed evaluations."""

import json
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gloam
from gloam.formats import tables
from gloam.formats.config import RunConfig
from gloam.formats.documents import FORMAT
from gloam.formats.tables import MetricsFile, read_failures, write_failures

from .conftest import damaged

ROWS = [
    {"seed": at % 2, "iteration": at // 2, "qd_score": at / 3, "loss": math.nan} for at in range(12)
]
NUMBERS = st.floats(width=32) | st.floats() | st.integers(-(2**63), 2**63 - 1)


@given(seed=st.integers(0, 2**64 - 1), values=st.lists(NUMBERS, min_size=1, max_size=4))
def test_numbers_round_trip_exactly(seed, values, tmp_path_factory):
    folder = tmp_path_factory.mktemp("numbers")
    rows = [{"seed": seed, "iteration": at, "value": value} for at, value in enumerate(values)]
    MetricsFile(folder).append(rows, sync=False)
    table, error = MetricsFile(folder).read()
    assert error is None
    pd.testing.assert_frame_equal(table, pd.DataFrame(rows), check_exact=True)


def test_pandas_reads_the_file(tmp_path):
    bests = 3 * [math.inf, -math.inf, 1e-30, 7.0]
    rows = [row | {"best": best} for row, best in zip(ROWS, bests, strict=True)]
    MetricsFile(tmp_path).append(rows, sync=False)
    table, _ = MetricsFile(tmp_path).read()
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "metrics.csv"), table)


def test_numpy_numbers_are_written_as_their_values(tmp_path):
    row = {"seed": np.uint64(2**64 - 1), "iteration": np.int32(3), "loss": np.float32(0.1)}
    MetricsFile(tmp_path).append([row | {"flag": True}], sync=True)
    (found,) = MetricsFile(tmp_path).read()[0].to_dict("records")
    assert found == {"seed": 2**64 - 1, "iteration": 3, "loss": float(np.float32(0.1)), "flag": 1}


@pytest.mark.parametrize("value", ["1", None, [1.0], 1j])
def test_other_values_and_names_are_refused(tmp_path, value):
    metrics = MetricsFile(tmp_path)
    with pytest.raises(ValueError, match=r"metrics:.*numbers"):
        metrics.append([ROWS[0] | {"loss": value}], sync=False)
    for name in ("", "a,b", 'a"b', "a\nb"):
        with pytest.raises(ValueError, match=r"metric:.*commas"):
            metrics.append([ROWS[0] | {name: 1.0}], sync=False)
    assert metrics.read()[0].empty


def test_rows_are_appended_and_a_new_column_is_empty_before(tmp_path):
    metrics, path = MetricsFile(tmp_path), tmp_path / "metrics.csv"
    for at in range(0, 12, 2):
        before = path.read_bytes() if at else b""
        metrics.append(ROWS[at : at + 2], sync=False)
        assert path.read_bytes().startswith(before)
        assert len(path.read_bytes()) < len(before) + 200
    pd.testing.assert_frame_equal(metrics.read()[0], pd.DataFrame(ROWS))
    metrics.append([{"seed": 0, "iteration": 9, "qd_score": 1.0, "restarts": 4}], sync=True)
    table, _ = metrics.read()
    assert list(table.columns) == [*ROWS[0], "restarts"]
    pd.testing.assert_frame_equal(table[:12].drop(columns="restarts"), pd.DataFrame(ROWS))
    assert table["restarts"].isna()[:12].all()
    assert table["restarts"].iloc[12] == 4
    assert math.isnan(table["loss"].iloc[12])


def test_an_incomplete_last_line_is_ignored_and_dropped_by_a_resume(tmp_path):
    metrics, path = MetricsFile(tmp_path), tmp_path / "metrics.csv"
    metrics.append(ROWS, sync=True)
    whole = path.read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for end in range(last, len(whole)):
        path.write_bytes(whole[:end])
        table, error = MetricsFile(tmp_path).read()
        pd.testing.assert_frame_equal(table, pd.DataFrame(ROWS[:-1]))
        assert error is None
    assert metrics.drop_after(4) == (10, None)
    assert path.read_bytes() == b"".join(whole.splitlines(keepends=True)[:11])
    for end in range(whole.find(b"\n")):  # killed within the header
        path.write_bytes(whole[:end])
        assert metrics.drop_after(4) == (0, None)
        assert not path.exists()


HEADER = b"seed,iteration,loss\n"
INVALID = {
    "text": b"0,1,hello\n",
    "code": b"0,1,__import__('os')\n",
    "too few numbers": b"0,1\n",
    "too many numbers": b"0,1,2,3\n",
    "quotes": b'0,1,"2"\n',
    "an empty line": b"\n",
    "a long line": b"0,1," + b"1" * (1 << 16) + b"\n",
    "bytes": b"\xff\x00,1,2\n",
    "a space": b"0,1, 2\n",
    "another header": HEADER,
}


@pytest.mark.parametrize("line", INVALID.values(), ids=INVALID)
def test_lines_that_are_not_numbers_are_counted_and_left_out(tmp_path, line):
    (tmp_path / "metrics.csv").write_bytes(HEADER + b"0,1,2.5\n" + line + b"0,2,inf\n")
    table, error = MetricsFile(tmp_path).read()
    assert table["iteration"].tolist() == [1, 2]
    assert "of its lines cannot be read or do not fit the run. Resume" in str(error)
    with pytest.raises(gloam.errors.DamagedFileError, match=r"metrics\.csv' cannot be used"):
        gloam.RunFolder(tmp_path).read_metrics()
    num_rows, again = MetricsFile(tmp_path).drop_after(2)
    assert (num_rows, str(again)) == (len(table), str(error))
    pd.testing.assert_frame_equal(gloam.RunFolder(tmp_path).read_metrics(), table)


@pytest.mark.parametrize(
    "header", [b"a,b\n", b"seed,iteration,\n", b"seed,iteration,seed\n", b"\xff\n"]
)
def test_a_file_with_another_header_is_refused(tmp_path, header):
    path = tmp_path / "metrics.csv"
    path.write_bytes(header + b"1,2,3\n")
    metrics = MetricsFile(tmp_path)
    for _ in range(2):
        table, error = metrics.read()
        assert table.empty
        assert "does not begin with the names of its columns" in str(error)
        path.write_bytes(path.read_bytes() + HEADER)
    with pytest.raises(gloam.errors.DamagedFileError, match=r"metrics\.csv.*columns"):
        metrics.append(ROWS, sync=False)


def test_a_file_beyond_the_limit_is_not_read(tmp_path, monkeypatch):
    MetricsFile(tmp_path).append(ROWS, sync=False)
    monkeypatch.setattr(tables, "_MAX_METRICS_BYTES", 1 << 8)
    assert "larger than" in str(MetricsFile(tmp_path).read()[1])


def test_numbers_that_no_type_holds_become_floats(tmp_path):
    (tmp_path / "metrics.csv").write_bytes(HEADER + b"0,1," + b"9" * 5000 + b"\n0,2,1e999\n0,3,\n")
    table, error = MetricsFile(tmp_path).read()
    assert error is None
    assert table["loss"].tolist()[:2] == [math.inf, math.inf]
    assert [dtype.kind for dtype in table.dtypes] == ["i", "i", "f"]


def run_of(seeds, iterations):
    """The configuration of a run, of which only seeds and plan matter."""
    return RunConfig(None, None, "fused", tuple(seeds), None, {"iterations": iterations})


UNFIT = {
    "an infinite iteration": b"3,inf,9,1\n",
    "an iteration beyond all numbers": b"3,1e400,9,1\n",
    "no iteration": b"3,nan,9,1\n",
    "an iteration with a fraction": b"3,1.5,9,1\n",
    "a negative iteration": b"3,-1,9,1\n",
    "an iteration that was not planned": b"3,5,90,1\n",
    "no seed": b"nan,2,9,1\n",
    "a seed of another run": b"4,2,9,1\n",
    "the beginning of a seed": b"1844674407370955161,2,9,1\n",
    "a row that occurs twice": b"3,1,9,1\n",
    "fewer evaluations than iterations": b"3,2,1,1\n",
    "evaluations with a fraction": b"3,2,9.5,1\n",
}


@pytest.mark.parametrize("line", UNFIT.values(), ids=UNFIT)
@pytest.mark.parametrize("first", [False, True])
def test_rows_that_do_not_fit_the_run_are_counted_and_left_out(tmp_path, line, first):
    largest = 2**64 - 1
    rows = [b"3,1,9,1\n", f"{largest},1,9,1\n".encode(), b"3,4,36,inf\n"]
    if first and line != rows[0]:
        rows.insert(0, line)
    else:
        rows.insert(2, line)
    path = tmp_path / "metrics.csv"
    path.write_bytes(b"seed,iteration,evaluations,loss\n")
    metrics = MetricsFile(tmp_path, lambda: run_of([3, largest], 4))
    for row in rows:  # a page follows the file while it grows
        path.write_bytes(path.read_bytes() + row)
        metrics.read()
    whole = MetricsFile(tmp_path, lambda: run_of([3, largest], 4)).read()
    for table, error in (metrics.read(), whole):
        assert table["seed"].tolist() == [3, largest, 3]
        assert table["iteration"].tolist() == [1, 1, 4]
        assert "1 of its lines" in str(error)
    assert metrics.drop_after(4)[0] == 3
    assert metrics.read()[1] is None


def test_a_column_that_was_lost_before_a_resume_is_nan_and_fits(tmp_path):
    rows = b"3,1,nan,1\n3,2,18,1\n"
    (tmp_path / "metrics.csv").write_bytes(b"seed,iteration,evaluations,loss\n" + rows)
    table, error = MetricsFile(tmp_path, lambda: run_of([3], 4)).read()
    assert error is None
    assert table["iteration"].tolist() == [1, 2]


def test_rows_up_to_the_checkpoint_fit_a_smaller_plan(tmp_path):
    (tmp_path / "metrics.csv").write_bytes(HEADER + b"3,9,1\n3,10,1\n")
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "0000009.npz").touch()
    table, error = MetricsFile(tmp_path, lambda: run_of([3], 4)).read()
    assert table["iteration"].tolist() == [9]
    assert "1 of its lines cannot be read or do not fit the run" in str(error)


def test_a_file_of_many_columns_is_refused(tmp_path):
    names = ",".join(["seed", "iteration", *map(str, range(5000))])
    (tmp_path / "metrics.csv").write_text(f"{names}\n")
    table, error = MetricsFile(tmp_path).read()
    assert table.empty
    assert "5,002 columns" in str(error)


STEPS = st.lists(st.sampled_from(["append", "part", "drop", "cut", "damage"]), max_size=8)


@given(steps=STEPS, data=st.data())
def test_following_a_file_gives_the_same_rows_as_reading_it(steps, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tail")
    followed, path, rows = MetricsFile(folder), folder / "metrics.csv", iter(ROWS)
    for step in steps:
        content = path.read_bytes() if path.is_file() else b""
        if step == "append" and content[-1:] in (b"", b"\n"):
            MetricsFile(folder).append(
                [row for row, _ in zip(rows, "ab", strict=False)], sync=False
            )
        elif step == "part" and content:  # a line that is being written
            path.write_bytes(content + b"0,1")
        elif step == "drop":
            MetricsFile(folder).drop_after(data.draw(st.integers(0, 6)))
        elif step == "cut" and content:
            path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
        elif step == "damage" and content:
            path.write_bytes(content.replace(b".", b"?", 1))
        found, error = followed.read()
        whole, expected = MetricsFile(folder).read()
        pd.testing.assert_frame_equal(found, whole)
        assert str(error) == str(expected)
        assert followed.read()[0] is found


def test_following_a_file_reads_only_what_is_new(tmp_path, monkeypatch):
    followed, parsed = MetricsFile(tmp_path), []
    followed.append(ROWS[:8], sync=False)
    followed.read()

    def remember(lines, names, real=tables._parsed):
        parsed.extend(lines)
        return real(lines, names)

    monkeypatch.setattr(tables, "_parsed", remember)
    followed.append(ROWS[8:], sync=False)
    assert len(followed.read()[0]) == 12
    assert len(parsed) == 4


FAILURES = pd.DataFrame(
    {
        "seed": [2**64 - 1, 1],
        "iteration": [3, 4],
        "row": [0, 7],
        "kind": ["exception", "timeout"],
        "error": ["ValueError: é", ""],
        "traceback": ["line 1\nline 2", ""],
        "solution": [np.array([1.5, np.nan], np.float32), np.zeros(0, np.float32)],
    }
)


def test_failures_round_trip(tmp_path):
    assert read_failures(tmp_path, run="a").empty
    for table in (FAILURES, pd.DataFrame()):
        write_failures(tmp_path, table, run="a")
        found = read_failures(tmp_path, run="a")
        assert list(found.columns) == list(FAILURES.columns)
        assert len(found) == len(table)
        for name in table.columns:
            for one, other in zip(found[name], table[name], strict=True):
                np.testing.assert_array_equal(one, other)
    with pytest.raises(gloam.errors.DamagedFileError, match="another run"):
        read_failures(tmp_path, run="b")


def test_damaged_failures_are_refused_or_read_as_they_were(tmp_path):
    write_failures(tmp_path, FAILURES, run="a")
    path, rng = tmp_path / "failures.parquet", np.random.default_rng(0)
    whole, refused = path.read_bytes(), 0
    for _ in range(150):
        path.write_bytes(damaged(whole, rng))
        try:
            found = read_failures(tmp_path, run="a")
        except gloam.errors.DamagedFileError:
            refused += 1
        else:
            assert found.astype(str).equals(FAILURES.astype(str))
    assert refused > 75


def crafted_failures(*, columns=None, num_rows=1, number=FORMAT):
    """A table of failures with a manifest, as someone who knows the format can write it."""
    schema = tables._failures_schema()
    types = dict(zip(schema.names, schema.types, strict=True)) | (columns or {})
    fields = [pa.field(name, kind, nullable=False) for name, kind in types.items()]
    metadata = {b"gloam": json.dumps({"format": number, "run": "a"}).encode()}
    empty = {pa.string(): "", schema.field("solution").type: []}
    values = {name: [empty.get(kind, 0)] * num_rows for name, kind in types.items()}
    return pa.table(values, pa.schema(fields, metadata))


CRAFTED = {
    "too many rows": ({"num_rows": 10_001}, "it declares 10,001 rows, more than 10,000"),
    "a text as seed": ({"columns": {"seed": pa.string()}}, "it has other columns"),
    "another column": ({"columns": {"code": pa.string()}}, "it has other columns"),
    "an older format": ({"number": 1}, f"reads format {FORMAT}; an older version of gloam"),
}


@pytest.mark.parametrize(("changes", "problem"), CRAFTED.values(), ids=CRAFTED)
def test_crafted_failures_are_refused_before_they_are_read(tmp_path, monkeypatch, changes, problem):
    pq.write_table(crafted_failures(**changes), tmp_path / "failures.parquet")
    monkeypatch.setattr(pq.ParquetFile, "read", lambda file: pytest.fail("it was read"))
    with pytest.raises(gloam.errors.DamagedFileError, match=problem):
        read_failures(tmp_path, run="a")
