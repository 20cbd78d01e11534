"""Quality-diversity optimization in high-dimensional measure spaces, in JAX.

Searches:
    run, optimize       a whole search, of a function in JAX or in Python; they return a Result
    resume              continues a run of one of gloam's domains
    reevaluate          evaluates the elites of a run folder again, for noise; returns Corrected
    Search, AsyncSearch ask and tell; AsyncSearch.ask returns a Ticket per solution
    Asynchronous        settings of an asynchronous run
    step, records       the functions and records of one iteration, for loops of your own

Algorithms:
    DMS                 Discount Model Search, the default
    CMAMAE, DDS, MAPElites, MAPElitesLine
    CMAMEGA, CMAMAEGA   by gradients, for few measures
    Algorithm           any emitter, archive and discount
    emitters, discounts their parts

Variables:
    Space               named variables in the place of x0
    Real, Integer, Categorical
                        what a variable can be

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

import lazy_loader

# Modules are imported on first use, as `__init__.pyi` lists them: the command line shows its help
# without JAX, and a search imports nothing of figures and models.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
