"""The cache of compiled programs on disk, and options that XLA may not know."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.compilation_cache import compilation_cache

from gloam._tools import compiler
from gloam._tools.compiler import compile_lowered, compiler_options, keep_compiled_programs
from gloam._tools.kernels.products import by_parts

OPTIONS = (
    "jax_enable_compilation_cache",
    "jax_compilation_cache_dir",
    "jax_compilation_cache_max_size",
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of an empty cache, while JAX has none."""
    before = {name: getattr(jax.config, name) for name in OPTIONS}
    monkeypatch.setenv("GLOAM_CACHE", str(tmp_path / "cache"))
    jax.config.update("jax_compilation_cache_dir", None)
    yield tmp_path / "cache" / "programs"
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def used():
    keep_compiled_programs()
    return jax.config.jax_compilation_cache_dir


def test_a_new_folder_is_private_and_bounded(folder):
    assert used() == str(folder)
    assert jax.config.jax_compilation_cache_max_size == 2 * 2**30
    assert folder.stat().st_mode & 0o077 == 0


def test_another_folder_of_jax_stays(folder, tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "own"))
    assert used() == str(tmp_path / "own")
    assert not folder.exists()


def test_it_can_be_turned_off(folder):
    jax.config.update("jax_enable_compilation_cache", False)
    assert used() is None


@pytest.mark.parametrize("of", ["folder", "parent"])
@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_folder_that_others_can_write_to_is_not_used(folder, of, mode):
    folder.mkdir(parents=True)
    (folder if of == "folder" else folder.parent).chmod(mode)
    assert used() is None


def test_a_cache_that_cannot_be_made_is_not_used(folder):
    folder.parent.parent.joinpath("cache").write_text("a file")
    assert used() is None


SEARCH = """
import jax, numpy as np
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.jit(lambda x: x + 1)(1)  # JAX has compiled a program before gloam is asked for one
import gloam
gloam.Search(gloam.MAPElites(gloam.GridArchive((4, 4), 0, 1), np.zeros(3), 0.1)).ask()
"""


@pytest.mark.slow
def test_a_second_process_finds_the_programs_of_the_first(folder):
    environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    found = []
    for _ in range(2):
        subprocess.run([sys.executable, "-c", SEARCH], env=environment, check=True)
        found.append({file.name for file in folder.glob("*-cache")})
    assert len(found[0]) > 0
    assert found[1] == found[0]


class Lowered:
    """Stands for a program; ``fault`` is what the compiler says to options."""

    def __init__(self, text: str = "", fault: str | None = None):
        self.text, self.fault = text, fault
        self.calls: list[dict] = []

    def as_text(self):
        return self.text

    def compile(self, compiler_options=None):
        self.calls.append(compiler_options or {})
        if compiler_options and self.fault:
            raise jax.errors.JaxRuntimeError(self.fault)
        return "program"


@pytest.fixture
def options(monkeypatch):
    """The options for an NVIDIA GPU."""
    monkeypatch.setattr(compiler, "on_cuda", lambda: True)
    return compiler_options()


def test_a_cpu_gets_no_options():
    lowered = Lowered()
    assert compile_lowered(lowered, compiler_options()) == "program"
    assert lowered.calls == [{}]


def test_options_that_xla_does_not_know_are_done_without(options):
    lowered = Lowered(fault="INVALID_ARGUMENT: No such compile option: 'xla_gpu_x'")
    assert compile_lowered(lowered, options) == "program"
    assert options.items() <= lowered.calls[0].items()
    assert lowered.calls[1:] == [{}]


def test_other_faults_are_passed_on(options):
    with pytest.raises(jax.errors.JaxRuntimeError, match="out of memory"):
        compile_lowered(Lowered(fault="RESOURCE_EXHAUSTED: out of memory"), options)


def convolution(x):
    return jax.lax.conv(x[None, None], x[None, None], (1, 1), "SAME")


def product(x):
    return x @ x


def nearest_of_many_measures(x):
    return by_parts(x, x, jax.lax.DotAlgorithmPreset.TF32_TF32_F32)


@pytest.mark.parametrize("function", [convolution, nearest_of_many_measures, product])
def test_algorithms_of_two_operations_are_measured(options, function):
    traced = jax.jit(lambda x: function(x)).trace(jnp.zeros((4, 4)))
    lowered = Lowered(traced.lower(lowering_platforms=("cuda",)).as_text())
    compile_lowered(lowered, options)
    is_measured = "xla_gpu_autotune_level" not in lowered.calls[0]
    assert is_measured == (function is not product)
    assert options.items() <= lowered.calls[0].items()
