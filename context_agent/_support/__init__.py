"""Code that every subpackage uses and that belongs to none: HTTP, files that survive a kill, help for typos."""
