"""What the operations of a graph have in common: attributes, and how they are refused."""

from typing import Any

Attributes = dict[str, str]


class OperationError(ValueError):
    """An operation in a form that is not supported; the message says expected and got."""


def expect(holds: bool, expected: str, got: Any) -> None:
    """Raise an `OperationError` unless ``holds``."""
    if not holds:
        raise OperationError(f"expected {expected}, got {got}")
