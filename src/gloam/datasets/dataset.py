"""A dataset whose items are the cells to fill."""

import os
from collections.abc import Callable
from dataclasses import InitVar, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32, Int, UInt8

from gloam import checks
from gloam.archives import CVTArchive
from gloam.datasets import rows
from gloam.datasets.dataset_card import dataset_card
from gloam.datasets.embedding import embed_all
from gloam.datasets.rows import is_picture, item_shape, pictures, scalar_bounds, texts

_BY_DEFAULT: Any = None  # a field that is filled in when a dataset is built


@dataclass(frozen=True)
class Skipped:
    """A file that could not be read, and why."""

    name: str
    reason: str


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Items that are points of measure space, with what is needed to show them.

    Equal items are merged when a dataset is built, the first of them kept: a Voronoi cell cannot
    be split. The readers (`from_array`, `from_file`, `from_folder`, ...) build datasets.

    Args:
        items: ``(n, meas)`` numbers, or ``(n, *shape)``. A float32 array is not copied, so leave
            it as it is afterwards.
        shape: Shape of one item, such as ``(28, 28)``; by default that of ``items``' rows.
        labels: A text for each item, or ``None``.
        names: File names; by default row numbers.
        images: ``(n, height, width[, 3])`` pictures to show. Not needed where the items are
            pictures themselves.
        bounds: Lowest and highest value a measure can have, shown as black and white. By default
            0 and 1 for pictures, or their own extremes where those lie outside; for vectors none.
        skipped: Files that could not be read.
        source: File or folder the items come from.
        place: For each item given, its place in ``items``, which has each item once.
        fresh: Whether nobody else holds ``items``, so that duplicates can be taken out of the
            array itself, which saves a copy.

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
    names: list[str] = _BY_DEFAULT
    images: UInt8[np.ndarray, "n height width *channels"] | None = None
    bounds: tuple[float, float] | None = None
    skipped: tuple[Skipped, ...] = ()
    source: Path | None = None
    place: Int[np.ndarray, " given"] = _BY_DEFAULT
    fresh: InitVar[bool] = False

    def __post_init__(self, fresh: bool):
        given = rows.stacked(self.items)
        count, shape = len(given), item_shape(self.shape, given)
        labels = None if self.labels is None else texts("labels", self.labels, count)
        names = None if self.names is None else texts("names", self.names, count)
        images = None if self.images is None else pictures(self.images, count)
        items = rows.float32(given.reshape(count, -1))
        rows.check_finite(items, names)
        kept, place = rows.first_of_equal(items[block] for block in rows.blocks(items))
        checks.expect(count > 1, "items", "at least 2 items", "one", "Give more data.")
        checks.expect(
            len(kept) > 1,
            "items",
            "at least 2 different items",
            f"{count} that are all equal",
            "Check how they were read.",
        )
        if len(kept) < count:
            in_place = fresh or not np.may_share_memory(items, given)
            items = rows.chosen(items, kept, in_place=in_place)
            images = None if images is None else images[kept]
        items = items.view()
        items.flags.writeable = False
        self._set(
            items=items,
            shape=shape,
            labels=None if labels is None else [labels[row] for row in kept],
            names=[str(row) if names is None else names[row] for row in kept.tolist()],
            images=images,
            bounds=scalar_bounds(self.bounds, items, pixels=is_picture(shape) and images is None),
            skipped=tuple(self.skipped),
            source=None if self.source is None else Path(self.source),
            place=place if self.place is None else place[self.place],
        )

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)  # the class is frozen from here on

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        parts = [f"{len(self)} items of shape {self.shape}"]
        if self.labels is not None:
            parts.append(_counted(len(set(self.labels)), "label"))
        if self.images is not None:
            parts.append("with pictures")
        if self.merged:
            parts.append(f"{_counted(self.merged, 'duplicate')} merged")
        if self.skipped:
            parts.append(f"{_counted(len(self.skipped), 'file')} skipped")
        return f"Dataset({', '.join(parts)})"

    def _repr_html_(self) -> str:
        return dataset_card(self)

    @property
    def merged(self) -> int:
        """How many of the items given were merged into an equal one."""
        return len(self.place) - len(self)

    @property
    def has_images(self) -> bool:
        """Whether `image` has something to show."""
        return self.images is not None or is_picture(self.shape)

    def image(self, item: int) -> UInt8[np.ndarray, "height width *channels"]:
        """Item number ``item`` as a picture."""
        count = len(self)
        item = checks.integer("item", item, minimum=-count)
        checks.expect(item < count, "item", f"a number below {count}", item)
        return self._as_images([item % count])[0]

    def _as_images(self, chosen: Any) -> UInt8[np.ndarray, "b height width *channels"]:
        checks.expect(
            self.has_images,
            "image",
            "items that are pictures, or have them",
            f"vectors of shape {self.shape}",
            "Build the dataset with images=..., or shape=(height, width).",
        )
        if self.images is not None:
            return self.images[chosen]
        low, high = self.bounds or (0.0, 1.0)  # pictures have bounds
        pixels = (self.items[chosen] - low) * (255 / (high - low))
        shape = self.shape[:2] if self.shape[-1] == 1 else self.shape
        return np.rint(pixels.clip(0, 255)).astype(np.uint8).reshape(-1, *shape)

    def archive(
        self, metric: Literal["euclidean", "cosine"] = "euclidean", **options: Any
    ) -> CVTArchive:
        """An archive with one cell for each item, in the order of ``items``.

        Its measures have the shape of an item: evaluations may return pictures as they are, or
        flat. A network that knows flat rows only is still given these.

        Args:
            metric: Which item is nearest: by distance, or by angle.
            options: Further options of `CVTArchive`, such as ``f_min``, ``fields`` or
                ``index``; ``lower`` and ``upper`` are this dataset's ``bounds`` unless given, for
                ``"cosine"`` the extremes of the items brought to length one.
        """
        if metric == "cosine":
            kept, place = rows.first_of_equal(rows.unit_blocks(self.items))
            checks.expect(
                len(kept) == len(self),
                "items",
                "different directions for 'cosine'",
                f"{len(place) - len(kept)} that differ in length only",
                "Merge them: dataset.normalized().archive('cosine').",
            )
        # Bounds of pixels are not bounds of unit vectors, which have those of the centroids.
        if self.bounds is not None and metric != "cosine":
            options = {"lower": self.bounds[0], "upper": self.bounds[1]} | options
        return CVTArchive(self.items.reshape(-1, *self.shape), metric=metric, **options)

    def normalized(self) -> "Dataset":
        """Items of length one; those that become equal are merged. Pictures stay to be shown."""
        units = np.empty_like(self.items)
        start = 0
        for block in rows.unit_blocks(self.items):
            units[start : start + len(block)] = block
            start += len(block)
        images = self._as_images(slice(None)) if self.has_images else None
        return self._with_items(units, self.shape, images)

    def embedded(
        self,
        embed: Callable[[np.ndarray], Any],
        *,
        batch: int = 256,
        cache: bool | str | os.PathLike = True,
        progress: bool = True,
    ) -> "Dataset":
        """Items replaced by what ``embed`` makes of them. Pictures stay to be shown.

        Args:
            embed: Maps a batch of uint8 pictures ``(b, height, width[, 3])``, or of items
                ``(b, *shape)`` where there are no pictures, to vectors ``(b, d)``, each row from
                its own input alone.
            batch: Items in a batch.
            cache: Whether the vectors are kept in a folder ``.gloam`` beside the data and used
                again, or the folder to keep them in. They are found by the content of the items
                and the name of ``embed``. A few of them are computed anew each time; if these
                differ, ``embed`` has changed and all are.
            progress: Whether to show a bar.
        """
        pixels = is_picture(self.shape) and self.bounds == (0, 1)
        images = self._as_images(slice(None)) if self.images is not None or pixels else None
        inputs = self.items.reshape(-1, *self.shape) if images is None else images
        vectors = embed_all(
            embed, inputs, batch=batch, cache=cache, source=self.source, progress=progress
        )
        return self._with_items(vectors, vectors.shape[1:], images)

    def _with_items(self, items: np.ndarray, shape: tuple[int, ...], images: Any) -> "Dataset":
        return Dataset(
            items,
            shape,
            self.labels,
            self.names,
            images,
            None,
            self.skipped,
            self.source,
            self.place,
            fresh=True,
        )

    def subsample(self, num_items: int, seed: int = 0) -> "Dataset":
        """``num_items`` items chosen by ``seed``, in their order here.

        With one seed, a smaller sample is part of a larger one.
        """
        num_items = checks.integer("num_items", num_items, minimum=2)
        most = f"at most the {len(self)} items there are"
        checks.expect(num_items <= len(self), "num_items", most, num_items)
        return self._subset(self._shuffled(seed)[:num_items])

    def split(self, holdout: float = 0.2, seed: int = 0) -> tuple["Dataset", "Dataset"]:
        """The items for the search, and the share ``holdout`` of them that it never sees."""
        holdout = checks.number("holdout", holdout, above=0)
        held = round(holdout * len(self))
        checks.expect(
            2 <= held <= len(self) - 2,
            "holdout",
            "a share that leaves at least 2 items on both sides",
            f"{holdout:g} of {len(self)} items",
        )
        order = self._shuffled(seed)
        return self._subset(order[held:]), self._subset(order[:held])

    def _shuffled(self, seed: int) -> Int[np.ndarray, " n"]:
        seed = checks.seed("seed", seed)
        return np.random.default_rng(seed).permutation(len(self))

    def _subset(self, chosen: Int[np.ndarray, " k"]) -> "Dataset":
        chosen = np.sort(chosen)
        return Dataset(
            self.items[chosen],
            self.shape,
            None if self.labels is None else [self.labels[item] for item in chosen],
            [self.names[item] for item in chosen],
            None if self.images is None else self.images[chosen],
            self.bounds,
            self.skipped,
            self.source,
        )


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
