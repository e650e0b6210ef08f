"""Which dotted names an import brings in."""

from __future__ import annotations

import ast


def canonical(dotted: str) -> str:
    """Return the one name by which the tables know what has several."""
    if dotted == "torch.functional" or dotted.startswith("torch.functional."):
        return dotted.replace("torch.functional", "torch", 1)
    if dotted == "torch.nn.parameter.Parameter":
        return "torch.nn.Parameter"
    if dotted in ("torch.Tensor", "torch._tensor.Tensor"):
        return "torch.Tensor"
    return dotted


def absolute(module: str, node: ast.ImportFrom, *, is_package: bool) -> str:
    """Return the dotted package that a `from ... import` names, dots at its start followed."""
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    drop = node.level - (1 if is_package else 0)
    kept = parts[: len(parts) - drop] if drop else parts
    return ".".join([*kept, node.module] if node.module else kept)
