"""The explorer: run folders in the browser, live (`explore`) or as one HTML file (`write_html`).

It reads run folders and changes nothing in them.
"""

from gloam.explorer.html_report import write_html as write_html
from gloam.explorer.server import explore as explore
