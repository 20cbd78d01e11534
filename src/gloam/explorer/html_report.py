"""A report."""


def write_html() -> None:
    """Write."""
