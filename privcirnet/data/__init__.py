"""Data sets as integer images: the input of the client's program, with the step that gives them meaning."""

from privcirnet.data.dataset import ImageData
from privcirnet.data.loading import Files, load, load_for

__all__ = ["Files", "ImageData", "load", "load_for"]
