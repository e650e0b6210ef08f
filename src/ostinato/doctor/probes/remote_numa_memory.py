"""OST701 remote-numa-memory.

What it sees: the process's pages by node, from /proc/<pid>/numa_maps, and the GPU's node.
How it decides: two nodes or more, 256 MiB or more of the process's pages, and at least 3 in 10 on
another node than the GPU's. Where the platform does not tell the GPU's node, it abstains.
"""

from __future__ import annotations

from ostinato.doctor.catalog import RULES
from ostinato.doctor.evidence import Evidence
from ostinato.doctor.host_evidence import Gpu, HostEvidence
from ostinato.doctor.probe import Verdict, abstain, percent
from ostinato.units import format_bytes

RULE = RULES["OST701"]
_LEAST_BYTES = 256 << 20
_REMOTE = 0.3


def probe(evidence: Evidence) -> Verdict:
    """Find memory on another node than the GPU's."""
    host = evidence.host
    if host is None or len(host.nodes) < 2 or not host.gpus:
        return None
    gpu = used_gpu(host)
    if gpu.numa_node is None or gpu.numa_node < 0:
        return abstain(
            RULE,
            f"the platform does not tell on which NUMA node GPU {gpu.index} is",
            "compare `nvidia-smi topo -m` with `numactl --hardware` by hand",
        )
    known = [node for node in host.nodes if node.process_bytes is not None]
    total = sum(node.process_bytes or 0 for node in known)
    remote = sum(node.process_bytes or 0 for node in known if node.node != gpu.numa_node)
    if total < _LEAST_BYTES or remote < _REMOTE * total:
        return None
    fact = (
        f"{percent(remote / total)} of the process's memory ({format_bytes(remote)}) lies on "
        f"another NUMA node than GPU {gpu.index}, which is on node {gpu.numa_node}"
    )
    away = _threads_away(host, gpu)
    return RULE.finding(fact + (f"; {away}" if away else ""))


def used_gpu(host: HostEvidence) -> Gpu:
    """Return the GPU that the process uses; the first one where that is not known."""
    return next((gpu for gpu in host.gpus if gpu.index == host.gpu_used), host.gpus[0])


def _threads_away(host: HostEvidence, gpu: Gpu) -> str:
    near = next((set(node.cpus) for node in host.nodes if node.node == gpu.numa_node), set())
    away = [cpu for cpu in host.ran_on if cpu not in near]
    if not near or not away:
        return ""
    return f"its threads were seen on {len(away)} CPUs of other nodes"
