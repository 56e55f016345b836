"""The version of the package: written into trajectories and index manifests."""

__version__ = "0.1.0"
