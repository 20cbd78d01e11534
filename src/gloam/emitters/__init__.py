"""Emitters: they ask for evaluations and adapt to how the answers rank."""

from gloam.emitters.cma_emitters import CmaEmitters as CmaEmitters
from gloam.emitters.emitter import Emitter as Emitter
from gloam.emitters.rules import BasicRestart as BasicRestart
from gloam.emitters.rules import FilterSelection as FilterSelection
from gloam.emitters.rules import MuSelection as MuSelection
from gloam.emitters.rules import RestartEvery as RestartEvery
from gloam.emitters.rules import RestartRule as RestartRule
from gloam.emitters.rules import RestartWithoutImprovement as RestartWithoutImprovement
from gloam.emitters.rules import SelectionRule as SelectionRule
from gloam.emitters.strategies import CMAES as CMAES
from gloam.emitters.strategies import LMMAES as LMMAES
from gloam.emitters.strategies import SepCMAES as SepCMAES
from gloam.emitters.strategies import Strategy as Strategy
from gloam.emitters.variation import Variation as Variation
