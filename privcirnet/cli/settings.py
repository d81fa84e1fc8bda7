"""The settings of the commands: Hydra's YAML and a user's overrides become a checked dataclass, and explain themselves.

``--help`` lists every setting with its value and meaning, read from the schema's source.
"""

import ast
import difflib
import functools
import inspect
import itertools
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Quote, QuotedString
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, ListConfig, OmegaConf, StringNode, UnionNode
from omegaconf.errors import OmegaConfBaseException

from privcirnet.cli.console import as_started, readable_errors, show_text
from privcirnet.config import SCHEMAS
from privcirnet.config.run import LEVELED
from privcirnet.errors import RuleError, nearest
from privcirnet.he.system.process import keep_freed_memory

_NAMES = 36
"""Number of columns of a setting and its value; longer ones get a line of their own."""
_REFERENCE = re.compile(r":\w+:`[~.]*([^`]*)`")
_ATTRIBUTE = re.compile(r"^ {8}(\w+): ((?:.|\n {9,})*)", re.M)


def meanings(schema: type, prefix: str = "") -> dict[str, str]:
    """Return the meaning of each setting, by its name in a command line; a group's are ``group.setting``.

    It is the docstring below a field, or the line under "Attributes" in the class's.
    """
    texts = {}
    for kind in (kind for kind in reversed(schema.__mro__) if is_dataclass(kind)):
        texts |= _written_at(kind)
    by_setting, types = {}, get_type_hints(schema)
    for field in fields(schema):
        kind = types[field.name]
        if is_dataclass(kind) and isinstance(kind, type):
            by_setting |= meanings(kind, f"{prefix}{field.name}.")
        else:
            text = " ".join(texts.get(field.name, "").split())
            by_setting[f"{prefix}{field.name}"] = _REFERENCE.sub(r"\1", text)
    return by_setting


def _written_at(schema: type) -> dict[str, str]:
    """Return the descriptions of a class's own fields from its source."""
    texts = dict(_ATTRIBUTE.findall((schema.__doc__ or "").partition("Attributes:")[2]))
    node = ast.parse(textwrap.dedent(inspect.getsource(schema))).body[0]
    assert isinstance(node, ast.ClassDef)
    for before, statement in itertools.pairwise(node.body):
        match before, statement:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                texts[name] = text
            case _:
                pass
    return texts


def listing(schema: type, settings: Mapping[str, Any], groups: Mapping[str, Sequence[str]], width: int) -> str:
    """Return the lines of all settings, and before a group's those of its options.

    Args:
        width: number of columns of the terminal, 60 at least.
    """
    lines, section = [], ""
    names = meanings(schema)
    for name in sorted(names, key=lambda name: "." in name):  # those of groups behind all others
        if (group := name.rpartition(".")[0].partition(".")[0]) != section:
            lines += ["", *_options(group, groups.get(group, ()), width)]
            section = group
        lines += _entry(f"{name}={written(_value(settings, name))}", names[name], width)
    for group in (group for group in groups if group not in settings):
        lines += ["", *_options(group, groups[group], width)]
    return "\n".join(lines)


def written(value: Any) -> str:
    """Return a value in the syntax of a command line.

    >>> [written(value) for value in (True, [1, 2], "", {"a": {"b": 1.5}})]
    ['true', '[1,2]', '', '{a:{b:1.5}}']
    """
    match value:
        case bool():
            return str(value).lower()
        case list():
            return f"[{','.join(written(part) for part in value)}]"
        case dict():
            return f"{{{','.join(f'{key}:{written(part)}' for key, part in value.items())}}}"
        case _:
            return str(value)


def _options(group: str, options: Sequence[str], width: int) -> list[str]:
    """Return the lines of a group's options."""
    indent = " " * (len(group) + 1)
    return textwrap.wrap(f"{group}={', '.join(options)}", width, subsequent_indent=indent) if options else []


def _value(settings: Any, name: str) -> Any:
    for part in name.split("."):
        settings = settings[part]
    return settings


def _entry(setting: str, text: str, width: int) -> list[str]:
    """Return the lines of a setting: its meaning beside it, or below where it is long."""
    indent = " " * (_NAMES + 2)
    wrapper = textwrap.TextWrapper(width, indent, indent, break_long_words=False, break_on_hyphens=False)
    lines = wrapper.wrap(text)
    first = f"  {setting}"
    if len(first) < _NAMES and lines:
        return [first.ljust(_NAMES + 2) + lines[0].lstrip(), *lines[1:]]
    return [first, *lines]


_PACKAGE = Path(__file__).resolve().parents[1]
CONFIGS = next(folder for folder in (_PACKAGE / "configs", _PACKAGE.parent / "configs") if folder.is_dir())
"""The YAML files: a wheel has them in the package, a checkout beside it."""
_HYDRA = "1.3"
_FOLDER = ("-cd", "--config-dir")
"""Options of a folder with more settings, which only Hydra's own runner reads."""
_OPTIONS = {
    *("-h", "--help", "--hydra-help", "--version", "-c", "--cfg", "--resolve", "-p", "--package", "-r", "--run"),
    *("-sc", "--shell-completion", "-cp", "--config-path", "-cn", "--config-name", "-i", "--info"),
    *("-m", "--multirun", "--experimental-rerun", *_FOLDER),
}
"""All options of Hydra."""
OmegaConf.register_new_resolver("if", lambda this, then, other: then if this else other, replace=True)


def script(schema: type, name: str = "") -> Callable[[Callable[[Any], None]], Callable[[], None]]:
    """Turn ``main(config)`` into a Hydra program whose config has this schema.

    configs/<name>.yaml gives the defaults and the help, or <name>.yaml beside main's file with the groups of configs/.
    A :class:`RuleError` is printed as one line and ends the program with status 2; anything else is a bug and keeps its
    traceback. The program keeps the memory that it frees (:mod:`cli.settings`).

    Hydra's own runner composes the settings twice. It runs only for its own features: options, such as --multirun,
    and settings of its own. --help is ours: it gives the meaning of each setting.

    Args:
        name: name of the command; empty for that of main's file.

    Returns:
        The decorator.
    """

    def decorate(main: Callable[[Any], None]) -> Callable[[], None]:
        file = Path(inspect.getfile(inspect.unwrap(main)))
        command = name or file.stem
        _tell(command, schema)
        if (yaml_file := file.with_name(f"{command}.yaml")).is_file():
            ConfigStore.instance().store(name=command, node=OmegaConf.load(yaml_file))
        compose = functools.partial(composed, command, schema)

        @functools.wraps(main)
        def task(config: DictConfig) -> None:
            keep_freed_memory()  # a launcher may run it in a process of its own
            with readable_errors():
                main(_checked(config))

        run = hydra.main(version_base=_HYDRA, config_path=str(CONFIGS), config_name=command)(task)

        def main_program() -> None:
            keep_freed_memory()
            arguments = sys.argv[1:]
            with readable_errors():
                if not {"-h", "--help"}.isdisjoint(arguments):
                    show_text(explained(command, schema, _overrides()))
                    return
                _check_options(command, arguments)
                if not any(argument.startswith("-") or "hydra" in argument for argument in arguments):
                    main(compose(arguments))
                    return
                several = not {"-m", "--multirun"}.isdisjoint(arguments)
                if not any(argument.split("=")[0] in _FOLDER for argument in arguments):
                    compose(_first_of_each(schema, _overrides()) if several else _overrides())
                sys.argv[1:] = quoted(schema, arguments, sweep=several)
                run()

        return main_program

    return decorate


def _tell(command: str, schema: type) -> None:
    """Let Hydra know a command's schema."""
    ConfigStore.instance().store(name=f"{command}_schema", node=schema)


def _check_options(name: str, arguments: list[str]) -> None:
    """Raise where a setting was written as an option, as in other programs."""
    for argument, after in itertools.zip_longest(arguments, arguments[1:], fillvalue=""):
        option, _, value = argument.partition("=")
        if not option.startswith("-") or option in _OPTIONS:
            continue
        with _opened():
            settings = _keys(OmegaConf.to_container(hydra.compose(name)))
            close = nearest(option.strip("-").replace("-", "_"), settings, cutoff=0.7)
        next_value = after if not value and "=" not in after and not after.startswith("-") else ""
        got = f"{argument} {next_value}".rstrip()
        remedy = f"did you mean {close}={value or next_value or '...'}?" if close else "--help lists the settings"
        raise RuleError("settings must be given as name=value", got=got, remedy=remedy)


def composed(name: str, schema: type, overrides: list[str]) -> Any:
    """Return the settings of a command under overrides, as an instance of their schema.

    Args:
        overrides: overrides, "setting=value" each.

    Raises:
        RuleError: a setting does not exist or has the wrong type; with the nearest that exists. Or its value
            breaks a rule.
    """
    _tell(name, schema)
    overrides = quoted(schema, overrides)
    with _opened():
        try:
            return _checked(hydra.compose(name, overrides=overrides))
        except RuleError:
            raise
        except (HydraException, OmegaConfBaseException, ValueError) as error:  # the last one of groups without a name
            raise _explained(error, name, overrides) from None


def quoted(schema: type, arguments: list[str], sweep: bool = False) -> list[str]:
    """Return arguments whose strings Hydra's grammar reads as they were typed.

    A setting may be named by its last part where only one ends so: ``epochs=1`` for ``recipe.epochs=1``. Paths may have
    ``=``, ``#``, commas, brackets, quotes and any letters, and look like numbers; ``~`` is expanded. What the grammar
    takes for a string stays as it is, so quotes, escapes and ``${...}`` mean what they mean to Hydra.

    Args:
        arguments: arguments, "setting=value" each, and options, which stay.
        sweep: whether values with commas may stand for several.
    """
    node, parser = OmegaConf.structured(schema), OverridesParser.create()
    names = _keys(OmegaConf.to_container(node))

    def typed(argument: str) -> str:
        setting, equals, value = argument.partition("=")
        setting = setting if setting in node else _whole(setting, names)
        kind = _node(node, setting.lstrip("+"))
        text = isinstance(kind, StringNode)
        if not equals or not (text or isinstance(kind, ListConfig | UnionNode)):
            return f"{setting}{equals}{value}"
        if kind._is_optional() and value == "null":
            return f"{setting}={value}"
        value = os.path.expanduser(value) if value.startswith("~") else value
        with suppress(HydraException):
            override = parser.parse_override(f"{setting}={value}")
            if (override.is_sweep_override() and sweep) or isinstance(override.value(), str) or not text:
                return f"{setting}={value}"
        return f"{setting}={_items_quoted(value) if isinstance(kind, ListConfig) else _in_quotes(value)}"

    return [typed(argument) for argument in arguments]


def _first_of_each(schema: type, overrides: list[str]) -> list[str]:
    """Return overrides with the first value of those that stand for several, without those of patterns (glob)."""
    parser, singles = OverridesParser.create(), list[str]()
    for argument in quoted(schema, overrides, sweep=True):
        override = parser.parse_override(argument)
        if not override.is_sweep_override():
            singles.append(argument)
        elif not isinstance(override.value(), Glob):
            singles.append(f"{override.get_key_element()}={next(iter(override.sweep_string_iterator()))}")
    return singles


def _whole(setting: str, names: list[str]) -> str:
    """Return the whole name of a setting that is named by its last part; the setting itself unless one ends so.

    >>> _whole("epochs", ["recipe.epochs", "seed"]), _whole("rate", ["recipe.learning_rate"])
    ('recipe.epochs', 'rate')
    """
    ends = [name for name in names if name.endswith(f".{setting}")]
    return ends[0] if len(ends) == 1 else setting


def _in_quotes(text: str) -> str:
    return QuotedString(text, Quote.single).with_quotes()


def _items_quoted(value: str) -> str:
    """Return a list as it was typed, with its items in quotes.

    >>> _items_quoted("[[a=1,b], c]")
    "[['a=1','b'],'c']"
    """
    return re.sub(r"[^\[\],]+", lambda item: _in_quotes(item.group().strip()), value)


def _node(config: Any, setting: str) -> Any:
    """Return the node of a setting, with dots between names; None if there is none."""
    for name in setting.split("."):
        config = config._get_node(name, validate_access=False) if isinstance(config, DictConfig) else None
    return config


def _checked(config: DictConfig) -> Any:
    """Return settings as their dataclass; raise if there is one that it does not have, as a ``+`` adds it."""
    if unknown := next(_unknown(config), ""):
        close = nearest(
            unknown, _keys(OmegaConf.to_container(OmegaConf.structured(OmegaConf.get_type(config)))), cutoff=0.7
        )
        raise _refused(f"+{unknown}", f"did you mean {close}=..." if close else "")
    return OmegaConf.to_object(config)


def _refused(got: str, hint: str) -> RuleError:
    remedy = "--help lists the settings and groups"
    rule = "settings must exist and have the right type"
    return RuleError(rule, got=got, remedy=f"{hint}; {remedy}" if hint else remedy)


def _unknown(config: DictConfig, prefix: str = "") -> Iterator[str]:
    """Yield the settings without a field of a dataclass; dictionaries may have any."""
    kind = OmegaConf.get_type(config)
    names = {field.name for field in fields(kind)} if is_dataclass(kind) else set(config)
    for name in map(str, config):
        if name not in names:
            yield f"{prefix}{name}"
        elif isinstance(part := config._get_node(name), DictConfig) and not part._is_missing() and not part._is_none():
            yield from _unknown(part, f"{prefix}{name}.")


def _explained(error: Exception, command: str, overrides: list[str]) -> RuleError:
    """Return Hydra's error in our words: the fault of the settings, and the likely meaning if there is one."""
    message, cause = str(error).splitlines()[0].rstrip("."), str(error.__cause__ or "").partition("\n")[0]
    options = str(error).partition("Available options in '")[2].partition("Config search path")[0]
    if options:
        return _refused(*_without_option(message, options))
    named = re.search("'([^' ]+)'", message)
    if refused := _of_a_value(error, message, cause) or _of_a_group(message, command, overrides):
        return _refused(*refused)
    return _of_a_name(named[1].lstrip("+"), error, command, overrides) if named else _refused(message, "")


def _of_a_value(error: Exception, message: str, cause: str) -> tuple[str, str] | None:
    """Return the value that Hydra refuses, and a hint; None if it refuses something else."""
    if message.startswith("Error merging override ") and cause:
        kind = next((word for words, word in _KINDS.items() if words in cause), "a value of that type")
        return message.removeprefix("Error merging override "), f"give {kind}"
    if unset := re.match("Interpolation key '(.*)' not found", message):
        return f"${{{unset[1]}}}", "the name in braces must be a setting's"
    if isinstance(error, OverrideParseException) and "=" in str(error.override):
        return str(error.override), "put it into quotes that the shell leaves: \"name='a=b'\""
    if message.startswith("Ambiguous value for argument"):
        return message.partition("'")[2].rstrip("'"), "give one value, or -m to run it with each"
    return None


def _of_a_group(message: str, command: str, overrides: list[str]) -> tuple[str, str] | None:
    """Return the group that has a value other than a name, and a hint; None if there is none."""
    if not message.startswith("Config group override must be"):
        return None
    groups = _groups(hydra.compose(command, return_hydra_config=True))
    got = next((o for o in overrides if re.split("[@=]", o)[0].lstrip("+") in groups), message)
    return got, "a group is chosen by a name: group=option"


def _of_a_name(setting: str, error: Exception, command: str, overrides: list[str]) -> RuleError:
    """Return the error for a setting that does not exist, or that exists already."""
    if "An item is already at" in str(error):
        return _refused(f"+{setting}", "leave the plus out: it is there already")
    if "reference_type=Dict" in str(error.__cause__):
        given = next((o for o in overrides if o.split("=")[0] == setting), f"{setting}=...")
        return _refused(setting, f"what is not there yet takes a plus: +{given}")
    if instead := next((OLD[name] for name in (setting, setting.partition(".")[0]) if name in OLD), ""):
        return _refused(setting, instead)
    if elsewhere := _of_another_stage(command, setting):
        return elsewhere
    if instead := next((what for name, what in OLD.items() if name.endswith(f".{setting}")), ""):
        return _refused(setting, instead)
    tilde, value = ("~", "") if str(error).startswith("Could not delete") else ("", "=...")
    close = nearest(setting, _keys(OmegaConf.to_container(hydra.compose(command))), cutoff=0.7)
    return _refused(f"{tilde}{setting}", f"did you mean {tilde}{close}{value}" if close else "")


_KINDS = {
    **{"converted to Integer": "a whole number", "converted to Float": "a number"},
    **{"converted to Boolean": "true or false", "list or tuple": "a list: name=[a,b]"},
    **{"to Dict": "names with values: name={a:1,b:2}", "Union[int, str]": "a whole number or a text"},
}
"""Words of OmegaConf's message -> what a setting takes."""
OLD = {
    "leveled": LEVELED,
    "ckks": "use he.bound_images=",
    "he.guard_bits": "leave it out: rehearsed_images= choose the guard bits",
    "he.least_guard_bits": "leave it out: rehearsed_images= choose the guard bits",
    "he.family": "leave it out: other encodings are in papers/coefficients",
    "recipe.average_with": "use python -m papers.recipes, which writes the mean of networks",
    "recipe.patches": "leave it out: a transformer sees all patches",
    "data.test_fraction": "use data=imagefolder for a split of your own",
    "rehearsal": "use warm_up=",
    "state_folder": "use root=DIR, whose folder service has the audit log",
    "ui_port": "use ui=PORT",
    "data.seed": "leave it out: the digits have one split",
    "recipe.crop_padding": "use recipe.crop=4",
    "recipe.crop_scale": "use recipe.crop=0.08",
    "until_stable": "leave it out: samples= says how many images at most",
    "uniform": "use budget=b4",
    "fraction": "use budget=50%",
    "model.weights": "use recipe.init=FILE",
    "state_name": "use a DB of its own in state=redis://HOST:PORT/DB",
    "metrics_port": "use metrics=HOST:PORT",
    "metrics_host": "use metrics=HOST:PORT",
    "health_port": "use metrics=HOST:PORT, whose next port has health checks",
}
"""A setting, or a group, of before -> what to do."""
_STAGES = "train", "search", "export"
"""Commands whose results others take up, in their order."""
_TAKEN = {"search": ("init", "network"), "export": ("init", "network"), "infer": ("program", "program")}
_TAKEN |= {"serve": ("program", "program")}
"""Commands with the setting that names their input from an earlier stage, and the kind of that input."""


def _without_option(message: str, listed: str) -> tuple[str, str]:
    """Return the option that a group does not have, and the likely meaning.

    Args:
        listed: Hydra's lines with the group and its options.
    """
    group, *options = (line.strip("\t':") for line in listed.split("\n") if line.strip("\t':"))
    name = message.rpartition("/")[2].rstrip("'")
    close = [f"{group}={option}" for option in difflib.get_close_matches(name, options, n=1, cutoff=0.7)]
    close += [f"model.name={name} of timm or torchvision"] if group == "model" else []
    return f"{group}={name}", f"did you mean {' or '.join(close)}" if close else f"use one of {', '.join(options)}"


def _of_another_stage(command: str, setting: str) -> RuleError | None:
    """Return the error for a setting, or a group, that only another stage has; None if none has it."""
    if command not in (*_STAGES, *_TAKEN) or _has(SCHEMAS[command], setting):
        return None
    owners = [stage for stage in _STAGES if _has(SCHEMAS[stage], setting)]
    if not owners:
        return None
    where = " or ".join(f"{owner}.py" for owner in owners)
    if command in _STAGES and _STAGES.index(command) < _STAGES.index(owners[0]):
        return RuleError(f"{command}.py has only its own settings", got=setting, remedy=f"give it to {where}")
    by, what = _TAKEN[command]
    source = hydra.compose(command)[by]
    remedy = f"give it to {where}, or another {what} by {by}="
    return RuleError(f"{command}.py takes the {what} from {source}", got=setting, remedy=remedy)


def _has(schema: type, setting: str) -> bool:
    """Return whether a setting, its last part, or its group is a schema's."""
    names = _keys(OmegaConf.to_container(OmegaConf.structured(schema)))
    group, dot, _ = setting.rpartition(".")
    return any(f".{setting}." in f".{name}." or (dot and f"{name}.".startswith(f"{group}.")) for name in names)


def explained(name: str, schema: type, overrides: list[str]) -> str:
    """Return the text of a command's --help: its description, and all settings under overrides.

    Args:
        overrides: overrides, "setting=value" each.
    """
    composed(name, schema, overrides)
    overrides = quoted(schema, overrides)
    with _opened():
        config = hydra.compose(name, overrides=overrides, return_hydra_config=True)
        settings: Any = OmegaConf.to_container(hydra.compose(name, overrides=overrides))
    header = as_started(config.hydra.help.header)
    width = min(max(shutil.get_terminal_size().columns, 60), 120)
    groups = {group: _stems(group) for group in _groups(config)}
    kinds = "settings name=value" + (", whole groups of them group=option" if groups else "")
    return f"{header}\nGive {kinds}:\n\n{listing(schema, settings, groups, width)}"


def again(name: str, schema: type) -> Any:
    """Return the settings of the command that runs, read again: files may have changed since it began.

    Raises:
        RuleError: they break a rule now.
    """
    return composed(name, schema, _overrides())


def _overrides() -> list[str]:
    """Return the settings in the command line, without Hydra's options."""
    return [argument for argument in sys.argv[1:] if "=" in argument and not argument.startswith("-")]


def offers(name: str, schema: type) -> list[str]:
    """Return the possible words of a command line: "setting=" each, and "group=option"."""
    _tell(name, schema)
    with _opened():
        config = hydra.compose(name, return_hydra_config=True)
    options = [f"{group}={stem}" for group in _groups(config) for stem in _stems(group)]
    keys = [key for key in _keys(OmegaConf.to_container(config)) if not key.startswith("hydra.")]
    return [*(f"{key}=" for key in keys), *options]


def _groups(config: DictConfig) -> list[str]:
    return [group for group in config.hydra.runtime.choices if "/" not in group]


def _stems(group: str) -> list[str]:
    return sorted(path.stem for path in (CONFIGS / group).glob("*.yaml"))


def _opened() -> AbstractContextManager[object]:
    """Initialize Hydra for configs/; inside of a command it is initialized already."""
    running = GlobalHydra.instance().is_initialized()
    return nullcontext() if running else hydra.initialize_config_dir(str(CONFIGS), version_base=_HYDRA)


def _keys(config: Any, prefix: str = "") -> list[str]:
    if not isinstance(config, dict) or not config:
        return [prefix.rstrip(".")]
    return [key for name, value in config.items() for key in _keys(value, f"{prefix}{name}.")]
