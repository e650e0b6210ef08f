"""What to measure and how hard: the options of `ostinato bench graphs`, checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ostinato.bench.results import Contender
from ostinato.errors import UsageError

FORWARDS = ("bert-128", "bert-512", "resnet50", "gpt2", "minilm")
GENERATIONS = ("gpt2", "smollm2-decode")
MODELS = (*FORWARDS, "smollm2-decode", "traffic")


@dataclass(frozen=True, slots=True)
class Effort:
    """How often everything is timed.

    Attributes:
        rounds: Turns of every contender.
        drained_calls: Calls per turn with a wait after each.
        joined_calls: Calls per turn with one wait for all.
        case_s: After so many seconds no further round of a model begins.
        answers: Timed answers of each way to generate.
        learnt_from, requests: Requests of the traffic's warm-up, and after it.
        traffic_s: Seconds each way of serving the traffic may take.
    """

    rounds: int = 20
    drained_calls: int = 10
    joined_calls: int = 20
    case_s: float = 45.0
    answers: int = 3
    learnt_from: int = 100
    requests: int = 200
    traffic_s: float = 85.0


QUICK = Effort(
    rounds=5,
    drained_calls=10,
    joined_calls=10,
    answers=2,
    learnt_from=40,
    requests=60,
    traffic_s=20,
)
TINY = Effort(rounds=2, drained_calls=3, joined_calls=3, answers=1, learnt_from=12, requests=12)


@dataclass(frozen=True, slots=True)
class GraphsOptions:
    """One run of the benchmark.

    Attributes:
        device: "auto", "cpu" or "cuda".
        minilm, smollm2: Folders with real weights; None takes an installed package's, else random
            weights of the same dimensions.
        trace: A CSV file with request lengths; None draws them.
        budget_s: After so many seconds what remains is reported as not run.
        is_tiny: Toy sizes, for tests.
    """

    models: tuple[str, ...] = MODELS
    contenders: tuple[Contender, ...] = tuple(Contender)
    device: str = "auto"
    minilm: Path | None = None
    smollm2: Path | None = None
    trace: Path | None = None
    budget_s: float | None = None
    effort: Effort = Effort()
    is_tiny: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for the head of the result; folders by their name alone."""
        return {
            "models": list(self.models),
            "contenders": [str(each) for each in self.contenders],
            "budget_s": self.budget_s,
            "effort": {name: getattr(self.effort, name) for name in Effort.__slots__},
            "is_tiny": self.is_tiny,
        }


def read_options(
    models: str = "",
    contenders: str = "",
    *,
    device: str = "auto",
    minilm: Path | None = None,
    smollm2: Path | None = None,
    trace: Path | None = None,
    budget_s: float | None = None,
    is_quick: bool = False,
    is_tiny: bool = False,
) -> GraphsOptions:
    """Return options from the words of a command line; an empty list means all.

    Raises:
        UsageError: OST4021, a model or a contender is unknown; OST4022, a file or folder is absent.
    """
    for path in (minilm, smollm2, trace):
        if path is not None and not path.exists():
            raise UsageError(
                f"there is no {path}",
                code="OST4022",
                remedy="name a file or folder that exists, or leave the option out",
            )
    chosen = _words("model", models, MODELS)
    names = _words("contender", contenders, tuple(map(str, Contender)))
    return GraphsOptions(
        models=chosen,
        contenders=tuple(map(Contender, names)),
        device=device,
        minilm=minilm,
        smollm2=smollm2,
        trace=trace,
        budget_s=budget_s,
        effort=TINY if is_tiny else QUICK if is_quick else Effort(),
        is_tiny=is_tiny,
    )


def _words(kind: str, text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    unknown = [word for word in words if word not in known]
    if unknown:
        raise UsageError(
            f"there is no {kind} {unknown[0]!r}",
            code="OST4021",
            remedy=f"choose from {', '.join(known)}",
        )
    # In the known order, each once: the tables and the claims read top down.
    return tuple(word for word in known if word in words) if words else known
