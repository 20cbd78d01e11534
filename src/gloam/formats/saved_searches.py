"""Files of one search: its algorithm, its seed and its state."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from gloam import step
from gloam._tools import checks
from gloam._tools.draws import root_key
from gloam._version import __version__
from gloam.algorithms import Algorithm
from gloam.formats import objects
from gloam.formats.arrays import read_arrays, write_arrays
from gloam.formats.checkpoints import state_arrays, state_from
from gloam.formats.documents import content_of
from gloam.records import SearchState


class SavedSearch(NamedTuple):
    """The content of a file."""

    algorithm: Algorithm
    seed: int
    state: SearchState
    about: Mapping[str, Any]
    """Further JSON values."""
    further: Mapping[str, np.ndarray]
    """Further arrays."""


def write_search(path: str | os.PathLike, saved: SavedSearch, *, kind: str) -> None:
    """Write a search to one file, atomically."""
    arrays: dict[str, np.ndarray] = {}
    content = dict(saved.about) | {
        "gloam": __version__,
        "seed": saved.seed,
        "algorithm": objects.encode(saved.algorithm, arrays),
    }
    groups = {"array": arrays, "state": state_arrays(saved.state), "further": saved.further}
    named = {f"{group} {n}": array for group, part in groups.items() for n, array in part.items()}
    write_arrays(checks.path("path", path), named, kind=kind, about=content)


def read_search(path: Path, algorithm: Algorithm | None, *, kind: str, fix: str) -> SavedSearch:
    """Read a file that `write_search` wrote.

    Args:
        path: The file.
        algorithm: Needed only if it has parts that are not gloam's.
        kind: Expected kind.
        fix: What the user can do when the file is damaged.

    Raises:
        DamagedFileError: The file is damaged, or of another kind.
        ForeignError: The algorithm has parts of the user's and was not given.
    """
    named, content = read_arrays(path.resolve(), kind=kind, fix=fix)
    groups: dict[str, dict[str, np.ndarray]] = {"array": {}, "state": {}, "further": {}}
    for name, array in named.items():
        group, _, rest = name.partition(" ")
        groups.get(group, {})[rest] = array
    with content_of(path, fix):
        seed = checks.seed("seed", content.get("seed"))
        if algorithm is None:
            algorithm = objects.decode(content.get("algorithm"), groups["array"])
        else:
            given = objects.encode(algorithm, {})
            differences = objects.differences(content.get("algorithm"), given, "algorithm")
            if differences:
                raise ValueError(f"it was saved with another algorithm: {differences[0]}")
        if not isinstance(algorithm, Algorithm):
            raise ValueError("it contains no algorithm")
        # Shapes first: the settings in a file may ask for more than its arrays show.
        like = jax.eval_shape(lambda: step.init(algorithm, root_key(seed)))
        state = state_from(like, groups["state"])
    return SavedSearch(algorithm, seed, state, content, groups["further"])
