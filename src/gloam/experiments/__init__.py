"""Experiments: the paper's settings and gloam's own, the paper's study, its statistics."""

from gloam.experiments.presets import paper_algorithm as paper_algorithm
from gloam.experiments.presets import preset_algorithm as preset_algorithm
from gloam.experiments.study import Study as Study
