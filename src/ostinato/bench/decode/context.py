"""A batch of long rows in the engine: how fast attention reads their keys and values.

The same batch is run twice by one engine, with short prompts and with long ones; only steps that
all rows run are counted (`together`), and `reading` says what they come to.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

from ostinato.bench.attempt import error_text
from ostinato.bench.decode.bandwidth import read_tb_s
from ostinato.bench.decode.kernels import steps_while
from ostinato.bench.decode.models import MODELS, TINY
from ostinato.bench.decode.reading import ContextResult, ContextRow
from ostinato.bench.decode.together import Came, has_begun, together
from ostinato.bench.head import describe_run
from ostinato.bench.run import device_named
from ostinato.errors import UsageError
from ostinato.llm import Engine, EngineConfig, SamplingParams
from ostinato.llm.models import DecoderConfig

if TYPE_CHECKING:
    from ostinato.llm.reply import Event

Save = Callable[[ContextResult], None]
Tell = Callable[[str], None]

_ATTENTION = frozenset({"_decode", "_decode_few"})
"""The kernels that read keys and values; see `kernels/paged_decode.py` and its neighbour."""


@dataclass(frozen=True, slots=True)
class ContextOptions:
    """What to measure.

    Attributes:
        model: A name in `MODELS`.
        short, context: Tokens of the short prompts and of the long ones.
        steps: Steps of all rows that are timed, at the least.
        profiled: Further steps, whose kernels are looked at on a GPU.
        spare: Tokens that a row may make while the others' prompts are taken in, and the profiler
            starts: rows that are done too early are an error.
        engine: Further options of the engine.
        budget_s: What is not there after so many seconds is told as not measured.
        is_tiny: Toy sizes: to see that everything runs.

    Raises:
        UsageError: OST4021, a model that is not known, or a number below 1.
    """

    model: str = "llama3-8b"
    batch: int = 32
    short: int = 128
    context: int = 16384
    steps: int = 256
    profiled: int = 64
    spare: int = 512
    device: str = "auto"
    engine: Mapping[str, Any] = field(default_factory=dict)
    budget_s: float = 180.0
    is_tiny: bool = False

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise UsageError(
                f"there is no model {self.model!r}",
                code="OST4021",
                remedy=f"choose from {', '.join(MODELS)}",
            )
        for name in ("batch", "short", "context", "steps", "profiled", "spare"):
            if getattr(self, name) < 1:
                raise UsageError(
                    f"{name} must be at least 1, got {getattr(self, name)}",
                    code="OST4021",
                    remedy=f"pass a whole number for {name}, or leave it out",
                )

    @property
    def new(self) -> int:
        """Tokens that each row may make."""
        return self.steps + self.profiled + self.spare


def run_context(options: ContextOptions, *, tell: Tell, save: Save) -> ContextResult:
    """Measure what `options` ask for.

    Args:
        tell: Is told what begins, for people who wait.
        save: Gets the result so far whenever it has grown.
    """
    device = device_named(options.device)
    until_s = monotonic() + options.budget_s
    tell("how fast memory is read")
    asked = asdict(options) | {"engine": dict(options.engine)}
    head = describe_run(device) | {"benchmark": "context", "options": asked}
    result = ContextResult(head, read_tb_s(device))
    longest = options.context + options.new + 32
    told = dict(TINY if options.is_tiny else MODELS[options.model])
    config = DecoderConfig.from_dict(told | {"max_position_embeddings": longest})
    tell("the engine")
    try:
        engine = Engine(
            EngineConfig.read(
                {
                    "model": config,
                    "load": "dummy",
                    "device": str(device),
                    "max_batch": options.batch,
                    "max_model_len": longest,
                    "prefix_cache": False,
                    **options.engine,
                }
            )
        )
    except Exception as error:  # noqa: BLE001 - it becomes the row of the result, in full view
        row = ContextRow(options.model, options.batch, options.context, error=error_text(error))
        result = replace(result, long=row)
        save(result)
        return result
    with engine:
        engine.wait_warm(max(until_s - monotonic(), 0))
        for prompt in (options.short, options.context):
            tell(f"{options.batch} rows of {prompt} tokens")
            before = result
            for row in _Batch(engine, config, options, prompt, until_s).measure():
                is_short = before.short is None
                result = replace(before, short=row) if is_short else replace(before, long=row)
                save(result)
    return result


class _Batch:
    """Rows of one length, from their prompts until enough has been seen of them."""

    def __init__(
        self,
        engine: Engine,
        config: DecoderConfig,
        options: ContextOptions,
        prompt: int,
        until_s: float,
    ) -> None:
        self._engine, self._config, self._options = engine, config, options
        self._prompt, self._until_s = prompt, until_s
        self._rows: list[list[Came]] = [[] for _ in range(options.batch)]
        self._errors: list[str] = []
        self._changed = threading.Condition()

    def measure(self) -> Iterator[ContextRow]:
        """Run the rows, and yield what is known of them as soon as it is."""
        options, engine = self._options, self._engine
        row = ContextRow(
            options.model,
            options.batch,
            self._prompt,
            weight_bytes=engine.read_bytes,
            layers=self._config.layers,
        )
        cancels = []
        try:
            began = perf_counter()
            for number in range(options.batch):
                cancels.append(self._ask(number))
            self._wait_until(lambda: has_begun(self._rows), "every row has joined")
            row = replace(row, prompts_s=perf_counter() - began)
            before = engine.counts()
            self._wait_for_steps(options.steps)
            after = engine.counts()
            found = together(self._seen(), self._prompt)
            ran = sum(after.bucket_steps.values()) - sum(before.bucket_steps.values())
            gave = sum(after.bucket_tokens.values()) - sum(before.bucket_tokens.values())
            row = replace(
                row,
                steps=found.steps,
                ms=found.ms,
                launch_ms=found.per_step.median_us / 1e3,
                launch_iqr_ms=found.per_step.iqr_us / 1e3,
                rows_per_step=gave / ran if ran else None,
                kv_bytes=found.keys * self._key_bytes(),
                before=found.before,
                behind=found.behind,
                preemptions=after.scheduler.preemptions,
            )
            yield row
            yield self._with_kernels(row)
        except Exception as error:  # noqa: BLE001 - it becomes the row of the result, in full view
            yield replace(row, error=error_text(error))
        finally:
            for cancel in cancels:
                cancel()

    def _with_kernels(self, row: ContextRow) -> ContextRow:
        kernels = steps_while(lambda: self._wait_for_steps(self._options.profiled))
        seen = [each for each in kernels if each.name in _ATTENTION]
        runs = sum(each.per_step for each in seen)
        if not runs:
            return row
        # Of each run and not of a step: of long steps the profiler has been seen to lose some.
        return replace(row, attention_us=sum(each.us for each in seen) / runs, attention_runs=runs)

    def _ask(self, number: int) -> Callable[[], None]:
        chance = random.Random(number)
        prompt = [chance.randrange(3, self._engine.vocabulary) for _ in range(self._prompt)]
        params = SamplingParams(max_tokens=self._options.new, temperature=0, ignore_eos=True)
        came = self._rows[number]

        def take(event: Event) -> None:
            at_s = perf_counter()
            with self._changed:
                if event.error is not None:
                    self._errors.append(error_text(event.error))
                if event.token_ids:
                    so_far = came[-1].tokens if came else 0
                    came.append(Came(at_s, so_far + len(event.token_ids)))
                if event.finish is not None and not self._errors:
                    self._errors.append(
                        f"row {number} ended after {came[-1].tokens if came else 0} tokens, while "
                        "others were still to be measured: allow more spare ones"
                    )
                self._changed.notify_all()

        return self._engine.send(self._engine.read(prompt, params), [take])

    def _wait_for_steps(self, steps: int) -> None:
        """Wait until each row has so many tokens more, and then one launch's."""
        with self._changed:
            enough = [row[-1].tokens + steps for row in self._rows]
        self._wait_until(
            lambda: all(
                row[-1].tokens > most for row, most in zip(self._rows, enough, strict=True)
            ),
            f"{steps} steps were run by all rows",
        )

    def _wait_until(self, is_so: Callable[[], bool], what: str) -> None:
        with self._changed:
            left_s = max(self._until_s - monotonic(), 0)
            self._changed.wait_for(lambda: is_so() or bool(self._errors), left_s)
            if is_so():
                return
            if self._errors:
                raise RuntimeError(self._errors[0])
            begun = sum(len(row) > 1 for row in self._rows)
            raise TimeoutError(
                f"not before {what} were {self._options.budget_s:g} s over; {begun} of "
                f"{len(self._rows)} rows had joined"
            )

    def _seen(self) -> list[list[Came]]:
        with self._changed:
            return [list(row) for row in self._rows]

    def _key_bytes(self) -> int:
        """Bytes of the keys and values of one token, of all layers."""
        sizes = self._config
        itemsize = 2 if self._engine.device.type == "cuda" else 4
        return 2 * sizes.layers * sizes.kv_heads * sizes.head_dim * itemsize
