"""Compiler options, which are used where they are known, and the compiled iteration."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gloam
from gloam.programs import fused_program
from gloam.runs.fused_driver import FusedDriver


class Lowered:
    """Stands for a program; ``fault`` is what the compiler says to options."""

    def __init__(self, fault: str | None = None):
        self.fault = fault
        self.calls: list[dict] = []

    def compile(self, **options):
        self.calls.append(options)
        if options and self.fault:
            raise jax.errors.JaxRuntimeError(self.fault)
        return "program"


@pytest.fixture
def cuda(monkeypatch):
    monkeypatch.setattr(fused_program, "on_cuda", lambda: True)


def test_a_cpu_gets_no_options():
    lowered = Lowered()
    assert fused_program._compiled(lowered, fused_program._compiler_options()) == "program"
    assert lowered.calls == [{}]


def test_a_gpu_gets_options(cuda):
    lowered = Lowered()
    assert fused_program._compiled(lowered, fused_program._compiler_options()) == "program"
    assert [list(call) for call in lowered.calls] == [["compiler_options"]]


def test_options_that_xla_does_not_know_are_done_without(cuda):
    lowered = Lowered("INVALID_ARGUMENT: No such compile option: 'xla_gpu_x'")
    assert fused_program._compiled(lowered, fused_program._compiler_options()) == "program"
    assert lowered.calls[1:] == [{}]


def test_other_faults_are_passed_on(cuda):
    lowered = Lowered("RESOURCE_EXHAUSTED: out of memory")
    with pytest.raises(jax.errors.JaxRuntimeError, match="out of memory"):
        fused_program._compiled(lowered, fused_program._compiler_options())


@pytest.mark.parametrize("num_seeds", [1, 3])
@pytest.mark.parametrize(
    "kind", [gloam.MAPElitesLine, pytest.param(gloam.DMS, marks=pytest.mark.slow)]
)
def test_an_iteration_does_not_copy_the_store(kind, num_seeds):
    archive = gloam.GridArchive((11, 13), lower=-1, upper=1)
    algorithm = kind(archive, np.zeros(7), 0.2)

    def evaluate(solutions):
        return -jnp.square(solutions).sum(axis=1), solutions[:, :2]

    driver = FusedDriver(evaluate, algorithm, list(range(num_seeds)))
    driver.start()
    driver.advance(1)
    text = driver._program._compiled_loop.result().as_text()  # pyright: ignore
    shape = rf"f32\[(?:{num_seeds},)?143,7\]"
    assert re.search(shape, text)
    in_loops = [part for part in text.split("\n\n") if not part.startswith("ENTRY")]
    assert not [part for part in in_loops if re.search(rf"= {shape}\S* copy\(", part)]
