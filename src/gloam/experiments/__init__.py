"""Presets of algorithms, the paper's study, its report, and comparisons with other libraries."""

from gloam.experiments.presets import paper_algorithm as paper_algorithm
from gloam.experiments.presets import preset_algorithm as preset_algorithm
from gloam.experiments.study import Study as Study
