"""The guides: what they tell to type is what the commands take, and what they name is there."""

import re
import shlex
from pathlib import Path

import pytest
import yaml
from typer.core import TyperGroup
from typer.main import get_command

from deploy.manifests import DEPLOY, container, flags, pod
from ostinato import cli
from ostinato.serve import supervisor
from ostinato.serve.metrics.names import BY_NAME
from ostinato.serve.settings import Settings
from ostinato.serve.slo import Objectives, declared

GUIDE = (Path(__file__).parent.parent.parent / "docs" / "guides" / "operate.md").read_text(
    encoding="utf-8"
)
COMMANDS = re.findall(r"^ostinato (serve .*?)(?: &)?$", GUIDE, re.MULTILINE)


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_line_is_one_that_the_command_takes(line: str) -> None:
    arguments = shlex.split(line, comments=True)
    command = get_command(cli.build(arguments))
    assert isinstance(command, TyperGroup)
    context = command.commands["serve"].make_context("serve", arguments[1:])
    declared(context.params["objective"] or ())


def test_every_option_that_is_named_is_there() -> None:
    command = get_command(cli.build(["serve"]))
    assert isinstance(command, TyperGroup)
    there = {name for each in command.commands["serve"].params for name in each.opts}
    words = re.sub(r"```.*?```", "", GUIDE, flags=re.DOTALL)
    named = {
        word for code in re.findall(r"`([^`]+)`", words) for word in re.findall(r"--[a-z-]+", code)
    }
    assert len(named) > 10
    assert named - there == set()


def test_every_metric_that_is_named_is_there() -> None:
    assert set(re.findall(r"`((?:ostinato|graph)_\w+)`", GUIDE)) <= set(BY_NAME)


def test_every_folder_of_deploy_is_told_of_and_every_one_told_of_is_there() -> None:
    told = set(re.findall(r"`deploy/(\w+)`", GUIDE))
    there = {path.name for path in DEPLOY.iterdir() if path.is_dir() and path.name != "ray"}
    assert told == there


def test_the_times_are_those_of_the_settings_and_the_manifests() -> None:
    name = "kubernetes/deployment.yaml"
    probe = container(name)["livenessProbe"]
    assert f"after {probe['periodSeconds'] * probe['failureThreshold']} s" in GUIDE
    assert f"`--drain-s`, {Settings().drain_s:g} seconds" in GUIDE
    assert float(flags(name)["drain-s"]) == Settings().drain_s
    before = container(name)["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert f"waits {before} s" in GUIDE
    assert f"The grace period of {pod(name)['terminationGracePeriodSeconds']} s" in GUIDE
    assert f"up to {2 * supervisor._GRACE_S:g} s for its processes" in GUIDE


def test_the_breaker_is_described_as_it_is() -> None:
    objectives = Objectives()
    (rule,) = objectives.rules
    words = " ".join(GUIDE.split())
    assert f"{objectives.share * 100:.0f} of 100 first tokens within 400 ms" in words
    assert set(objectives.promises().values()) == {0.4}
    assert f"above the promise for {rule.for_s:.0f} s" in words
    assert f"Each further rung takes {objectives.climb_s:.0f} s" in words
    assert f"After {objectives.calm_s:.0f} s of calm" in words


def test_the_pages_are_as_many_as_it_says() -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "rules.yaml").read_text(encoding="utf-8"))
    pages = {
        rule["alert"]
        for group in rules["groups"]
        for rule in group["rules"]
        if rule.get("labels", {}).get("severity") == "page"
    }
    assert pages == {
        "OstinatoNoMetrics",
        "OstinatoEngineDown",
        "OstinatoEngineHangs",
        "OstinatoErrors",
        "OstinatoBreakerOpen",
        "OstinatoBudgetBurnsFast",
    }


def test_pictures_and_pages_that_it_points_to_are_there() -> None:
    folder = Path(__file__).parent.parent.parent / "docs" / "guides"
    for target in re.findall(r"\]\(([^)#]+)\)", GUIDE):
        assert (folder / target).resolve().exists() or (folder / f"{target}.md").exists(), target


def test_a_request_with_a_body_says_that_it_is_json() -> None:
    blocks = re.findall(r"```bash\n(.*?)```", GUIDE, re.DOTALL)
    commands = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    bodies = [line for line in commands if line.startswith("curl ") and " -d " in line]
    assert len(bodies) >= 4
    for line in bodies:
        assert "content-type: application/json" in line or '-H "$JSON"' in line, line
