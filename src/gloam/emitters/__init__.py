"""Emitters: they propose solutions and adapt to how these rank."""

from gloam.emitters.adaptive_mixture import AdaptiveMixture as AdaptiveMixture
from gloam.emitters.aimed_emitters import AimedCmaEmitters as AimedCmaEmitters
from gloam.emitters.aimed_moves import AimedMoves as AimedMoves
from gloam.emitters.cma_emitters import CmaEmitters as CmaEmitters
from gloam.emitters.cma_es import CMAES as CMAES
from gloam.emitters.cma_es import Strategy as Strategy
from gloam.emitters.emitter import Branching as Branching
from gloam.emitters.emitter import Divisible as Divisible
from gloam.emitters.emitter import ElitesWanted as ElitesWanted
from gloam.emitters.emitter import Emitter as Emitter
from gloam.emitters.gradient_ascent import GradientAscent as GradientAscent
from gloam.emitters.lm_ma_es import LMMAES as LMMAES
from gloam.emitters.mixture import Mixture as Mixture
from gloam.emitters.recombination import Recombination as Recombination
from gloam.emitters.recombination import Swaps as Swaps
from gloam.emitters.rules import BasicRestart as BasicRestart
from gloam.emitters.rules import FilterSelection as FilterSelection
from gloam.emitters.rules import MuSelection as MuSelection
from gloam.emitters.rules import RestartEvery as RestartEvery
from gloam.emitters.rules import RestartRule as RestartRule
from gloam.emitters.rules import RestartWhenIdle as RestartWhenIdle
from gloam.emitters.rules import RestartWithoutImprovement as RestartWithoutImprovement
from gloam.emitters.rules import SelectionRule as SelectionRule
from gloam.emitters.sep_cma_es import SepCMAES as SepCMAES
from gloam.emitters.variation import Variation as Variation
