"""Spaces: named variables in the place of ``x0``."""

from gloam.spaces.space import Discrete as Discrete
from gloam.spaces.space import Form as Form
from gloam.spaces.space import Space as Space
from gloam.spaces.space import form_of as form_of
from gloam.spaces.variables import Categorical as Categorical
from gloam.spaces.variables import Integer as Integer
from gloam.spaces.variables import Real as Real
from gloam.spaces.variables import Variable as Variable
