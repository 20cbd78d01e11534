"""Checks and all error wording: what was expected, what came, what to do."""

from gloam.checks.arguments import LARGEST as LARGEST
from gloam.checks.arguments import LARGEST_INTEGER as LARGEST_INTEGER
from gloam.checks.arguments import Bounds as Bounds
from gloam.checks.arguments import bounds as bounds
from gloam.checks.arguments import choice as choice
from gloam.checks.arguments import existing_file as existing_file
from gloam.checks.arguments import expect as expect
from gloam.checks.arguments import finite_array as finite_array
from gloam.checks.arguments import fits_memory as fits_memory
from gloam.checks.arguments import instance as instance
from gloam.checks.arguments import integer as integer
from gloam.checks.arguments import integers as integers
from gloam.checks.arguments import number as number
from gloam.checks.arguments import objective as objective
from gloam.checks.arguments import real_array as real_array
from gloam.checks.arguments import seed as seed
from gloam.checks.arguments import short as short
from gloam.checks.arguments import solution_bounds as solution_bounds
from gloam.checks.evaluations import EvaluationError as EvaluationError
from gloam.checks.evaluations import measure_shapes as measure_shapes
from gloam.checks.evaluations import one_of as one_of
from gloam.checks.evaluations import rows as rows
from gloam.checks.evaluations import same_names as same_names
from gloam.checks.evaluations import some_valid as some_valid
