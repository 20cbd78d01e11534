"""Random damage to the bytes of a file."""

import numpy as np


def damaged_bytes(content: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    """Return damaged content, and how it was damaged."""
    size = len(content)
    at = int(rng.integers(size + 1))
    # Headers are at the beginning, and those of zip and Parquet files at the end.
    match rng.integers(4):
        case 0:
            at = int(rng.integers(min(size, 100) + 1))
        case 1:
            at = size - int(rng.integers(min(size, 300) + 1))
    length = int(rng.integers(1, 1 + min(max(size, 1), 200)))
    match rng.integers(7):
        case 0 | 1:
            changed = bytearray(content)
            places = [min(at + int(p), size - 1) for p in rng.integers(0, 50, rng.integers(1, 9))]
            for place in places if size else []:
                changed[place] ^= int(rng.integers(1, 256))
            return f"bytes changed from {at}", bytes(changed)
        case 2:
            return f"truncated at {at}", content[:at]
        case 3:
            noise = bytes(rng.integers(256, size=length, dtype=np.uint8))
            return f"{length} bytes of noise at {at}", content[:at] + noise + content[at:]
        case 4:
            return f"{length} bytes doubled at {at}", content[: at + length] + content[at:]
        case 5:
            return f"{length} bytes gone at {at}", content[:at] + content[at + length :]
        case _:
            zeros = bytes(min(length, size - at))
            return f"{length} zeros at {at}", content[:at] + zeros + content[at + len(zeros) :]
