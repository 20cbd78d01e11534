"""Compiler options for whole searches on a GPU."""

from collections.abc import Callable
from typing import Any

import jax

from gloam.devices import on_cuda

# An iteration is over a hundred short kernels and a few loops and branches. As parts of one graph
# they need not ask the host before every turn whether to go on. Choosing a kernel for each product
# by trial takes longer than it saves in 10,000 iterations (docs/performance.md).
_GPU = {
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,COLLECTIVES,"
    "CONDITIONAL,WHILE,DYNAMIC_SLICE_FUSION",
    "xla_gpu_enable_triton_gemm": False,
}


def compiler_options() -> dict[str, Any]:
    """Options that suit the device of this thread: `jax.default_device` is set by thread."""
    return _GPU if on_cuda() else {}


def compiled(lowered: Any, options: dict[str, Any]) -> Callable:
    """The program, compiled with these options if XLA knows them."""
    if options:
        try:
            return lowered.compile(compiler_options=options)
        except jax.errors.JaxRuntimeError as error:
            # Options come and go with versions of XLA. Without them programs are only slower.
            if "INVALID_ARGUMENT" not in str(error):
                raise
    return lowered.compile()
