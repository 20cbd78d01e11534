"""Plots: figures from run folders only."""

from gloam.plots.archive import archive_figure as archive_figure
from gloam.plots.curves import curves as curves
from gloam.plots.discount import discount_panels as discount_panels
from gloam.plots.heatmap import heatmap as heatmap
from gloam.plots.run_figures import plot_run as plot_run
from gloam.plots.style import line_colors as line_colors
from gloam.plots.style import save as save
