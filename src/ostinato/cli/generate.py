"""`ostinato generate`: answers of the engine, to one prompt or to a file of them.

A file's answers are written in the order of its lines, each as soon as it and those before it are
whole; a rerun keeps what is finished and answers the rest.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ostinato.cli.run import DeviceName, DtypeName
from ostinato.cli.streaming import bar, prepare_stdout, write_now
from ostinato.errors import OstinatoError, ResourceError, UsageError

if TYPE_CHECKING:
    from ostinato.cli.answer_file import AnswerFile
    from ostinato.cli.prompt_file import PromptLine
    from ostinato.llm import Engine, SamplingParams
    from ostinato.llm.answers import Choice, Output
    from ostinato.llm.stream import Stream

_MAX_TOKENS = 256


def generate(
    prompt: Annotated[str | None, typer.Option(help="One prompt: its answer is streamed.")] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            metavar="PROMPTS.JSONL",
            help='Prompts, one object a line: {"prompt": "..."} or {"messages": [...]}, with an '
            '"id" and sampling options if you like.',
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="ANSWERS.JSONL",
            help="Where the answers to a file go. A rerun goes on from what is finished there.",
        ),
    ] = None,
    model: Annotated[
        str, typer.Option(metavar="smollm2|DIR", help="smollm2, or a local transformers folder.")
    ] = "smollm2",
    raw: Annotated[
        bool,
        typer.Option(
            "--raw", help="Send texts as they are, without the model's chat template round them."
        ),
    ] = False,
    max_tokens: Annotated[
        int | None, typer.Option(help=f"The longest answer; {_MAX_TOKENS} if not given.")
    ] = None,
    temperature: Annotated[float | None, typer.Option(help="0 takes the likeliest token.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Draw from this share of the odds.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Draw from that many tokens.")] = None,
    min_p: Annotated[
        float | None, typer.Option(help="Draw from tokens this likely, next to the likeliest.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Makes the draws repeatable.")] = None,
    n: Annotated[int | None, typer.Option("--n", help="Answers per prompt.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="A text that ends the answer.")] = None,
    schema: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A JSON schema that answers keep to.")
    ] = None,
    max_batch: Annotated[
        int | None, typer.Option(min=1, help="Requests that run at the same time.")
    ] = None,
    device: Annotated[DeviceName, typer.Option(help="auto: a GPU if there is one.")] = (
        DeviceName.AUTO
    ),
    dtype: Annotated[
        DtypeName, typer.Option(help="auto: float32 on a CPU, as stored on a GPU.")
    ] = DtypeName.AUTO,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --prompt: print one JSON object, nothing else.")
    ] = False,
) -> None:
    """Answer a prompt, or a file of prompts, with the engine."""
    prepare_stdout()
    _check_choice(prompt, file, out)
    common = _given(
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        seed=seed,
        n=n,
        stop=stop or None,
        schema=None if schema is None else _read_schema(schema),
    )
    common.setdefault("max_tokens", _MAX_TOKENS)
    options = {"model": model, "device": device.value, "dtype": dtype.value}
    options |= _given(max_batch=max_batch)
    if file is not None:
        assert out is not None
        _answer_file(file, out, common, options, is_raw=raw)
    else:
        _answer_one(str(prompt), common, options, is_raw=raw, as_json=as_json)


def _check_choice(prompt: str | None, file: Path | None, out: Path | None) -> None:
    if (prompt is None) == (file is None) or (file is None) != (out is None):
        raise UsageError(
            "give either --prompt, or --file with --out",
            code="OST4030",
            remedy='ostinato generate --prompt "...", or --file prompts.jsonl --out answers.jsonl',
        )
    if prompt is not None and not prompt.strip():
        raise UsageError(
            "the prompt is empty", code="OST4011", remedy='ask something: --prompt "..."'
        )


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _read_schema(file: Path) -> Any:
    from ostinato.checkpoints.json_file import read_json

    try:
        return read_json(file)
    except ValueError as error:
        raise UsageError(
            f"{file} is no JSON: {error}", code="OST4035", remedy="name a file with a JSON schema"
        ) from error


def _open(options: dict[str, Any]) -> Engine:
    with bar() as tell:
        tell(f"loading {options['model']}", 0.0)
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # see `ostinato run`
        from ostinato.llm import Engine, EngineConfig

        return Engine(EngineConfig.read(options))


def _answer_one(
    prompt: str, common: dict[str, Any], options: dict[str, Any], *, is_raw: bool, as_json: bool
) -> None:
    from ostinato.llm.params import SamplingParams

    params = SamplingParams.read(common)
    text = prompt.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    with _open(options) as engine:
        stream = _ask(engine, text, params, is_raw=is_raw)
        try:
            if not as_json and params.n == 1:
                for delta in stream:
                    write_now(delta.text)
            output = stream.result()
        finally:
            stream.cancel()
    if as_json:
        write_now(json.dumps(_as_dict(output), allow_nan=False) + "\n")
    else:
        write_now("\n" if params.n == 1 else _numbered(output))
    error = _error_of(output)
    if error is not None:
        raise error


def _numbered(output: Output) -> str:
    return "".join(f"[{choice.index}] {choice.text}\n" for choice in output.choices)


def _ask(engine: Engine, prompt: Any, params: SamplingParams, *, is_raw: bool) -> Stream:
    tokenizer = engine.tokenizer
    is_asked = isinstance(prompt, str) and tokenizer is not None and tokenizer.chat_template
    if is_asked and not is_raw:
        prompt = [{"role": "user", "content": prompt}]
    return engine.ask(prompt, params)


def _answer_file(
    file: Path, out: Path, common: dict[str, Any], options: dict[str, Any], *, is_raw: bool
) -> None:
    from ostinato.checkpoints.identity import digest_of
    from ostinato.cli.answer_file import AnswerFile
    from ostinato.cli.prompt_file import answered, read_prompts

    lines = read_prompts(file, common, beside=(digest_of(options["model"]), is_raw))
    with AnswerFile(out) as answers:
        done = answered(lines, out)
        left = [line for line in lines if line.number not in done]
        answers.keep(done[number] for number in sorted(done))
        try:
            failed = _answer_lines(lines, left, answers, options, is_raw=is_raw) if left else []
        except KeyboardInterrupt:
            typer.echo(f"stopped; a rerun goes on from what stands in {out}", err=True)
            raise
    write_now(
        f"{len(lines) - len(failed)} of {len(lines)} answered, {len(done)} of them before: {out}\n"
    )
    if failed:
        raise ResourceError(
            f"{len(failed)} of {len(lines)} prompts could not be answered; the first is line "
            f"{failed[0][0]}: {failed[0][1]}",
            code="OST4034",
            remedy=f"see the errors in {out}; a rerun asks those again and keeps the rest",
        )


def _answer_lines(
    lines: Sequence[PromptLine],
    left: Sequence[PromptLine],
    answers: AnswerFile,
    options: dict[str, Any],
    *,
    is_raw: bool,
) -> list[tuple[int, str]]:
    """Answer what is left; return the numbers of the lines that failed, and why."""
    from ostinato.cli.file_asking import Asking
    from ostinato.cli.file_progress import showing

    failed = []
    with _open(options) as engine, showing() as told:

        def ask(line: PromptLine) -> Stream:
            return _ask(engine, line.prompt, line.params, is_raw=is_raw)

        asking = Asking(engine, left, len(lines) - len(left), ask=ask, told=told)
        for line, came in asking.answers():
            error = _error_of(came)
            if error is not None:
                failed.append((line.number, str(error.args[0])))
            answers.add(_as_line(line, came))
        if engine.fault is not None:
            raise engine.fault
    return failed


def _error_of(came: Output | OstinatoError) -> OstinatoError | None:
    if isinstance(came, OstinatoError):
        return came
    return next((choice.error for choice in came.choices if choice.error), None)


def _as_line(line: PromptLine, came: Output | OstinatoError) -> str:
    named = {"line": line.number, "id": line.name, "prompt_sha256": line.digest}
    if isinstance(came, OstinatoError):
        said: dict[str, Any] = {"error": {"code": came.code, "message": str(came.args[0])}}
    else:
        said = _as_dict(came)
    return json.dumps({**named, **said}, allow_nan=False)


def _as_dict(output: Output) -> dict[str, Any]:
    first, metrics = output.choices[0], output.metrics
    error = _error_of(output)
    return {
        **_choice(first),
        "choices": [_choice(choice) for choice in output.choices],
        "prompt_tokens": len(output.prompt_ids),
        "metrics": {
            "ttft_s": metrics.ttft_s,
            "tpot_s": metrics.tpot_s,
            "queued_s": metrics.queued_s,
            "cached_tokens": metrics.cached_tokens,
        },
        "error": None if error is None else {"code": error.code, "message": str(error.args[0])},
    }


def _choice(choice: Choice) -> dict[str, Any]:
    reported = choice.logprobs
    return {
        "text": choice.text,
        "token_ids": list(choice.token_ids),
        "finish_reason": choice.finish_reason.value,
        "logprobs": None
        if reported is None
        else [{"chosen": one.chosen, "top": [list(pair) for pair in one.top]} for one in reported],
    }
