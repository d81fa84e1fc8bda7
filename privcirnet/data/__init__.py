"""Data sets as integer images: what the client's program takes, and the step that gives them meaning."""

from privcirnet.data.dataset import ImageData, load

__all__ = ["ImageData", "load"]
