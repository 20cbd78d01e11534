"""Archives: how measure space is divided into cells, and the elites that fill them."""

from gloam.archives.archive import Archive as Archive
from gloam.archives.archive_metrics import ArchiveMetrics as ArchiveMetrics
from gloam.archives.archive_metrics import archive_metrics as archive_metrics
from gloam.archives.cvt_archive import CVTArchive as CVTArchive
from gloam.archives.elites import Elites as Elites
from gloam.archives.faiss_index import FaissIndex as FaissIndex
from gloam.archives.faiss_settings import LARGE as LARGE
from gloam.archives.faiss_settings import Faiss as Faiss
from gloam.archives.faiss_settings import IndexName as IndexName
from gloam.archives.grid_archive import GridArchive as GridArchive
from gloam.archives.kmeans import kmeans_centroids as kmeans_centroids
from gloam.archives.store import Store as Store
from gloam.archives.store import add as add
from gloam.archives.store import empty_store as empty_store
from gloam.archives.store import random_elites as random_elites
from gloam.archives.store import random_empty_cells as random_empty_cells
