"""A network as it was before its forward was traced: one that keeps a value, as a cache does, would keep a proxy."""

from collections.abc import Generator
from contextlib import contextmanager

from torch import nn


@contextmanager
def restore_attributes(model: nn.Module) -> Generator[None]:
    """Yield; then modules have their attributes back, and lists, dicts and sets among these their contents."""
    attributes = [(vars(module), dict(vars(module))) for module in model.modules()]
    held = [value for _, own in attributes for value in own.values()]
    listed = [(value, list(value)) for value in held if isinstance(value, list)]
    others = [(value, value.copy()) for value in held if isinstance(value, dict | set)]
    try:
        yield
    finally:
        for now, before in (*attributes, *others):
            now.clear()
            now.update(before)
        for now, before in listed:
            now[:] = before
