"""Public names of `gloam.experiments` and their modules, for `__init__.py` and type checkers."""

from .presets import paper_algorithm as paper_algorithm
from .presets import preset_algorithm as preset_algorithm
from .statistics import Comparison as Comparison
from .statistics import compare as compare
from .statistics import games_howell as games_howell
from .statistics import hedges_g as hedges_g
from .statistics import welch_anova as welch_anova
from .study import Study as Study
