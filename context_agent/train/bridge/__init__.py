"""Training of the embedded policy: its networks, the correction of its reader, and the calibration of its scores."""
