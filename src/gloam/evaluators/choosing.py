"""Which evaluator an argument means."""

from concurrent import futures
from typing import Any

from gloam import checks
from gloam.evaluators.evaluator import Evaluator, InProcess
from gloam.evaluators.executors import Executors


def as_evaluator(evaluator: Any) -> Evaluator:
    """The evaluator that ``evaluator`` means: none is this process, an executor is wrapped.

    >>> type(as_evaluator(None)).__name__
    'InProcess'
    """
    if evaluator is None:
        return InProcess()
    if isinstance(evaluator, futures.Executor):
        return Executors(evaluator)
    checks.instance(
        "evaluator",
        evaluator,
        Evaluator,  # pyright: ignore[reportArgumentType]
        "Give gloam.Processes(...), gloam.Dask(...) or an executor of concurrent.futures.",
    )
    return evaluator
