"""Generates the dashboard for Grafana, helm/files/dashboard.json.

    python -m venv target/dashboard/venv && target/dashboard/venv/bin/pip install -r helm/requirements.txt
    target/dashboard/venv/bin/python helm/dashboard.py [--check]

With --check the command writes nothing, and fails if the file differs from the generated one. panels.py lists the panels in
the order of the dashboard. This file builds them.
"""

import argparse
import json
import pathlib
import sys

from grafana_foundation_sdk.builders import common, dashboard, heatmap, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import heatmap as heatmap_models
from grafana_foundation_sdk.models import prometheus as prometheus_models

import panels

FILE = pathlib.Path(__file__).parent / "files" / "dashboard.json"
SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
COLOURS = ["green", "orange", "red"]


def thresholds(bounds):
    """Colours values green, then orange and red above each bound. A negative first bound reverses the order: low values are red."""
    falling = bounds[0] < 0
    colours = COLOURS[::-1][-len(bounds) - 1 :] if falling else COLOURS[: len(bounds) + 1]
    if len(bounds) == 1:
        colours = ["red", "green"] if falling else ["green", "red"]
    steps = [models.Threshold(value=None, color=colours[0])]
    steps += [models.Threshold(value=abs(bound), color=colour) for bound, colour in zip(bounds, colours[1:], strict=True)]
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)


def queries(panel, spec):
    """Adds the panel's queries, with the ids A, B, C, …"""
    for letter, (legend, expr) in zip("ABCDEFGH", spec["queries"].items()):
        query = prometheus.Dataquery().ref_id(letter).datasource(SOURCE).expr(expr).legend_format(legend)
        query = query.instant() if spec["kind"] == "stat" else query.range()
        if spec["kind"] == "heatmap":
            query = query.format(prometheus_models.PromQueryFormat.HEATMAP)
        panel = panel.with_target(query)
    return panel


def timeseries_panel(spec):
    """Builds a panel with lines over time, or with stacked areas."""
    legend = common.VizLegendOptions().display_mode(common_models.LegendDisplayMode.TABLE)
    legend = legend.placement(common_models.LegendPlacement.BOTTOM).show_legend(True).calcs(["lastNotNull", "max"])
    tooltip = common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.MULTI).sort(common_models.SortOrder.DESCENDING)
    panel = timeseries.Panel().unit(spec["unit"]).min(0).legend(legend).tooltip(tooltip)
    panel = panel.show_points(common_models.VisibilityMode.NEVER).line_width(1).fill_opacity(30 if spec["stacked"] else 5)
    if spec["stacked"]:
        panel = panel.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL).group("A"))
    if spec["bounds"]:
        style = common.GraphThresholdsStyleConfig().mode(common_models.GraphThresholdsStyleMode.DASHED)
        panel = panel.thresholds(thresholds(spec["bounds"])).thresholds_style(style)
    return panel


def stat_panel(spec):
    """Builds a panel with one or a few current figures."""
    reduce = common.ReduceDataOptions().calcs(["lastNotNull"]).values(False)
    panel = stat.Panel().unit(spec["unit"]).reduce_options(reduce).graph_mode(common_models.BigValueGraphMode.NONE)
    panel = panel.color_mode(common_models.BigValueColorMode.VALUE)
    panel = panel.text_mode(common_models.BigValueTextMode.NAME if spec["names"] else common_models.BigValueTextMode.AUTO)
    return panel.thresholds(thresholds(spec["bounds"])) if spec["bounds"] else panel


def heatmap_panel(spec):
    """Builds a panel with buckets over time."""
    colour = heatmap.HeatmapColorOptions().mode(heatmap_models.HeatmapColorMode.SCHEME).scheme("Oranges").steps(64)
    return heatmap.Panel().calculate(False).color(colour).y_axis(heatmap.YAxisConfig().unit(spec["unit"]))


KINDS = {"timeseries": timeseries_panel, "stat": stat_panel, "heatmap": heatmap_panel}


def panel_of(number, spec):
    """Builds a panel, with links to the runbooks of its alerts."""
    panel = KINDS[spec["kind"]](spec).id(number).title(spec["title"]).description(spec["description"]).datasource(SOURCE)
    link = models.DashboardLinkType.LINK
    pages = [dashboard.DashboardLink(alert).type(link).url(f"${{runbooks}}/{alert}.md").target_blank(True) for alert in spec["alerts"]]
    return queries(panel.links(pages) if pages else panel, spec).span(spec["width"]).height(4 if spec["kind"] == "stat" else 8)


def choice(name, label, values, description):
    """Builds a variable whose default matches all series, including those without the label."""
    every = models.VariableOption(selected=True, text="All", value="$__all")
    variable = dashboard.QueryVariable(name).label(label).description(description).datasource(SOURCE).query(values)
    variable = variable.refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(models.VariableSort.ALPHABETICAL_ASC)
    return variable.multi(True).include_all(True).all_value(".*").current(every)


def variables():
    """Builds the variables at the top of the dashboard."""
    place = models.VariableOption(selected=True, text="docs/runbooks", value="docs/runbooks")
    return [
        dashboard.DatasourceVariable("datasource").label("Source").type("prometheus"),
        choice("namespace", "Namespace", "label_values(assay_build_info, namespace)", "Installations, if the scrape adds this label."),
        choice("instance", "Instance", 'label_values(assay_build_info{namespace=~"$namespace"}, instance)', "API processes, workers and engines."),
        choice("operation", "Operation", 'label_values(assay_requests_total{namespace=~"$namespace"}, operation)', "REST routes and RPCs."),
        dashboard.TextBoxVariable("runbooks").label("Runbooks URL").description("URL of the folder docs/runbooks.")
        .default_value("docs/runbooks").current(place),
    ]


def text():
    """Returns the content of the file."""
    board = dashboard.Dashboard("Assay").uid("assay").tags(["assay"]).timezone("browser").time("now-3h", "now").refresh("30s")
    board = board.description("Requests, jobs, workers, engines, webhooks and receipts of Assay. Generated by helm/dashboard.py: make changes there.").editable()
    board = board.tooltip(models.DashboardCursorSync.CROSSHAIR).variables(variables())
    number = 0
    for title, specs in panels.ROWS:
        number += 1
        board = board.with_row(dashboard.Row(title).id(number))
        for spec in specs:
            number += 1
            board = board.with_panel(panel_of(number, spec))
    return json.dumps(board.build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail if the file differs from the generated one")
    if not parser.parse_args().check:
        FILE.write_text(text())
    elif FILE.read_text() != text():
        sys.exit("helm/files/dashboard.json is outdated: run helm/dashboard.py and commit the file")


if __name__ == "__main__":
    main()
