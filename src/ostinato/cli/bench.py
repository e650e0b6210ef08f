"""`ostinato bench`: graphs beside eager and hand-written ones; the engine, and a server under load.

The table and the claims go to stdout, one line of JSON last; what is being measured goes to stderr.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from ostinato.cli.bench_options import (
    AsJson,
    BudgetS,
    Device,
    Out,
    Tiny,
    numbers,
    save,
    tell,
    words,
)
from ostinato.cli.bench_plans import plans
from ostinato.cli.run import DeviceName
from ostinato.cli.streaming import prepare_stdout, write_now
from ostinato.errors import ResourceError

app = typer.Typer(no_args_is_help=True)
app.command()(plans)


_TINY_VOCABULARY = 500  # the toy model has 512


@app.callback()
def bench() -> None:
    """Measure this runtime beside what people use today."""


@app.command()
def graphs(
    models: Annotated[
        str,
        typer.Option(
            help="Comma-separated: bert-128, bert-512, resnet50, gpt2, minilm, smollm2-decode, "
            "traffic. Default: all."
        ),
    ] = "",
    contenders: Annotated[
        str,
        typer.Option(
            help="Comma-separated: eager, compile, reduce-overhead, callables, raw, owned, leased, "
            "inside. Default: all."
        ),
    ] = "",
    device: Device = DeviceName.AUTO,
    out: Out = None,
    minilm: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A folder with MiniLM's real weights.")
    ] = None,
    smollm2: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A folder with SmolLM2's real weights.")
    ] = None,
    traffic: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV with ContextTokens and GeneratedTokens, such as azure_llm_2023_conv.csv. "
            "Default: lengths drawn with its statistics.",
        ),
    ] = None,
    budget_s: BudgetS = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rounds and requests.")] = False,
    tiny: Tiny = False,
    as_json: AsJson = False,
) -> None:
    """Time every contender on every model, and judge each claim about speed."""
    prepare_stdout()
    # Before torch and transformers are imported: nothing here is to be looked for on a hub.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from ostinato.bench import as_text, read_options, run_graphs, to_dict

    options = read_options(
        models,
        contenders,
        device=device.value,
        minilm=minilm,
        smollm2=smollm2,
        trace=traffic,
        budget_s=budget_s,
        is_quick=quick,
        is_tiny=tiny,
    )
    result = run_graphs(options, tell=tell, save=lambda so_far: save(to_dict(so_far), out))
    if not as_json:
        write_now(as_text(result) + "\n\n")
    write_now(json.dumps(to_dict(result), allow_nan=False) + "\n")


@app.command()
def decode(
    models: Annotated[
        str,
        typer.Option(help="Comma-separated: llama3-8b, llama3.2-1b, smollm2-135m. Default: all."),
    ] = "",
    batches: Annotated[
        str, typer.Option(help="Comma-separated numbers of requests at once.")
    ] = "1,8,32,128,256",
    peers: Annotated[
        bool, typer.Option("--peers/--no-peers", help="Measure transformers beside it.")
    ] = True,
    device: Device = DeviceName.AUTO,
    steps_per_launch: Annotated[
        int | None,
        typer.Option(min=1, help="Decode steps per launch; the engine's own if not set."),
    ] = None,
    prefill_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Prompt tokens per step; the engine's own if not set."),
    ] = None,
    attention: Annotated[str, typer.Option(help="An attention backend by name.")] = "auto",
    quantize: Annotated[
        str,
        typer.Option(help="Comma-separated: int8, fp8. Measured in rows of their own."),
    ] = "",
    kernels: Annotated[
        bool,
        typer.Option(
            "--kernels/--no-kernels", help="Say which kernels a step ran, and for how long."
        ),
    ] = True,
    out: Out = None,
    compare: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Fail if anything is slower than there, beyond noise."),
    ] = None,
    budget_s: BudgetS = None,
    tiny: Tiny = False,
    as_json: AsJson = False,
) -> None:
    """Time the engine per token and to the first one, beside the memory floor and transformers."""
    prepare_stdout()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from ostinato.bench.decode import DecodeOptions, as_text, read_result, regressions, run_decode

    before = None if compare is None else read_result(compare)
    own = {"steps_per_launch": steps_per_launch, "prefill_tokens": prefill_tokens}
    engine = {name: value for name, value in own.items() if value is not None}
    options = DecodeOptions(
        models=words(models),
        batches=numbers("batches", batches),
        device=device.value,
        with_peers=peers,
        engine={"attention": attention, **engine},
        quantize=words(quantize),
        with_kernels=kernels,
        budget_s=budget_s,
        is_tiny=tiny,
    )
    result = run_decode(options, tell=tell, save=lambda so_far: save(so_far.to_dict(), out))
    if not as_json:
        write_now(as_text(result) + "\n\n")
    write_now(json.dumps(result.to_dict(), allow_nan=False) + "\n")
    slower = [] if before is None else regressions(result, before)
    if slower:
        raise ResourceError(
            "slower than before: " + "; ".join(slower),
            code="OST4025",
            remedy="look at what changed since; run it again if something else used the machine",
        )


@app.command()
def offline(
    parts: Annotated[
        str, typer.Option(help="Comma-separated: arrivals, prefixes. Default: both.")
    ] = "arrivals,prefixes",
    model: Annotated[
        str, typer.Option(help="For the arrivals: llama3-8b, llama3.2-1b or smollm2-135m.")
    ] = "llama3.2-1b",
    arrivals: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV with TIMESTAMP, ContextTokens and GeneratedTokens, such as "
            "azure_llm_2023_conv.csv. Default: drawn with its statistics.",
        ),
    ] = None,
    prefixes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="JSON lines with hash_ids, such as mooncake_conversation.jsonl. Default: drawn.",
        ),
    ] = None,
    load: Annotated[
        float,
        typer.Option(
            min=0.01, help="Of the arrivals: the share of what the engine gives at the most."
        ),
    ] = 0.9,
    requests: Annotated[
        int | None, typer.Option(min=1, help="The most requests of the prefixes part.")
    ] = None,
    device: Device = DeviceName.AUTO,
    out: Out = None,
    tiny: Tiny = False,
    as_json: AsJson = False,
) -> None:
    """Send the engine the traffic of real traces, in process."""
    prepare_stdout()
    from ostinato.bench.offline import OfflineOptions, as_text, run_offline

    options = OfflineOptions(
        parts=words(parts),
        model=model,
        device=device.value,
        arrivals=arrivals,
        prefixes=prefixes,
        load=load,
        requests=requests,
        is_tiny=tiny,
    )
    result = run_offline(options, tell=tell, save=lambda so_far: save(so_far.to_dict(), out))
    if not as_json:
        write_now(as_text(result) + "\n\n")
    write_now(json.dumps(result.to_dict(), allow_nan=False) + "\n")


@app.command()
def serve(
    model: Annotated[
        str,
        typer.Option(
            help="llama3-8b, llama3.2-1b or smollm2-135m (sizes alone, without weights), smollm2, "
            "or a folder: a server is started for it, and ended."
        ),
    ] = "",
    url: Annotated[
        str, typer.Option(help="A server that runs on this machine, such as http://127.0.0.1:8000.")
    ] = "",
    streams: Annotated[
        str, typer.Option(help="Comma-separated: streams that each ask again at once.")
    ] = "",
    rates: Annotated[
        str, typer.Option(help="Comma-separated: requests per second, at random.")
    ] = "",
    speeds: Annotated[
        str,
        typer.Option(
            help="Comma-separated: how much faster than in a trace; full: as fast as it is taken."
        ),
    ] = "",
    arrivals: Annotated[
        str,
        typer.Option(
            metavar="chat|code|FILE",
            help="For --speeds: drawn like a chat's or, in bursts, like a code completer's; or CSV "
            "with TIMESTAMP, ContextTokens and GeneratedTokens, such as azure_llm_2023_conv.csv.",
        ),
    ] = "chat",
    requests: Annotated[int, typer.Option(min=1, help="Of each stream.")] = 4,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="Of requests at random; of the trace's own time.")
    ] = 30.0,
    rising: Annotated[
        float,
        typer.Option(min=0, help="Sent first and not counted: requests of a stream, or seconds."),
    ] = 1.0,
    repeats: Annotated[int, typer.Option(min=1, help="The median one is reported.")] = 1,
    prompt: Annotated[int, typer.Option(min=1, help="Tokens of a prompt.")] = 128,
    new: Annotated[int, typer.Option(min=1, help="Tokens of an answer.")] = 128,
    vocabulary: Annotated[
        int | None,
        typer.Option(min=11, help="Prompts are drawn from token ids below it; default: 1000."),
    ] = None,
    cancelled: Annotated[
        float, typer.Option(min=0, max=1, help="The share of clients that go away half-way.")
    ] = 0.0,
    api: Annotated[str, typer.Option(help="completions or chat.")] = "completions",
    api_key: Annotated[str, typer.Option(envvar="OSTINATO_API_KEY", help="For --url.")] = "",
    clients: Annotated[
        int | None,
        typer.Option(min=1, help="Processes that send; default: half the cores, at most 8."),
    ] = None,
    beside: Annotated[
        bool,
        typer.Option("--beside", help="Measure the engine alone first, at the same work."),
    ] = False,
    max_len: Annotated[
        int, typer.Option(min=2, help="A trace's longer requests are cut to so many tokens.")
    ] = 8192,
    ttft_ms: Annotated[float, typer.Option(min=0, help="Objective: to the first token.")] = 1000.0,
    tpot_ms: Annotated[float, typer.Option(min=0, help="Objective: per token behind it.")] = 50.0,
    server: Annotated[
        str,
        typer.Option(
            help="Further words for the server that is started, as one text. Without --objective "
            "it promises nothing, and sheds only what its queue does not hold."
        ),
    ] = "",
    device: Device = DeviceName.AUTO,
    out: Out = None,
    compare: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Fail if anything is slower than there, beyond noise."),
    ] = None,
    tiny: Tiny = False,
    as_json: AsJson = False,
) -> None:
    """Send a server load over HTTP: closed loop, requests at random, or a real trace."""
    prepare_stdout()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import shlex

    from ostinato.bench.serve.objective import Objective
    from ostinato.bench.serve.planning import Shape, read_levels
    from ostinato.bench.serve.rows import read_rows, regressions
    from ostinato.bench.serve.run import ServeOptions, run_serve
    from ostinato.bench.serve.tables import as_text

    before = None if compare is None else read_rows(compare)
    options = ServeOptions(
        model=model or None,
        url=url or None,
        levels=read_levels(streams, rates, speeds),
        requests=requests,
        seconds=seconds,
        arrivals=arrivals,
        rising=rising,
        repeats=repeats,
        shape=Shape(prompt, new, vocabulary or (_TINY_VOCABULARY if tiny else 1000), cancelled),
        api=api,
        api_key=api_key,
        processes=clients,
        is_beside=beside,
        max_len=max_len,
        objective=Objective(ttft_ms / 1e3, tpot_ms / 1e3),
        server_options=shlex.split(server),
        device=device.value,
        is_tiny=tiny,
    )
    result = run_serve(options, tell=tell, save=lambda so_far: save(so_far.to_dict(), out))
    if not as_json:
        write_now(as_text(result) + "\n\n")
    write_now(json.dumps(result.to_dict(), allow_nan=False) + "\n")
    worse = [] if before is None else regressions(result, before)
    if worse:
        raise ResourceError(
            "worse than before: " + "; ".join(worse),
            code="OST4025",
            remedy="look at what changed since; run it again if something else used the machine",
        )
