"""Run folders of `gloam run` that many tests look at, each made once."""

import shutil

import pytest

from tests.cli.conftest import made


@pytest.fixture(scope="session")
def digits_once(tmp_path_factory):
    small = ["--items", "30", "--emitters", "2", "--batch-size", "4", "--quiet"]
    command = ["run", "dms", "latent-digits", *small, "--iterations", "3", "--out"]
    return made(tmp_path_factory, "digits", [*command, "runs/x"])


@pytest.fixture
def digits_run(digits_once, tmp_path):
    """A copy of the run folder of a search on latent digits, and what the command printed."""
    folder, printed = digits_once
    shutil.copytree(folder, tmp_path / "run")
    return tmp_path / "run", printed
