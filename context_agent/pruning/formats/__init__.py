"""The formats of messages. Each module reads a family of them."""
