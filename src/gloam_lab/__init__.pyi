"""Public names of `gloam_lab` and their modules, for `__init__.py` and type checkers."""

from . import latent_illumination as latent_illumination
from .arborescences import CMAMAEGA as CMAMAEGA
from .arborescences import CMAMEGA as CMAMEGA
from .arborescences import Arborescences as Arborescences
from .decoder import Decoder as Decoder
from .density_descent import DDS as DDS
from .density_descent import BufferPolicy as BufferPolicy
from .density_descent import KeepLast as KeepLast
from .density_descent import KernelDensity as KernelDensity
from .density_descent import Reservoir as Reservoir
from .downloads import FetchError as FetchError
from .downloads import fetch as fetch
from .generator import Generator as Generator
from .latent_digits import LatentDigits as LatentDigits
from .presets import paper_algorithm as paper_algorithm
from .presets import preset_algorithm as preset_algorithm
from .report import write_report as write_report
from .study import Study as Study
