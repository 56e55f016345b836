"""The pages that a browser shows: the search page, the viewer, reports, the review page and pruned conversations."""
