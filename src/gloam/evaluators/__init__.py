"""Evaluators: where the user's function runs, and what happens to solutions that fail."""

from gloam.evaluators.answers import AnswerForm as AnswerForm
from gloam.evaluators.answers import Evaluated as Evaluated
from gloam.evaluators.answers import Failure as Failure
from gloam.evaluators.answers import PerSolution as PerSolution
from gloam.evaluators.dask_cluster import Dask as Dask
from gloam.evaluators.evaluator import Evaluator as Evaluator
from gloam.evaluators.evaluator import EvaluatorError as EvaluatorError
from gloam.evaluators.evaluator import Executors as Executors
from gloam.evaluators.evaluator import InProcess as InProcess
from gloam.evaluators.evaluator import as_evaluator as as_evaluator
from gloam.evaluators.processes import Processes as Processes
