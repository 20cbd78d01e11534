"""Callbacks: told of the rows that a run logs, and able to stop it."""

from gloam.callbacks.callback import Callback as Callback
from gloam.callbacks.callback import CallbackFailure as CallbackFailure
from gloam.callbacks.callback import CallbackWarning as CallbackWarning
from gloam.callbacks.callback import RunEnd as RunEnd
from gloam.callbacks.callback import RunStart as RunStart
from gloam.callbacks.csv_logger import CsvLogger as CsvLogger
from gloam.callbacks.print_logger import PrintLogger as PrintLogger
from gloam.callbacks.stopping import StopAt as StopAt
from gloam.callbacks.stopping import StopOnPlateau as StopOnPlateau
from gloam.callbacks.trackers import MLflow as MLflow
from gloam.callbacks.trackers import TensorBoard as TensorBoard
from gloam.callbacks.trackers import WandB as WandB
