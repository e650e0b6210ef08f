"""All requests of one call, checked before the first is begun: it is all of them or none.

`LLM.generate` asks here. A prompt that cannot be read, does not fit or wants a schema that no
answer can keep to costs nobody's work, and its error says which of the prompts it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ostinato.errors import OstinatoError
from ostinato.llm.faults import EngineDown
from ostinato.llm.request import Request

if TYPE_CHECKING:
    from ostinato.llm.engine import Engine
    from ostinato.llm.params import SamplingParams
    from ostinato.llm.structured import Schema


def checked_requests(
    engine: Engine,
    prompts: Sequence[Any],
    params: Sequence[SamplingParams],
    *,
    priority: int,
    salt: str,
) -> list[Request]:
    """Make a request of each prompt with its params; waits until their grammars are made.

    Raises:
        OstinatoError: As `Engine.read`, `Engine.check` and `Engine.compile`, with the place of the
            first prompt that cannot be answered, if there are several.
    """
    requests = []
    for index, (prompt, wanted) in enumerate(zip(prompts, params, strict=True)):
        with _naming(index, len(prompts)):
            request = engine.read(prompt, wanted, priority=priority, salt=salt)
            engine.check(request)
        requests.append(request)
    _wait_compiled(engine, requests)
    return requests


def _wait_compiled(engine: Engine, requests: Sequence[Request]) -> None:
    """Wait for the grammar of every schema; the compiler keeps them for those who ask next."""
    first: dict[Schema, int] = {}
    for index, request in enumerate(requests):
        if request.params.schema is not None:
            first.setdefault(request.params.schema, index)
    compiling = deque((index, engine.compile(schema)) for schema, index in first.items())
    while compiling:  # each is let go of as it comes: there may be very many
        index, compiled = compiling.popleft()
        with _naming(index, len(requests)):
            compiled.result()


@contextmanager
def _naming(index: int, prompts: int) -> Iterator[None]:
    """Say in an error which of several prompts it is about."""
    try:
        yield
    except EngineDown:  # it is about all of them
        raise
    except OstinatoError as error:
        if prompts == 1:
            raise
        problem = f"prompts[{index}]: {error.args[0]}"
        raise type(error)(problem, code=error.code, remedy=error.remedy) from error.__cause__
