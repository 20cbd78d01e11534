"""Quality-diversity optimization in high-dimensional measure spaces, in JAX.

Searches:
    run, optimize       a whole search, of a function in JAX or in Python; they return a Result
    resume              continues a run of one of gloam's domains
    answer              solutions for new items, from the elites of a finished search
    reevaluate          evaluates the elites of a run folder again, for noise
    Search, AsyncSearch ask and tell
    Pool                elites whose solutions are texts or JSON values from outside
    Asynchronous        settings of an asynchronous run
    step, records       the functions and records of one iteration, for loops of your own
    runs, searches      where these come from

Algorithms:
    DMS                 Discount Model Search, the default
    CMAMAE, MAPElites, MAPElitesLine
    Algorithm           any emitter, archive and discount
    algorithms, emitters, discounts
                        all of them, and their parts

Variables:
    Space               named variables in the place of x0
    Real, Integer, Categorical
                        what a variable can be

Archives, problems and data:
    GridArchive, CVTArchive
    archives            their base class, centroids by k-means, and FAISS
    domains             problems with their archives
    datasets            arrays, tables and images as measure spaces

Results:
    Elites              the solutions of an archive, as arrays and as a table
    RunFolder           the files of a run
    formats             registers classes of your own for these files
    compare             algorithms by their results: a table, tests and a figure
    plots, gallery      figures, and elites beside the items of a dataset
    interop             PyTorch, pyribs, gymnasium and Brax

Evaluation in Python:
    evaluators          worker processes, executors and clusters
    callbacks           early stopping, loggers and displays
    errors              what is raised beside ValueError and TypeError

`help(gloam.DMS)` describes an object. The command line is described by `gloam --help`.
"""

import lazy_loader

# Modules are imported on first use, as `__init__.pyi` lists them: the command line shows its help
# without JAX, and a search imports nothing of figures and models.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
