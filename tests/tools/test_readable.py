"""Numbers as people write them, worked by hand, and tables that are read back."""

import doctest
import io
import math
import re

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gloam._tools import readable
from gloam._tools.readable import Bold, as_latex, as_markdown, p_value, significant, with_error


@pytest.mark.parametrize(
    ("mean", "error", "text"),
    [
        (75415.4, 380.2, "75,415 ± 380"),
        (7204.3, 11.96, "7,204 ± 12"),
        (7204.36, 1.24, "7,204.4 ± 1.2"),
        (0.5, 0.0996, "0.50 ± 0.10"),  # rounded up to another first digit
        (9.96, 9.96, "10 ± 10"),
        (-18917.87, 5705.28, "-18,918 ± 5,700"),
        (0.00012345, 0.000012, "0.000123 ± 0.000012"),
        (1.23456e-8, 1.2e-10, "1.235e-8 ± 1.2e-10"),
        (0.0, 1.2e-10, "0 ± 1.2e-10"),
        (5.0, 0.0, "5 ± 0"),
        (1234.5678, math.nan, "1,234.6"),
        (math.inf, 1.0, "inf"),
    ],
)
def test_errors_have_two_digits_and_means_the_same_place(mean, error, text):
    assert with_error(mean, error) == text


@given(st.floats(1e-3, 1e6), st.floats(-1e6, 1e6))
def test_what_is_written_is_within_half_a_digit(error, mean):
    shown_mean, shown_error = (
        float(text.replace(",", "")) for text in with_error(mean, error).split(" ± ")
    )
    assert abs(shown_error - error) <= 0.0501 * error
    assert abs(shown_mean - mean) <= max(0.5, 0.0501 * error) * (1 + 1e-9)
    assert len(f"{shown_error:.9g}".replace(".", "").strip("0")) <= 2


def test_p_values_and_large_numbers():
    assert [p_value(p) for p in (1.2345e-5, 0.000123, 0.0312, 0.5, 1.0, 0.0)] == [
        "1.2e-5",
        "0.00012",
        "0.031",
        "0.50",
        "1.0",
        "0",
    ]
    assert significant(123456.0, 4) == "123,500"
    assert significant(math.nan, 2) == "nan"


NAMES = [
    "DMS",
    "my_algorithm",
    "_private_",
    "a|b",
    "50% & more",
    r"C:\x{1}",
    "x^2~y",
    "#1 $",
    "<b>",
]


def test_markdown_is_read_back():
    table = pd.DataFrame({"name": NAMES, "score | unit": range(len(NAMES))})
    notes = [Bold("best"), *["*plain*"] * (len(NAMES) - 1)]
    table["note"] = pd.Series(notes, dtype=object)  # not as pandas' own texts
    text = as_markdown(table)
    # Cells end at pipes that are not escaped; a backslash stands before a sign that is meant.
    cells = [re.split(r"(?<!\\)(?:\\\\)*\|", line)[1:-1] for line in text.splitlines()]
    plain = [[re.sub(r"\\(.)", r"\1", cell.strip()) for cell in line] for line in cells]
    head, rule, *body = plain
    assert head == list(table.columns)
    assert rule == ["---"] * 3
    assert [line[0] for line in body] == NAMES
    assert [line[1] for line in body] == [str(number) for number in range(len(NAMES))]
    assert [line[2] for line in body] == ["**best**", *["*plain*"] * (len(NAMES) - 1)]
    assert "my_algorithm" in text
    assert r"\_private\_" in text
    assert r"\*plain\*" in text
    # pandas reads a table without such names.
    simple = pd.DataFrame({"a": ["x", "y"], "b": [1, 2]})
    lines = [line.strip("| ") for line in as_markdown(simple).splitlines()]
    lines.pop(1)
    read = pd.read_csv(io.StringIO("\n".join(lines)), sep=r"\s*\|\s*", engine="python")
    pd.testing.assert_frame_equal(read, simple, check_dtype=False)


def test_latex_escapes_as_pandas_does():
    table = pd.DataFrame({"name": NAMES, "n_%": [str(n) for n in range(len(NAMES))]})
    theirs = table.to_latex(index=False, escape=True)
    ours = as_latex(table)
    # The same but for signs that pandas leaves to the encoding of the font.
    known = ours.replace(r"\textbar{}", "|").replace("$<$", "<").replace("$>$", ">")

    def plain(text):
        text = text.replace(r"\textbackslash ", r"\textbackslash{}")
        text = text.replace(r"\textasciicircum ", r"\textasciicircum{}")
        text = text.replace(r"\textasciitilde ", r"\textasciitilde{}")
        return [" ".join(line.split()) for line in text.splitlines()]

    assert plain(known) == plain(theirs)
    marked = as_latex(pd.DataFrame({"a": pd.Series([Bold("1.0 ± 0.1")], dtype=object)}))
    assert r"\textbf{1.0 $\pm$ 0.1} \\" in marked


def test_lines_do_not_break_tables():
    table = pd.DataFrame({"a": ["one\ntwo"]})
    assert len(as_markdown(table).splitlines()) == 3
    assert "one two" in as_latex(table)


def test_the_examples_hold():
    assert doctest.testmod(readable).failed == 0
