"""Emitters: they ask for evaluations and adapt to how the answers rank."""

from gloam.emitters.cma_emitters import CmaEmitters as CmaEmitters
from gloam.emitters.cma_es import CMAES as CMAES
from gloam.emitters.emitter import ElitesWanted as ElitesWanted
from gloam.emitters.emitter import Emitter as Emitter
from gloam.emitters.lm_ma_es import LMMAES as LMMAES
from gloam.emitters.mixture import Mixture as Mixture
from gloam.emitters.recombination import Recombination as Recombination
from gloam.emitters.restart_rules import BasicRestart as BasicRestart
from gloam.emitters.restart_rules import RestartEvery as RestartEvery
from gloam.emitters.restart_rules import RestartRule as RestartRule
from gloam.emitters.restart_rules import RestartWhenIdle as RestartWhenIdle
from gloam.emitters.restart_rules import RestartWithoutImprovement as RestartWithoutImprovement
from gloam.emitters.selection_rules import FilterSelection as FilterSelection
from gloam.emitters.selection_rules import MuSelection as MuSelection
from gloam.emitters.selection_rules import SelectionRule as SelectionRule
from gloam.emitters.sep_cma_es import SepCMAES as SepCMAES
from gloam.emitters.strategy import Strategy as Strategy
from gloam.emitters.variation import Variation as Variation
