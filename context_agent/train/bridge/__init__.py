"""Training of the embedded policy: its networks, the reader's correction, and the calibration of its scores."""
