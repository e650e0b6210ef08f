"""The machine as recorded: every area, and one clear line for each thing that is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from doctor.host.recorded import (
    BRIDGE,
    GPU,
    LINKS,
    TWO_SOCKETS,
    VERSION_1,
    RecordedNvml,
    RecordedWorker,
    plant,
)
from ostinato.doctor.collect.host import collect_host
from ostinato.doctor.collect.host.load import look_under_load
from ostinato.doctor.collect.host.look import Look, listed
from ostinato.doctor.collect.host.numa import bytes_by_node
from ostinato.doctor.collect.host.nvml import opened_nvml, read_gpus
from ostinato.doctor.collect.host.switches import involuntary_switches, voluntary_switches
from ostinato.doctor.collect.host.words import as_text, ranges
from ostinato.doctor.diagnose import diagnose
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.host_evidence import HostEvidence
from ostinato.doctor.plain import from_plain, to_plain


@pytest.fixture
def machine(tmp_path: Path) -> HostEvidence:
    root = plant(tmp_path, TWO_SOCKETS, LINKS)
    return collect_host(root=root, nvml=RecordedNvml())


def test_the_cpus_are_counted_by_package_and_core(machine: HostEvidence) -> None:
    assert machine.cpu == "Intel(R) Xeon(R) Platinum 8480C"
    assert (machine.sockets, machine.cores) == (2, 2)  # two threads share a core
    assert machine.process_cpus == (0, 1, 2, 3, 8)
    assert machine.ran_on == (2, 5)
    assert machine.governor == "powersave"
    assert machine.kernel == "6.8.0-generic"


def test_memory_is_placed_by_its_pages_whatever_their_size(machine: HostEvidence) -> None:
    zero, one = machine.nodes
    assert (zero.cpus, zero.memory_bytes, zero.free_bytes) == ((0, 1, 4), 1000 << 10, 400 << 10)
    assert zero.process_bytes == 1000 * 4096
    assert one.process_bytes == 2000 * 4096 + 10 * 2048 * 1024
    assert machine.numa_balancing is True


def test_the_limits_of_a_group_are_the_lowest_up_to_the_root(machine: HostEvidence) -> None:
    limits = machine.limits
    assert limits is not None
    assert limits.cpu_quota == 4.0
    assert limits.memory_bytes == 8_000_000
    assert limits.memory_used_bytes == 12_345
    assert limits.cpuset == (0, 1, 2, 3)
    assert (limits.nr_periods, limits.nr_throttled) == (100, 40)
    assert limits.locked_memory_bytes == 67_108_864


def test_cgroups_of_version_1_are_read_where_a_container_shows_only_its_own(tmp_path: Path) -> None:
    root = plant(tmp_path, VERSION_1)
    limits = collect_host(root=root, nvml=RecordedNvml(frozenset({"nvmlInit"}))).limits
    assert limits is not None
    assert limits.cpu_quota == 1.5
    assert limits.memory_bytes == 4_096_000
    assert limits.memory_used_bytes == 1000
    assert limits.cpuset == (4, 5)
    assert (limits.nr_periods, limits.nr_throttled) == (7, 2)


def test_the_driver_and_huge_pages_are_read_without_any_library(machine: HostEvidence) -> None:
    assert machine.driver == "580.95.05"
    assert machine.huge_pages == "madvise"


@pytest.mark.parametrize(
    ("path", "text", "container"),
    [
        (".dockerenv", "", "docker"),
        ("run/.containerenv", "", "podman"),
        ("proc/1/cgroup", "0::/kubepods/besteffort/pod1\n", "kubernetes"),
        ("proc/1/cgroup", "0::/docker/4f\n", "docker"),
        ("run/systemd/container", "lxc\n", "lxc"),
        ("proc/1/cgroup", "0::/init.scope\n", ""),
    ],
)
def test_containers_are_known_by_their_signs(
    tmp_path: Path, path: str, text: str, container: str
) -> None:
    root = plant(tmp_path, {path: text})
    assert collect_host(root=root, nvml=RecordedNvml()).container == container


def test_a_group_without_a_limit_has_none(tmp_path: Path) -> None:
    unlimited = {"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}
    limits = collect_host(root=plant(tmp_path, unlimited), nvml=RecordedNvml()).limits
    assert limits is not None
    assert limits.memory_bytes is None


@pytest.mark.parametrize("width", ["255", "0"])
def test_a_port_without_a_link_limits_nothing(width: str, tmp_path: Path) -> None:
    port = f"sys/devices/pci/{BRIDGE}"
    odd = {f"{port}/max_link_width": width, f"{port}/max_link_speed": "Unknown\n"}
    root = plant(tmp_path, LINKS, odd)
    (gpu,) = collect_host(root=root, nvml=RecordedNvml()).gpus
    assert gpu.link is not None
    assert (gpu.link.max_generation, gpu.link.max_width, gpu.link.upstream) == (5, 16, "")


def test_a_gpu_is_seen_with_its_node_its_link_and_its_processes(machine: HostEvidence) -> None:
    (gpu,) = machine.gpus
    assert (gpu.name, gpu.bus_id, gpu.numa_node) == ("NVIDIA H200", f"0000{GPU}", 1)
    assert gpu.link is not None
    assert (gpu.link.generation, gpu.link.width) == (1, 16)
    assert (gpu.link.max_generation, gpu.link.max_width) == (4, 8)
    assert "0000:16:01.0 above it does generation 4 x8" in gpu.link.upstream
    assert not gpu.link.under_load
    assert gpu.clocks is not None
    assert gpu.clocks.reasons == ("sw_power_cap", "hw_thermal_slowdown")
    assert (gpu.clocks.power_w, gpu.clocks.power_limit_w) == (250.5, 700.0)
    assert [(each.pid, each.busy_share) for each in gpu.processes] == [(77, None), (99, 0.3)]
    assert (gpu.mps, gpu.mig, gpu.compute_mode) == (False, False, "default")


def test_the_watched_process_and_its_children_are_ours(tmp_path: Path) -> None:
    stats = {
        "proc/70/stat": "70 (python) S 1 70",
        "proc/75/stat": "75 (sh) S 70 70",
        "proc/77/stat": "77 (python) S 75 70",
        "proc/99/stat": "99 (other) S 1 99",
        "proc/99/status": "Name:\tother\n",
    }
    found = collect_host(70, root=plant(tmp_path, stats), nvml=RecordedNvml())
    assert {each.pid: each.ours for each in found.gpus[0].processes} == {77: True, 99: False}
    assert found.gpus[0].processes[1].name == "other"
    assert found.gpu_used == 0


def test_mps_is_seen_by_its_server(tmp_path: Path) -> None:
    root = plant(tmp_path, {"proc/99/status": "Name:\tnvidia-cuda-mps\n"})
    assert collect_host(root=root, nvml=RecordedNvml()).gpus[0].mps is True


def test_whatever_nvml_refuses_is_missing_and_the_rest_is_there(tmp_path: Path) -> None:
    questions = {name for name in RecordedNvml().answers if name.startswith("nvmlDevice")}
    needed = {"nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"}
    nvml = RecordedNvml(frozenset(questions - needed))
    found = collect_host(root=plant(tmp_path, TWO_SOCKETS), nvml=nvml)
    assert (found.gpus[0].name, found.gpus[0].driver) == ("", "580.95.05")
    assert any("the memory of GPU 0: NVML says Not Supported" in each for each in found.missing)
    assert found.cpu
    assert as_text(found)


def test_a_machine_that_shows_nothing_costs_one_line_for_each_thing(tmp_path: Path) -> None:
    found = collect_host(4711, root=tmp_path, nvml=RecordedNvml(frozenset({"nvmlInit"})))
    assert found.gpus == ()
    assert found.nodes == ()
    text = as_text(found)
    for what in (
        "which CPU it is",
        "sockets and cores",
        "NUMA nodes",
        "cgroup limits",
        "GPUs",
        "which kernel",
    ):
        assert sum(what in line for line in found.missing) == 1, found.missing
    assert "Driver Not Loaded" in text
    assert "no NVIDIA driver" in text
    assert all(f"  {line}" in text.splitlines() for line in found.missing)


def test_a_file_without_permission_says_so(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        found = Look(tmp_path)
        (tmp_path / "folder").mkdir()
        assert found.text("folder", "a folder") is None  # what root cannot read either
        assert found.missing == ["a folder: folder: is a directory"]
        return
    file = tmp_path / "secret"
    file.write_text("x", "utf-8")
    file.chmod(0)
    look = Look(tmp_path)
    assert look.text("secret", "a secret") is None
    assert look.missing == ["a secret: secret: no permission; run as the same user or as root"]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0-3,8", (0, 1, 2, 3, 8)), ("", ()), (None, ()), ("5", (5,)), ("a-b", ()), ("1-x,2", (2,))],
)
def test_lists_of_the_kernel_are_read(text: str | None, numbers: tuple[int, ...]) -> None:
    assert listed(text) == numbers
    if numbers:
        assert listed(ranges(numbers)) == numbers


def test_odd_lines_of_numa_maps_are_skipped() -> None:
    lines = ["", "garbage N=3 Nx=1 N0=x", "7f N0=1 N1=2", "N0=1 kernelpagesize_kB=2048"]
    assert bytes_by_node(lines) == {0: 4096 + (2 << 20), 1: 8192}


def test_switches_are_counted_over_all_threads(tmp_path: Path) -> None:
    look = Look(plant(tmp_path, TWO_SOCKETS))
    assert involuntary_switches(look, "self") == 7
    assert voluntary_switches(look, "self") == 11
    assert involuntary_switches(look, "1") is None


def loaded(root: Path, worker: RecordedWorker, **answers: object) -> HostEvidence:
    look = Look(root)
    library = RecordedNvml(**answers)
    with opened_nvml(look, library) as nvml:
        assert nvml is not None
        (gpu,) = read_gpus(look, nvml, frozenset({77}))
        seen = look_under_load(look, nvml, "gpu", gpu, worker, seconds=0.02)
    whole = collect_host(root=root, nvml=library)
    return replace(whole, gpus=(seen.gpu,), switching=seen.switching)


def findings(host: HostEvidence) -> list[str]:
    evidence = Evidence(source="host", collected=("host",), host=host)
    return [finding.name for finding in diagnose(evidence).findings]


def test_under_load_the_link_is_measured_and_a_healthy_machine_has_no_findings(
    tmp_path: Path,
) -> None:
    healthy = {"nvmlDeviceGetClockInfo": 1950, "nvmlDeviceGetCurrPcieLinkGeneration": 5}
    host = loaded(plant(tmp_path, TWO_SOCKETS), RecordedWorker(), **healthy)
    link, clocks = host.gpus[0].link, host.gpus[0].clocks
    assert link is not None
    assert clocks is not None
    assert (link.under_load, link.h2d_gbs, link.d2h_gbs) == (True, 50.0, 48.0)
    assert link.replays_under_load == 0
    assert clocks.under_load
    assert clocks.watched_us > 0
    assert findings(host) == []


def test_a_slow_link_and_a_hot_clock_are_found_from_what_was_seen_under_load(
    tmp_path: Path,
) -> None:
    host = loaded(plant(tmp_path, TWO_SOCKETS), RecordedWorker(up=12.0, down=11.0))
    assert sorted(findings(host)) == ["clock-throttling", "degraded-pcie-link"]
    assert "12.0 GB/s up" in as_text(host)


def test_latency_is_watched_in_windows_only_beside_another_process(tmp_path: Path) -> None:
    host = loaded(plant(tmp_path, TWO_SOCKETS), RecordedWorker())
    assert host.switching is not None
    assert len(host.switching.latency_us) == len(host.switching.switches) >= 8
    assert set(host.switching.switches) == {30.0}
    alone = loaded(tmp_path, RecordedWorker(), nvmlDeviceGetComputeRunningProcesses=[])
    assert alone.switching is None


def test_evidence_of_a_machine_survives_being_written_and_read(machine: HostEvidence) -> None:
    assert from_plain(HostEvidence, to_plain(machine)) == machine


def test_this_very_machine_is_read_without_an_error_and_without_torch() -> None:
    code = (
        "import sys; from ostinato.doctor.collect.host import collect_host\n"
        "from ostinato.doctor.collect.host.words import as_text\n"
        "import ostinato.cli.doctor_host\n"
        "found = collect_host(under_load=True); as_text(found)\n"
        "assert found.kernel and found.process_cpus\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.gpu
def test_a_real_gpu_is_measured_under_load() -> None:
    found = collect_host(under_load=True)
    # NVML shows every GPU, and CUDA_VISIBLE_DEVICES may hide some of them from work.
    loaded = [gpu for gpu in found.gpus if gpu.link is not None and gpu.link.under_load]
    assert loaded, found.missing
    for gpu in loaded:
        assert gpu.link is not None
        assert gpu.clocks is not None
        assert (gpu.link.h2d_gbs or 0) > 1
        assert (gpu.clocks.sm_mhz or 0) > 0
    for gpu in set(found.gpus) - set(loaded):
        assert f"link and clocks of GPU {gpu.index} under load" in " ".join(found.missing)
