"""What a model of transformers asks of attention, read from the calls that it makes.

A config does not tell: each architecture has its own words for heads, scales and windows. So the
model runs once without memory (on the meta device), an attention function notes how it is called,
and a mask function notes which mask stands for which rule. From these notes comes the
`AttentionShape`, or the reason why this engine's attention cannot stand in for the model's own.

Shapes: N tokens, H query heads, G key and value heads, D head size, S keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from ostinato.errors import UsageError
from ostinato.llm.attention.base import AttentionShape

if TYPE_CHECKING:
    from torch import Tensor

# What models pass along and plain attention may ignore: none of it changes the result. A window
# stands here because the mask that comes with it says the same, and more.
_HARMLESS = frozenset(
    {"position_ids", "cache_position", "use_cache", "sliding_window", "is_causal", "cache_params"}
    | {"output_attentions", "output_hidden_states", "output_router_logits", "return_dict"}
    | {"head_mask", "logits_to_keep", "position_embeddings"}
)
# Of batch, head, query and key: whether that query sees that key.
MaskRule: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of attention.

    Attributes:
        layer: Which layer called; None: it does not say.
        q, k, v: Shapes, (1, heads, N, D).
        scale: Factor on the scores; None: the usual one.
        rule: Which tokens see which, as transformers tells its mask functions; None: the model made
            a mask of its own.
        more: All other arguments that are not None.
    """

    layer: int | None
    q: tuple[int, ...]
    k: tuple[int, ...]
    v: tuple[int, ...]
    scale: float | None
    rule: MaskRule | None
    is_causal: bool
    more: Mapping[str, Any]


def cannot(problem: str) -> UsageError:
    """Build the error for a model whose attention this engine cannot stand in for."""
    return UsageError(
        f"the engine cannot run this model through transformers' attention interface: {problem}",
        code="OST5207",
        remedy="use the model in transformers, where ostinato.accelerate(model) speeds it up",
    )


def shape_of(calls: Sequence[Call], *, layers: int, max_positions: int) -> AttentionShape:
    """Return what the model asks of attention.

    Args:
        calls: Of one forward, in their order.
        layers: How many the config announces.
        max_positions: The longest sequence.

    Raises:
        UsageError: OST5207, the engine's attention would not give the model's results.
    """
    if [call.layer for call in calls] != list(range(layers)):
        numbers = [call.layer for call in calls]
        raise cannot(f"it has {layers} layers, and those that call it are {numbers}")
    for call in calls:
        _require_plain(call)
    sizes = {(call.q[1], call.k[1], call.q[3]) for call in calls}
    if len(sizes) > 1:
        raise cannot(f"its layers differ in (heads, key-value heads, head size): {sorted(sizes)}")
    ((heads, kv_heads, head_dim),) = sizes
    windows = {id(call.rule): window_of(call.rule, max_positions) for call in calls if call.rule}
    return AttentionShape(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        scales=tuple(float(head_dim**-0.5 if call.scale is None else call.scale) for call in calls),
        windows=tuple(windows[id(call.rule)] for call in calls),
    )


def _require_plain(call: Call) -> None:
    where = f"layer {call.layer}"
    if call.rule is None:
        raise cannot(f"{where} brings a mask or position biases of its own")
    if not call.is_causal:
        raise cannot(f"{where} sees tokens that come later")
    unknown = sorted(name for name, value in call.more.items() if _means_something(name, value))
    if unknown:
        raise cannot(f"{where} asks for {', '.join(unknown)}, which no attention backend has")
    if call.k != call.v or call.k[3] != call.q[3] or call.q[1] % call.k[1]:
        raise cannot(
            f"{where} has queries, keys and values of the shapes {call.q}, {call.k}, {call.v}"
        )


def _means_something(name: str, value: Any) -> bool:
    return name not in _HARMLESS and value is not None and value is not False


def window_of(rule: MaskRule, max_positions: int) -> int | None:
    """Return how many tokens, itself included, a token sees; None: all before it.

    Raises:
        UsageError: OST5207, it sees neither of the two.
    """
    last = max_positions - 1
    window = int(_sees(rule, last, max_positions).sum())
    # Next to the window's edge, where a rule by chunks or with a shared prefix would differ.
    for place in sorted({0, 1, window - 1, window, window + 1, window + window // 2, last // 2}):
        if 0 <= place <= last:
            key_S = torch.arange(max_positions)
            expected = (key_S <= place) & (key_S > place - window)
            if not torch.equal(_sees(rule, place, max_positions), expected):
                raise cannot(f"the token {place} sees others than the {window} up to itself")
    return None if window == max_positions else window


def _sees(rule: MaskRule, place: int, keys: int) -> Tensor:
    zero = torch.tensor(0)
    try:
        seen = rule(zero, zero, torch.tensor(place), torch.arange(keys))
        return torch.as_tensor(seen, device="cpu").expand(keys)
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
        raise cannot(f"its mask cannot be told from positions alone ({error})") from error


def rope_types(parameters: object) -> Iterable[str]:
    """Yield every kind of rotary scaling that a config names, for all layers or for some."""
    if isinstance(parameters, Mapping):
        for name, value in parameters.items():
            if name in ("rope_type", "type") and isinstance(value, str):
                yield value
            else:
                yield from rope_types(value)
