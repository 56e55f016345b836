"""Between views and token ids: how a prompt is spelled for a model, and how its reply is read."""
