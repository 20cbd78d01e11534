"""Compiler options: used where they are known, done without where they are not."""

import jax
import pytest

from gloam.programs import fused_program


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
