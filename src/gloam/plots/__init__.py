"""Plots: figures from run folders only."""

from gloam.plots.archive import archive_figure as archive_figure
from gloam.plots.curves import curves as curves
from gloam.plots.discount import discount_panels as discount_panels
from gloam.plots.gallery import elite_pictures as elite_pictures
from gloam.plots.gallery import gallery as gallery
from gloam.plots.heatmap import heatmap as heatmap
from gloam.plots.page import page as page
from gloam.plots.report import gallery_run as gallery_run
from gloam.plots.report import plot_run as plot_run
from gloam.plots.style import line_colors as line_colors
from gloam.plots.style import save as save
