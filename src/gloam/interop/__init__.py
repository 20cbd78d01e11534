"""Bridges to other libraries: pyribs, tables of pandas and Parquet, gymnasium, Brax.

`gloam.interop.ribs` and `gloam.interop.gymnasium` are modules of their own; what they bridge to is
imported when a function of theirs is called.
"""

from gloam.interop.gymnasium import episodes_in_jax as episodes_in_jax
from gloam.interop.tables import elites_from_arrays as elites_from_arrays
from gloam.interop.tables import elites_from_pandas as elites_from_pandas
from gloam.interop.tables import elites_from_parquet as elites_from_parquet
from gloam.interop.tables import elites_to_arrays as elites_to_arrays
from gloam.interop.tables import elites_to_parquet as elites_to_parquet
