"""Run pyribs' own tests of archives with archives that were converted to gloam and back.

pyribs' tests are not part of gloam: pass a copy of the repository of the installed version,
and install python-box, which they need.

    python benchmarks/pyribs_tests.py path/to/pyribs

Grid and CVT archives read their elites from an archive that was converted to gloam's elites and
back. Tests that cannot pass are listed below with the reason.
"""

import argparse
import sys
import warnings
from pathlib import Path

import pytest

TESTS = (
    "archives_torch/discount_archive_test.py",
    "archives/grid_archive_test.py",
    "archives/cvt_archive_test.py",
    "archives/custom_fields_test.py",
)

# Prefixes of names of tests that cannot pass, with the reason.
DIFFERENT = {
    "grid_archive_test.py::test_str_solutions": "solutions of gloam are rows of numbers",
    "grid_archive_test.py::test_multi_dim_solutions": "solutions of gloam are flat rows",
    "custom_fields_test.py::test_add_retrieve_extra_fields": "gloam keeps no fields of objects",
}


def _converted(base: type) -> type:
    """An archive of pyribs that reads its elites from its conversion to gloam and back."""
    from gloam.interop.ribs import from_ribs, to_ribs

    busy = []

    def read(name):
        def answer(self, *args, **kwargs):
            method = getattr(base, name)
            if busy or self.empty:
                return method(self, *args, **kwargs)
            busy.append(self)
            try:
                dtypes = {
                    f"{n}_dtype": self.dtypes[n] for n in ("solution", "objective", "measures")
                }
                back = to_ribs(from_ribs(self), dtype=None, **dtypes)
                return method(back, *args, **kwargs)
            finally:
                busy.clear()

        return answer

    methods = {name: read(name) for name in ("data", "retrieve", "__iter__", "sample_elites")}
    return type(base.__name__, (base,), methods)


class Substitute:
    """A pytest plugin that replaces pyribs' archives by converted ones."""

    def __init__(self):
        self.outcomes: dict[str, list[str]] = {"passed": [], "failed": [], "skipped": []}

    def pytest_sessionstart(self):
        """Before the tests import what they test."""
        import ribs.archives

        for name in ("GridArchive", "CVTArchive"):
            converted = _converted(getattr(ribs.archives, name))
            setattr(ribs.archives, name, converted)
            # pyribs' archive that checks the type of another archive.
            setattr(sys.modules["ribs.archives._discount_archive"], name, converted)

    def pytest_runtest_logreport(self, report):
        """Record the outcome of each test."""
        if report.when == "call" or report.outcome != "passed":
            self.outcomes[report.outcome].append(report.nodeid)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pyribs", type=Path, help="a copy of pyribs' repository")
    folder = parser.parse_args().pyribs / "tests"
    warnings.simplefilter("ignore")
    plugin = Substitute()
    paths = [str(folder / name) for name in TESTS]
    options = ["-q", "-p", "no:cacheprovider", "--tb=short", f"--rootdir={folder.parent}"]
    # Ignore the settings of gloam and of pyribs, which measure coverage and time.
    options += ["-c", "/dev/null", "--import-mode=importlib"]
    pytest.main([*options, *paths], plugins=[plugin])
    unexpected = 0
    for test in plugin.outcomes["failed"]:
        reason = next((why for name, why in DIFFERENT.items() if name in test), None)
        unexpected += reason is None
        print(f"{test}: {reason or 'FAILED'}")
    counts = {name: len(set(tests)) for name, tests in plugin.outcomes.items()}
    print(f"{counts}, {unexpected} of the failures unexpected")
    return int(unexpected > 0 or not counts["passed"])


if __name__ == "__main__":
    raise SystemExit(main())
