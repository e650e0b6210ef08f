"""Draw the dashboards and write them: `python deploy/grafana/build.py`.

The JSON files are committed, so that Grafana can be given them as they are; a test builds them anew
and compares.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import dashboard as drawn
from grafana_foundation_sdk.builders import heatmap, prometheus, stat, timeseries
from grafana_foundation_sdk.builders.common import StackingConfig, VizLegendOptions
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueGraphMode,
    LegendDisplayMode,
    LegendPlacement,
    StackingMode,
    VisibilityMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    VariableRefresh,
)
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from panels import Dashboard, Panel
from recordings import RECORDINGS
from service import SERVICE

DASHBOARDS = (SERVICE, RECORDINGS)

_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
_HEIGHT = {"number": 4}
_USUAL_HEIGHT = 8


def build(of: Dashboard) -> str:
    """Return a dashboard as Grafana's JSON."""
    made = (
        drawn.Dashboard(of.title)
        .uid(of.uid)
        .description(of.says)
        .tags(["ostinato"])
        .refresh("10s")
        .time("now-30m", "now")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(
            drawn.DatasourceVariable("datasource").label("Data source").type("prometheus")
        )
        .with_variable(_labels("job", "Job"))
        .with_variable(_labels("instance", "Replica"))
        .link(
            drawn.DashboardLink("Ostinato")
            .tags(["ostinato"])
            .type("dashboards")  # type: ignore[arg-type]
            .keep_time(True)
            .include_vars(True)
        )
    )
    for row in of.rows:
        made = made.with_row(drawn.Row(row.title))
        for panel in row.panels:
            made = made.with_panel(_panel(panel))
    return json.dumps(made.build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def _labels(label: str, title: str) -> drawn.QueryVariable:
    """Return the choice among the values of a label, several or all of them."""
    others = 'job=~"$job"' if label != "job" else ""
    return (
        drawn.QueryVariable(label)
        .label(title)
        .datasource(_SOURCE)
        .query(f"label_values(ostinato_requests_in_flight{{{others}}}, {label})")
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)
        .include_all(True)
        .all_value(".*")
    )


def _panel(of: Panel) -> Any:
    panel = _KINDS[of.draw]().title(of.title).description(of.says).datasource(_SOURCE)
    panel = panel.height(_HEIGHT.get(of.draw, _USUAL_HEIGHT)).span(of.width).unit(of.unit)
    for query in of.queries:
        target = prometheus.Dataquery().expr(query.expr).legend_format(query.legend)
        panel = panel.with_target(target)
    return panel


def _lines() -> timeseries.Panel:
    legend = (
        VizLegendOptions()
        .display_mode(LegendDisplayMode.LIST)
        .placement(LegendPlacement.BOTTOM)
        .show_legend(True)
    )
    return (
        timeseries.Panel()
        .legend(legend)
        .line_width(1)
        .fill_opacity(6)
        .show_points(VisibilityMode.NEVER)
        .min(0)
    )


def _stacked() -> timeseries.Panel:
    return _lines().fill_opacity(24).stacking(StackingConfig().mode(StackingMode.NORMAL))


def _heat() -> heatmap.Panel:
    color = heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Oranges").steps(64)
    return heatmap.Panel().calculate(False).color(color).cell_gap(1).show_legend()


def _number() -> stat.Panel:
    return stat.Panel().graph_mode(BigValueGraphMode.AREA).decimals(2)


_KINDS: dict[str, Any] = {
    "lines": _lines,
    "stacked": _stacked,
    "heat": _heat,
    "number": _number,
}


def main() -> None:
    """Write every dashboard into the folder that is given, or beside this file."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for dashboard in DASHBOARDS:
        (folder / f"{dashboard.uid}.json").write_text(build(dashboard), encoding="utf-8")


if __name__ == "__main__":
    main()
