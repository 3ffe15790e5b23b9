"""The chart, rendered by Helm's own library over a matrix of values: linted, held against Kubernetes' schemas, and what
must be true of every pod asserted of every pod. No cluster is needed.
"""

from __future__ import annotations

import ipaddress
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from helm_python import Chart, HelmError, lint

from blendex.catalog.states import CLASSES
from blendex.cli.app import app
from blendex.settings import Settings

HERE = Path(__file__).parent.parent.parent
CHART = HERE / "helm" / "blendex"
MATRIX = sorted(path.stem for path in (CHART / "ci").glob("*.yaml"))
# Kinds of the Prometheus operator, which Kubernetes has no schemas of; their own tests are below.
UNKNOWN = {"ServiceMonitor", "PodMonitor", "PrometheusRule"}
# What a worker needs after its drain until it is gone: workers/main.py waits 3 s for Celery and 30 s for the loop.
AFTER_DRAIN = 33
Doc = dict[str, Any]


@dataclass(frozen=True)
class Pod:
    """One pod of a rendered chart: whose, its labels, its spec."""

    owner: str
    labels: dict[str, str]
    spec: Doc

    @property
    def containers(self) -> list[Doc]:
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]

    @property
    def component(self) -> str:
        return self.labels["app.kubernetes.io/component"]

    @property
    def ours(self) -> bool:
        return self.component not in ("postgres", "redis")


def values(case: str) -> Doc:
    found: Doc = yaml.safe_load((CHART / "ci" / f"{case}.yaml").read_text())
    return found


def render(given: Doc) -> list[Doc]:
    with Chart.load(CHART) as chart:
        files = chart.render(given, name="rel", namespace="blendex")
    return [doc for name, text in files.items() if name.endswith(".yaml") for doc in yaml.safe_load_all(text) if doc]


@pytest.fixture(scope="module")
def rendered() -> dict[str, list[Doc]]:
    return {case: render(values(case)) for case in MATRIX}


@pytest.fixture(params=MATRIX)
def docs(request: pytest.FixtureRequest, rendered: dict[str, list[Doc]]) -> list[Doc]:
    return rendered[request.param]


def of_kind(docs: list[Doc], *kinds: str) -> list[Doc]:
    return [doc for doc in docs if doc["kind"] in kinds]


def pods(docs: list[Doc]) -> Iterator[Pod]:
    for doc in docs:
        if doc["kind"] == "Pod":
            yield Pod(doc["metadata"]["name"], doc["metadata"]["labels"], doc["spec"])
        elif doc["kind"] in ("Deployment", "StatefulSet", "Job"):
            template = doc["spec"]["template"]
            claims = [
                {"name": claim["metadata"]["name"], "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}}
                for claim in doc["spec"].get("volumeClaimTemplates", ())
            ]
            spec = template["spec"] | {"volumes": template["spec"]["volumes"] + claims}
            yield Pod(doc["metadata"]["name"], template["metadata"]["labels"], spec)


def selected(selector: Doc, labels: dict[str, str]) -> bool:
    for rule in selector.get("matchExpressions", ()):
        assert rule["operator"] == "NotIn"
        if labels.get(rule["key"]) in rule["values"]:
            return False
    return selector.get("matchLabels", {}).items() <= labels.items()


def test_the_matrix_has_its_cases() -> None:
    assert {"default", "trial", "production", "bare"} <= set(MATRIX)


@pytest.mark.parametrize("case", MATRIX)
def test_strict_lint(case: str) -> None:
    report = lint(str(CHART), values(case), strict=True)
    assert report["errors"] == []
    # 1 is information: an icon would be nice.
    assert [item for item in report["messages"] if item["severity"] > 1] == []


def validate(path: Path) -> list[str]:
    """What kubernetes-validate complains of; a kind it does not know is only a warning with exit status 0."""
    program = shutil.which("kubernetes-validate", path=str(Path(sys.executable).parent))
    assert program is not None
    result = subprocess.run([program, "--strict", str(path)], capture_output=True, text=True, check=False)
    lines = (result.stdout + result.stderr).splitlines()
    assert any(line.startswith("INFO") for line in lines), lines
    return [
        line
        for line in lines
        if not line.startswith("INFO")
        and not (line.startswith("WARN") and line.split("kind ")[1].split()[0] in UNKNOWN)
    ]


def test_kubernetes_takes_every_manifest_and_refuses_a_broken_one(
    rendered: dict[str, list[Doc]], tmp_path: Path
) -> None:
    path = tmp_path / "all.yaml"
    path.write_text(yaml.safe_dump_all([doc for docs in rendered.values() for doc in docs]))
    assert validate(path) == []
    broken = yaml.safe_dump(of_kind(rendered["default"], "Deployment")[0]).replace("maxSurge:", "maxSurges:")
    path.write_text(broken + "---\n" + yaml.safe_dump(of_kind(rendered["default"], "Service")[0]))
    assert any("maxSurges" in line for line in validate(path))


def test_every_pod_is_small_and_harmless(docs: list[Doc]) -> None:
    """The "restricted" standard, and what it does not ask for: a read-only root, limits, probes, no GPU."""
    found = list(pods(docs))
    assert len(found) >= 3
    for pod in found:
        spec = pod.spec
        assert spec["automountServiceAccountToken"] is False, pod.owner
        assert spec["enableServiceLinks"] is False, pod.owner
        assert not {"hostNetwork", "hostPID", "hostIPC", "runtimeClassName"} & spec.keys(), pod.owner
        security = spec["securityContext"]
        assert security["runAsNonRoot"] is True, pod.owner
        assert security["runAsUser"] > 0, pod.owner
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, pod.owner
        for volume in spec["volumes"]:
            assert volume.keys() - {"name"} <= {"emptyDir", "persistentVolumeClaim"}, volume
            if "emptyDir" in volume:
                assert volume["emptyDir"]["sizeLimit"], volume
        for container in pod.containers:
            where = (pod.owner, container["name"])
            assert container["securityContext"]["allowPrivilegeEscalation"] is False, where
            assert container["securityContext"]["readOnlyRootFilesystem"] is True, where
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}, where
            assert container["securityContext"]["privileged"] is False, where
            resources = container["resources"]
            assert resources["limits"]["memory"] == resources["requests"]["memory"], where
            assert resources["requests"]["cpu"], where
            assert "nvidia" not in yaml.safe_dump(resources), where
            image = container["image"]
            assert ":" in image.rpartition("/")[2] or "@sha256:" in image, where
            assert not image.endswith(":latest"), where
            plain = {item["name"]: item.get("value") for item in container["env"]}
            assert plain["NVIDIA_VISIBLE_DEVICES"] == "void", where
            if pod.ours:
                assert plain["CUDA_VISIBLE_DEVICES"] == "", where
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            assert mounted <= {volume["name"] for volume in spec["volumes"]}, where
        assert "accelerator" not in yaml.safe_dump(spec), pod.owner


def test_everything_that_stays_is_probed_on_a_port_it_has(docs: list[Doc]) -> None:
    for pod in pods(docs):
        if pod.component in ("migration", "test"):
            continue
        for container in pod.spec["containers"]:
            ports = {port["name"] for port in container["ports"]}
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                asked = container[probe]
                assert "exec" in asked or asked["httpGet"]["port"] in ports, (pod.owner, probe)


def test_secrets_come_by_reference(docs: list[Doc]) -> None:
    for pod in pods(docs):
        for container in pod.containers:
            for item in container["env"]:
                if "URL" in item["name"] or "PASSWORD" in item["name"]:
                    in_chart = item.get("value") == "redis://rel-blendex-redis:6379/0"  # it has no password
                    assert in_chart or item["valueFrom"]["secretKeyRef"].keys() == {"name", "key"}, item
    text = yaml.safe_dump_all([doc for doc in docs if doc["kind"] != "Secret"])
    assert "a-password-of-a-trial" not in text
    assert "postgresql://" not in text


def test_selectors_and_ports_meet(docs: list[Doc]) -> None:
    everything = list(pods(docs))
    for doc in of_kind(docs, "Deployment", "StatefulSet"):
        labels = doc["spec"]["template"]["metadata"]["labels"]
        chosen = [pod for pod in everything if selected(doc["spec"]["selector"], pod.labels)]
        assert [pod.labels for pod in chosen] == [labels], doc["metadata"]["name"]
    for doc in of_kind(docs, "Service"):
        chosen = [pod for pod in everything if selected({"matchLabels": doc["spec"]["selector"]}, pod.labels)]
        assert len(chosen) == 1, doc["metadata"]["name"]
        named = {port["name"] for container in chosen[0].spec["containers"] for port in container["ports"]}
        assert {port["targetPort"] for port in doc["spec"]["ports"]} <= named
    for doc in of_kind(docs, "PodDisruptionBudget"):
        assert doc["spec"]["maxUnavailable"] == 1
        assert len([pod for pod in everything if selected(doc["spec"]["selector"], pod.labels)]) == 1
    for doc in of_kind(docs, "Ingress"):
        service = doc["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
        target = next(item for item in of_kind(docs, "Service") if item["metadata"]["name"] == service["name"])
        assert service["port"]["name"] in {port["name"] for port in target["spec"]["ports"]}
    for doc in of_kind(docs, "ServiceMonitor"):
        services = [s for s in of_kind(docs, "Service") if selected(doc["spec"]["selector"], s["metadata"]["labels"])]
        assert len(services) == 1
        assert doc["spec"]["endpoints"][0]["port"] in {port["name"] for port in services[0]["spec"]["ports"]}
    for doc in of_kind(docs, "PodMonitor"):
        chosen = [pod for pod in everything if selected(doc["spec"]["selector"], pod.labels)]
        assert {pod.component for pod in chosen} == {
            pod.component for pod in everything if pod.component.startswith("worker-")
        }
        for pod in chosen:
            assert doc["spec"]["podMetricsEndpoints"][0]["port"] in {
                p["name"] for p in pod.spec["containers"][0]["ports"]
            }


def test_claims_and_secrets_that_are_named_are_those_of_the_values(rendered: dict[str, list[Doc]]) -> None:
    for case, docs in rendered.items():
        made = {doc["metadata"]["name"] for doc in of_kind(docs, "PersistentVolumeClaim", "Secret")}
        given = yaml.safe_dump(values(case)) + "blendex-database blendex-broker"
        for pod in pods(docs):
            claims = [
                volume["persistentVolumeClaim"]["claimName"]
                for volume in pod.spec["volumes"]
                if "emptyDir" not in volume and pod.ours  # a trial's own claim is in its StatefulSet
            ]
            secrets = [
                item["valueFrom"]["secretKeyRef"]["name"]
                for container in pod.containers
                for item in container["env"]
                if "valueFrom" in item
            ]
            for name in claims + secrets:
                assert name in made or name in given, (case, pod.owner, name)
    assert "rel-blendex-root" in {
        doc["metadata"]["name"] for doc in of_kind(rendered["default"], "PersistentVolumeClaim")
    }
    assert not of_kind(rendered["production"], "PersistentVolumeClaim")


def test_mirrors_are_shared_kept_and_sources_read_only(docs: list[Doc]) -> None:
    for claim in of_kind(docs, "PersistentVolumeClaim"):
        assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
        assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    roots = set()
    for pod in pods(docs):
        for container in pod.spec["containers"]:
            for mount in container["volumeMounts"]:
                if mount["name"].startswith("source-"):
                    assert mount["readOnly"] is True
                if mount["name"] == "root":
                    roots.add((mount["mountPath"], mount.get("subPath")))
    assert len(roots) == 1  # the same path in every pod: it is what jobs are told
    config = next(doc for doc in of_kind(docs, "ConfigMap") if doc["metadata"]["name"] == "rel-blendex")["data"]
    assert config["BLENDEX_ROOT"] == roots.pop()[0]


def environment(pod: Pod, docs: list[Doc]) -> dict[str, str]:
    config = next(doc for doc in of_kind(docs, "ConfigMap") if doc["metadata"]["name"] == "rel-blendex")["data"]
    plain = {item["name"]: item["value"] for item in pod.spec["containers"][0]["env"] if "value" in item}
    return {name: value for name, value in (config | plain).items() if name.startswith("BLENDEX_")}


def test_the_program_understands_its_settings(docs: list[Doc], monkeypatch: pytest.MonkeyPatch) -> None:
    known = {f"BLENDEX_{name.upper()}" for name in Settings.model_fields}
    for pod in pods(docs):
        if pod.component == "api" or pod.component.startswith("worker-"):
            given = environment(pod, docs)
            assert given.keys() <= known
            with monkeypatch.context() as patch:
                for name, value in given.items():
                    patch.setenv(name, value)
                settings = Settings()
            assert settings.migrate is False
            assert settings.auth == "tokens"
            if pod.component != "api":
                assert pod.spec["terminationGracePeriodSeconds"] > settings.drain_seconds + AFTER_DRAIN


def test_numbers_arrive_as_they_were_written(rendered: dict[str, list[Doc]]) -> None:
    worker = next(pod for pod in pods(rendered["production"]) if pod.component == "worker-index")
    given = environment(worker, rendered["production"])
    assert (given["BLENDEX_UNIT_BYTES"], given["BLENDEX_LEASE_SECONDS"]) == ("1073741824", "45.5")
    assert given["BLENDEX_ALLOWED_ROOTS"] == '["/lustre/data","/archive"]'
    assert given["BLENDEX_DRAIN_SECONDS"] == "120"


def test_the_program_understands_its_arguments(docs: list[Doc]) -> None:
    group: Any = typer.main.get_command(app)
    for pod in pods(docs):
        for container in pod.containers if pod.ours else ():
            command, arguments = group, list(container.get("args", ()))
            while arguments and hasattr(command, "commands"):
                command = command.commands[arguments.pop(0)]
            if "args" in container:
                command.make_context(container["name"], arguments)


def test_every_class_of_work_is_claimed(docs: list[Doc]) -> None:
    claimed = set()
    for pod in pods(docs):
        if pod.component.startswith("worker-"):
            arguments = pod.spec["containers"][0]["args"]
            claimed |= {arguments[n + 1] for n, word in enumerate(arguments) if word == "--classes"}
    assert claimed == set(CLASSES)


def test_everybody_waits_for_the_schema(docs: list[Doc]) -> None:
    for pod in pods(docs):
        if pod.component == "api" or pod.component.startswith("worker-"):
            gate = pod.spec["initContainers"][0]
            assert gate["args"][:3] == ["db", "check", "--wait"]
            assert gate["image"] == pod.spec["containers"][0]["image"]
            assert [item for item in gate["env"] if item["name"] == "BLENDEX_DATABASE_URL"]


def test_another_image_is_another_migration_and_the_same_is_the_same() -> None:
    def name(**image: str) -> str:
        return str(of_kind(render({"image": image}), "Job")[0]["metadata"]["name"])

    assert name(tag="1.0.0") == name(tag="1.0.0") != name(tag="1.0.1")


def test_nobody_is_talked_to_but_by_rule(rendered: dict[str, list[Doc]]) -> None:
    for case, docs in rendered.items():
        policies = of_kind(docs, "NetworkPolicy")
        if case == "bare":
            assert policies == []
            continue
        for pod in pods(docs):
            bound = [policy["spec"] for policy in policies if selected(policy["spec"]["podSelector"], pod.labels)]
            assert any(not {"ingress", "egress"} & spec.keys() for spec in bound), pod.owner  # denied by default
            out = [rule for spec in bound for rule in spec.get("egress", ())]
            ports = {port["port"] for rule in out for port in rule["ports"]}
            known = {"test": {53, "http"}, "postgres": {53}, "redis": {53}}
            if case != "production":
                assert ports == known.get(pod.component, {53, 5432, 6379}), pod.owner
            elif pod.component != "test":
                assert ports == {53, 6432, 6379, 443, 51080}
            for rule in out:
                for peer in rule["to"]:
                    if "ipBlock" in peer:
                        unreachable(peer["ipBlock"])
            named = {port["name"] for container in pod.spec["containers"] for port in container.get("ports", ())}
            numbers = {
                port["containerPort"] for container in pod.spec["containers"] for port in container.get("ports", ())
            }
            entered = {port["port"] for spec in bound for rule in spec.get("ingress", ()) for port in rule["ports"]}
            assert entered <= named | numbers, pod.owner
            assert bool(entered) == bool(named), pod.owner


def unreachable(block: Doc) -> None:
    """The addresses at which clouds hand out a node's credentials are in no block that pods may reach."""
    network = ipaddress.ip_network(block["cidr"])
    for address in map(ipaddress.ip_address, ("169.254.169.254", "fd00:ec2::254")):
        if address in network:
            assert any(address in ipaddress.ip_network(part) for part in block["except"]), block


def test_trial_parts_are_off_by_default_and_official(rendered: dict[str, list[Doc]]) -> None:
    assert {pod.component for pod in pods(rendered["default"])} == {
        "api", "worker-index", "worker-publish", "migration", "test",
    }  # fmt: skip
    trial = {pod.component: pod.spec["containers"][0] for pod in pods(rendered["trial"])}
    for name in ("postgres", "redis"):
        assert trial[name]["image"].startswith(f"{name}:")
    arguments = trial["redis"]["args"]
    assert arguments[arguments.index("--maxmemory-policy") + 1] == "noeviction"


def test_no_bitnami_and_no_dependency() -> None:
    assert "dependencies" not in yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert "bitnami" not in (CHART / "values.yaml").read_text()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"replicas": 3}, "replicas"),
        ({"api": {"replicas": 0}}, "/api/replicas"),
        ({"api": {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}}, None),
        ({"api": {"resources": {"limits": {"nvidia.com/gpu": 1}}}}, "/api/resources/limits"),
        ({"api": {"resources": {"limits": {"memory": "lots"}}}}, "/api/resources/limits/memory"),
        ({"api": {"ingress": {"enable": True}}}, "/api/ingress"),
        ({"image": {"tag": "latest"}}, "/image/tag"),
        ({"image": {"digest": "sha256:1"}}, "/image/digest"),
        ({"root": {"path": "mnt"}}, "/root/path"),
        ({"root": {"subPath": "../other"}}, "/root/subPath"),
        ({"sources": [{"name": "a", "path": "/a"}]}, "/sources/0"),
        ({"sources": [{"name": "a", "path": "/a", "claim": "c", "readOnly": False}]}, "/sources/0"),
        ({"workers": {"index": {"gpus": 1}}}, "/workers/index"),
        ({"workers": {"index": {"slots": 0}}}, "/workers/index/slots"),
        ({"workers": {"index": {"classes": ["train"]}}}, "/workers/index/classes/0"),
        ({"workers": {"Index": {"replicas": 1}}}, "/workers"),
        ({"workers": {"extra": {"replicas": 1}}}, "/workers/extra"),
        ({"settings": {"unit_size": 1}}, "/settings"),
        ({"access": {"auth": "basic"}}, "/access/auth"),
        ({"access": {"token": "bx_"}}, "/access"),
        ({"access": {"publicUrl": "https://a b"}}, "/access/publicUrl"),
        ({"settings": {"broker_url": "redis://x"}}, "/settings"),
        ({"settings": {"unit_bytes": "many"}}, "/settings/unit_bytes"),
        ({"security": {"runAsUser": 0}}, "/security/runAsUser"),
        ({"database": {"existingSecret": ""}}, "/database/existingSecret"),
        ({"broker": {"url": "redis://x"}}, "/broker"),
        ({"postgres": {"enabled": True}}, "/postgres/password"),
        ({"postgres": {"enabled": True, "password": "with space and more"}}, "/postgres/password"),
        ({"networkPolicy": {"stores": [{"cidr": "everywhere", "ports": [443]}]}}, "/networkPolicy/stores/0/cidr"),
        ({"metrics": {"port": 80}}, "/metrics/port"),
    ],
)  # fmt: skip
def test_wrong_values_are_refused_with_their_place(given: Doc, said: str | None) -> None:
    if said is None:
        render(given)
        return
    with pytest.raises(HelmError) as refused:
        render(given)
    assert said in str(refused.value).replace(".", "/")


def test_the_schema_is_closed_everywhere() -> None:
    """What is open by nature has no properties: labels, annotations, selectors, affinities, the workers' names."""
    open_ones = []

    def walk(schema: Any, place: str) -> None:
        if isinstance(schema, list):
            for number, part in enumerate(schema):
                walk(part, f"{place}/{number}")
        elif isinstance(schema, dict):
            if (
                schema.get("type") == "object"
                and "properties" in schema
                and schema["additionalProperties"] is not False
            ):
                open_ones.append(place)
            for name, part in schema.items():
                walk(part, f"{place}/{name}")

    walk(json.loads((CHART / "values.schema.json").read_text()), "")
    assert open_ones == []


def test_work_that_nobody_claims_is_refused() -> None:
    with pytest.raises(HelmError, match="nobody claims plan"):
        render({"workers": {"publish": {"classes": ["publish"]}}})


def test_notes_say_what_to_do() -> None:
    with Chart.load(CHART) as chart:
        notes = chart.render(values("trial"), name="rel", namespace="ns")["blendex/templates/NOTES.txt"]
    assert "helm test rel --namespace ns" in notes
    assert "FOR A TRIAL ONLY: PostgreSQL and Redis" in notes
