"""beartype as the tests use it: an ``int`` passes for a ``float``, as type checkers have it."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
