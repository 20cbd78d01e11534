"""Parameters of requests, checked: a request that is not understood is refused."""

from collections.abc import Iterable

from starlette.requests import Request

_LONGEST = 2000


class RefusedError(Exception):
    """A request that is not answered.

    Args:
        status: Status code of the answer.
        reason: What is wrong with it.
    """

    def __init__(self, status: int, reason: str):
        self.status = status
        self.reason = reason
        super().__init__(reason)


class Query:
    """The query of a request.

    Args:
        request: The request.
        known: Names that the query may have, each at most once.
    """

    def __init__(self, request: Request, known: Iterable[str]):
        if len(request.url.query) > _LONGEST:
            raise RefusedError(414, "The query is too long.")
        given = request.query_params.multi_items()
        names = [name for name, _ in given]
        if len(set(names)) < len(names) or not set(names) <= set(known):
            raise RefusedError(400, "The query has parameters that are not known, or twice.")
        self._given = dict(given)

    def integer(self, name: str, *, most: int = 2**63) -> int | None:
        """A whole number from 0 to ``most``, or ``None``."""
        text = self._given.get(name)
        return None if text is None else integer(text, name, most=most)

    def integers(self, name: str, *, count: int) -> list[int]:
        """Whole numbers between commas, from one to ``count`` of them."""
        parts = self._given.get(name, "").split(",")
        if len(parts) > count:
            raise RefusedError(400, f"'{name}' has more than {count} numbers.")
        return [integer(part, name) for part in parts]

    def choice(self, name: str, among: Iterable[str]) -> str:
        """One of several texts, the first by default."""
        known = list(among)
        text = self._given.get(name, known[0])
        if text not in known:
            raise RefusedError(400, f"'{name}' is not one of {', '.join(known)}.")
        return text


def integer(text: str, name: str, *, most: int = 2**31) -> int:
    """A whole number in decimal digits.

    Raises:
        RefusedError: It is something else, or larger than ``most``.
    """
    if not (text.isascii() and text.isdecimal() and len(text) <= 20) or int(text) > most:
        raise RefusedError(400, f"'{name}' is not a whole number up to {most}.")
    return int(text)
