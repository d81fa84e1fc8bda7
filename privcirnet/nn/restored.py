"""Restoration of a network after its forward was traced: a network that caches a value would keep a proxy."""

from collections.abc import Generator
from contextlib import contextmanager

from torch import nn


@contextmanager
def restore_attributes(model: nn.Module) -> Generator[None]:
    """Restore the attributes of modules afterwards, and the contents of lists, dicts and sets among these.

    Yields:
        Nothing."""
    attributes = [(vars(module), dict(vars(module))) for module in model.modules()]
    values = [value for _, state in attributes for value in state.values()]
    listed = [(value, list(value)) for value in values if isinstance(value, list)]
    containers = [(value, value.copy()) for value in values if isinstance(value, dict | set)]
    try:
        yield
    finally:
        for now, before in (*attributes, *containers):
            now.clear()
            now.update(before)
        for now, before in listed:
            now[:] = before
