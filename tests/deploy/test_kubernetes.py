"""Kubernetes: the manifests are valid, safe, and their times fit each other and the service's."""

from pathlib import Path
from typing import Any

import jsonschema
import pytest

pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate")

import kubernetes_validate
import yaml
from typer.core import TyperGroup
from typer.main import get_command

from deploy.manifests import (
    DEPLOY,
    DEPLOYMENTS,
    OWN_GROUPS,
    Manifest,
    container,
    everything,
    flags,
    load,
    pod,
    the,
)
from ostinato import cli
from ostinato.serve import supervisor
from ostinato.serve.settings import Settings

# Nothing at hand describes an HTTPRoute; what is ours in it is tested below.
ALL = [(name, manifest) for name, manifest in everything() if manifest["kind"] != "HTTPRoute"]
NAMES = [name for name, _ in ALL]
ADDED = {
    "ScaledObject": "keda.sh_scaledobjects.yaml",
    "BackendTrafficPolicy": "gateway.envoyproxy.io_backendtrafficpolicies.yaml",
    "ClientTrafficPolicy": "gateway.envoyproxy.io_clienttrafficpolicies.yaml",
}


def schema_of(shared: Path, kind: str, version: str) -> dict[str, Any]:
    definition = yaml.safe_load((shared / "schemas" / ADDED[kind]).read_text(encoding="utf-8"))
    (found,) = [each for each in definition["spec"]["versions"] if each["name"] == version]
    schema: dict[str, Any] = found["schema"]["openAPIV3Schema"]
    return closed(schema)


def closed(schema: Any) -> Any:
    """Refuse what the schema does not name, as the API server would prune it in silence."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inside = {key: closed(value) for key, value in schema.items()}
    is_open = inside.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in inside
    if isinstance(schema.get("properties"), dict) and not is_open and "type" in schema:
        inside["additionalProperties"] = False
    return inside


@pytest.mark.parametrize(("name", "manifest"), ALL, ids=NAMES)
def test_a_manifest_is_what_its_api_takes(name: str, manifest: Manifest, shared: Path) -> None:
    kind, (group, _, version) = manifest["kind"], manifest["apiVersion"].rpartition("/")
    if manifest["apiVersion"] in OWN_GROUPS:
        newest = kubernetes_validate.latest_version()
        kubernetes_validate.validate(manifest, newest, strict=True)
        return
    assert group in ("keda.sh", "gateway.envoyproxy.io")
    schema = schema_of(shared, kind, version)
    schema["properties"]["metadata"] = {"type": "object"}
    jsonschema.validate(manifest, schema, cls=jsonschema.Draft7Validator)


def test_the_check_itself_notices_a_misspelt_field(shared: Path) -> None:
    scaled = the("keda/scaledobject.yaml", "ScaledObject")
    scaled["spec"]["minReplicas"] = 2
    schema = schema_of(shared, "ScaledObject", "v1alpha1")
    schema["properties"]["metadata"] = {"type": "object"}
    with pytest.raises(jsonschema.ValidationError, match="minReplicas"):
        jsonschema.validate(scaled, schema, cls=jsonschema.Draft7Validator)
    deployment = the("kubernetes/deployment.yaml", "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["imagePullPolice"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_the_grace_period_holds_the_wait_before_the_drain_and_the_ends_of_all_processes(
    name: str,
) -> None:
    drain_s = float(flags(name)["drain-s"])
    before_s = container(name)["lifecycle"]["preStop"]["sleep"]["seconds"]
    # The supervisor waits for the front ends, then for the engine, each with some grace.
    needed_s = before_s + drain_s + 2 * supervisor._GRACE_S
    assert needed_s <= pod(name)["terminationGracePeriodSeconds"] <= needed_s + 30
    assert drain_s == Settings().drain_s


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_proxy_learns_that_a_replica_goes_before_it_takes_nobody_in(name: str) -> None:
    before_s = container(name)["lifecycle"]["preStop"]["sleep"]["seconds"]
    probe = container(name)["readinessProbe"]
    assert before_s >= probe["periodSeconds"] * probe["failureThreshold"]


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_an_engine_may_be_started_anew_before_the_pod_is(name: str) -> None:
    probe = container(name)["livenessProbe"]
    assert probe["httpGet"]["path"] == "/healthz"
    patience_s = probe["periodSeconds"] * probe["failureThreshold"]
    told = flags(name)
    assert patience_s >= float(told["restart-s"]) + float(told["progress-s"])


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_readiness_is_asked_often_and_a_start_may_take_long(name: str) -> None:
    this = container(name)
    assert this["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    startup = this["startupProbe"]
    assert startup["httpGet"]["path"] == "/readyz"
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 600


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_pod_is_guaranteed_what_it_asks_for(name: str) -> None:
    resources = container(name)["resources"]
    assert resources["requests"] == resources["limits"]
    assert {"cpu", "memory"} <= set(resources["limits"])
    assert "." not in resources["limits"]["cpu"], "whole cores, or the static policy gives none"


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_pod_has_no_rights_and_writes_only_where_it_is_let(name: str) -> None:
    around, this = pod(name)["securityContext"], container(name)["securityContext"]
    assert around["runAsNonRoot"] is True
    assert around["runAsUser"] >= 10000
    assert around["seccompProfile"] == {"type": "RuntimeDefault"}
    assert this["allowPrivilegeEscalation"] is False
    assert this["readOnlyRootFilesystem"] is True
    assert this["capabilities"] == {"drop": ["ALL"]}
    assert pod(name)["automountServiceAccountToken"] is False
    mounts = {mount["mountPath"]: mount for mount in container(name)["volumeMounts"]}
    assert mounts["/models"]["readOnly"] is True
    written = {each["value"] for each in container(name)["env"] if "CACHE" in each["name"]}
    assert all(place.startswith("/tmp/") for place in written)
    assert "/tmp" in mounts
    claimed = {volume["name"] for volume in pod(name)["volumes"]}
    assert claimed == {mount["name"] for mount in mounts.values()}


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_the_image_has_a_version(name: str) -> None:
    assert not container(name)["image"].endswith(":latest")
    assert ":" in container(name)["image"]


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_the_command_line_is_one_that_the_command_takes(name: str) -> None:
    command = get_command(cli.build(["serve"]))
    assert isinstance(command, TyperGroup)
    arguments = container(name)["args"]
    context = command.commands["serve"].make_context("serve", arguments[1:])
    assert context.params["drain_s"] == float(flags(name)["drain-s"])
    assert context.params["host"] == "0.0.0.0"


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_the_settings_that_the_options_make_are_taken(name: str) -> None:
    told = flags(name)
    settings = Settings(
        model=told["model"],
        host=told["host"],
        port=int(told["port"]),
        front_ends=int(told["front-ends"]),
        drain_s=float(told["drain-s"]),
        progress_s=float(told["progress-s"]),
        restart_s=float(told["restart-s"]),
    )
    (port,) = container(name)["ports"]
    assert port["containerPort"] == settings.port


def test_what_belongs_together_finds_each_other() -> None:
    labels = the("kubernetes/deployment.yaml", "Deployment")["spec"]["template"]["metadata"][
        "labels"
    ]
    for service in load("kubernetes/service.yaml"):
        assert service["spec"]["selector"] == labels
    for name in ("kubernetes/disruption.yaml", "kubernetes/network.yaml"):
        (manifest,) = load(name)
        selector = manifest["spec"].get("selector") or manifest["spec"]["podSelector"]
        assert selector["matchLabels"] == labels
    scaled = the("keda/scaledobject.yaml", "ScaledObject")["spec"]["scaleTargetRef"]
    assert (scaled["kind"], scaled["name"]) == ("Deployment", "ostinato")
    (target,) = the("envoy/backend.yaml", "BackendTrafficPolicy")["spec"]["targetRefs"]
    route = the("envoy/route.yaml", "HTTPRoute")
    assert (target["kind"], target["name"]) == ("HTTPRoute", route["metadata"]["name"])
    (gateway,) = route["spec"]["parentRefs"]
    (guarded,) = the("envoy/client.yaml", "ClientTrafficPolicy")["spec"]["targetRefs"]
    assert guarded["name"] == gateway["name"]
    (backend,) = route["spec"]["rules"][0]["backendRefs"]
    services = {each["metadata"]["name"]: each for each in load("kubernetes/service.yaml")}
    assert backend["port"] in [port["port"] for port in services[backend["name"]]["spec"]["ports"]]


def test_prometheus_finds_replicas_that_are_not_ready_too() -> None:
    services = {each["metadata"]["name"]: each for each in load("kubernetes/service.yaml")}
    assert services["ostinato-replicas"]["spec"]["publishNotReadyAddresses"] is True
    assert services["ostinato-replicas"]["spec"]["clusterIP"] == "None"
    scraping = (DEPLOY / "prometheus" / "prometheus.yaml").read_text(encoding="utf-8")
    (job,) = yaml.safe_load(scraping)["scrape_configs"]
    (found,) = job["dns_sd_configs"]
    assert found["names"] == ["ostinato-replicas.default.svc"]
    assert found["port"] == services["ostinato-replicas"]["spec"]["ports"][0]["port"]


def test_clients_do_not_reach_the_administration_or_the_metrics() -> None:
    (rule,) = the("envoy/route.yaml", "HTTPRoute")["spec"]["rules"]
    paths = {match["path"]["value"] for match in rule["matches"]}
    assert "/" not in paths
    assert not any(path.startswith(("/admin", "/metrics", "/ui")) for path in paths)


def test_a_replica_talks_to_nobody_and_is_talked_to_by_the_gateway_and_prometheus() -> None:
    spec = the("kubernetes/network.yaml", "NetworkPolicy")["spec"]
    assert set(spec["policyTypes"]) == {"Ingress", "Egress"}
    assert spec["egress"] == []
    (rule,) = spec["ingress"]
    assert len(rule["from"]) == 2
    assert [port["port"] for port in rule["ports"]] == ["http"]


def test_the_shared_gpu_is_divided_among_its_replicas() -> None:
    plugin = the("mps/device-plugin.yaml", "ConfigMap")
    (shared,) = yaml.safe_load(plugin["data"]["config.yaml"])["sharing"]["mps"]["resources"]
    deployment = the("mps/deployment.yaml", "Deployment")
    assert deployment["spec"]["replicas"] <= shared["replicas"]
    assert container("mps/deployment.yaml")["resources"]["limits"][shared["name"]] == "1"
    engine = [a for a in container("mps/deployment.yaml")["args"] if a.startswith("--engine=kv")]
    assert engine, "what is left of a whole GPU must not be taken by each"
    assert deployment["spec"]["strategy"]["rollingUpdate"]["maxSurge"] == 0


def test_the_edge_runs_on_arm_without_a_gpu_and_goes_before_it_comes() -> None:
    assert pod("edge/k3s-arm64.yaml")["nodeSelector"] == {"kubernetes.io/arch": "arm64"}
    assert not any("gpu" in key for key in container("edge/k3s-arm64.yaml")["resources"]["limits"])
    deployment = the("edge/k3s-arm64.yaml", "Deployment")
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    assert flags("edge/k3s-arm64.yaml")["device"] == "cpu"
