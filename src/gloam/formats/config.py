"""The configuration of a run: what was searched, how, and with which seeds."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np

from gloam import checks
from gloam._version import __version__
from gloam.formats import objects
from gloam.formats.documents import content_digest

DriverKind = Literal["fused", "ask-tell", "asynchronous"]


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """Everything about a run that is settled before its first iteration.

    Args:
        algorithm, domain: As `gloam.formats.objects.encode` writes them.
        driver: ``"fused"`` for `gloam.run`, ``"ask-tell"`` or ``"asynchronous"`` for
            `gloam.optimize`.
        seeds: The seeds.
        dataset: Digest of the items that the cells are, or ``None``.
        plan: Number of iterations, and what is kept when; it may change when a run is resumed.
        version: Version of gloam that wrote it.
    """

    algorithm: Any
    domain: Any
    driver: DriverKind
    seeds: tuple[int, ...]
    dataset: str | None
    plan: Mapping[str, Any]
    version: str = __version__

    @property
    def identity(self) -> str:
        """A digest of all that the bits of the search depend on.

        Files of a run carry it, so that files of different runs cannot be mixed.
        """
        searched = objects.without_foreign_names([self.algorithm, self.domain])
        return content_digest([searched, self.driver, list(self.seeds)])

    def to_json(self) -> dict[str, Any]:
        """As it is written."""
        content = dataclasses.asdict(self)
        return content | {"seeds": list(self.seeds), "identity": self.identity}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "RunConfig":
        """As it was written.

        Raises:
            ValueError: A part is missing or is not what it should be.
        """
        names = {field.name for field in dataclasses.fields(cls)}
        if set(content) != names | {"identity"}:
            raise ValueError(f"it has the parts {sorted(content)}")
        identity = content["identity"]
        config = cls(**{name: content[name] for name in names})
        if config.driver not in get_args(DriverKind):
            raise ValueError(f"it names the driver {config.driver!r}")
        if not (isinstance(config.dataset, str) or config.dataset is None):
            raise ValueError("its digest of the dataset is not a text")
        if not (isinstance(config.plan, dict) and isinstance(config.version, str)):
            raise ValueError("its plan or version is not what gloam writes")
        config = dataclasses.replace(config, seeds=_seeds(config.seeds))
        if config.identity != identity:
            raise ValueError("its identity does not agree with its content")
        return config

    def differences(self, other: "RunConfig") -> list[str]:
        """What keeps ``other`` from continuing a run of this configuration."""
        found = objects.differences(self.algorithm, other.algorithm, "algorithm")
        found += objects.differences(self.domain, other.domain, "domain")
        told = [str(difference) for difference in found]
        for name in ("driver", "seeds"):
            stored, given = getattr(self, name), getattr(other, name)
            if stored != given:
                told.append(f"{name} is {_short(stored)} in the file and {_short(given)} now")
        if None not in (self.dataset, other.dataset) and self.dataset != other.dataset:
            told.append("dataset has other items, labels or names than the file says")
        return told


def describe(
    algorithm: Any,
    domain: Any,
    *,
    driver: DriverKind,
    seeds: Sequence[int],
    dataset: str | None,
    plan: Mapping[str, Any],
) -> tuple[RunConfig, dict[str, np.ndarray]]:
    """The configuration of a run, and the arrays that it names."""
    arrays: dict[str, np.ndarray] = {}
    config = RunConfig(
        objects.encode(algorithm, arrays),
        objects.encode(domain, arrays),
        driver,
        tuple(seeds),
        dataset,
        plan,
    )
    return config, arrays


def _seeds(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise ValueError("its seeds are not a list")
    return tuple(checks.integer("seeds", seed, minimum=0) for seed in value)


def _short(value: Any) -> str:
    text = repr(list(value)) if isinstance(value, tuple) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
