"""Galleries: elites beside the items of a dataset, or alone, as a figure and as one HTML page."""

from gloam.gallery.html_page import page as page
from gloam.gallery.pairs import elite_gallery as elite_gallery
from gloam.gallery.pairs import elite_pictures as elite_pictures
from gloam.gallery.pairs import gallery as gallery
from gloam.gallery.run_gallery import gallery_run as gallery_run
