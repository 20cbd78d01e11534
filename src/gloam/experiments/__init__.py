"""Presets of algorithms, the paper's study, its report, and comparisons with other libraries."""

from gloam.experiments.presets import paper_algorithm as paper_algorithm
from gloam.experiments.presets import preset_algorithm as preset_algorithm
from gloam.experiments.statistics import Comparison as Comparison
from gloam.experiments.statistics import compare as compare
from gloam.experiments.statistics import games_howell as games_howell
from gloam.experiments.statistics import hedges_g as hedges_g
from gloam.experiments.statistics import welch_anova as welch_anova
from gloam.experiments.study import Study as Study
