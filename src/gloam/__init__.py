"""Quality-diversity optimization in high-dimensional measure spaces, in JAX.

Searches:
    run, optimize       a whole search, of a function in JAX or in Python; they return a Result
    resume              continues a run of one of gloam's domains
    Search, AsyncSearch ask and tell; AsyncSearch.ask returns a Ticket per solution
    Asynchronous        settings of an asynchronous run
    step, records       the functions and records of one iteration, for loops of your own

Algorithms:
    DMS                 Discount Model Search, the default
    CMAMAE, DDS, MAPElites, MAPElitesLine
    CMAMEGA, CMAMAEGA   by gradients, for few measures
    Algorithm           any emitter, archive and discount
    emitters, discounts their parts

Archives, problems and data:
    GridArchive, CVTArchive, kmeans_centroids
    archives            their base class, and FAISS
    domains             problems with their archives
    datasets            arrays, tables and images as measure spaces
    generators          image generators and embedders

Results:
    Elites              the solutions of an archive, as arrays and as a table
    RunFolder           the files of a run
    compare             algorithms by their results: a table, tests and a figure
    plots, gallery      figures, and elites beside the items of a dataset
    experiments         the paper's study
    interop             PyTorch, pyribs, gymnasium and Brax

Evaluation in Python:
    InProcess, Processes, Executors, Dask, PerSolution
    evaluators          their base class
    callbacks           early stopping and loggers

Errors:
    EvaluationError, EvaluatorError, Interrupted
    DamagedFileError, ForeignError, LockedError, RunExistsError

`help(gloam.DMS)` describes an object. The command line is described by `gloam --help`.
"""

import importlib
from typing import TYPE_CHECKING

from gloam import archives as archives
from gloam import callbacks as callbacks
from gloam import datasets as datasets
from gloam import discounts as discounts
from gloam import domains as domains
from gloam import emitters as emitters
from gloam import generators as generators
from gloam._version import __version__ as __version__
from gloam.algorithms import CMAMAE as CMAMAE
from gloam.algorithms import CMAMAEGA as CMAMAEGA
from gloam.algorithms import CMAMEGA as CMAMEGA
from gloam.algorithms import DDS as DDS
from gloam.algorithms import DMS as DMS
from gloam.algorithms import Algorithm as Algorithm
from gloam.algorithms import MAPElites as MAPElites
from gloam.algorithms import MAPElitesLine as MAPElitesLine
from gloam.archives import CVTArchive as CVTArchive
from gloam.archives import Elites as Elites
from gloam.archives import GridArchive as GridArchive
from gloam.archives import kmeans_centroids as kmeans_centroids
from gloam.checks import EvaluationError as EvaluationError
from gloam.evaluators import Dask as Dask
from gloam.evaluators import EvaluatorError as EvaluatorError
from gloam.evaluators import Executors as Executors
from gloam.evaluators import InProcess as InProcess
from gloam.evaluators import PerSolution as PerSolution
from gloam.evaluators import Processes as Processes
from gloam.formats import DamagedFileError as DamagedFileError
from gloam.formats import ForeignError as ForeignError
from gloam.formats import LockedError as LockedError
from gloam.formats import RunExistsError as RunExistsError
from gloam.formats import RunFolder as RunFolder
from gloam.runs import Asynchronous as Asynchronous
from gloam.runs import Interrupted as Interrupted
from gloam.runs import Result as Result
from gloam.runs import optimize as optimize
from gloam.runs import resume as resume
from gloam.runs import run as run
from gloam.searches import AsyncSearch as AsyncSearch
from gloam.searches import Search as Search
from gloam.searches import Ticket as Ticket

if TYPE_CHECKING:
    from gloam import experiments as experiments
    from gloam import gallery as gallery
    from gloam import interop as interop
    from gloam import plots as plots
    from gloam.experiments import compare as compare

# They import matplotlib and pandas, which takes longer than all the rest, or are seldom needed.
_IMPORTED_ON_USE = ("experiments", "gallery", "interop", "plots")
_PUBLIC_MODULES = ("archives", "callbacks", "datasets", "discounts", "domains", "emitters")
_PUBLIC_MODULES += ("evaluators", "generators", "records", "step")


def __getattr__(name: str) -> object:
    if name in _IMPORTED_ON_USE:
        return importlib.import_module(f"gloam.{name}")
    if name == "compare":
        return importlib.import_module("gloam.experiments").compare
    raise AttributeError(f"module 'gloam' has no attribute {name!r}")


def __dir__() -> list[str]:
    # Only public names, which completion shows: no imported modules and no private packages.
    special = [name for name in globals() if name.startswith("__")]
    own = [
        name
        for name, value in globals().items()
        if getattr(value, "__module__", "").startswith("gloam.")
    ]
    return sorted({*special, *own, *_PUBLIC_MODULES, *_IMPORTED_ON_USE, "compare"})
