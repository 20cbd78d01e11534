"""Archives: how measure space is divided into cells, and the elites that fill them."""

from gloam.archives.base import Archive as Archive
from gloam.archives.centroids import kmeans_centroids as kmeans_centroids
from gloam.archives.cvt import CVTArchive as CVTArchive
from gloam.archives.faiss_index import FaissIndex as FaissIndex
from gloam.archives.grid import GridArchive as GridArchive
from gloam.archives.index_choice import LARGE as LARGE
from gloam.archives.index_choice import Faiss as Faiss
from gloam.archives.index_choice import IndexName as IndexName
from gloam.archives.metrics import Summary as Summary
from gloam.archives.metrics import summarize as summarize
from gloam.archives.store import Store as Store
from gloam.archives.store import add as add
from gloam.archives.store import empty_store as empty_store
from gloam.archives.store import random_elites as random_elites
from gloam.archives.store import random_empty_cells as random_empty_cells
from gloam.archives.view import Elites as Elites
