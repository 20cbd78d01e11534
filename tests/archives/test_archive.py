"""Extra fields and names of measures: which may be declared."""

import numpy as np
import pytest

from gloam.archives import GridArchive


@pytest.mark.parametrize("name", ["objective", "solution", "measures", "cell", "no name", ""])
def test_field_names_that_cannot_be_kept_are_refused(name):
    with pytest.raises(ValueError, match=r"^fields:"):
        GridArchive((2,), 0, 1, fields={name: ()})


@pytest.mark.parametrize(
    "fields", [{"measures_0": ()}, {"solution_12": (2,)}, {"image_0": (), "image": (2,)}]
)
def test_a_field_that_would_hide_another_column_is_refused(fields):
    with pytest.raises(ValueError, match=r"^fields:"):
        GridArchive((1,), 0, 1, fields=fields)


def test_a_field_may_end_in_a_number():
    assert set(GridArchive((1,), 0, 1, fields={"layer_3": (), "w_0": (2,)}).fields) == {
        "layer_3",
        "w_0",
    }


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("a",), "2 names, got 1 names"),
        ("ab", "a list of texts"),
        (5, "a list of texts, got 5"),
        (("a", 3), "a list of texts"),
        (("a", "a"), "different names"),
        (("a", " "), "texts of 1 to 100 printable"),
        (("a", "b\n"), "texts of 1 to 100 printable"),
        (("a", "objective"), "names that do not clash"),
        (("a", "solution_3"), "names that do not clash"),
        (("a", "age"), "names that do not clash"),
    ],
)
def test_names_of_measures_that_do_not_fit_are_refused(names, message):
    with pytest.raises(ValueError, match=f"measure_names: expected .*{message}"):
        GridArchive((2, 2), 0, 1, fields={"age": ()}, measure_names=names)


def test_f_min_must_be_finite():
    with pytest.raises(ValueError, match=r"^f_min:.*-inf"):
        GridArchive((2,), 0, 1, f_min=-np.inf)


def test_an_unknown_argument_is_answered_by_the_known_ones():
    with pytest.raises(TypeError, match=r"'dims'\. It has: shape, lower, upper, f_min"):
        GridArchive(dims=(2, 2), lower=0, upper=1)
    with pytest.raises(TypeError, match="Did you mean 'measure_names'"):
        GridArchive((2, 2), 0, 1, measures_names=("a", "b"))
