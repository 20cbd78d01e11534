"""XLA's compiler: its precision, the cache of compiled programs, and options for NVIDIA GPUs."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

from gloam._tools.devices import on_cuda
from gloam._tools.files import cache_folder

_CONFIG: Any = jax.config  # its options are not declared
_MOST_BYTES = 2 * 2**30
# An iteration consists of over a hundred short kernels and a few loops and branches. In one graph
# they do not wait for the host. Triton's kernels for products are chosen by measurements that take
# longer than they save in 10,000 iterations (research/performance.md).
_CUDA_OPTIONS = {
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,COLLECTIVES,"
    "CONDITIONAL,WHILE,DYNAMIC_SLICE_FUSION",
    "xla_gpu_enable_triton_gemm": False,
}
# XLA also chooses among the algorithms of a product by measurements (autotuning). These differ
# between processes, and so do the bits. Two kinds of operations need autotuning: without it,
# StyleGAN3's convolutions take seconds instead of 0.1 s, and the search for the nearest of many
# measures, a product on TF32 units, 0.12 ms more (research/performance.md).
_NO_MEASUREMENTS = {"xla_gpu_autotune_level": 0}
_MEASURED = ("stablehlo.convolution", "lhs_precision_type = tf32")


@contextmanager
def float32() -> Iterator[None]:
    """Compute in float32, whatever the settings of JAX are. An evaluation may need others."""
    # TensorFloat-32 would halve the digits of distances and covariances on a GPU. With
    # jax_enable_x64, powers of whole numbers would be rounded to float32 once less.
    with jax.default_matmul_precision("float32"), jax.enable_x64(False):
        yield


def keep_compiled_programs() -> None:
    """Keep compiled programs in the user's cache folder, unless JAX already keeps them elsewhere.

    The folder is used only if nobody else can write to it, because programs are run as they are
    read. The least recently used programs are removed when it has 2 GiB. Processes may share it.
    ``JAX_ENABLE_COMPILATION_CACHE=false`` turns it off.
    """
    if _CONFIG.jax_compilation_cache_dir or not _CONFIG.jax_enable_compilation_cache:
        return
    folder = cache_folder() / "programs"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_private = _is_private(folder) and _is_private(folder.parent)
    except OSError:
        return
    if is_private:
        _CONFIG.update("jax_compilation_cache_dir", str(folder))
        _CONFIG.update("jax_compilation_cache_max_size", _MOST_BYTES)
        # JAX looks for the folder only once, when it compiles its first program.
        compilation_cache.reset_cache()


def _is_private(folder: Path) -> bool:
    """Return whether this user owns a folder and is the only one who can write to it."""
    status = folder.stat()
    owner = os.getuid() if hasattr(os, "getuid") else status.st_uid
    return status.st_uid == owner and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def compiler_options() -> dict[str, Any]:
    """Return the options for the device of programs."""
    return _CUDA_OPTIONS if on_cuda() else {}


def compile_lowered(lowered: Any, options: dict[str, Any]) -> Callable:
    """Compile a program of `jax.jit` with the options for its device, if XLA knows them."""
    if options:
        text = lowered.as_text()
        if not any(operation in text for operation in _MEASURED):
            options = options | _NO_MEASUREMENTS
        try:
            return lowered.compile(compiler_options=options)
        except jax.errors.JaxRuntimeError as error:
            # Options come and go with versions of XLA. Without them programs are only slower.
            if "INVALID_ARGUMENT" not in str(error):
                raise
    return lowered.compile()
