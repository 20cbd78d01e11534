"""Public names of `gloam_lab` and their modules, for `__init__.py` and type checkers."""

from . import latent_illumination as latent_illumination
from .presets import paper_algorithm as paper_algorithm
from .presets import preset_algorithm as preset_algorithm
from .report import write_report as write_report
from .study import Study as Study
