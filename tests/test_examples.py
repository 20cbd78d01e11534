"""The examples in docstrings run, and give what they say."""

import doctest
import importlib
import pkgutil

import pytest

import gloam
import gloam_lab

pytestmark = pytest.mark.slow  # the docstrings of all modules

# The template is a text to copy.
LEFT_OUT = {
    "gloam.cli.template",
    "gloam.__main__",
}
MODULES = [
    found.name
    for package in (gloam, gloam_lab)
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if found.name not in LEFT_OUT
]
# Their examples compile searches or large networks.
SLOW = {
    "gloam.algorithms.baselines",
    "gloam.algorithms.dms",
    "gloam.callbacks.stopping",
    "gloam.discounts.networks",
    "gloam.emitters.gradient_ascent",
    "gloam_lab.latent_digits",
    "gloam.runs.comparison",
    "gloam_lab.latent_illumination.stylegan3",
    "gloam.runs.result",
    "gloam.runs.run",
    "gloam.searches.async_search",
    "gloam.searches.search",
    "gloam.spaces.space",
}
FINDER = doctest.DocTestFinder(exclude_empty=True)


def examples(name: str) -> list[doctest.DocTest]:
    module = importlib.import_module(name)
    found = FINDER.find(module, name, globs=dict(vars(module)))
    return [test for test in found if test.examples]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in SLOW else ())
        for name in MODULES
        if examples(name)
    ],
)
def test_examples_in_docstrings_give_what_they_say(name):
    for test in examples(name):
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        runner.run(test)
        assert runner.summarize(verbose=False).failed == 0, test.name
