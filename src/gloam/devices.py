"""What the program will run on, where that decides how it is written."""

import jax


def on_cuda() -> bool:
    """Whether compiled programs run on a GPU that Pallas' Triton kernels are written for."""
    return jax.default_backend() == "gpu" and "cuda" in jax.devices()[0].client.platform_version
