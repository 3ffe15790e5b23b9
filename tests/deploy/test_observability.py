"""Alert rules, runbooks and the dashboard: they name metrics that processes really show, and each other."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from blendex.builds.run import run_build
from blendex.observability import metrics
from tests.cluster.cluster import Api, Worker, wait_for
from tests.support import corpus

HERE = Path(__file__).parent.parent.parent
FILES = HERE / "helm" / "blendex" / "files"
RUNBOOKS = HERE / "docs" / "runbooks"
ALERTS = {rule["alert"]: rule for rule in yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"][0]["rules"]}
PANELS = json.loads((FILES / "dashboard.json").read_text())["panels"]
QUERIES = {name: rule["expr"] for name, rule in ALERTS.items()} | {
    f"{panel['title']} {target['refId']}": target["expr"] for panel in PANELS for target in panel["targets"]
}


def names(family: Any) -> set[str]:
    """The samples of a family, also of one that has none yet."""
    suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
    return {family.name + suffix for suffix in suffixes.get(family.type, ("",))}


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of all samples of an api process and of a worker, scraped as Prometheus does it."""
    folder = tmp_path_factory.mktemp("shown")
    site = corpus.site(folder / "root")
    run_build(site, corpus.submission(corpus.corpus(folder / "data", 1), folder / "data"))
    site.work.engine.dispose()
    environment = {"BLENDEX_ROOT": str(folder / "root"), "BLENDEX_SLOTS": "1"}
    worker = Worker(environment)
    api = Api(environment)
    try:
        wait_for(worker.ready)
        texts = [
            httpx.get(f"{url}/metrics", trust_env=False).text for url in (api.url, f"http://127.0.0.1:{worker.probe}")
        ]
    finally:
        api.close()
        worker.close()
    return {name for text in texts for family in text_string_to_metric_families(text) for name in names(family)}


def selectors(node: Any) -> Iterator[Any]:
    """The vector selectors of a query."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    for part in ("expr", "lhs", "rhs", "vs", "param", "vector_selector"):
        inner = getattr(node, part, None)
        if inner is not None and not isinstance(inner, str):
            yield from selectors(inner)
    for argument in getattr(node, "args", ()) or ():
        yield from selectors(argument)


@pytest.mark.parametrize("name", QUERIES)
def test_queries_name_metrics_that_are_shown(name: str, shown: set[str]) -> None:
    found = list(selectors(promql_parser.parse(QUERIES[name])))
    assert {selector.name for selector in found} == set(re.findall(r"blendex_[a-z_]+", QUERIES[name]))
    assert {selector.name for selector in found} <= shown


def test_queries_ask_for_labels_that_metrics_have() -> None:
    labels = {}
    for metric in vars(metrics).values():
        if hasattr(metric, "_labelnames"):
            for family in metric.describe():
                labels |= {name: {*metric._labelnames, "le"} for name in names(family)}
    labels |= {
        "blendex_units": {"work", "state"},
        "blendex_oldest_waiting_seconds": {"work"},
        "blendex_builds": {"state"},
        "blendex_units_without_recipe": {"recipe"},
    }
    asked = 0
    for query in QUERIES.values():
        for selector in selectors(promql_parser.parse(query)):
            for matcher in selector.matchers.matchers:
                assert matcher.name in labels[selector.name], query
                asked += 1
    assert asked > 5


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_has_severity_words_and_its_runbook(name: str) -> None:
    rule = ALERTS[name]
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"]["summary"].endswith(".")
    page = HERE / rule["annotations"]["runbook"]
    assert page == RUNBOOKS / f"{name}.md"
    text = page.read_text()
    assert text.startswith(f"# {name}\n")
    assert "## Look" in text
    assert "## Do" in text
    assert f"[{name}]({name}.md)" in (RUNBOOKS / "README.md").read_text()


def test_runbooks_are_of_alerts_and_name_what_there_is(shown: set[str]) -> None:
    pages = {path.stem for path in RUNBOOKS.glob("*.md")} - {"README"}
    assert pages == ALERTS.keys()
    for page in RUNBOOKS.glob("*.md"):
        assert set(re.findall(r"\bblendex_[a-z_]+", page.read_text())) <= shown, page.name


def test_the_dashboard_is_one() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS) > 12
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}


def test_compose_mounts_what_there_is_and_grafana_finds_it() -> None:
    services = yaml.safe_load((HERE / "docker-compose.yml").read_text())["services"]
    mounted: dict[str, str] = {}
    for name in ("prometheus", "grafana"):
        assert services[name]["profiles"] == ["observability"]
        for volume in services[name]["volumes"]:
            if volume.startswith("./"):
                source, target, mode = volume.split(":")
                assert (HERE / source).exists(), source
                assert mode == "ro"
                mounted[target] = source
    config = yaml.safe_load((HERE / mounted["/etc/prometheus/prometheus.yml"]).read_text())
    targets = {
        target for job in config["scrape_configs"] for group in job["static_configs"] for target in group["targets"]
    }
    assert targets == {"api:8765", "worker-1:9100", "worker-2:9100"}
    provider = yaml.safe_load((HERE / "deploy/observability/grafana/dashboards/blendex.yaml").read_text())
    folder = provider["providers"][0]["options"]["path"]
    assert mounted[f"{folder}/blendex.json"] == "./helm/blendex/files/dashboard.json"


def test_alerts_fire_when_they_should() -> None:
    """Prometheus' own tool runs the rules over made-up series; the parser above stands in where it is missing."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    tests = Path(__file__).parent / "alerts.test.yaml"
    assert {name for name in ALERTS if f"alertname: {name}" in tests.read_text()} == ALERTS.keys()
    result = subprocess.run([program, "test", "rules", str(tests)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
