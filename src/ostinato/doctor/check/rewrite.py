"""What to write instead of a line that a recording cannot hold. Pure.

By the call first, by the reason where the call has no advice of its own.
"""

from __future__ import annotations

from ostinato.doctor.check.hidden import instead_of_hidden

_OF_A_BRANCH = (
    "compute both sides and choose on the device: torch.where(condition, a, b); or decide outside "
    "of the step"
)
_OF_NUMPY = (
    "numpy() of a tensor on a GPU is a TypeError: return the tensor, and call .cpu().numpy() on "
    "the result, outside of the step"
)
_BY_OP: tuple[tuple[str, str], ...] = (
    ("nonzero", "keep the mask: torch.where(mask, x, 0), or torch.nonzero_static(x, size=N)"),
    ("masked_select", "keep the shape: x.masked_fill(~mask, 0), and pass the mask on"),
    ("index_put", "y = torch.where(mask, new, y): the shape stays as it is"),
    ("aten.index", "keep the shape: torch.where(mask, x, 0) or x * mask, and reduce with the mask"),
    ("repeat_interleave", "pass output_size=, a number that Python knows"),
    ("_unique", "sort, and mark where neighbours differ: the shape stays as it is"),
    ("unique", "sort, and mark where neighbours differ: the shape stays as it is"),
    ("bincount", "torch.zeros(N).scatter_add_(0, x, ones): N fixed, so the shape is"),
    ("Tensor.tolist", "return the tensor and call tolist() on the result, outside of the step"),
    ("aten.equal", "compare on the device: (a == b).all(), and choose with torch.where"),
    ("allclose", "compare outside of the step: torch.allclose answers in Python"),
    ("synchronize", "leave it out: replays are ordered on their stream; wait after the step"),
    ("pin_memory", "pin once, outside of the step, and pass the tensor in"),
    ("new_tensor", "x.new_full((), n) is filled on the device; or pass the tensor in"),
    ("lift_fresh", "make it once (register_buffer), or fill it on the device: torch.full"),
    ("set_", "copy_ into memory of the largest size instead of resizing it"),
    ("resize", "copy_ into memory of the largest size instead of resizing it"),
    ("cond", "torch.where chooses on the device; torch.cond needs torch.compile"),
)
_BY_REASON = {
    "host-sync": "keep the value as a 0-dim tensor on the device, or read it after the step",
    "host-copy": "make the tensor on the device (torch.full, torch.arange(device=x.device)), hold "
    "it as a buffer, or pass it as an argument",
    "data-dependent-shape": "pad to a fixed size and carry a mask: torch.where(mask, x, 0)",
    "several-devices": "put all of it on one device, or graph the part on each device by itself",
    "compiled-inside": "torch.compile(mode='default'): one graph records around compiled kernels",
    "unregistered-generator": "torch.Generator(device=x.device), or the default generator",
    "python-side-effect": "return the value instead of storing it, or keep it in a buffer that is "
    "written in place",
    "unsupported-input": "pass plain tensors on the device",
    "unsupported-output": "return plain tensors, Python values, and containers of them (of "
    "transformers' models: use_cache=False, or ostinato.accelerate)",
    "requires-grad": "call it under torch.inference_mode() or torch.no_grad()",
    "empty-batch": "check with an example that is not empty",
}


def instead_of(reason: str, op: str, *, is_branch: bool = False, source: str = "") -> str:
    """Return the advice for one blocker.

    Args:
        source: The user's line, which may say more than the call: `print`, an f-string.
    """
    if is_branch:
        return _OF_A_BRANCH
    if reason == "host-sync" and (advice := instead_of_hidden(op)):
        return advice
    if op == "cpu" and reason == "several-devices":
        return _BY_REASON["host-copy"]
    if "print(" in source and reason == "host-sync":
        return "print after the step, from its result; print(x.shape) is free"
    if reason == "host-sync" and "_to_copy" in op and _is_numpy_alone(source):
        return _OF_NUMPY
    if reason in ("host-sync", "host-copy", "data-dependent-shape", "capture-error"):
        for part, advice in _BY_OP:
            if part in op:
                return advice
    return _BY_REASON.get(reason, "change the line so that it makes the same calls every time")


def _is_numpy_alone(source: str) -> bool:
    return ".numpy(" in source and ".cpu(" not in source and ".to(" not in source
