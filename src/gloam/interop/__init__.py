"""Bridges to other libraries: PyTorch, pyribs, pandas and Parquet, gymnasium and Brax.

`gloam.interop.ribs` and `gloam.interop.gymnasium` are modules of their own; they import pyribs and
gymnasium when one of their functions needs it, as `torch_evaluation` imports PyTorch.
"""

from gloam.interop.gymnasium import episodes_in_jax as episodes_in_jax
from gloam.interop.tables import elites_from_arrays as elites_from_arrays
from gloam.interop.tables import elites_from_pandas as elites_from_pandas
from gloam.interop.tables import elites_from_parquet as elites_from_parquet
from gloam.interop.tables import elites_to_arrays as elites_to_arrays
from gloam.interop.tables import elites_to_parquet as elites_to_parquet
from gloam.interop.torch import torch_evaluation as torch_evaluation
