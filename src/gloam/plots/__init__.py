"""Plots: figures of filled archives, metrics and run folders.

Every function returns a figure and takes ``ax=`` to draw into existing axes. Matplotlib's global
state is neither used nor changed. The gallery of a dataset is `gloam.gallery.gallery`.
"""

from gloam.plots.discount import discount_function as discount_function
from gloam.plots.discount import discount_panels as discount_panels
from gloam.plots.heatmaps import archive_figure as archive_figure
from gloam.plots.heatmaps import comparison as comparison
from gloam.plots.heatmaps import heatmap as heatmap
from gloam.plots.many_measures import pairwise as pairwise
from gloam.plots.many_measures import parallel_axes as parallel_axes
from gloam.plots.many_measures import projection_map as projection_map
from gloam.plots.metric_curves import curves as curves
from gloam.plots.metric_curves import objective_ecdf as objective_ecdf
from gloam.plots.metric_curves import unique_cells as unique_cells
from gloam.plots.run_figures import plot_run as plot_run
from gloam.plots.style import line_colors as line_colors
from gloam.plots.style import save as save
