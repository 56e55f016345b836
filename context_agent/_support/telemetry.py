"""Telemetry of libraries, which this package turns off."""

from __future__ import annotations

import os


def disable_onnxruntime_telemetry() -> None:
    """Keep onnxruntime from sending the names and digests of models to Microsoft.

    Versions from 1.29 do so by default, and store an id of the machine in the user's cache folder. The variable counts
    only before the first import of onnxruntime. A value that the user set stays.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
