"""Libraries that take a second to import are not imported by scripts that do not need them."""

from privcirnet.data import Files, load

PROGRAM = """
import sys
import export, infer, search, train
from privcirnet.data import Files, load
from privcirnet.train.network import create
load("digits", files=Files(cache={cache!r}))
create("digits_resnet", 10, (1, 8, 8))
print(*{{"timm", "torchvision", "sklearn", "torch._dynamo", "numba", "starlette", "uvicorn"}} & set(sys.modules))
"""


def test_the_digits_need_no_slow_imports(subprocess_python, tmp_path):
    load("digits", files=Files(cache=str(tmp_path)))
    assert subprocess_python(PROGRAM.format(cache=str(tmp_path))) == ""
