"""What torch.compile did while somebody watched: breaks, compilations again, CUDA graphs left out.

torch keeps an account of every compilation, with its own words for why; nothing is patched.
"""

from __future__ import annotations

import linecache
import re
import sys
from collections import Counter
from typing import Any

from ostinato.doctor.finding import Place
from ostinato.doctor.graph_use import CompileUse, GraphBreak, Recompile, SkippedCudagraphs

_RESUME = re.compile(r"(?:torch_dynamo_resume_in_)+(?P<function>.+?)_at_(?P<line>\d+)$")
_KEPT = 4096
_LONGEST = 300


class Compilation:
    """Reads torch's account of its compilations."""

    name = "compile"

    def __init__(self) -> None:
        self._known = 0
        self._graphs_before = 0
        self._skips_before = 0

    def start(self) -> None:
        """Note what was compiled before, and let torch keep a longer account.

        The compiler takes seconds to import, so a program that does not use it is spared that.
        """
        utils = _compilers_account()
        if utils is None:
            return
        if hasattr(utils, "set_compilation_metrics_limit"):
            utils.set_compilation_metrics_limit(_KEPT)
        self._known = len(utils.get_compilation_metrics())
        self._graphs_before = utils.counters["stats"]["unique_graphs"]
        self._skips_before = utils.counters["inductor"]["cudagraph_skips"]

    def stop(self) -> None:
        """Nothing to do: nothing was changed."""

    def fields(self) -> dict[str, Any]:
        """Return what was compiled since the start."""
        utils = _compilers_account()
        if utils is None:
            return {"compile": CompileUse()}
        all_of_them = utils.get_compilation_metrics()
        metrics = [m for m in all_of_them[self._known :] if getattr(m, "co_name", None)]
        skips = _skips(metrics)
        counted = utils.counters["inductor"]["cudagraph_skips"] - self._skips_before
        if counted > 0 and not skips:
            skips = (SkippedCudagraphs("torch gives no reason", None, counted),)
        return {
            "compile": CompileUse(
                frames=len(metrics),
                graphs=utils.counters["stats"]["unique_graphs"] - self._graphs_before,
                us=float(sum(getattr(m, "duration_us", 0) or 0 for m in metrics)),
                wants_cudagraphs=bool(skips) or counted > 0,
                breaks=_breaks(metrics),
                recompiles=_recompiles(metrics),
                skips=skips,
            )
        }


def _compilers_account() -> Any:
    """Return the module that keeps the account; None where nobody has imported all of it yet."""
    utils = sys.modules.get("torch._dynamo.utils")
    spec = getattr(utils, "__spec__", None)
    return None if getattr(spec, "_initializing", False) else utils


def _breaks(metrics: list[Any]) -> tuple[GraphBreak, ...]:
    """Return the breaks: a frame that was started over, and the line at which it was resumed."""
    resumed: dict[tuple[str, str], list[int]] = {}
    for metric in metrics:
        match = _RESUME.match(metric.co_name)
        if match:
            key = (metric.co_filename or "", match["function"])
            lines = resumed.setdefault(key, [])
            if int(match["line"]) not in lines:
                lines.append(int(match["line"]))
    counts: Counter[tuple[str, str, int, str]] = Counter()
    for metric in metrics:
        for reason in getattr(metric, "restart_reasons", None) or ():
            match = _RESUME.match(metric.co_name)
            function = match["function"] if match else metric.co_name
            begins = int(match["line"]) if match else metric.co_firstlineno or 0
            later = [n for n in resumed.get((metric.co_filename, function), []) if n > begins]
            line = min(later) if later else begins
            counts[(reason, metric.co_filename or "", line, function)] += 1
    return tuple(
        GraphBreak(_first_line(reason), _place(path, line, function), count)
        for (reason, path, line, function), count in counts.most_common(64)
    )


def _recompiles(metrics: list[Any]) -> tuple[Recompile, ...]:
    together: dict[tuple[str, int, str], list[Any]] = {}
    for metric in metrics:
        if getattr(metric, "recompile_reason", None):
            key = (metric.co_filename or "", metric.co_firstlineno or 0, metric.co_name)
            together.setdefault(key, []).append(metric)
    return tuple(
        Recompile(
            function=_plain_name(name),
            place=_place(path, line, _plain_name(name)),
            count=len(again),
            us=float(sum(getattr(m, "duration_us", 0) or 0 for m in again)),
            reasons=tuple(dict.fromkeys(_guard(m.recompile_reason) for m in again))[:8],
        )
        for (path, line, name), again in together.items()
    )


def _skips(metrics: list[Any]) -> tuple[SkippedCudagraphs, ...]:
    counts: Counter[tuple[str, str, int, str]] = Counter()
    for metric in metrics:
        reason = getattr(metric, "cudagraph_skip_reason", None)
        if reason:
            path, line = metric.co_filename or "", metric.co_firstlineno or 0
            counts[(reason, path, line, metric.co_name)] += 1
    return tuple(
        SkippedCudagraphs(_first_line(reason), _place(path, line, name), count)
        for (reason, path, line, name), count in counts.most_common(32)
    )


def _plain_name(name: str) -> str:
    match = _RESUME.match(name)
    return match["function"] if match else name


def _guard(reason: str) -> str:
    return _first_line(re.sub(r"^\d+/\d+: ", "", reason))


def _first_line(text: str) -> str:
    lines = text.strip().splitlines() or [""]
    words = lines[0]
    hint = next((line.strip() for line in lines if line.strip().startswith("Explanation:")), "")
    if hint:
        words = f"{words}: {hint.removeprefix('Explanation:').strip()}"
    return words if len(words) <= _LONGEST else words[: _LONGEST - 1] + "…"


def _place(path: str, line: int, function: str) -> Place | None:
    if not path or not line:
        return None
    return Place(
        path=path,
        line=line,
        function=function,
        code=linecache.getline(path, line).strip()[:100],
    )
