"""The machine under the program, read without torch: one file for each area.

`collect_host` never raises: what cannot be read (no GPU, no permission, a container without /sys)
costs one sentence in `HostEvidence.missing`, and the rest is there.
"""

from ostinato.doctor.collect.host.collect import collect_host

__all__ = ["collect_host"]
