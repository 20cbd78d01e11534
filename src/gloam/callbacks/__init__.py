"""Callbacks receive the metrics that a run logs, and can stop it."""

from gloam._tools.progress import Display as Display
from gloam.callbacks.callback import Callback as Callback
from gloam.callbacks.callback import CallbackFailure as CallbackFailure
from gloam.callbacks.callback import CallbackWarning as CallbackWarning
from gloam.callbacks.callback import RunEnd as RunEnd
from gloam.callbacks.callback import RunStart as RunStart
from gloam.callbacks.loggers import CsvLogger as CsvLogger
from gloam.callbacks.loggers import MLflow as MLflow
from gloam.callbacks.loggers import PrintLogger as PrintLogger
from gloam.callbacks.loggers import TensorBoard as TensorBoard
from gloam.callbacks.loggers import WandB as WandB
from gloam.callbacks.stopping import StopAt as StopAt
from gloam.callbacks.stopping import StopOnPlateau as StopOnPlateau
