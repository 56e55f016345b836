"""Reports of a summary: terminal tables, plots, and the HTML page."""
