"""OpenAI's own description of its replies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs


class OpenAISchema:
    """Checks replies."""

    def __init__(self, file: Path) -> None:
        self._components = _with_null(json.loads(file.read_text(encoding="utf-8"))["components"])
        self._checks: dict[str, Any] = {}

    def check(self, name: str, reply: Any) -> None:
        """Fail if `reply` is not what OpenAI calls `name`."""
        check = self._checks.get(name)
        if check is None:
            schema = {"$ref": f"#/components/schemas/{name}", "components": self._components}
            check = self._checks[name] = jsonschema_rs.Draft202012Validator(schema)
        errors = [f"{error.instance_path}: {error.message}" for error in check.iter_errors(reply)]
        assert not errors, errors[:3]


def _with_null(node: Any) -> Any:
    """Say in JSON Schema what OpenAPI once called nullable."""
    if isinstance(node, list):
        return [_with_null(one) for one in node]
    if not isinstance(node, dict):
        return node
    plain = {name: _with_null(value) for name, value in node.items() if name != "nullable"}
    return {"anyOf": [plain, {"type": "null"}]} if node.get("nullable") is True else plain
