"""How far one request has come: its known tokens, its row, its pages, and what is under way."""

from __future__ import annotations

from dataclasses import dataclass, field

from ostinato.llm.kv.prefix import PageKeys
from ostinato.llm.request import Request


@dataclass(slots=True, eq=False)
class Progress:
    """The changing half of a request, which only the scheduler touches.

    `goal`, `planned`, `written` and `indexed` speak of the stay in a row, and begin anew with it.

    Attributes:
        request: What was asked.
        rank: Whose turn it is: the smallest first. It never changes, so nobody is overtaken twice.
        budget: The most new tokens: `max_tokens`, or what the model and the pages leave.
        keys: Digests of the full pages of `tokens`.
        tokens: Prompt and answer as far as the host knows them.
        row: Its row of the resident state; None while it waits.
        pages: Its pages, in the order of its tokens.
        goal: Tokens to have prefilled before it can decode.
        planned: Tokens whose keys and values are written, or will be by plans under way.
        written: Tokens whose keys and values are known to be written.
        in_flight: Steps of plans under way. They may bring fewer tokens: a launch can end early,
            and nothing comes beyond the budget.
        stay: Counts its stays in a row, so that news of an earlier stay is told from today's.
        indexed: Pages that the prefix index has been told of.
        cached: Prompt tokens that were found in the prefix index at the first admission.
        is_live: False once it is finished or cancelled.
        is_shareable: False if its pages hold what other requests must not find.
        request_id: That of the request.
        is_single: Whether each token has to be known before the next may be drawn.
        final_tokens: How many tokens have keys and values when the budget is used up.
    """

    request: Request
    rank: tuple[float, int]
    budget: int
    keys: PageKeys
    tokens: list[int]
    row: int | None = None
    pages: list[int] = field(default_factory=list)
    goal: int = 0
    planned: int = 0
    written: int = 0
    in_flight: int = 0
    stay: int = 0
    indexed: int = 0
    cached: int | None = None
    is_live: bool = True
    is_shareable: bool = True
    # Of a request and a budget that never change, and asked of every row in every plan.
    request_id: str = field(init=False)
    is_single: bool = field(init=False)
    final_tokens: int = field(init=False)

    def __post_init__(self) -> None:
        self.request_id = self.request.request_id
        self.is_single = self.request.params.schema is not None
        self.final_tokens = len(self.request.prompt_ids) + self.budget - 1

    @property
    def new_tokens(self) -> int:
        """How many tokens of the answer are known."""
        return len(self.tokens) - len(self.request.prompt_ids)

    @property
    def remaining(self) -> int:
        """How many tokens will surely be left to ask for after the plans under way."""
        return self.final_tokens + 1 - len(self.tokens) - self.in_flight

    @property
    def most_steps(self) -> int:
        """How many steps of one launch could run it."""
        return 1 if self.is_single else self.remaining

    @property
    def to_prefill(self) -> int:
        """How many tokens still have to be planned before it can decode."""
        return self.goal - self.planned

    @property
    def can_decode(self) -> bool:
        """Whether a launch could bring it another token."""
        if self.planned < self.goal or (self.is_single and self.in_flight):
            return False
        return len(self.tokens) + self.in_flight <= self.final_tokens

    def steps_of(self, launch_steps: int) -> int:
        """Return how many steps of a launch run this request, unless it ends before."""
        return 1 if self.is_single else launch_steps

    def pages_short(self, launch_steps: int, page_tokens: int) -> int:
        """Return how many pages it lacks for one more launch.

        The newest token never has keys and values: it is the next step's input.
        """
        steps = 1 if self.is_single else launch_steps
        tokens = len(self.tokens) - 1 + self.in_flight + steps
        if tokens > self.final_tokens:
            tokens = self.final_tokens
        short = tokens - len(self.pages) * page_tokens
        return -(-short // page_tokens) if short > 0 else 0

    def leave_row(self) -> list[int]:
        """Forget row and pages, and return the pages to be released."""
        pages, self.pages = self.pages, []
        self.row = None
        return pages
