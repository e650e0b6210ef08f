"""Recorded machines: trees of /proc and /sys, and what NVML answered on them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

BRIDGE = "0000:16:01.0"
GPU = "0000:17:00.0"

TWO_SOCKETS = {
    "proc/cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\n"
    "model name\t: Intel(R) Xeon(R) Platinum 8480C\n",
    "proc/self/status": "Name:\tpython\nPid:\t77\nCpus_allowed_list:\t0-3,8\n",
    "proc/self/cgroup": "0::/user.slice/job\n",
    "proc/self/limits": "Limit                     Soft Limit           Hard Limit\n"
    "Max locked memory         67108864             67108864             bytes\n",
    "proc/self/numa_maps": "7f0000000000 default anon=3000 dirty=3000 N0=1000 N1=2000 "
    "kernelpagesize_kB=4\n7f1000000000 prefer:1 anon=10 N1=10 kernelpagesize_kB=2048\n"
    "7f2000000000 default file=/lib/x mapped=4\n",
    "proc/self/task/77/stat": "77 (py (x) y) S 1 77 77 0 -1 0 " + "0 " * 29 + "5 0 0\n",
    "proc/self/task/78/stat": "78 (worker) R 1 77 77 0 -1 0 " + "0 " * 29 + "2 0 0\n",
    "proc/self/task/77/status": "voluntary_ctxt_switches:\t10\nnonvoluntary_ctxt_switches:\t3\n",
    "proc/self/task/78/status": "voluntary_ctxt_switches:\t1\nnonvoluntary_ctxt_switches:\t4\n",
    "proc/sys/kernel/osrelease": "6.8.0-generic\n",
    "proc/sys/kernel/numa_balancing": "1\n",
    "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Kernel Module  580.95.05  Mon\n",
    "sys/devices/system/cpu/cpu0/topology/physical_package_id": "0\n",
    "sys/devices/system/cpu/cpu0/topology/core_id": "0\n",
    "sys/devices/system/cpu/cpu1/topology/physical_package_id": "0\n",
    "sys/devices/system/cpu/cpu1/topology/core_id": "0\n",
    "sys/devices/system/cpu/cpu2/topology/physical_package_id": "1\n",
    "sys/devices/system/cpu/cpu2/topology/core_id": "0\n",
    "sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "powersave\n",
    "sys/devices/system/node/online": "0-1\n",
    "sys/devices/system/node/node0/cpulist": "0-1,4\n",
    "sys/devices/system/node/node0/meminfo": "Node 0 MemTotal:       1000 kB\n"
    "Node 0 MemFree:        400 kB\n",
    "sys/devices/system/node/node1/cpulist": "2-3,5\n",
    "sys/devices/system/node/node1/meminfo": "Node 1 MemTotal:       2000 kB\n"
    "Node 1 MemFree:        500 kB\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
    "sys/fs/cgroup/user.slice/cpu.max": "400000 100000\n",
    "sys/fs/cgroup/user.slice/job/cpu.max": "max 100000\n",
    "sys/fs/cgroup/user.slice/job/cpu.stat": "usage_usec 5\nnr_periods 100\nnr_throttled 40\n",
    "sys/fs/cgroup/user.slice/job/memory.max": "max\n",
    "sys/fs/cgroup/user.slice/job/memory.current": "12345\n",
    "sys/fs/cgroup/user.slice/memory.max": "8000000\n",
    "sys/fs/cgroup/user.slice/job/cpuset.cpus.effective": "0-3\n",
}

LINKS = {
    f"sys/devices/pci/{BRIDGE}/{GPU}/current_link_speed": "2.5 GT/s PCIe\n",
    f"sys/devices/pci/{BRIDGE}/{GPU}/current_link_width": "16\n",
    f"sys/devices/pci/{BRIDGE}/{GPU}/max_link_speed": "32.0 GT/s PCIe\n",
    f"sys/devices/pci/{BRIDGE}/{GPU}/max_link_width": "16\n",
    f"sys/devices/pci/{BRIDGE}/{GPU}/numa_node": "1\n",
    f"sys/devices/pci/{BRIDGE}/current_link_speed": "16.0 GT/s PCIe\n",
    f"sys/devices/pci/{BRIDGE}/current_link_width": "8\n",
    f"sys/devices/pci/{BRIDGE}/max_link_speed": "16.0 GT/s PCIe\n",
    f"sys/devices/pci/{BRIDGE}/max_link_width": "8\n",
}

VERSION_1 = {
    "proc/self/cgroup": "5:cpuset:/pod\n4:memory:/kubepods/pod\n3:cpu,cpuacct:/pod\n",
    "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000\n",
    "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/cpu/cpu.stat": "nr_periods 7\nnr_throttled 2\nthrottled_time 5\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "4096000\n",
    "sys/fs/cgroup/memory/kubepods/pod/memory.limit_in_bytes": "9223372036854771712\n",
    "sys/fs/cgroup/memory/memory.usage_in_bytes": "1000\n",
    "sys/fs/cgroup/cpuset/cpuset.cpus": "4-5\n",
}


def plant(root: Path, *trees: dict[str, str]) -> Path:
    """Write recorded files under `root`, and the links of /sys/bus/pci."""
    for tree in trees:
        for path, text in tree.items():
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
    if any(LINKS is tree for tree in trees):
        folder = root / "sys/bus/pci/devices"
        folder.mkdir(parents=True)
        (folder / GPU).symlink_to(f"../../../devices/pci/{BRIDGE}/{GPU}")
        (folder / BRIDGE).symlink_to(f"../../../devices/pci/{BRIDGE}")
    return root


class RecordedError(Exception):
    """What NVML raises."""


class RecordedNvml:
    """Answers as NVML did on one H200; a name in `refuses` answers with an error."""

    NVMLError = RecordedError

    def __init__(self, refuses: frozenset[str] = frozenset(), **answers: Any) -> None:
        self.refuses = refuses
        self.is_open = False
        self.answers: dict[str, Any] = {
            "nvmlDeviceGetCount": 1,
            "nvmlDeviceGetHandleByIndex": "gpu",
            "nvmlSystemGetDriverVersion": "580.95.05",
            "nvmlDeviceGetName": b"NVIDIA H200",
            "nvmlDeviceGetPciInfo": SimpleNamespace(busId="00000000:17:00.0"),
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=1000, used=10),
            "nvmlDeviceGetMigMode": [0, 0],
            "nvmlDeviceGetComputeMode": 0,
            "nvmlDeviceGetCurrPcieLinkGeneration": 1,
            "nvmlDeviceGetCurrPcieLinkWidth": 16,
            "nvmlDeviceGetMaxPcieLinkGeneration": 5,
            "nvmlDeviceGetMaxPcieLinkWidth": 16,
            "nvmlDeviceGetPcieReplayCounter": 3,
            "nvmlDeviceGetClockInfo": 1200,
            "nvmlDeviceGetMaxClockInfo": 1980,
            "nvmlDeviceGetTemperature": 60,
            "nvmlDeviceGetPowerUsage": 250_500,
            "nvmlDeviceGetEnforcedPowerLimit": 700_000,
            "nvmlDeviceGetCurrentClocksThrottleReasons": 0x4 | 0x40,
            "nvmlDeviceGetComputeRunningProcesses": [
                SimpleNamespace(pid=77, usedGpuMemory=100),
                SimpleNamespace(pid=99, usedGpuMemory=None),
            ],
            "nvmlDeviceGetMPSComputeRunningProcesses": [],
            "nvmlDeviceGetProcessUtilization": [
                SimpleNamespace(pid=99, smUtil=20),
                SimpleNamespace(pid=99, smUtil=40),
            ],
            **answers,
        }

    def nvmlInit(self) -> None:  # noqa: N802 - NVML's name
        if "nvmlInit" in self.refuses:
            raise RecordedError("Driver Not Loaded")
        self.is_open = True

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.is_open = False

    def __getattr__(self, name: str) -> Any:
        if name not in self.answers and name not in self.refuses:
            raise AttributeError(name)

        def answer(*_: Any) -> Any:
            assert self.is_open
            if name in self.refuses:
                raise RecordedError("Not Supported")
            given = self.answers[name]
            return given() if callable(given) else given

        return answer


class RecordedWorker:
    """Does the work of a GPU in no time, at recorded rates."""

    def __init__(self, up: float = 50.0, down: float = 48.0, fill: float = 90.0) -> None:
        self.up, self.down, self.fill = up, down, fill

    def upload_gbs(self) -> float:
        return self.up

    def download_gbs(self) -> float:
        return self.down

    def fill_us(self, nbytes: int) -> float:
        return self.fill
