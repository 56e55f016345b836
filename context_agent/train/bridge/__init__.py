"""The training of the embedded policy: its networks, its reader's correction, and the calibration of its scores."""
