"""Evaluators: where the user's function runs, and how failed solutions are handled."""

from gloam.evaluators.dask_cluster import Dask as Dask
from gloam.evaluators.evaluator import Evaluator as Evaluator
from gloam.evaluators.evaluator import InProcess as InProcess
from gloam.evaluators.evaluator import Stream as Stream
from gloam.evaluators.executors import Executors as Executors
from gloam.evaluators.executors import as_evaluator as as_evaluator
from gloam.evaluators.processes import Processes as Processes
from gloam.evaluators.ray_cluster import Ray as Ray
from gloam.evaluators.results import Evaluated as Evaluated
from gloam.evaluators.results import Failure as Failure
from gloam.evaluators.results import PerSolution as PerSolution
from gloam.evaluators.results import ResultSpec as ResultSpec
from gloam.evaluators.submitit_jobs import Submitit as Submitit
