"""Safetensors files: arrays by name with a header of texts. The package is an extra of gloam."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gloam import checks, files


def read_tensors(name: str, path: str | os.PathLike) -> tuple[dict[str, np.ndarray], dict]:
    """Arrays and metadata of a safetensors file.

    Args:
        name: What the file is, for messages.
        path: The file.

    Returns:
        Arrays by name (half precisions as float32), and the metadata: texts by name.
    """
    path = checks.existing_file(name, path)
    package = _package()
    try:
        with package.safe_open(str(path), framework="numpy") as file:
            metadata = dict(file.metadata() or {})
            names = list(file.keys())
            arrays = {key: _float32(file, key) for key in names}
    except package.SafetensorError as error:
        raise ValueError(
            f"{name}: expected a safetensors file, got '{path}' ({error}). "
            "It may be truncated or of another format: fetch or convert it again."
        ) from None
    return arrays, metadata


def write_tensors(
    path: str | os.PathLike, arrays: Mapping[str, Any], metadata: Mapping[str, str]
) -> None:
    """Write a safetensors file, atomically."""
    _package()
    from safetensors.numpy import save  # pyright: ignore[reportMissingImports]

    plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    # `ascontiguousarray` makes a row of a single number.
    plain = {name: array.reshape(np.shape(arrays[name])) for name, array in plain.items()}
    files.write_bytes(Path(path), save(plain, dict(metadata)))


def check_shapes(
    name: str, expected: Mapping[str, tuple[int, ...]], arrays: Mapping[str, np.ndarray], fix: str
) -> None:
    """Check that all expected arrays are there, finite and of the expected shapes."""
    missing = [key for key in expected if key not in arrays]
    checks.expect(not missing, name, f"{len(expected)} tensors", _some_missing(missing), fix)
    for key, shape in expected.items():
        found = arrays[key].shape
        checks.expect(found == shape, f"{name}: {key}", f"shape {shape}", f"shape {found}", fix)
        finite = bool(np.isfinite(arrays[key]).all())
        checks.expect(finite, f"{name}: {key}", "finite numbers", "NaN or infinity", fix)


def _some_missing(missing: list[str]) -> str:
    shown = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
    return f"a file without {len(missing)} of them ({shown})"


def _float32(file: Any, key: str) -> np.ndarray:
    kind = file.get_slice(key).get_dtype()
    if kind == "BF16":  # NumPy has no such type; its bits are the upper half of a float32
        import ml_dtypes

        return np.asarray(file.get_tensor(key)).view(ml_dtypes.bfloat16).astype(np.float32)
    array = file.get_tensor(key)
    return array.astype(np.float32) if array.dtype.kind == "f" else array


def _package() -> Any:
    try:
        import safetensors  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ImportError(
            "safetensors: expected the package to be installed, got none. "
            "Install it: pip install 'gloam[lsi]'."
        ) from None
    return safetensors
