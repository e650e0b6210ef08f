"""What a function does with its parameters: which are tensors, which classes it changes."""

from __future__ import annotations

import ast
import re

from ostinato.doctor.lint.scene import Scene
from ostinato.doctor.lint.torch_names import FACTORIES, FUNCTIONS_PYTHON, TENSOR_ONLY, words

_NAMED_LIKE_ONE = re.compile(
    r"(?:^|_)(?:mask|ids|hidden|hidden_states|embeds|embeddings|inputs?|pixel_values|logits"
    r"|features?|tokens|x|y|q|k|v|query|key|value)$"
)
_NAMED_LIKE_A_SWITCH = re.compile(
    r"^(?:output|use|return|is|has|do|with|num|n|max|min|should|need|add|apply|keep|skip)_"
)
_NO_TENSORS = (
    "shape",
    "size",
    "sizes",
    "length",
    "len",
    "device",
    "dtype",
    "config",
    "cache",
    "idx",
)
# In a forward, these too say that it is a tensor.
_IN_A_FORWARD = words("shape size sum mean max min any all device dtype to ndim pow abs")


def is_named_like_a_tensor(word: str) -> bool:
    """Return whether a parameter of that name is a tensor in nearly every forward."""
    return bool(_NAMED_LIKE_ONE.search(word)) and not _NAMED_LIKE_A_SWITCH.match(word)


def tensors_of_forward(
    names: list[str], first: str, node: ast.FunctionDef | ast.AsyncFunctionDef
) -> frozenset[str]:
    """Return the bare parameters of a module's forward that are tensors.

    Args:
        first: The parameter after `self`, a tensor unless it has a default.
    """
    if first.endswith(_NO_TENSORS):
        first = ""
    found = {first} | {name for name in names if is_named_like_a_tensor(name)}
    for part in ast.walk(node):
        if not (isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name)):
            continue
        if part.value.id in names and part.attr in _IN_A_FORWARD:
            found.add(part.value.id)
    return frozenset(found & {first, *names})


def tensors_among(
    names: set[str], node: ast.FunctionDef | ast.AsyncFunctionDef, scene: Scene
) -> frozenset[str]:
    """Return those of `names` that only make sense as tensors in this function."""
    found: set[str] = set()
    for part in ast.walk(node):
        if not isinstance(part, ast.Call):
            continue
        func = part.func
        if isinstance(func, ast.Attribute):
            if isinstance(func.value, ast.Name) and func.value.id in names:
                if func.attr in TENSOR_ONLY:
                    found.add(func.value.id)
                continue
            first = part.args[0].id if part.args and isinstance(part.args[0], ast.Name) else ""
            if first in names and _takes_tensor(scene.dotted(func) or ""):
                found.add(first)
    return frozenset(found)


def replaces_forward(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a class decorator stores another forward and does not call the old one."""
    stored, kept, called = False, set[str](), set[str]()
    for part in ast.walk(node):
        if isinstance(part, ast.Assign):
            for target in part.targets:
                if isinstance(target, ast.Attribute) and target.attr == "forward":
                    stored = True
                elif isinstance(target, ast.Name) and isinstance(part.value, ast.Attribute):
                    kept |= {target.id} if part.value.attr == "forward" else set()
        elif isinstance(part, ast.Call) and isinstance(part.func, ast.Name):
            called.add(part.func.id)
    return stored and not kept & called


def _takes_tensor(dotted: str) -> bool:
    if dotted.startswith("torch.nn.functional."):
        return True
    return (
        dotted.startswith("torch.")
        and dotted.count(".") == 1
        and dotted not in FACTORIES
        and dotted not in FUNCTIONS_PYTHON
        and dotted.rpartition(".")[2]
        not in (
            "cat",
            "stack",
            "concat",
            "compile",
            "vstack",
            "hstack",
            "load",
            "where",
            "as_tensor",
        )
    )
