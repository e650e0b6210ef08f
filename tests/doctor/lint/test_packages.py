"""Packages: what one file calls in another, by imports, re-exports and base classes."""

from pathlib import Path

from ostinato.doctor.lint import Settings, lint


def found(folder: Path, **files: str) -> list[tuple[str, int, str]]:
    for name, source in files.items():
        path = folder / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    for path in {file.parent for file in folder.rglob("*.py")} - {folder}:
        (path / "__init__.py").touch()
    result = lint([folder], Settings())
    assert result.problems == ()
    return [
        (Path(one.path).relative_to(folder).as_posix(), one.line, one.code)
        for one in result.findings
    ]


NET = """\
from torch import Tensor, nn
{imports}


class Net(nn.Module):
    def forward(self, x: Tensor):
        return {call}
"""
PICK = "def pick(t):\n    return t.item()\n"


def test_a_function_of_another_file_is_a_step_when_a_forward_calls_it(tmp_path: Path) -> None:
    net = NET.format(imports="from .tools import pick", call="pick(x)")
    assert found(tmp_path, pkg__net=net, pkg__tools=PICK) == [("pkg/tools.py", 2, "OST101")]


def test_the_same_function_is_none_when_nobody_calls_it(tmp_path: Path) -> None:
    net = NET.format(imports="from .tools import pick", call="x")
    assert found(tmp_path, pkg__net=net, pkg__tools=PICK) == []


def test_imports_are_followed_through_modules_aliases_and_re_exports(tmp_path: Path) -> None:
    net = NET.format(imports="import pkg.door as d", call="d.choose(x)")
    door = "from pkg.sub.tools import pick as choose\n"
    files = {"pkg__net": net, "pkg__door": door, "pkg__sub__tools": PICK}
    assert found(tmp_path, **files) == [("pkg/sub/tools.py", 2, "OST101")]


def test_scripts_beside_each_other_find_each_other(tmp_path: Path) -> None:
    net = NET.format(imports="from tools import pick", call="pick(x)")
    assert found(tmp_path, net=net, tools=PICK) == [("tools.py", 2, "OST101")]


def test_a_module_inherits_its_forward_and_its_methods(tmp_path: Path) -> None:
    base = """\
from torch import Tensor, nn


class Base(nn.Module):
    def forward(self, x: Tensor):
        return self.step(x)

    def step(self, x):
        return self.read(x)

    def read(self, x):
        return x.tolist()
"""
    heir = (
        "from .base import Base\n\n\nclass Heir(Base):\n    def step(self, x):\n        return x\n"
    )
    assert found(tmp_path, pkg__base=base, pkg__heir=heir) == [("pkg/base.py", 12, "OST101")]


def test_a_forward_of_an_heir_of_another_file_is_a_step(tmp_path: Path) -> None:
    base = "from torch import nn\n\n\nclass Base(nn.Module): ...\n"
    heir = """\
from torch import Tensor
from .base import Base


class Heir(Base):
    def forward(self, x: Tensor):
        return x.tolist()
"""
    assert found(tmp_path, pkg__base=base, pkg__heir=heir) == [("pkg/heir.py", 7, "OST101")]


def test_what_a_function_of_another_file_returns_is_known(tmp_path: Path) -> None:
    tools = "def size(x):\n    return x.shape[0]\n\n\ndef top(x):\n    return x.max()\n"
    imports = "from .tools import size, top"
    quiet = NET.format(imports=imports, call="x if size(x) > 3 else -x")
    loud = NET.format(imports=imports, call="x if top(x) > 3 else -x").replace("Net", "Loud")
    assert found(tmp_path, pkg__quiet=quiet, pkg__loud=loud, pkg__tools=tools) == [
        ("pkg/loud.py", 7, "OST101")
    ]


def test_a_settings_object_of_another_file_is_plain_python(tmp_path: Path) -> None:
    config = """\
from dataclasses import dataclass


@dataclass
class Config:
    limit: int = 3
    scale: float | None = None
"""
    net = """\
from torch import Tensor, nn
from .config import Config


class Net(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.limit = config.limit

    def forward(self, x: Tensor, config: Config):
        if self.config.limit > 3 or self.limit or config.scale:
            return x
        return x * int(self.config.limit)
"""
    assert found(tmp_path, pkg__config=config, pkg__net=net) == []


def test_imports_in_a_circle_end(tmp_path: Path) -> None:
    one = "from .two import thing\n\n\ndef a(x):\n    return b(x)\n\n\nfrom .two import b\n"
    two = "from .one import thing, a\n\n\ndef b(x):\n    return a(x)\n"
    net = NET.format(imports="from .one import a, thing", call="(a(x), thing(x))")
    assert found(tmp_path, pkg__one=one, pkg__two=two, pkg__net=net) == []


def test_functions_that_call_each_other_for_ever_end(tmp_path: Path) -> None:
    net = (
        NET.format(imports="", call="ping([x])")
        + """\


def ping(t):
    return pong([t, [t]])


def pong(t):
    return ping((t, t))
"""
    )
    assert found(tmp_path, net=net) == []


def test_a_lock_of_one_file_is_held_over_a_wait_in_another(tmp_path: Path) -> None:
    server = """\
import threading
from .tools import read

lock = threading.Lock()


def answer(x):
    with lock:
        return read(x)
"""
    tools = "import torch\n\n\ndef read(x: torch.Tensor):\n    return x.cpu()\n"
    assert found(tmp_path, pkg__server=server, pkg__tools=tools) == [("pkg/tools.py", 5, "OST502")]
