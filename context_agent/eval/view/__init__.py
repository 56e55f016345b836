"""The trajectory viewer: reads trajectory files, converts them to plain data, and builds the page."""
