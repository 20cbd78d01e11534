"""`Dataset`: points of measure space, with labels, names and images to show them."""

import dataclasses
import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Float32, Int, Shaped, UInt8
from PIL import Image

from gloam._tools import checks, drawing
from gloam._tools.parquet import ROW_BYTES
from gloam.archives import CVTArchive
from gloam.datasets import rows
from gloam.datasets.embedding import embed_all

_FILLED_IN: Any = None  # default of fields that __post_init__ fills in


@dataclass(frozen=True)
class Skipped:
    """A file that could not be read, and the reason."""

    name: str
    reason: str


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Points of measure space, each with an optional label, a name and an image to show it.

    Duplicate items are merged into the first of them, because a cell of an archive cannot be
    split. Usually built by `from_array`, `from_file`, `from_folder` and the other readers.

    Args:
        items: ``(n, meas)`` or ``(n, *shape)`` array, or a sequence of items of one shape. Images
            in uint8 are scaled to [0, 1]; other numbers are not changed. A float32 array is not
            copied: do not modify it afterwards.
        shape: Shape of one item, such as ``(28, 28)``. Default: the shape of the rows of ``items``.
        labels: Label of each item, or ``None``.
        names: Name of each item, such as its file name. Default: row numbers.
        images: ``(n, height, width[, 3])`` uint8 images to show, for items that are not images.
        bounds: Lowest and highest value of a measure, shown as black and white. Default: 0 and 1
            for images with values in that range, the extremes of the items for other images,
            ``None`` for vectors.
        skipped: Files that could not be read.
        source: File or folder that the items come from.
        place: Index in ``items`` of each item that was given, before duplicates were merged.
        fresh: Whether ``items`` may be overwritten to merge duplicates without a copy.

    Example:
        >>> data = Dataset(np.array([[0.0, 1.0], [2.0, 3.0], [0.0, 1.0]]), labels=["a", "b", "a"])
        >>> data
        Dataset(2 items of shape (2,), 2 labels, 1 duplicate merged)
        >>> data.place.tolist(), data.archive().num_cells
        ([0, 1, 0], 2)
    """

    items: Float32[np.ndarray, "n meas"]
    shape: tuple[int, ...] = ()
    labels: list[str] | None = None
    names: list[str] = _FILLED_IN
    images: UInt8[np.ndarray, "n height width *channels"] | None = None
    bounds: tuple[float, float] | None = None
    skipped: tuple[Skipped, ...] = ()
    source: Path | None = None
    place: Int[np.ndarray, " given"] = _FILLED_IN
    fresh: InitVar[bool] = False

    def __post_init__(self, fresh: bool):
        given = rows.stacked(self.items)
        count, shape = len(given), _item_shape(self.shape, given)
        needed = count * ROW_BYTES + 4 * given.size
        checks.fits_memory("items", needed, f"{count:,} items", "Use fewer or smaller items.")
        labels = None if self.labels is None else _texts("labels", self.labels, count)
        names = None if self.names is None else _texts("names", self.names, count)
        images = None if self.images is None else checked_images(self.images, count)
        is_pixels = given.dtype == np.uint8 and is_image(shape)
        items = rows.float32(given.reshape(count, -1), pixels=is_pixels)
        rows.check_finite(items, names)
        kept, place = rows.first_of_equal(items[block] for block in rows.blocks(items))
        checks.expect(count > 1, "items", "at least 2 items", "one", "Give more data.")
        equal = f"{count} that are all equal"
        fix = "Check how they were read."
        checks.expect(len(kept) > 1, "items", "at least 2 different items", equal, fix)
        if len(kept) < count:
            in_place = fresh or not np.may_share_memory(items, given)
            items = rows.chosen(items, kept, in_place=in_place)
            images = None if images is None else images[kept]
        items = items.view()
        items.flags.writeable = False
        values = {
            "items": items,
            "shape": shape,
            "labels": None if labels is None else [labels[row] for row in kept],
            "names": [str(row) if names is None else names[row] for row in kept.tolist()],
            "images": images,
            "bounds": _bounds(self.bounds, items, is_shown=is_image(shape) and images is None),
            "skipped": tuple(self.skipped),
            "source": None if self.source is None else Path(self.source),
            "place": place if self.place is None else place[self.place],
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)  # the class is frozen

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        parts = [f"{len(self)} items of shape {self.shape}"]
        if self.labels is not None:
            parts.append(_counted(len(set(self.labels)), "label"))
        if self.images is not None:
            parts.append("with images")
        if self.merged:
            parts.append(f"{_counted(self.merged, 'duplicate')} merged")
        if self.skipped:
            parts.append(f"{_counted(len(self.skipped), 'file')} skipped")
        return f"Dataset({', '.join(parts)})"

    def _repr_html_(self) -> str:
        return _card(self)

    @property
    def merged(self) -> int:
        """Number of duplicates that were merged."""
        return len(self.place) - len(self)

    @property
    def has_images(self) -> bool:
        """Whether items can be shown by `image`."""
        return self.images is not None or is_image(self.shape)

    def image(self, item: int) -> UInt8[np.ndarray, "height width *channels"]:
        """Return the image of an item."""
        count = len(self)
        item = checks.integer("item", item, minimum=-count)
        checks.expect(item < count, "item", f"a number below {count}", item)
        expected, got = "items that are images or have images", f"vectors of shape {self.shape}"
        fix = "Build the dataset with images=..., or shape=(height, width)."
        checks.expect(self.has_images, "image", expected, got, fix)
        return self._shown([item % count])[0]

    def pixels(
        self, measures: Float[np.ndarray, "b meas"]
    ) -> UInt8[np.ndarray, "b height width *channels"]:
        """Return rows of measures as images in the shape of an item, scaled by `bounds`."""
        width, got = self.items.shape[1], np.shape(measures)
        expected = f"rows of {width} numbers, as items of shape {self.shape} have"
        fits = len(got) > 1 and math.prod(got[1:]) == width
        checks.expect(fits, "measures", expected, f"shape {got}")
        low, high = self.bounds or (float(self.items.min()), float(self.items.max()))
        pixels = (measures - low) * (255 / (high - low))
        shape = self.shape[:2] if self.shape[-1] == 1 else self.shape
        return np.rint(pixels.clip(0, 255)).astype(np.uint8).reshape(-1, *shape)

    def _shown(self, chosen: Any) -> UInt8[np.ndarray, "b height width *channels"]:
        return self.pixels(self.items[chosen]) if self.images is None else self.images[chosen]

    def archive(
        self, metric: Literal["euclidean", "cosine"] = "euclidean", **options: Any
    ) -> CVTArchive:
        """Return an archive with one cell for each item, in the order of ``items``.

        Its measures have the shape of an item; evaluations may also return them flat.

        Args:
            metric: Distance that determines the nearest item.
            options: Further arguments of `CVTArchive`, such as ``within``, the largest distance
                from its item at which a solution counts, or ``f_min``, ``fields`` and ``index``.
                ``lower`` and ``upper`` default to the dataset's ``bounds``; for ``"cosine"``, to
                the extremes of the normalized items.
        """
        if metric == "cosine":
            kept, _ = rows.first_of_equal(rows.unit_blocks(self.items))
            got = f"{len(self) - len(kept)} that differ in length only"
            fix = "Merge them: dataset.normalized().archive('cosine')."
            is_distinct = len(kept) == len(self)
            checks.expect(is_distinct, "items", "different directions for 'cosine'", got, fix)
        elif self.bounds is not None:
            options = {"lower": self.bounds[0], "upper": self.bounds[1]} | options
        return CVTArchive(self.items.reshape(-1, *self.shape), metric=metric, **options)

    def normalized(self) -> "Dataset":
        """Return the dataset with items of unit length; its images stay the same.

        Items that become equal are merged.
        """
        units = np.empty_like(self.items)
        for block, unit in zip(rows.blocks(self.items), rows.unit_blocks(self.items), strict=True):
            units[block] = unit
        images = self._shown(slice(None)) if self.has_images else None
        return self._with_items(units, self.shape, images)

    def embedded(
        self,
        embed: Callable[[np.ndarray], Any],
        *,
        batch: int = 256,
        cache: bool | str | os.PathLike = True,
        progress: bool = True,
    ) -> "Dataset":
        """Return the dataset with items replaced by their embeddings; its images stay the same.

        Args:
            embed: Maps a batch of uint8 images ``(b, height, width[, 3])``, or of items
                ``(b, *shape)`` if there are no images, to vectors ``(b, d)``, row by row.
            batch: Number of items in a batch.
            cache: Whether to cache the vectors in a folder ``.gloam`` beside the data, or the
                folder to use. Entries are keyed by the content of the items and the name of
                ``embed``. On each use a few vectors are computed again; if they differ, ``embed``
                has changed and all are recomputed.
            progress: Whether to show a progress bar.
        """
        has_pixels = self.images is not None or (is_image(self.shape) and self.bounds == (0, 1))
        images = self._shown(slice(None)) if has_pixels else None
        inputs = self.items.reshape(-1, *self.shape) if images is None else images
        vectors = embed_all(
            embed, inputs, batch=batch, cache=cache, source=self.source, progress=progress
        )
        return self._with_items(vectors, vectors.shape[1:], images)

    def _with_items(self, items: np.ndarray, shape: tuple[int, ...], images: Any) -> "Dataset":
        return dataclasses.replace(
            self, items=items, shape=shape, images=images, bounds=None, fresh=True
        )

    def subsample(self, num_items: int, seed: int = 0) -> "Dataset":
        """Return ``num_items`` random items, in their order here.

        For the same seed, a smaller sample is a subset of a larger one.
        """
        num_items = checks.integer("num_items", num_items, minimum=2)
        most = f"at most the {len(self)} items there are"
        checks.expect(num_items <= len(self), "num_items", most, num_items)
        return self._subset(self._shuffled(seed)[:num_items])

    def split(self, holdout: float = 0.2, seed: int = 0) -> tuple["Dataset", "Dataset"]:
        """Return the items to search with, and the share ``holdout`` that is held out."""
        holdout = checks.number("holdout", holdout, above=0)
        held = round(holdout * len(self))
        expected = "a share that leaves at least 2 items on both sides"
        got = f"{holdout:g} of {len(self)} items"
        checks.expect(2 <= held <= len(self) - 2, "holdout", expected, got)
        order = self._shuffled(seed)
        return self._subset(order[held:]), self._subset(order[:held])

    def _shuffled(self, seed: int) -> Int[np.ndarray, " n"]:
        return np.random.default_rng(checks.seed("seed", seed)).permutation(len(self))

    def _subset(self, chosen: Int[np.ndarray, " k"]) -> "Dataset":
        chosen = np.sort(chosen)
        return dataclasses.replace(
            self,
            items=self.items[chosen],
            labels=None if self.labels is None else [self.labels[item] for item in chosen],
            names=[self.names[item] for item in chosen],
            images=None if self.images is None else self.images[chosen],
            place=None,
        )


def is_image(shape: Sequence[int]) -> bool:
    """Whether an array of this shape can be shown: (height, width), or with 1 or 3 channels."""
    return len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3))


def checked_images(images: Any, count: int) -> UInt8[np.ndarray, "n height width *channels"]:
    """Return ``images`` as an array, after checking that there is one for each item."""
    expected = f"{count} uint8 images (height, width) or (height, width, 3)"
    array = checks.real_array("images", images, expected)
    fits = array.dtype == np.uint8 and is_image(array.shape[1:]) and len(array) == count
    checks.expect(fits, "images", expected, f"{array.dtype} of shape {array.shape}")
    return array[..., 0] if array.shape[3:] == (1,) else array


def _item_shape(shape: Any, given: Shaped[np.ndarray, "n *item"]) -> tuple[int, ...]:
    is_sequence = isinstance(shape, (Sequence, np.ndarray)) and not isinstance(shape, str)
    sizes = tuple(shape) if is_sequence else (shape,)
    sizes = tuple(checks.integer("shape", size, minimum=1) for size in sizes)
    if not sizes:
        return given.shape[1:]
    numbers = given[0].size
    fits = int(np.prod(sizes)) == numbers
    checks.expect(fits, "shape", f"a shape of the {numbers} numbers of an item", sizes)
    return sizes


def _bounds(
    bounds: Any, items: Float32[np.ndarray, "n meas"], *, is_shown: bool
) -> tuple[float, float] | None:
    """Return the bounds of the items; by default only items that are shown have bounds."""
    lowest, highest = float(items.min()), float(items.max())
    if bounds is None:
        is_unit = lowest >= 0 and highest <= 1
        return None if not is_shown else (0.0, 1.0) if is_unit else (lowest, highest)
    fix = "Give the lowest and the highest value that a measure can have."
    checks.expect(np.shape(bounds) == (2,), "bounds", "two numbers", repr(bounds), fix)
    low, high = (checks.number("bounds", bound) for bound in bounds)
    expected = f"bounds that contain the items, which range from {lowest:g} to {highest:g}"
    checks.expect(low <= lowest and highest <= high, "bounds", expected, (low, high), fix)
    return low, high


def _texts(name: str, values: Any, count: int) -> list[str]:
    """Return one text for each item; missing values (None, NaN) become the empty text."""
    listed: Any = None
    if not isinstance(values, (str, bytes)) and hasattr(values, "__len__"):
        listed = values.tolist() if hasattr(values, "tolist") else list(values)
    is_list = isinstance(listed, list)
    expected = f"one for each of the {count} items"
    got = len(listed) if is_list else repr(values)
    checks.expect(is_list and len(listed) == count, name, expected, got)
    wrong = next((v for v in listed if isinstance(v, (list, tuple, dict, set, np.ndarray))), None)
    checks.expect(wrong is None, name, "one text or number for each item", repr(wrong))
    known = {value: _text(value) for value in {v for v in listed if isinstance(v, str)}}
    texts = [known[value] if isinstance(value, str) else _text(value) for value in listed]
    longest = max(map(len, texts))
    # As an array, every text takes as much as the longest.
    size, fix = 4 * count * longest, "Give shorter ones."
    checks.fits_memory(name, size, f"{count:,} texts of up to {longest:,} characters", fix)
    return texts


def _text(value: Any) -> str:
    is_missing = value is None or type(value).__name__ in ("NAType", "NaTType")
    if is_missing or (isinstance(value, float) and value != value):
        return ""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    # File names may contain bytes that are not UTF-8; tables and pages cannot.
    return str(value).encode(errors="replace").decode()


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


# The card in notebooks: a sheet of images, or a density map along two principal components.
_COLUMNS, _ROWS, _TILE, _GAP = 8, 3, 32, 2
_MAX_LABELS, _MAX_POINTS, _PCA_SAMPLE = 4, 20_000, 200


def _card(dataset: Dataset) -> str:
    figures = {
        "items": f"{len(dataset):,} of shape {dataset.shape}",
        "labels": _label_counts(dataset.labels or []),
        "bounds": "" if dataset.bounds is None else "{:g} to {:g}".format(*dataset.bounds),
        "duplicates merged": f"{dataset.merged:,}" if dataset.merged else "",
        "files skipped": f"{len(dataset.skipped):,}" if dataset.skipped else "",
        "source": "" if dataset.source is None else str(dataset.source),
    }
    known = {name: value for name, value in figures.items() if value}
    pixels = _sheet(dataset) if dataset.has_images else _map(dataset)
    text = "Some of the items" if dataset.has_images else "Map of the items"
    return drawing.card("Dataset", known, [drawing.picture(pixels, text)])


def _label_counts(labels: Sequence[str]) -> str:
    counts = Counter(labels)
    most = [f"{label[:20]} ({number:,})" for label, number in counts.most_common(_MAX_LABELS)]
    more = [f"and {len(counts) - len(most):,} more"] if len(counts) > len(most) else []
    return ", ".join(most + more)


def _sheet(dataset: Dataset) -> UInt8[np.ndarray, "height width 3"]:
    chosen = rows.evenly_spaced(len(dataset), _COLUMNS * _ROWS).tolist()
    pitch = _TILE + _GAP
    size = min(len(chosen), _COLUMNS) * pitch, -(-len(chosen) // _COLUMNS) * pitch
    sheet = Image.new("RGB", size, drawing.EMPTY)
    for number, item in enumerate(chosen):
        tile = Image.fromarray(dataset.image(item)).convert("RGB")
        tile.thumbnail((_TILE, _TILE))
        row, column = divmod(number, _COLUMNS)
        sheet.paste(tile, (column * pitch, row * pitch))
    return np.asarray(sheet)


def _map(dataset: Dataset) -> UInt8[np.ndarray, "height width 3"]:
    points = dataset.items[rows.evenly_spaced(len(dataset), _MAX_POINTS)].astype(np.float64)
    spots = drawing.PrincipalComponents(points, sample=_PCA_SAMPLE).place(points)
    bins = int(np.clip(round(len(points) ** 0.5), 4, 40))
    return drawing.shaded(drawing.number_by_bin(spots, bins))
