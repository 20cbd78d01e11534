"""The files of the page, and texts with a contrast of 4.5 to 1 (WCAG 2.2, level AA)."""

import re

import numpy as np
import pytest

from gloam.explorer.page import modules, packed, static_files
from tests.explorer.unpacking import unpacked

TEXT = ["--ink", "--quiet", "--accent", "--good", "--warn", "--bad"]
ON_SOFT = {"--accent": "--accent-soft", "--good": "--good-soft"}
ON_SOFT |= {"--warn": "--warn-soft", "--bad": "--bad-soft"}


def themes():
    """Colors by name, of the light theme and of both definitions of the dark one."""
    text = static_files()["style.css"].content.decode()
    blocks = re.findall(r":root[^{]*\{([^}]*)\}", text)
    found = [dict(re.findall(r"(--[a-z-]+): (#[0-9a-f]{6})", block)) for block in blocks]
    return [block for block in found if "--ink" in block]


def luminance(color):
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def test_contrast_of_black_and_white():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


def test_texts_stand_out_from_what_is_behind_them():
    light, dark, dark_of_the_system = themes()
    assert dark == dark_of_the_system
    for colors in (light, dark):
        for name in TEXT:
            for behind in ("--paper", "--card", "--faint"):
                assert contrast(colors[name], colors[behind]) >= 4.5, (name, behind)
        for name, behind in ON_SOFT.items():
            assert contrast(colors[name], colors[behind]) >= 4.5, (name, behind)


def test_scripts_make_no_markup_of_texts_and_load_nothing():
    forbidden = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(")
    for name, file in static_files().items():
        if name.startswith("vendor/") or not name.endswith(".js"):
            continue
        text = file.content.decode()
        assert not [word for word in forbidden if word in text], name
        assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text), name


def test_modules_import_one_another_by_names_that_exist():
    known = set(modules())
    for name, file in static_files().items():
        if name.endswith(".js") and not name.startswith("vendor/"):
            imported = re.findall(r'^(?:import|} from) .*?"([^"]+)";', file.content.decode(), re.M)
            assert set(imported) <= known, name


def test_vendored_files_come_with_their_licences():
    from importlib import resources

    folder = resources.files("gloam.explorer").joinpath("static", "vendor")
    text = folder.joinpath("README.md").read_text()
    for name in static_files():
        if name.startswith("vendor/"):
            assert f"`{name.removeprefix('vendor/')}`" in text
    for licence in re.findall(r"`(LICENSE-[\w-]+)`", text):
        assert folder.joinpath(licence).is_file()


def test_packed_arrays_are_what_was_packed():
    arrays = {
        "a": np.arange(3, dtype=np.int32),
        "b": np.array([[0.5, np.nan]], np.float32),
        "c": np.array([], np.float64),
        "d": np.array([255], np.uint8),
    }
    found, about = unpacked(packed(arrays, {"name": "\udc80é"}))
    assert about == {"name": "\udc80é"}
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array.ravel())
