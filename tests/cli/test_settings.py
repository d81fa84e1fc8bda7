"""Strings that users type, whatever characters they have."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from privcirnet.cli.settings import OLD, composed, quoted
from privcirnet.config import SCHEMAS, InferConfig, SearchRunConfig, TrainConfig
from privcirnet.errors import RuleError
from tests.conftest import WHOLE


@dataclass
class _Part:
    root: str = ""


@dataclass
class _Schema:
    out: str = ""
    init: str | None = None
    count: int = 1
    sizes: list[int] = field(default_factory=list)
    data: _Part = field(default_factory=_Part)
    more: dict[str, Any] = field(default_factory=dict)


PATHS = """epoch=3-step=9|set#2|数据|Grüße|Fotos für Anna|50%|me@x|a,b|O'Brien|don’t|"a|{x}|a[1]|x(2)|choice(a,b)
x:y|~a|$HOME|a&b|a;b|100|null|01|1e3|1_000|inf|true|-1|[a]|{a:1}|a?b=c|🙂|'a|a'b"c|a\\""".replace("\n", "|").split("|")


@pytest.mark.parametrize("first", range(0, len(PATHS), 1 if WHOLE else 3), ids=PATHS.__getitem__)
def test_a_path_is_what_was_typed(first: int) -> None:
    """Each at one of three places, or at all of them."""
    a, b, c = (PATHS * 2)[first : first + 3]
    config = composed("train", TrainConfig, [f"root=/tmp/{a}/out", f"data.root={b}", f"out=x/{c}"])
    assert (config.root, config.data.root, config.out) == (f"/tmp/{a}/out", b, f"x/{c}")


def test_a_home_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/Zoë #1")
    assert composed("train", TrainConfig, ["root=~/out=2"]).root == "/home/Zoë #1/out=2"
    assert quoted(_Schema, ["out=~", "count=~", "~data.root"]) == ["out='/home/Zoë #1'", "count=~", "~data.root"]


@pytest.mark.parametrize(
    "given",
    [
        "out='a b'",
        'out="a=b"',
        r"out=a\,b",
        "out=${oc.env:HOME}",
        "out=",
        "count=3",
        "sizes=[1,2]",
        "init=null",
        "+more.any=1e3",
        "data=digits",
        "hydra.run.dir=a=b",
        "--cfg=job",
        "-m",
        "plain",
        "unknown=a=b",
    ],
)
def test_what_hydra_understands_stays(given: str) -> None:
    assert quoted(_Schema, [given]) == [given]


def test_values_with_commas_are_several_where_hydra_sweeps() -> None:
    assert quoted(_Schema, ["out=a,b"], sweep=True) == ["out=a,b"]
    assert quoted(_Schema, ["out=a,b", "data.root=x(1),y"]) == ["out='a,b'", "data.root='x(1),y'"]
    again = quoted(_Schema, ["out=O'Brien=1"])
    assert quoted(_Schema, again) == again, "read again, as at a reload"


def test_an_interpolation_within_a_string_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "a#b")
    given = ["root=rediss://:${oc.env:SECRET}@valkey:6379/0?ssl_ca_certs=/ca.crt"]
    assert composed("train", TrainConfig, given).root == "rediss://:a#b@valkey:6379/0?ssl_ca_certs=/ca.crt"


def test_other_kinds_are_read_as_before() -> None:
    rule = "settings must exist and have the right type"
    with pytest.raises(RuleError, match=rf"^{rule}: got seed=a=b; put it into quotes"):
        composed("train", TrainConfig, ["seed=a=b"])


def test_items_of_lists_are_what_was_typed() -> None:
    given = ["pinned=[stem=4,layer4.*:8]", "equal=[[a=b, c#1],[d]]", "block_sizes=[1,2]", "profile=counted"]
    config = composed("search", SearchRunConfig, given)
    assert (config.pinned, config.block_sizes) == (["stem=4", "layer4.*:8"], [1, 2])
    assert config.equal == [["a=b", "c#1"], ["d"]]


def test_a_number_or_a_path_may_begin_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    images = [composed("infer", InferConfig, [f"images={given}"]).images for given in ("~/pictures", "~/a=b", "3")]
    assert images == ["/home/me/pictures", "/home/me/a=b", 3]


def test_a_setting_may_be_named_by_its_last_part() -> None:
    """Unless another one has that name, or several end so."""
    given = ["epochs=1", "limit=20", "activation=aespa", "seed=3", "root=/tmp/a=b"]
    config = composed("train", TrainConfig, given)
    assert (config.recipe.epochs, config.data.limit, config.seed) == (1, 20, 3)
    assert config.model.arguments == {"activation": "aespa"}
    assert (config.root, config.data.root) == ("/tmp/a=b", "data")
    with pytest.raises(RuleError, match="right type: got name; "):
        composed("train", TrainConfig, ["name=digits"])


COMMANDS = ("export", "infer", "serve")


@pytest.mark.parametrize("name", OLD)
def test_a_setting_of_before_says_what_to_do(name: str) -> None:
    """In one of three commands, or in all of them."""
    given = name if "." in name or name not in ("ckks", "leveled") else f"{name}.examples"
    for command in COMMANDS if WHOLE else [COMMANDS[[*OLD].index(name) % 3]]:
        with pytest.raises(RuleError, match=f"right type: got {given}; {OLD[name]}"):
            composed(command, SCHEMAS[command], [f"{given}=1"])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("+recipe.epochs=3", r"got \+recipe.epochs; leave the plus out"),
        ("~nothing", "got ~nothing; --help"),
        ("model=null", "got model=null; a group is chosen by a name"),
        ("recipe.epochs=1,2", "got recipe.epochs=1,2; give one value"),
        ("recipe.epochs=a", "got recipe.epochs=a; give a whole number"),
        ("model.arguments=3", "got model.arguments=3; give names with values: name={a:1,b:2}"),
        ("he.bounds=proved", "^train.py has only its own settings: got he.bounds; give it to search.py or export.py$"),
    ],
)
def test_what_hydra_refuses_is_said_in_our_words(given: str, said: str) -> None:
    with pytest.raises(RuleError, match=said):
        composed("train", TrainConfig, [given])


def test_a_setting_of_a_stage_before_is_said_to_be_one() -> None:
    rule = "^infer.py takes the program from outputs/export/program: got he.bounds; give it to search.py or export.py"
    with pytest.raises(RuleError, match=rule):
        composed("infer", InferConfig, ["he.bounds=proved"])


def test_what_stands_for_several_values_is_checked_before_any_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from privcirnet.cli.settings import script

    monkeypatch.setattr(sys, "argv", ["train.py", "-m", "epoch=1,2"])
    with pytest.raises(SystemExit):
        script(TrainConfig, "train")(lambda config: None)()
    assert "got epoch; did you mean recipe.epochs" in capsys.readouterr().err


def test_the_command_line_with_a_folder_of_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which Hydra's own runner reads."""
    from privcirnet.cli.settings import script

    monkeypatch.chdir(tmp_path)
    found = list[str]()
    main = script(TrainConfig, "train")(lambda config: found.append(config.root))
    for options in ([], ["--config-dir", str(tmp_path)]):
        monkeypatch.setattr(sys, "argv", ["train.py", *options, f"root={tmp_path}/数据=1"])
        main()
    assert found == [f"{tmp_path}/数据=1"] * 2
