"""Runs: whole searches with metrics, checkpoints and progress."""

from gloam.runs.answers import answer as answer
from gloam.runs.options import Asynchronous as Asynchronous
from gloam.runs.reevaluation import Corrected as Corrected
from gloam.runs.reevaluation import reevaluate as reevaluate
from gloam.runs.result import Result as Result
from gloam.runs.run import optimize as optimize
from gloam.runs.run import resume as resume
from gloam.runs.run import run as run
