"""The kernel and what it runs in: version, driver, container, huge pages."""

from __future__ import annotations

import re

from ostinato.doctor.collect.host.look import Look

_CHOSEN = re.compile(r"\[(\w+)\]")
_VERSION = re.compile(r"\b(\d+\.\d+(?:\.\d+)?)\b")
_SIGNS = (
    # In /proc/1/cgroup or among the mounts, which of them depends on the runtime.
    ("kubepods", "kubernetes"),
    ("/kubelet/", "kubernetes"),
    ("docker", "docker"),
    ("libpod", "podman"),
    ("containerd", "containerd"),
    ("/lxc/", "lxc"),
)


def read_kernel(look: Look) -> str:
    """Return the kernel's version."""
    return look.text("/proc/sys/kernel/osrelease", "which kernel it is") or ""


def read_driver(look: Look) -> str:
    """Return the version of NVIDIA's kernel module, readable without any library."""
    text = look.text("/proc/driver/nvidia/version") or look.text("/sys/module/nvidia/version")
    found = _VERSION.search((text or "").partition("\n")[0])
    return found[1] if found else ""


def read_huge_pages(look: Look) -> str:
    """Return the mode of transparent huge pages: "always", "madvise" or "never"."""
    path = "/sys/kernel/mm/transparent_hugepage/enabled"
    found = _CHOSEN.search(look.text(path, "huge pages") or "")
    return found[1] if found else ""


def read_container(look: Look) -> str:
    """Return what the process runs in; empty on a plain machine, or where nothing shows."""
    if look.exists("/run/.containerenv"):
        return "podman"
    signs = "\n".join(
        look.text(path) or "" for path in ("/proc/1/cgroup", "/proc/self/cgroup", "/proc/mounts")
    )
    if look.exists("/var/run/secrets/kubernetes.io") or "kubepods" in signs:
        return "kubernetes"
    if look.exists("/.dockerenv"):
        return "docker"
    named = (look.text("/run/systemd/container") or "").strip()
    return named or next((word for sign, word in _SIGNS if sign in signs), "")
