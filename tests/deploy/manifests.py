"""The manifests, by file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
Manifest = dict[str, Any]

# Kinds that Kubernetes itself knows; the others are described by the files in ../shared.
OWN_GROUPS = ("v1", "apps/v1", "policy/v1", "networking.k8s.io/v1")


def load(name: str) -> list[Manifest]:
    """Return the documents of one file under deploy/."""
    return list(yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8")))


def the(name: str, kind: str) -> Manifest:
    """Return the one document of this kind in a file."""
    (found,) = [each for each in load(name) if each["kind"] == kind]
    return found


def everything() -> list[tuple[str, Manifest]]:
    """Return every manifest with a name for it."""
    folders = ("kubernetes", "keda", "envoy", "mps", "edge")
    return [
        (f"{path.parent.name}/{path.name}: {each['kind']}", each)
        for folder in folders
        for path in sorted((DEPLOY / folder).glob("*.yaml"))
        for each in load(f"{folder}/{path.name}")
    ]


DEPLOYMENTS = ("kubernetes/deployment.yaml", "mps/deployment.yaml", "edge/k3s-arm64.yaml")


def pod(name: str) -> Manifest:
    """Return the pod that a file's Deployment makes."""
    found: Manifest = the(name, "Deployment")["spec"]["template"]["spec"]
    return found


def container(name: str) -> Manifest:
    """Return its one container."""
    (found,) = pod(name)["containers"]
    assert isinstance(found, dict)
    return found


def flags(name: str) -> dict[str, str]:
    """Return the options that the service is started with; the last of those given twice."""
    arguments = container(name)["args"]
    assert arguments[0] == "serve"
    pairs = (argument.removeprefix("--").split("=", 1) for argument in arguments[1:])
    return {pair[0]: pair[1] for pair in pairs}
