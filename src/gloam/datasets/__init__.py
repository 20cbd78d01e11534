"""Datasets: arrays, tables, pictures and embeddings whose items become cells to fill."""

from gloam.datasets.dataset import Dataset as Dataset
from gloam.datasets.dataset import Skipped as Skipped
from gloam.datasets.digits import digits as digits
from gloam.datasets.digits import handwritten_digits as handwritten_digits
from gloam.datasets.images import from_folder as from_folder
from gloam.datasets.matches import Matches as Matches
from gloam.datasets.readers import from_array as from_array
from gloam.datasets.readers import from_file as from_file
from gloam.datasets.readers import from_idx as from_idx
from gloam.datasets.readers import from_pandas as from_pandas
