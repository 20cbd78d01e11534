"""Kernels for NVIDIA GPUs, where the compiler's own are too many, too slow or keep the host busy.

Written in Pallas, for Triton. Each is one function of arrays with a plain twin elsewhere in gloam,
to which the tests hold it, and which every other device uses. The modules import Pallas, so they
are imported where they are used.
"""

import os

import jax


def on_cuda() -> bool:
    """Whether programs will run on a GPU of NVIDIA.

    >>> jax.default_backend() == "gpu" or not on_cuda()
    True
    """
    return jax.default_backend() == "gpu" and "cuda" in jax.devices()[0].client.platform_version


def usable() -> bool:
    """Whether the kernels run here: Triton wants an NVIDIA GPU of 2020 (Ampere) or later.

    ``GLOAM_KERNELS=off`` in the environment does without them.
    """
    if os.environ.get("GLOAM_KERNELS") == "off":
        return False
    return on_cuda() and float(jax.devices()[0].compute_capability) >= 8.0


__all__ = ["on_cuda", "usable"]
