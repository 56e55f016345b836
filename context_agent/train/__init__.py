"""Training: rows, and what is built on them. Only what needs torch imports it, and only when it is used."""
