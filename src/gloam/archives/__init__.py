"""Archives: how measure space is divided into cells, and the elites that fill them."""

from gloam.archives.archive import Archive as Archive
from gloam.archives.cvt_archive import CVTArchive as CVTArchive
from gloam.archives.elites import Elite as Elite
from gloam.archives.elites import EliteBatch as EliteBatch
from gloam.archives.elites import Elites as Elites
from gloam.archives.elites import EliteStatistics as EliteStatistics
from gloam.archives.faiss_index import Faiss as Faiss
from gloam.archives.faiss_index import FaissIndex as FaissIndex
from gloam.archives.grid_archive import GridArchive as GridArchive
from gloam.archives.kmeans import kmeans_centroids as kmeans_centroids
