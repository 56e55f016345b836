"""Who decides: the policies. All act through the same view and action."""
