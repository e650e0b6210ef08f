"""`ostinato run`: a real model answers one prompt twice, eager and replayed.

It loads the model, streams both answers, and says how fast each was, whether they are the same
token for token, and what the runtime recorded. Both sides are treated alike: the same prompt and
streamer, the same number of short untimed answers first (the replayed side records during those),
then timed answers in turns.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ostinato.cli.answers import Outcome, Side, summary_lines
from ostinato.cli.streaming import bar, prepare_stdout, write_now
from ostinato.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostinato.cli.conversation import Answer, Conversation

PROMPT = "Tell me a short story about a fox who learns to share."
# Timed answers go on until they took this long, at most this often.
_ENOUGH_SECONDS, _MOST_ROUNDS = 12.0, 5
# A warm-up is a short answer. The second records what the first admitted, the third shows that
# nothing is left to record.
_MOST_WARMUPS, _WARMUP_TOKENS = 3, 8


class DeviceName(StrEnum):
    """Where to run."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


class DtypeName(StrEnum):
    """The number type of the weights."""

    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


def run(
    prompt: Annotated[str, typer.Option(help="What to ask.")] = PROMPT,
    model: Annotated[
        str, typer.Option(metavar="smollm2|DIR", help="smollm2, or a local transformers folder.")
    ] = "smollm2",
    max_new_tokens: Annotated[int, typer.Option(min=1, help="The longest answer.")] = 64,
    device: Annotated[DeviceName, typer.Option(help="auto: a GPU if there is one.")] = (
        DeviceName.AUTO
    ),
    dtype: Annotated[
        DtypeName, typer.Option(help="auto: float32 on a CPU, as stored on a GPU.")
    ] = DtypeName.AUTO,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on one line, and nothing else.")
    ] = False,
    stream: Annotated[
        bool, typer.Option("--stream/--no-stream", help="Show text as it comes.")
    ] = True,
) -> None:
    """Answer a prompt with a real model, eager and replayed, and compare the two."""
    prepare_stdout()
    _yield_idle_threads()
    question = _readable(prompt)
    conversation = _open(model, device, dtype, question, max_new_tokens)
    if not as_json:
        write_now(f"{conversation.describe()}\n\n> {question}\n")
    show = _Show(is_quiet=as_json, is_streamed=stream)
    outcome, report = _compare(conversation, show)
    if as_json:
        write_now(json.dumps(outcome.to_dict(), allow_nan=False) + "\n")
        return
    lines = summary_lines(outcome, on_cpu=conversation.device.type == "cpu")
    write_now("\n" + "\n".join(lines) + "\n\n")
    write_now(f"report since the start, warm-ups included\n{report}\n")


def _yield_idle_threads() -> None:
    """Let torch's CPU threads sleep while they wait, unless the user chose otherwise.

    By default they spin. When another program wants a core, each of some 400 waits per token then
    lasts until the scheduler steps in: on 2 busy cores 16 tokens took over 150 s, and 4 s asleep
    (torch 2.13, 2026-11-29). It must be said before torch is imported.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def _readable(prompt: str) -> str:
    """Undo a locale's reading of UTF-8 words, and refuse a prompt without any."""
    # Bytes that the locale cannot name arrive as lone surrogates, which no tokenizer takes.
    text = prompt.encode("utf-8", "surrogateescape").decode("utf-8", "replace").strip()
    if not text:
        raise UsageError(
            "the prompt is empty", code="OST4011", remedy='ask something: --prompt "..."'
        )
    return text


def _open(
    model: str, device: DeviceName, dtype: DtypeName, question: str, max_new_tokens: int
) -> Conversation:
    with bar() as tell:
        tell("starting torch", 0.0)
        from ostinato.checkpoints import load
        from ostinato.cli.conversation import open_conversation

        _silence_advice()
        checkpoint = load(model, device=device.value, dtype=dtype.value, progress=tell)
        conversation = open_conversation(checkpoint, question, max_new_tokens)
        tell("asking for a first token", 1.0)
        conversation.require_numbers()
        return conversation


def _silence_advice() -> None:
    """Keep transformers' hints about options that nobody here chose out of the output."""
    from ostinato.checkpoints.folder import import_transformers

    import_transformers().utils.logging.set_verbosity_error()


@dataclass(frozen=True, slots=True)
class _Show:
    """What a person sees of the answers.

    Attributes:
        is_quiet: Nothing at all: stdout belongs to the JSON object.
        is_streamed: Text as it comes, not at the end of each answer.
    """

    is_quiet: bool
    is_streamed: bool

    def first(self, name: str, conversation: Conversation, generate: Callable[..., Any]) -> Answer:
        """Answer and show the text."""
        if self.is_quiet:
            return self.again(name, conversation, generate)
        write_now(f"\n{name}\n")
        if self.is_streamed:
            answer = conversation.answer(generate, write_now)
        else:
            answer = self.again(name, conversation, generate)
            write_now(conversation.decode(answer.ids))
        write_now("\n")
        return answer

    def again(self, name: str, conversation: Conversation, generate: Callable[..., Any]) -> Answer:
        """Answer without showing the text, only how far it is."""
        done = 0

        def counted(count: int) -> None:
            nonlocal done
            done += count
            tell(name, done / conversation.max_new_tokens)

        with bar() as tell:
            return conversation.answer(generate, counted=counted)


def _compare(conversation: Conversation, show: _Show) -> tuple[Outcome, Any]:
    """Answer in turns, eager and replayed, until the times say enough."""
    from ostinato import accelerate

    fast = accelerate(conversation.checkpoint.model, max_cache_len=conversation.columns)
    generates = {"eager": conversation.checkpoint.model.generate, "replayed": fast.generate}
    _warm_up(conversation, show, generates, fast)
    answers = {
        name: [show.first(name, conversation, generate)] for name, generate in generates.items()
    }
    while not _is_enough(answers):
        for name, generate in generates.items():
            answers[name].append(show.again(name, conversation, generate))
    report = fast.report()
    sides = {
        name: Side(given[0].ids, tuple(answer.seconds for answer in given))
        for name, given in answers.items()
    }
    outcome = Outcome(
        text=conversation.decode(sides["replayed"].ids),
        eager=sides["eager"],
        replayed=sides["replayed"],
        report=report.to_dict(),
        how=str(fast.last),
        difference=conversation.difference(sides["replayed"].ids, sides["eager"].ids),
    )
    return outcome, report


def _warm_up(
    conversation: Conversation, show: _Show, generates: dict[str, Callable[..., Any]], fast: Any
) -> None:
    """Let both sides give short answers, the same number each, until nothing new is recorded."""
    short = replace(conversation, max_new_tokens=min(_WARMUP_TOKENS, conversation.max_new_tokens))
    recordings = 0
    for _ in range(_MOST_WARMUPS):
        for name, generate in generates.items():
            show.again(f"warming up, {name}", short, generate)
        known, recordings = recordings, fast.report().to_dict()["recordings"]
        if recordings == known:
            return


def _is_enough(answers: dict[str, list[Answer]]) -> bool:
    rounds = len(answers["eager"])
    spent = sum(answer.seconds for given in answers.values() for answer in given)
    return rounds >= _MOST_ROUNDS or spent >= _ENOUGH_SECONDS
