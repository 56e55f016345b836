"""Building blocks that every room uses and that belong to none: files that survive a kill, help for typos."""
