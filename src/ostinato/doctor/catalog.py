"""The one list of findings: every code, its name, its words, and which commands can find it.

The words are those of its page in `explanations/`, so that a report, `ostinato explain` and the
docs cannot disagree. Codes are never used again for something else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType

from ostinato import explain
from ostinato.doctor.finding import Basis, Cost, Finding, Place, Remedy, Safety
from ostinato.errors import UsageError


@dataclass(frozen=True, slots=True)
class Rule:
    """What every finding of one code shares.

    Attributes:
        code, name: "OST101" and "host-sync-in-step"; the name says what was seen.
        summary: The same in a sentence.
        why: Why it costs, in a sentence or two.
        remedies: What to try, the first thing first, each with its safety.
        page: What `ostinato explain` takes.
        found_by: "lint", "watch", "host", "check", "trace".
    """

    code: str
    name: str
    summary: str
    why: str
    remedies: tuple[Remedy, ...]
    false_alarms: str
    page: str
    found_by: frozenset[str]

    def finding(
        self,
        fact: str,
        place: Place | None = None,
        cost: Cost | None = None,
        *,
        remedies: tuple[Remedy, ...] | None = None,
        others: tuple[Place, ...] = (),
    ) -> Finding:
        """Return a finding of this rule.

        Args:
            remedies: Those that fit this case, where that can be told; None means all.
        """
        return Finding(
            code=self.code,
            name=self.name,
            fact=fact,
            place=place,
            cost=_spread_or_why_not(cost),
            why=self.why,
            remedies=self.remedies if remedies is None else remedies,
            false_alarms=self.false_alarms,
            page=self.page,
            others=_other_lines(place, others),
        )


def _spread_or_why_not(cost: Cost | None) -> Cost | None:
    if cost is None or cost.spread_us is not None or cost.no_spread:
        return cost
    is_measured = cost.kind is Basis.MEASURED
    return replace(cost, no_spread="one measurement" if is_measured else "it is inferred")


def _other_lines(place: Place | None, others: tuple[Place, ...]) -> tuple[Place, ...]:
    """Return one place for each line that is not the first one's."""
    lines = {(each.path, each.line): each for each in reversed(others)}
    if place is not None:
        lines.pop((place.path, place.line), None)
    return tuple(reversed(lines.values()))


_FOUND_BY: Mapping[tuple[int, str], str] = MappingProxyType(
    {
        (101, "host-sync-in-step"): "lint watch check trace",
        (102, "launch-bound-step"): "watch trace check",
        (103, "tiny-kernels"): "watch trace",
        (104, "pcie-bound-copy"): "watch trace lint",
        (105, "lost-gradient"): "lint watch",
        (201, "never-captured"): "watch trace",
        (202, "shape-churn"): "watch lint",
        (203, "recapture-storm"): "watch lint",
        (204, "address-drift"): "watch lint",
        (205, "amp-switch-in-capture"): "watch lint check",
        (206, "low-reuse"): "watch",
        (207, "unprofitable-graph"): "watch",
        (208, "over-keyed-cache"): "watch lint",
        (301, "graph-breaks"): "watch lint check",
        (302, "recompiles"): "watch lint",
        (303, "skipped-cudagraphs"): "watch",
        (401, "attention-fallback"): "watch trace check",
        (402, "non-contiguous-qkv"): "watch lint trace",
        (501, "gil-contention"): "watch",
        (502, "lock-across-wait"): "lint watch",
        (503, "blocking-call-in-event-loop"): "lint watch",
        (504, "gc-pause-in-step"): "watch",
        (505, "thread-pool-oversubscription"): "watch lint host",
        (601, "fragmented-allocator"): "watch",
        (602, "pool-leak"): "watch",
        (603, "near-oom"): "watch host",
        (701, "remote-numa-memory"): "host watch",
        (702, "degraded-pcie-link"): "host",
        (703, "context-switch-jitter"): "host watch",
        (704, "clock-throttling"): "host watch",
    }
)

_BULLET = re.compile(r"^- (?P<what>.+?) \[(?P<safety>[a-z-]+)\]$", re.DOTALL)


@cache
def _rules() -> Mapping[str, Rule]:
    read = [_read(f"OST{number}", name, by) for (number, name), by in _FOUND_BY.items()]
    return MappingProxyType({rule.code: rule for rule in read})


def _read(code: str, name: str, found_by: str) -> Rule:
    page = explain.find(code)
    sections = explain.sections(page)
    return Rule(
        code=code,
        name=name,
        summary=page.title.partition(": ")[2],
        why=_first_paragraph(sections["Why it costs"]),
        remedies=tuple(_remedies(sections["What to try and how safe"])),
        false_alarms=_first_paragraph(sections["False alarms"]),
        page=code,
        found_by=frozenset(found_by.split()),
    )


def _first_paragraph(text: str) -> str:
    return " ".join(text.strip().split("\n\n")[0].split())


def _remedies(text: str) -> list[Remedy]:
    found = []
    for bullet in re.split(r"^(?=- )", text, flags=re.MULTILINE):
        match = _BULLET.match(" ".join(bullet.split("\n\n")[0].split()))
        if match:
            found.append(Remedy(match["what"], Safety(match["safety"])))
    return found


RULES: Mapping[str, Rule] = _rules()


def find(code_or_name: str) -> Rule:
    """Return the rule of "OST101" or "host-sync-in-step"; case, and "_" for "-", do not matter.

    Raises:
        UsageError: OST7022, no finding has that code or name.
    """
    wanted = code_or_name.strip().lower().replace("_", "-")
    for rule in RULES.values():
        if wanted in (rule.code.lower(), rule.name):
            return rule
    raise UsageError(
        f"no finding has the code or the name {code_or_name!r}",
        code="OST7022",
        remedy="write a code such as OST101 or a name such as host-sync-in-step; "
        "`ostinato explain` lists them all",
    )
