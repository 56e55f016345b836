"""Every page that a browser shows: the search page, the viewer, reports, the review, a pruned conversation."""
