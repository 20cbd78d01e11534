"""The release: the wheel works in an environment of its own, and what files say of it agrees."""

import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import gloam

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PROGRAM = """
import sys, numpy as np, gloam
archive = gloam.GridArchive((10, 10), -1, 1, f_min=-9)
search = gloam.Search(gloam.DMS(archive, np.zeros(3), 0.2, num_emitters=2, batch_size=8), seed=1)
solutions = search.ask()
search.tell(objectives=-np.square(solutions).sum(axis=1), measures=solutions[:, :2])
assert search.elites().coverage > 0
assert not {"torch", "sklearn", "faiss", "distributed", "ribs"} & set(sys.modules)
print(gloam.__version__, gloam.__file__)
"""


def test_versions_agree():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^## (\S+)", changelog, re.MULTILINE)[0] == gloam.__version__
    assert f"\nversion: {gloam.__version__}\n" in citation


def test_the_paper_is_cited_alike_everywhere():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    (title,) = re.findall(r"^  title     = \{(.+)\},$", readme, re.MULTILINE)
    (authors,) = re.findall(r"^  author    = \{(.+)\},$", readme, re.MULTILINE)
    cited = re.findall(r'family-names: (\w+), given-names: "?([^"}]+)"?}', citation)
    assert f'title: "{title}"' in citation
    assert authors.split(" and ") == [f"{family}, {given}" for family, given in cited]


def test_every_extra_is_on_the_page_of_installation():
    page = (ROOT / "docs" / "installation.md").read_text(encoding="utf-8")
    for extra in PROJECT["optional-dependencies"]:
        assert f"`{extra}`" in page, extra


def test_the_workflow_runs_targets_that_exist_on_the_pythons_that_are_allowed():
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"run: make ([\w-]+)", workflow):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    pythons = re.findall(r'"(3\.\d+)"', workflow.partition("matrix:")[2].partition("steps:")[0])
    assert PROJECT["requires-python"] == f">={pythons[0]}"
    assert pythons == ["3.11", "3.12", "3.13", "3.14"]


@pytest.mark.slow
def test_the_wheel_works_in_an_empty_environment(tmp_path):
    """Builds, checks and installs the wheel without extras, and runs its demo at small size.

    It needs the package registry that pip is set up with.
    """
    pytest.importorskip("build", reason="`make build` installs it")

    def run(*command, cwd=tmp_path, succeeds=True):
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
        assert (done.returncode == 0) is succeeds, done.stdout + done.stderr
        return done.stdout + done.stderr

    dist = tmp_path / "dist"
    run(sys.executable, "-m", "build", "--outdir", dist, cwd=ROOT)
    run(sys.executable, "-m", "twine", "check", "--strict", *dist.iterdir())
    (wheel,) = dist.glob("*.whl")
    packed = {Path(name).parts[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert packed == {"gloam", "gloam_lab", f"gloam-{gloam.__version__}.dist-info"}

    venv.create(tmp_path / "clean", with_pip=True)
    scripts = tmp_path / "clean" / ("Scripts" if sys.platform == "win32" else "bin")
    run(scripts / "python", "-m", "pip", "install", "-q", wheel)
    printed = run(scripts / "python", "-c", PROGRAM)
    assert printed.startswith(gloam.__version__)
    assert str(tmp_path / "clean") in printed

    # Without extras: a demo, a run and its figures work; what needs an extra says which.
    run(scripts / "gloam", "demo", "--domain", "lp", "--iterations", "3", "--out", "runs/demo")
    small = "--iterations", "3", "--measures", "2"
    run(scripts / "gloam", "run", "dms", "lp", *small, "--out", "runs/lp")
    run(scripts / "gloam", "plot", "runs/lp")
    assert list((tmp_path / "runs" / "lp" / "figures").glob("*.png"))
    missing = run(scripts / "gloam", "demo", "--out", "runs/digits", succeeds=False)
    assert "gloam[demo]" in missing
