import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gloam._tools import checks
from gloam.errors import EvaluationError
from gloam.evaluation import evaluation_parts
from gloam.evaluators.results import check_some_valid


def refused(message: str):
    """A ValueError with exactly this wording."""
    return pytest.raises(ValueError, match=f"^{re.escape(message)}$")


def test_expect_says_what_was_expected_what_came_and_what_to_do():
    checks.expect(True, "sigma0", "a number > 0", 1)
    with refused("sigma0: expected a number > 0, got -1."):
        checks.expect(False, "sigma0", "a number > 0", -1)
    with refused("sigma0: expected a number > 0, got -1. Try 0.5."):
        checks.expect(False, "sigma0", "a number > 0", -1, "Try 0.5.")


@pytest.mark.parametrize("value", [2, 7, np.int64(3), np.uint8(5)])
def test_integers_pass(value):
    checked = checks.integer("cells", value, minimum=2)
    assert checked == value
    assert type(checked) is int


@pytest.mark.parametrize("value", [1, -4, 2.0, "3", None, True, np.float32(3), float("nan")])
def test_other_integers_are_refused(value):
    with refused(f"cells: expected a whole number >= 2, got {value!r}. Ask for more."):
        checks.integer("cells", value, minimum=2, fix="Ask for more.")


@pytest.mark.parametrize("value", [0.5, 1, np.float32(0.25), np.int32(1)])
def test_numbers_pass(value):
    checked = checks.number("alpha", value, at_least=0, at_most=1)
    assert checked == value
    assert type(checked) is float


@pytest.mark.parametrize(
    ("limits", "expected", "bad", "good"),
    [
        ({}, "a finite number", [np.inf, -np.inf, np.nan, "1", None, True, [1.0]], [-1e9, 0, 1e9]),
        ({"above": 0.0}, "a finite number > 0", [0, -1.0, np.inf], [1e-9]),
        ({"at_least": 0.0}, "a finite number >= 0", [-1e-9, np.nan], [0]),
        ({"at_most": 1.0}, "a finite number <= 1", [1.5], [1, -5]),
        ({"above": 0.0, "at_most": 1.0}, "a finite number > 0 and <= 1", [0, 2], [1]),
        ({"at_least": 0.5, "at_most": 1.0}, "a finite number >= 0.5 and <= 1", [0.4], [0.5]),
    ],
)
def test_number_names_its_limits(limits, expected, bad, good):
    for value in good:
        assert checks.number("alpha", value, **limits) == value
    for value in bad:
        with refused(f"alpha: expected {expected}, got {value!r}."):
            checks.number("alpha", value, **limits)


def test_finite_arrays_become_float32():
    array = checks.finite_array("x0", [[1, 2.5]], ndim=2)
    assert array.dtype == np.float32
    assert array.tolist() == [[1, 2.5]]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1.0], "expected an array of 2 axes, got shape (1,)."),
        (3.0, "expected an array of 2 axes, got shape ()."),
        (np.zeros((0, 3)), "expected at least one number, got shape (0, 3)."),
        (
            [[1.0, np.nan], [np.inf, 0.0]],
            "expected finite numbers, got 2 that are NaN or infinite.",
        ),
    ],
)
def test_other_arrays_are_refused(value, message):
    with refused(f"x0: {message} Give rows."):
        checks.finite_array("x0", value, ndim=2, fix="Give rows.")


@pytest.mark.parametrize(
    ("value", "kind"), [("abc", "str"), ([[1.0], [1.0, 2.0]], "list"), (object(), "object")]
)
def test_what_is_no_array_of_numbers_is_refused(value, kind):
    message = rf"^x0: expected an array of numbers, got {kind} \(.+\)\. Give rows\.$"
    with pytest.raises(ValueError, match=message):
        checks.finite_array("x0", value, ndim=2, fix="Give rows.")


def test_a_refused_array_without_a_fix_ends_with_its_sentence():
    with pytest.raises(ValueError, match=r"got str \(.+\)\.$"):
        checks.finite_array("x0", "abc", ndim=1)


def test_a_number_too_large_for_float32_is_not_finite():
    with refused("x0: expected finite numbers, got 1 that are NaN or infinite."):
        checks.finite_array("x0", [1e300, 0.0], ndim=1)


def test_bounds_are_vectors():
    lower, upper = checks.bounds(-1, [1, 2, 3], 3)
    assert lower.tolist() == [-1, -1, -1]
    assert upper.tolist() == [1, 2, 3]
    assert lower.dtype == upper.dtype == np.float32


@pytest.mark.parametrize(
    ("lower", "upper", "message"),
    [
        (
            [0, 0, 0],
            1,
            "lower: expected a scalar or 2 numbers, got shape (3,). "
            "Give one bound for each measure.",
        ),
        (
            0,
            [[1, 1]],
            "upper: expected a scalar or 2 numbers, got shape (1, 2). "
            "Give one bound for each measure.",
        ),
        (0, [1, np.inf], "upper: expected finite bounds, got [1.0, inf]."),
        (np.nan, 1, "lower: expected finite bounds, got nan."),
        (
            0,
            [1, 0],
            "lower, upper: expected lower < upper in every dimension, "
            "got [0.0, 0.0] and [1.0, 0.0].",
        ),
        (
            2,
            1,
            "lower, upper: expected lower < upper in every dimension, "
            "got [2.0, 2.0] and [1.0, 1.0].",
        ),
    ],
)
def test_other_bounds_are_refused(lower, upper, message):
    with refused(message):
        checks.bounds(lower, upper, 2)


@pytest.mark.parametrize("bad", ["wide", [0, [1, 2]]])
def test_bounds_that_are_no_numbers_are_refused(bad):
    with pytest.raises(ValueError, match=r"^lower:"):
        checks.bounds(bad, 1, 2)


X0 = np.zeros(2, np.float32)


def test_solution_bounds_may_be_absent_or_open():
    assert checks.solution_bounds(None, X0) is None
    lower, upper = checks.solution_bounds((-1, None), X0)
    assert (lower.tolist(), upper.tolist()) == ([-1, -1], [np.inf, np.inf])
    lower, upper = checks.solution_bounds([None, [0, 3]], X0)
    assert (lower.tolist(), upper.tolist()) == ([-np.inf, -np.inf], [0, 3])
    assert lower.dtype == upper.dtype == np.float32


OUTSIDE = (
    "x0: expected a point within the bounds of the solutions, got 0 to 0. "
    "Move x0 or widen the bounds."
)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ((1, -1), "bounds: expected lower < upper in every dimension, got 1 and -1."),
        ((np.nan, 1), "bounds: expected lower < upper in every dimension, got nan and 1."),
        ((0.5, 1), OUTSIDE),
        ((None, [1, -1]), OUTSIDE),
    ],
)
def test_other_solution_bounds_are_refused(bounds, message):
    with refused(message):
        checks.solution_bounds(bounds, X0)


@pytest.mark.parametrize("bad", [[0, 0, 0], [[-1, -1]], "wide"])
def test_solution_bounds_of_another_shape_are_refused(bad):
    with pytest.raises(ValueError, match=r"^bounds\[0\]:"):
        checks.solution_bounds((bad, 1), X0)
    with pytest.raises(ValueError, match=r"^bounds:"):
        checks.solution_bounds(1.0, X0)


def test_instances():
    checks.instance("rule", 1, int)
    checks.instance("rule", 1, (str, int))
    with refused("rule: expected str, got int 1."):
        checks.instance("rule", 1, str)
    with refused("rule: expected str or dict, got int 1. Give a name."):
        checks.instance("rule", 1, (str, dict), "Give a name.")
    # A long value is cut, so that the message stays readable.
    with refused(f"rule: expected str, got list {repr(list(range(100)))[:77]}...."):
        checks.instance("rule", list(range(100)), str)


def test_existing_files(tmp_path):
    path = tmp_path / "here.npy"
    path.touch()
    assert checks.existing_file("cache", str(path)) == path
    assert isinstance(checks.existing_file("cache", str(path)), Path)
    with refused("cache: expected an existing file, got 'nowhere.npy'. Check the path."):
        checks.existing_file("cache", "nowhere.npy")
    with refused(f"cache: expected an existing file, got '{tmp_path}'. Name a file."):
        checks.existing_file("cache", tmp_path, "Name a file.")


def test_rows_may_be_nan_but_must_fit():
    assert checks.rows("objectives", [1.0, np.nan], (2,)).shape == (2,)
    with refused(
        "objectives: expected shape (2,) (one row for each solution asked), "
        "got shape (2, 1). Return one row for each row of ask()."
    ):
        checks.rows("objectives", [[1.0], [2.0]], (2,))


def test_fields_must_be_those_declared():
    checks.same_names("fields", {"a": (), "b": ()}, {"b": 1, "a": 2})
    with refused(
        "fields: expected the fields ['a', 'b'], got ['a']. "
        "Declare fields when building the archive: fields={'name': shape}."
    ):
        checks.same_names("fields", {"b": (), "a": ()}, {"a": 1})


def test_a_batch_without_any_result_is_refused():
    check_some_valid(1, 36)
    message = r"^evaluation: expected at least one finite result among 36 solutions, got none\. "
    with pytest.raises(EvaluationError, match=message):
        check_some_valid(0, 36)
    assert issubclass(EvaluationError, RuntimeError)


@pytest.mark.parametrize("value", ["", None, 5, b"x", "a\0b"])
def test_what_is_no_path_is_refused(value):
    with pytest.raises(ValueError, match=r"^out:"):
        checks.path("out", value)
    assert checks.path("out", ".") == Path()


def test_unknown_arguments_are_answered_by_those_that_exist():
    class Box:
        @checks.names_arguments
        def __init__(self, width, *, height=1):
            self.size = (width, height)

    assert Box(3, height=2).size == (3, 2)
    with pytest.raises(TypeError, match=r"Box\(\) .* 'widht'. Did you mean 'width'\?"):
        Box(widht=3)
    with pytest.raises(TypeError, match=r"'dims'. It has: width, height\.$"):
        Box(dims=3)


@pytest.mark.parametrize("fields", [3.0, [3.0], None, np.zeros(2)])
def test_fields_of_an_evaluation_are_a_dict(fields):
    with pytest.raises(ValueError, match=r"^fields:"):
        evaluation_parts((1.0, np.zeros(2), fields))


def test_tensors_with_gradients_are_arrays():
    torch = pytest.importorskip("torch")
    tensor = torch.tensor([1.0, 2.0], requires_grad=True)
    np.testing.assert_array_equal(checks.real_array("x", tensor, "numbers"), [1.0, 2.0])


@given(text=st.text(st.characters()))
def test_printable_texts_have_no_commands_for_a_terminal(text):
    shown = checks.printable(text)
    assert shown.isprintable()
    shown.encode()
    if text.isprintable():
        assert shown == text
    assert checks.printable(text, keep="\n").count("\n") == text.count("\n")


def test_errors_show_what_was_given_without_commands_for_a_terminal():
    with refused(r"x: expected a, got \x1b]0;b\x07."):
        checks.expect(False, "x", "a", "\x1b]0;b\x07")


def test_bounds_that_are_one_number_are_refused():
    with pytest.raises(ValueError, match=r"^bounds:.*array"):
        checks.solution_bounds(np.array(3.0), np.zeros(2))
