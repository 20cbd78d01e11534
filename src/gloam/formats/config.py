"""The configuration of a run: algorithm, domain, driver and seeds."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np

from gloam._tools import checks
from gloam._version import __version__
from gloam.formats import objects
from gloam.formats.documents import content_digest

DriverKind = Literal["fused", "ask-tell", "asynchronous"]


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """The settings of a run that are fixed before its first iteration.

    Args:
        algorithm, domain: As `gloam.formats.objects.encode` writes them.
        driver: ``"fused"`` for `gloam.run`, ``"ask-tell"`` or ``"asynchronous"`` for
            `gloam.optimize`.
        seeds: The seeds.
        dataset: Digest of the items that the cells stand for, or ``None``.
        plan: Number of iterations, options, and when the run was started (in seconds since 1970);
            it may change when a run is resumed.
        start: Digest of the solutions that the run started from, or ``None``.
        version: Version of gloam that wrote it.
    """

    algorithm: Any
    domain: Any
    driver: DriverKind
    seeds: tuple[int, ...]
    dataset: str | None
    plan: Mapping[str, Any]
    start: str | None = None
    version: str = __version__

    @property
    def identity(self) -> str:
        """Digest of everything that determines the results of the search.

        Files of a run carry it, so that files of different runs cannot be mixed.
        """
        searched = objects.without_foreign_names([self.algorithm, self.domain])
        return content_digest([searched, self.driver, list(self.seeds), self.start])

    def to_json(self) -> dict[str, Any]:
        """Return the configuration as JSON."""
        content = dataclasses.asdict(self)
        return content | {"seeds": list(self.seeds), "identity": self.identity}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "RunConfig":
        """Return the configuration that `to_json` wrote.

        Raises:
            ValueError: A part is missing or not valid.
        """
        names = {field.name for field in dataclasses.fields(cls)}
        if set(content) != names | {"identity"}:
            raise ValueError(f"it has the parts {checks.short(sorted(content))}")
        if content["driver"] not in get_args(DriverKind):
            raise ValueError(f"it names the driver {checks.short(content['driver'])}")
        types = {"seeds": list, "dataset": str | None, "plan": dict, "version": str}
        types["start"] = str | None
        for name, kind in types.items():
            if not isinstance(content[name], kind):
                raise ValueError(f"its part '{name}' has the wrong type")
        parts = {name: content[name] for name in names}
        parts["seeds"] = tuple(checks.seed("seeds", seed) for seed in content["seeds"])
        if not parts["seeds"] or len(set(parts["seeds"])) < len(parts["seeds"]):
            raise ValueError("it names no seeds, or one twice")
        config = cls(**parts)
        if config.identity != content["identity"]:
            raise ValueError("its identity does not agree with its content")
        return config

    def differences(self, other: "RunConfig") -> list[str]:
        """Describe the differences that keep ``other`` from continuing this run."""
        differences = objects.differences(self.algorithm, other.algorithm, "algorithm")
        differences += objects.differences(self.domain, other.domain, "domain")
        for name in ("driver", "seeds"):
            stored, given = getattr(self, name), getattr(other, name)
            if stored != given:
                differences.append(
                    f"{name} is {_short(stored)} in the file and {_short(given)} now"
                )
        if self.start != other.start:
            differences.append(
                "start_from has other solutions than those that the run started from"
            )
        if None not in (self.dataset, other.dataset) and self.dataset != other.dataset:
            differences.append("dataset has other items, labels or names than the file says")
        return differences

    def changed_sources(self, other: "RunConfig") -> list[str]:
        """Describe which functions of the user have changed since the run began."""
        changes = objects.changed_sources(self.algorithm, other.algorithm, "algorithm")
        return changes + objects.changed_sources(self.domain, other.domain, "evaluation")


def describe(
    algorithm: Any,
    domain: Any,
    *,
    driver: DriverKind,
    seeds: Sequence[int],
    dataset: str | None,
    plan: Mapping[str, Any],
    start: str | None = None,
) -> tuple[RunConfig, dict[str, np.ndarray]]:
    """Return the configuration of a run, and the arrays that it names."""
    arrays: dict[str, np.ndarray] = {}
    encoded = objects.encode(algorithm, arrays), objects.encode(domain, arrays)
    return RunConfig(*encoded, driver, tuple(seeds), dataset, plan, start), arrays


def _short(value: Any) -> str:
    text = repr(list(value)) if isinstance(value, tuple) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
