"""Measured plans in a file: what one engine has found out, the next need not measure.

Two files are read. One comes with the package: what was measured on GPUs that we had. The other is
this machine's own, in the user's cache, written when a model was measured here; it wins.
Without either, plans follow from rules (`fused_plans.py`).

A file that cannot be read or written costs a measurement and nothing else, so that is told in the
log only.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from ostinato.llm.kernels.few_rows import FewPlan
from ostinato.llm.kernels.tiled_rows import TilePlan
from ostinato.llm.models.fused_plans import LayerPlan, LayerPlans

_log = logging.getLogger(__name__)
_VERSION = 1
_KINDS: Mapping[str, type[FewPlan | TilePlan]] = {"few": FewPlan, "tile": TilePlan}
PACKAGED = Path(__file__).with_name("plans.json")


def own_file() -> Path:
    """Return where this machine's own plans are kept."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "ostinato" / "plans.json"


def read_plans(file: Path, key: str) -> LayerPlans | None:
    """Return the plans that a file has under a key; None if it has none that can be read."""
    if not file.is_file():
        return None
    try:
        found = _read(file).get(key)
        return None if found is None else _plans_of(found)
    except (OSError, ValueError, KeyError, TypeError) as error:
        _log.warning("the measured plans in %s cannot be read and are not used: %s", file, error)
        return None


def keep_plans(file: Path, key: str, plans: LayerPlans) -> None:
    """Write the plans into a file, whole or not at all, beside what it has."""
    try:
        kept = _read(file) if file.is_file() else {}
    except (OSError, ValueError, KeyError, TypeError):
        kept = {}
    kept[key] = {"up_to": list(plans.up_to), "plans": [_written(plan) for plan in plans.plans]}
    beside = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        content = {"version": _VERSION, "plans": kept}
        beside.write_text(json.dumps(content, indent=1), encoding="utf-8")
        beside.replace(file)
    except OSError as error:
        _log.warning("the measured plans could not be kept in %s: %s", file, error)


def _read(file: Path) -> dict[str, Any]:
    content = json.loads(file.read_text(encoding="utf-8"))
    if content["version"] != _VERSION:
        raise ValueError(f"version {content['version']}")
    plans: dict[str, Any] = content["plans"]
    return plans


def _plans_of(found: Mapping[str, Any]) -> LayerPlans:
    plans = tuple(
        LayerPlan(**{field.name: _product_of(plan[field.name]) for field in fields(LayerPlan)})
        for plan in found["plans"]
    )
    up_to = tuple(int(most) for most in found["up_to"])
    if len(plans) != len(up_to) + 1 or sorted(up_to) != list(up_to):
        raise ValueError(f"{len(plans)} plans for {up_to}")
    return LayerPlans(up_to, plans)


def _product_of(found: Mapping[str, Any] | None) -> FewPlan | TilePlan | None:
    if found is None:
        return None
    options = dict(found)
    return _KINDS[options.pop("kind")](**options)


def _written(plan: LayerPlan) -> dict[str, Any]:
    return {field.name: _product_written(getattr(plan, field.name)) for field in fields(plan)}


def _product_written(plan: FewPlan | TilePlan | None) -> dict[str, Any] | None:
    if plan is None:
        return None
    return {"kind": "few" if isinstance(plan, FewPlan) else "tile", **asdict(plan)}
