"""Data sets as integer images: what the client's program takes, and the step that gives them meaning."""

from privcirnet.data.dataset import ImageData
from privcirnet.data.loading import Files, load, load_for

__all__ = ["Files", "ImageData", "load", "load_for"]
