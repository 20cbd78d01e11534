"""Experiments: the paper's settings, its study, its statistics."""

from gloam.experiments.presets import paper_algorithm as paper_algorithm
from gloam.experiments.study import Study as Study
