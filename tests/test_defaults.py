"""One default for one name, in the scripts and in Python; and few settings."""

import importlib
import inspect
import pkgutil
from collections import defaultdict
from dataclasses import MISSING, fields, is_dataclass

import pytest

import privcirnet
from privcirnet import config
from privcirnet.service.quotas import Quota
from privcirnet.service.store import StoreLimits

pytestmark = pytest.mark.docs

MOST = 160
"""Settings of all commands and verbs."""
OTHERS = {
    "name": "of a data set, a network, or an experiment",
    "root": "the folder of images, or of run directories; a ladder's has the experiment's name",
    "out": "each command has a directory of its own",
    "init": "what the stage before has written",
    "he": "export takes the profile that the search has measured",
    "recipe": "a ladder's has only what differs",
    "timeout_s": "a client waits for computations, a server only for messages",
    "images": "infer.py has some of its own",
    "reference": "infer.py has a network of its own",
    "activation": "check and a network keep theirs, polynomial_ is there to replace them",
    "block_size": "check shows a circulant network, a layer is dense unless it is said",
    "momentum": "of an optimizer, or of the statistics of a norm",
    "damping": "sensitivity is the formula, of what has been damped",
    "progress": "whether bars are shown, or what is called",
    "cache": "of decoded images, or of a server's weights",
}
"""Name -> why it has several defaults."""


def schemas():
    """Every dataclass of settings."""
    modules = [importlib.import_module(f"{config.__name__}.{m.name}") for m in pkgutil.iter_modules(config.__path__)]
    kinds = {kind for module in modules for kind in vars(module).values() if isinstance(kind, type)}
    return {kind for kind in kinds if is_dataclass(kind) and kind.__module__.startswith(config.__name__)}


def settings():
    """(schema, name) of every setting, an inherited one once."""
    kinds = {*schemas(), Quota, StoreLimits}
    return {
        (kind.__name__, field.name)
        for kind in kinds
        for field in fields(kind)
        if not any(field.name in getattr(base, "__dataclass_fields__", ()) for base in kind.__mro__[1:])
    }


def test_settings_are_few():
    assert len(settings()) <= MOST


def given(value):
    """A default as it is compared: nothing is nothing, whatever its type."""
    return repr(value or None) if not isinstance(value, bool | int | float) else repr(value)


def defaults():
    """Name -> its defaults, and who has them."""
    found = defaultdict(lambda: defaultdict(set))
    for schema in schemas():
        for field in fields(schema):
            value = field.default if field.default is not MISSING else field.default_factory()
            found[field.name][given(value)].add(schema.__name__)
    for verb in privcirnet.__all__:
        kind = getattr(privcirnet, verb)
        if not is_dataclass(kind):
            for name, parameter in inspect.signature(kind).parameters.items():
                if parameter.default is not parameter.empty:
                    found[name][given(parameter.default)].add(verb)
    return found


def test_a_name_has_one_default():
    several = {name: dict(values) for name, values in defaults().items() if len(values) > 1}
    assert not {name: values for name, values in several.items() if name not in OTHERS}
    assert not OTHERS.keys() - several.keys(), "these have one by now"
