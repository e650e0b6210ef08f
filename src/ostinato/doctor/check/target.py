"""Find what `pkg.mod:factory` names, and read what it returns.

A factory takes nothing and returns one of

- `(callable, args)` or `(callable, args, kwargs)`: args a tuple or list, kwargs a dict;
- `(callable, tensor)`: one argument;
- a dict with "fn", and "args" and "kwargs" where there are any.

The callable may be a function, a module, a bound method or what `ostinato.graphed` returned.
"""

from __future__ import annotations

import importlib
import inspect
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ostinato.class_name import class_name
from ostinato.doctor.check.interrupted import raise_if_interrupted
from ostinato.doctor.raised import text_of
from ostinato.errors import UsageError

_WANTED = "name a function of that module that takes no arguments"
_GPU_WORDS = ("cuda", "nvidia", "gpu")
_FORMS = "return (callable, args) or (callable, args, kwargs)"
_NO_COROUTINE = "use a plain function (def) that makes the one synchronous call to be recorded"


@dataclass(frozen=True, slots=True)
class Call:
    """A callable and the arguments to check it with."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def find_factory(target: str) -> Callable[[], object]:
    """Import the module and return the factory.

    A module that asks for a GPU when it is imported is imported when the factory is called, which a
    check does while a GPU is pretended.

    Raises:
        UsageError: OST7050, the target has another form or names nothing that can be called;
            OST7052, the module raises when it is imported.
    """
    module_name, _, path = target.partition(":")
    if not module_name or not path:
        raise _unfound(
            f"{target!r} is not of the form pkg.mod:factory",
            "name the module and the function, such as `ostinato check app.model:example`",
        )
    if module_name.endswith(".py") or "/" in module_name:
        raise _is_a_file(module_name, path)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return _named(module_name, path)
    except UsageError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise _unfound(
                f"there is no module {error.name!r} (looked in {here} and on sys.path)",
                "run the command where the module can be imported, or set PYTHONPATH",
            ) from error
        raise _unimported(module_name, error) from error
    except BaseException as error:
        raise_if_interrupted(error)
        if any(word in text_of(error).lower() for word in _GPU_WORDS):
            return lambda: _named(module_name, path)()
        raise _unimported(module_name, error) from error


def _named(module_name: str, path: str) -> Callable[[], object]:
    found: Any = importlib.import_module(module_name)
    for name in path.split("."):
        if not hasattr(found, name):
            raise _unfound(f"{module_name} has no {path!r}", _WANTED)
        found = getattr(found, name)
    if not callable(found):
        kind = class_name(found)
        problem = f"{module_name}:{path} is of type {kind}, and no function"
        raise _unfound(problem, _WANTED)
    factory: Callable[[], object] = found
    return factory


def _is_a_file(name: str, function: str) -> UsageError:
    """Say how to name a file's function: by the module that the file is, from its folder."""
    file = Path(name).resolve()
    if not file.is_file():
        return _unfound(f"there is no file {name!r}", "name a module: pkg.mod:factory")
    parts = [file.stem]
    folder = file.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    problem = f"{name!r} is a file; a module is wanted"
    if file.suffix != ".py" or "." in file.stem or parts[0] in sys.stdlib_module_names:
        renamed = "give the file a name that can be imported, such as my_model.py, and name it"
        return _unfound(problem, f"{renamed} without the ending: my_model:{function}")
    go_there = "" if folder == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    command = shlex.quote(f"{'.'.join(parts)}:{function}")
    return _unfound(problem, f"run `{go_there}ostinato check {command}`")


def _unfound(problem: str, remedy: str) -> UsageError:
    return UsageError(problem, code="OST7050", remedy=remedy)


def _unimported(module_name: str, error: BaseException) -> UsageError:
    from ostinato.doctor.check.line import words_at  # it brings torch along

    return UsageError(
        f"importing {module_name} raised {words_at(error)}",
        code="OST7052",
        remedy="make the module importable on this machine: python -c 'import " + module_name + "'",
    )


def read_call(made: object) -> Call:
    """Return the call that a factory's result describes.

    Raises:
        UsageError: OST7051, it has none of the forms.
    """
    from torch import Tensor

    if inspect.iscoroutine(made):
        made.close()  # or Python would warn that nobody awaited it
        raise _unread("the factory is a coroutine function (async def)", _NO_COROUTINE)
    if isinstance(made, Mapping) and callable(made.get("fn")):
        made = (made["fn"], made.get("args", ()), made.get("kwargs", {}))
    if not isinstance(made, tuple | list) or not 2 <= len(made) <= 3 or not callable(made[0]):
        raise _unread(f"the factory returned {_said(made)}")
    if _is_coroutine_function(made[0]):
        raise _unread("the callable is a coroutine function (async def)", _NO_COROUTINE)
    fn, args, kwargs = made[0], made[1], made[2] if len(made) == 3 else {}
    if isinstance(args, Tensor):
        args = (args,)
    if isinstance(args, Mapping) and len(made) == 2:
        args, kwargs = (), args
    if not isinstance(args, tuple | list):
        raise _unread(f"the arguments that the factory returned are {_said(args)}")
    if not isinstance(kwargs, Mapping) or not all(isinstance(name, str) for name in kwargs):
        raise _unread(f"the keyword arguments that the factory returned are {_said(kwargs)}")
    return Call(fn, tuple(args), dict(kwargs))


def _is_coroutine_function(fn: Any) -> bool:
    """Whether a call returns a coroutine: a function, an object that is called, or a module."""
    calls = (fn, type(fn).__call__, getattr(type(fn), "forward", None))
    return any(inspect.iscoroutinefunction(each) for each in calls)


def _unread(problem: str, remedy: str = _FORMS) -> UsageError:
    return UsageError(problem, code="OST7051", remedy=remedy)


def _said(value: object) -> str:
    if isinstance(value, tuple | list):
        kinds = ", ".join(class_name(item) for item in value)
        return f"a {class_name(value)} of ({kinds})"
    return f"something of type {class_name(value)}"
