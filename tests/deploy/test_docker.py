"""The image: what its recipe copies is there, and the user is the one of the manifests."""

import json
import re
import tomllib
from pathlib import Path

from typer.core import TyperGroup
from typer.main import get_command

from deploy.manifests import DEPLOY, DEPLOYMENTS, container, pod
from ostinato import cli

FILE = DEPLOY / "docker" / "Dockerfile"
TEXT = FILE.read_text(encoding="utf-8").replace("\\\n", " ")
LINES = [line.strip() for line in TEXT.splitlines() if line.strip() and line[0] != "#"]


def values(word: str) -> list[str]:
    return [line.split(maxsplit=1)[1] for line in LINES if line.startswith(f"{word} ")]


def test_what_is_copied_is_in_the_checkout_and_let_into_the_build(repository: Path) -> None:
    ignored = (FILE.parent / "Dockerfile.dockerignore").read_text(encoding="utf-8").split()
    let_in = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    copied = {
        source for copy in values("COPY") if "--from" not in copy for source in copy.split()[:-1]
    }
    assert copied
    for source in (each.removeprefix("./") for each in copied):
        assert (repository / source).exists()
        assert source in let_in


def test_the_extras_are_the_projects(repository: Path) -> None:
    (extras,) = set(re.findall(r"'\.\[([\w,]+)\]'", TEXT))
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    assert "serve" in extras.split(",")
    assert "--constraint constraints.txt" in TEXT


def test_it_runs_as_the_user_of_the_manifests() -> None:
    (user,) = values("USER")
    for name in DEPLOYMENTS:
        around = pod(name)["securityContext"]
        assert user == f"{around['runAsUser']}:{around['runAsGroup']}"


def test_caches_lie_where_the_manifests_let_it_write() -> None:
    (env,) = values("ENV")
    told = dict(pair.split("=", 1) for pair in env.split())
    for each in container("kubernetes/deployment.yaml")["env"]:
        if "value" in each:
            assert told[each["name"]] == each["value"]


def test_the_signal_to_stop_reaches_the_service() -> None:
    (entry,) = values("ENTRYPOINT")
    assert json.loads(entry) == ["ostinato"], "a shell between would keep the signal"
    assert values("STOPSIGNAL") == ["SIGTERM"]


def test_without_a_word_it_serves_on_the_port_that_it_says() -> None:
    (default,) = values("CMD")
    arguments = json.loads(default)
    command = get_command(cli.build(arguments))
    assert isinstance(command, TyperGroup)
    context = command.commands[arguments[0]].make_context("serve", arguments[1:])
    assert [str(context.params["port"])] == values("EXPOSE")
    assert context.params["host"] == "0.0.0.0"


def test_bases_have_a_version() -> None:
    (default,) = values("ARG")
    assert re.fullmatch(r"BASE=python:3\.\d+-slim-\w+", default)
    assert [base.split()[0] for base in values("FROM")] == ["${BASE}", "${BASE}"]
