"""A language model as a judge of rankings: its rubric, its verdicts, and its calibration against gold."""
