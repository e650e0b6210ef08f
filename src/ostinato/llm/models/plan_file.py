"""Measured plans in a file: what one engine has found out, the next need not measure.

Two files are read. One comes with the package: what was measured on GPUs that we had. The other is
this machine's own, in the user's cache, written when a model was measured here; it wins.
Without either, plans follow from rules (`fused_plans.py`).

A file that cannot be read or written costs a measurement and nothing else, so that is told in the
log only. Several processes may write at the same time: each reads and writes the whole file behind
a lock on its folder, and readers see one whole file or the next.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from ostinato.llm.kernels.few_rows import FewPlan
from ostinato.llm.kernels.tiled_rows import TilePlan
from ostinato.llm.models.fused_plans import Apart, LayerPlan, LayerPlans, Plan

_log = logging.getLogger(__name__)
_VERSION = 1
_KINDS: Mapping[str, type[FewPlan | TilePlan | Apart]] = {
    "few": FewPlan,
    "tile": TilePlan,
    "apart": Apart,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}
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
    entry = {
        "up_to": list(plans.up_to),
        "measured": list(plans.measured),
        "plans": [written(plan) for plan in plans.plans],
    }
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with _locked(file.parent):
            content = {"version": _VERSION, "plans": _kept(file) | {key: entry}}
            _write_whole(file, json.dumps(content, indent=1))
    except OSError as error:
        _log.warning("the measured plans could not be kept in %s: %s", file, error)


def _kept(file: Path) -> dict[str, Any]:
    try:
        return _read(file) if file.is_file() else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep others who write here waiting."""
    place = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(place, fcntl.LOCK_EX)
        yield
    finally:
        os.close(place)


def _write_whole(file: Path, text: str) -> None:
    with NamedTemporaryFile(
        "w", encoding="utf-8", dir=file.parent, prefix=f"{file.name}.", delete=False
    ) as part:
        beside = Path(part.name)
        try:
            part.write(text)
            part.close()
            beside.replace(file)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise


def _read(file: Path) -> dict[str, Any]:
    content = json.loads(file.read_text(encoding="utf-8"))
    if content["version"] != _VERSION:
        raise ValueError(f"version {content['version']}")
    plans: dict[str, Any] = content["plans"]
    return plans


def _plans_of(found: Mapping[str, Any]) -> LayerPlans:
    plans = tuple(map(plan_of, found["plans"]))
    up_to = tuple(int(most) for most in found["up_to"])
    if len(plans) != len(up_to) + 1 or sorted(up_to) != list(up_to):
        raise ValueError(f"{len(plans)} plans for {up_to}")
    return LayerPlans(up_to, plans, tuple(int(count) for count in found.get("measured", ())))


def plan_of(found: Mapping[str, Any]) -> LayerPlan:
    """Return a plan from the values of `written`.

    Raises:
        ValueError, KeyError, TypeError: They are no plan's.
    """
    return LayerPlan(**{each.name: _product_of(found[each.name]) for each in fields(LayerPlan)})


def _product_of(found: Mapping[str, Any] | None) -> Plan:
    if found is None:
        return None
    options = dict(found)
    kind = _KINDS[options.pop("kind")]
    strangers = [name for name, value in options.items() if not _is_possible(kind, name, value)]
    if strangers:
        raise ValueError(f"{strangers[0]} of {options[strangers[0]]!r}")
    return kind(**options)


def _is_possible(kind: type[FewPlan | TilePlan | Apart], name: str, value: object) -> bool:
    """Return whether a kernel can be compiled with this; what compiles may still not fit a GPU."""
    if name.startswith("is_"):
        return isinstance(value, bool)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        return False
    if name in ("stages", "splits", "ahead"):
        return True
    least = 16 if kind is TilePlan and name in ("outputs", "chunk", "tokens") else 1
    return value >= least and value & (value - 1) == 0


def written(plan: LayerPlan) -> dict[str, Any]:
    """Return a plan as values that JSON can hold."""
    return {field.name: _product_written(getattr(plan, field.name)) for field in fields(plan)}


def _product_written(plan: Plan) -> dict[str, Any] | None:
    return None if plan is None else {"kind": _NAMES[type(plan)], **asdict(plan)}
