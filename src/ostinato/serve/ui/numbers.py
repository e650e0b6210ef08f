"""What the page shows, as one small document: counts since the start, and how things stand.

A plain function of the metrics of all processes. Rates and percentiles are the page's business: it
asks every second and looks at the differences, so the server keeps nothing for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from ostinato.serve.metrics import Family


class Counted(msgspec.Struct, frozen=True):
    """A histogram: how many values were at most each bound, above the one before it.

    Attributes:
        counts: One more than the bounds: the last are above all of them.
    """

    bounds: list[float]
    counts: list[float]


class Bucket(msgspec.Struct, frozen=True):
    """Steps of one recorded size: how many, of how many rows, and how many rows were padding."""

    steps: float
    rows: float
    padding: float


class Burning(msgspec.Struct, frozen=True):
    """How fast the error budget of one promise goes; 1 is as fast as it may."""

    objective: str
    length_class: str
    rate: float


class Numbers(msgspec.Struct, frozen=True, kw_only=True):
    """The document.

    Attributes:
        at: Seconds on the server's clock, to tell how much time lies between two.
        why: Why no requests should be sent here; None if they should.
        ended, shed, aborted, eager: Counts by reason.
        pages: Of keys and values, by state.
        breaker: 0 closed, 1 recovering, 2 open.
        idle_s: Since the engine's last step, or since it had nothing to do.
    """

    at: float
    model: str
    version: str
    why: str | None
    tokens: float
    prompt_tokens: float
    requests: float
    in_flight: float
    ended: dict[str, float]
    shed: dict[str, float]
    aborted: dict[str, float]
    first_token: Counted
    between: Counted
    queue: Counted
    replayed: float
    recorded: float
    eager: dict[str, float]
    buckets: dict[str, Bucket]
    graph_bytes: float
    waiting: float
    running: float
    rows: float
    pages: dict[str, float]
    preemptions: float
    prefix_asked: float
    prefix_found: float
    breaker: float
    rung: float
    burns: list[Burning]
    idle_s: float


def numbers(families: Iterable[Family], at: float, why: str | None) -> Numbers:
    """Return the document for what `metrics.add_up` gave."""
    known = {family.name: family for family in families}

    def total(name: str) -> float:
        return sum(_by(known, name, "").values())

    labels = _labels_of(known, "ostinato_model_info")
    calls = _calls(known)
    return Numbers(
        at=at,
        model=labels.get("model", ""),
        version=labels.get("version", ""),
        why=why,
        tokens=total("ostinato_generated_tokens"),
        prompt_tokens=total("ostinato_prompt_tokens"),
        requests=total("ostinato_requests"),
        in_flight=total("ostinato_requests_in_flight"),
        ended=_by(known, "ostinato_requests_ended", "reason"),
        shed=_by(known, "ostinato_requests_shed", "reason"),
        aborted=_by(known, "ostinato_requests_aborted", "reason"),
        first_token=_counted(known, "ostinato_time_to_first_token_seconds"),
        between=_counted(known, "ostinato_inter_token_latency_seconds"),
        queue=_counted(known, "ostinato_queue_seconds"),
        replayed=calls.pop("replayed", 0.0),
        recorded=calls.pop("recorded", 0.0),
        eager=calls,
        buckets=_buckets(known),
        graph_bytes=total("graph_bytes"),
        waiting=total("ostinato_engine_waiting_requests"),
        running=total("ostinato_engine_running_requests"),
        rows=total("ostinato_engine_rows"),
        pages=_by(known, "ostinato_kv_pages", "state"),
        preemptions=total("ostinato_preemptions"),
        prefix_asked=total("ostinato_prefix_prompt_tokens"),
        prefix_found=total("ostinato_prefix_cached_tokens"),
        breaker=total("ostinato_breaker_state"),
        rung=total("ostinato_breaker_rung"),
        burns=_burns(known),
        idle_s=total("ostinato_engine_idle_seconds"),
    )


def _by(known: Mapping[str, Family], name: str, label: str) -> dict[str, float]:
    """Return a counter's or gauge's values summed by one label; by "" into one."""
    sums: dict[str, float] = {}
    for sample in known[name].samples if name in known else ():
        value = dict(sample.labels).get(label, "")
        sums[value] = sums.get(value, 0.0) + sample.value
    return sums


def _labels_of(known: Mapping[str, Family], name: str) -> dict[str, str]:
    samples = known[name].samples if name in known else ()
    return dict(samples[0].labels) if samples else {}


def _calls(known: Mapping[str, Family]) -> dict[str, float]:
    """Return calls by reason where they ran eagerly, and by outcome where they did not."""
    sums: dict[str, float] = {}
    for sample in known["graph_calls"].samples if "graph_calls" in known else ():
        labels = dict(sample.labels)
        word = labels["reason"] if labels["outcome"] == "eager" else labels["outcome"]
        sums[word] = sums.get(word, 0.0) + sample.value
    return sums


def _counted(known: Mapping[str, Family], name: str) -> Counted:
    """Return a histogram over all its labels, each bucket for itself."""
    within: dict[float, float] = {}
    for sample in known[name].samples if name in known else ():
        if sample.name.endswith("_bucket"):
            bound = float(dict(sample.labels)["le"])
            within[bound] = within.get(bound, 0.0) + sample.value
    bounds = sorted(within)
    counts = [within[bound] for bound in bounds]
    apart = [count - below for count, below in zip(counts, [0.0, *counts], strict=False)]
    return Counted(bounds[:-1], apart)


def _buckets(known: Mapping[str, Family]) -> dict[str, Bucket]:
    steps = _by(known, "graph_bucket_steps", "bucket")
    rows = _by(known, "graph_bucket_rows", "bucket")
    padding = _by(known, "graph_bucket_padding", "bucket")
    return {
        size: Bucket(steps[size], rows.get(size, 0.0), padding.get(size, 0.0))
        for size in sorted(steps, key=int)
    }


def _burns(known: Mapping[str, Family]) -> list[Burning]:
    name = "ostinato_breaker_burn_rate"
    burns = []
    for sample in known[name].samples if name in known else ():
        labels = dict(sample.labels)
        burns.append(Burning(labels["objective"], labels["length_class"], sample.value))
    return burns
