"""What real machines said of themselves: quiet as they are, and found out with one change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ostinato.doctor.diagnose import diagnose
from ostinato.doctor.evidence import Evidence, from_json
from ostinato.doctor.host_evidence import Gpu, GpuProcess, HostEvidence, NumaNode, Switching

RECORDED = sorted((Path(__file__).parent / "evidence").glob("*.json"))


def read(name: str) -> Evidence:
    path = Path(__file__).parent / "evidence" / f"{name}.json"
    return from_json(path.read_text(encoding="utf-8"))


H200 = read("h200_beside_dense_products")


def host_of(evidence: Evidence) -> HostEvidence:
    assert evidence.host is not None
    return evidence.host


def used(evidence: Evidence) -> Gpu:
    host = host_of(evidence)
    return next(gpu for gpu in host.gpus if gpu.index == host.gpu_used)


def with_used(**changed: object) -> Evidence:
    """Return the H200's evidence with the GPU in use changed."""
    gpu = used(H200)
    gpus = [replace(each, **changed) if each is gpu else each for each in host_of(H200).gpus]  # type: ignore[arg-type]
    return replace(H200, host=replace(host_of(H200), gpus=tuple(gpus)))


def codes(evidence: Evidence) -> list[str]:
    report = diagnose(evidence)
    assert report.problems == ()
    return [finding.code for finding in report.findings]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_machine_without_a_fault_is_quiet(path: Path) -> None:
    evidence = from_json(path.read_text(encoding="utf-8"))
    assert codes(evidence) == []
    assert all(node.process_bytes for node in host_of(evidence).nodes)


def test_the_h200_was_seen_at_its_power_limit_and_under_load() -> None:
    gpu = used(H200)
    assert gpu.clocks is not None
    assert gpu.link is not None
    assert (gpu.clocks.reasons, gpu.clocks.under_load) == (("sw_power_cap",), True)
    assert (gpu.link.generation, gpu.link.width, gpu.link.under_load) == (5, 16, True)


@pytest.mark.parametrize(
    ("mhz", "reasons", "found"),
    [
        (1755, ("sw_power_cap",), []),  # the lowest that nvidia-smi read meanwhile
        (1580, ("sw_power_cap",), ["OST704"]),
        (1755, ("sw_power_cap", "hw_thermal_slowdown"), ["OST704"]),
    ],
)
def test_a_clock_held_down(mhz: int, reasons: tuple[str, ...], found: list[str]) -> None:
    clocks = used(H200).clocks
    assert clocks is not None
    held = replace(clocks, sm_mhz=mhz, reasons=reasons, throttled_us=(1e6,) * len(reasons))
    assert codes(with_used(clocks=held)) == found


def test_a_link_of_half_the_width() -> None:
    link = used(H200).link
    assert link is not None
    narrow = replace(link, width=8, h2d_gbs=23.5, d2h_gbs=26.9)
    assert codes(with_used(link=narrow)) == ["OST702"]


def test_memory_on_another_node() -> None:
    (node,) = host_of(H200).nodes
    nodes = (node, NumaNode(1, (), process_bytes=0))
    evidence = with_used(numa_node=1)
    assert codes(replace(evidence, host=replace(host_of(evidence), nodes=nodes))) == ["OST701"]


def test_another_process_that_takes_turns() -> None:
    another = GpuProcess(2, "python3", busy_share=0.8)
    evidence = with_used(processes=(*used(H200).processes, another))
    latency_us = (3.0, 3.1, 3.0, 8.0, 7.9, 8.2, 3.1, 8.1)
    switching = Switching(latency_us, (1, 1, 0, 9, 8, 9, 1, 9))
    jitter = replace(evidence, host=replace(host_of(evidence), switching=switching))
    assert codes(jitter) == ["OST703"]
