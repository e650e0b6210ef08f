"""Which pages already hold the keys and values of a prompt's beginning.

Keys and values of a token depend on it and on every token before it. A full page is therefore known
by a digest of its own tokens and of the digest of the page before: equal digests mean equal content
all the way from the first token. The first digest is that of the request's salt, so requests with
different salts never meet.

The index is itself a holder of each page it knows (`pages.py`). A page that only the index holds is
*idle*: it can be found again, and it can be taken back when pages run short, the one idle longest
first. A chain is released from its end, so that what can be found without the rest goes last.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from ostinato.llm.kv.pages import PagePool, corrupt

_DIGEST_BYTES = 16  # 2**64 pages before two are likely to collide by chance


class PageKeys:
    """The keys of one growing sequence of tokens, page by page; each is computed once.

    Args:
        salt: Sequences of different salts have no key in common.
        page_tokens: Tokens in a full page.
    """

    __slots__ = ("_keys", "_page_tokens", "_salt")

    def __init__(self, salt: str, page_tokens: int) -> None:
        self._salt = salt
        self._page_tokens = page_tokens
        self._keys: list[bytes] = []

    def first(self, pages: int, tokens: Sequence[int]) -> Sequence[bytes]:
        """Return the keys of the first `pages` full pages of `tokens`.

        Args:
            pages: At most as many as `tokens` fills.
            tokens: The same sequence at every call, though it may have grown.
        """
        known, size = len(self._keys), self._page_tokens
        assert pages * size <= len(tokens)
        if known < pages:
            before = self._keys[-1] if known else self._root()
            # As the rows of a state hold ids, of all pages at once: array("i") refuses larger ones.
            content = array("i", tokens[known * size : pages * size])
            memory, page_bytes = content.tobytes(), size * content.itemsize
            for at in range(0, len(memory), page_bytes):
                page = before + memory[at : at + page_bytes]
                before = blake2b(page, digest_size=_DIGEST_BYTES).digest()
                self._keys.append(before)
        return self._keys[:pages]

    def _root(self) -> bytes:
        # A salt is compared and never shown, so half a character is as good as a whole one.
        content = self._salt.encode(errors="surrogatepass")
        return blake2b(content, digest_size=_DIGEST_BYTES, person=b"salt").digest()


@dataclass(frozen=True, slots=True)
class Found:
    """The known pages at the beginning of a sequence.

    Attributes:
        pages: In the order of the sequence.
        idle: How many of them only the index holds: taking those uses up room that could be freed.
    """

    pages: tuple[int, ...]
    idle: int


class PrefixIndex:
    """Full pages by their content, over the pages of `pool`."""

    def __init__(self, pool: PagePool) -> None:
        self._pool = pool
        self._page_of: dict[bytes, int] = {}
        self._key_of: dict[int, bytes] = {}
        # The page idle longest stands first. Not a dict: that one is slow to pop from the front.
        self._idle: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._page_of)

    @property
    def idle(self) -> int:
        """How many pages `evict` could free now."""
        return len(self._idle)

    def find(self, keys: Iterable[bytes]) -> Found:
        """Return the pages of the longest known beginning of `keys`, and take none of them."""
        pages = []
        for key in keys:
            page = self._page_of.get(key)
            if page is None:
                break
            pages.append(page)
        return Found(tuple(pages), sum(page in self._idle for page in pages))

    def take(self, found: Found) -> list[int]:
        """Add the caller as a holder of every page found, and return the pages."""
        for page in found.pages:
            self._pool.share(page)
            self._idle.pop(page, None)
        return list(found.pages)

    def match(self, keys: Iterable[bytes]) -> list[int]:
        """Find the longest known beginning of `keys` and take its pages."""
        return self.take(self.find(keys))

    def insert(self, key: bytes, page: int) -> bool:
        """Make a page known, whose content is written; False if its content is known already.

        The index becomes a holder of the page. Where another page holds the same content, that one
        stays the known one, for others may be reading it, and `page` stays the caller's alone.
        """
        if key in self._page_of or page in self._key_of:
            return False
        self._pool.share(page)
        self._page_of[key] = page
        self._key_of[page] = key
        return True

    def release(self, pages: Sequence[int]) -> None:
        """Take the caller as a holder from `pages`, given in the order of their sequence."""
        for page in reversed(pages):
            if self._pool.release(page) == 1 and page in self._key_of:
                self._idle[page] = None

    def evict(self, count: int) -> int:
        """Free up to `count` idle pages, the one idle longest first, and return how many."""
        going = min(count, len(self._idle))
        for _ in range(going):
            page, _ = self._idle.popitem(last=False)
            self._forget(page)
        return going

    def disown(self, pages: Iterable[int]) -> None:
        """Forget these pages, whose content is not to be trusted; holders keep holding them."""
        for page in pages:
            if page in self._key_of:
                self._idle.pop(page, None)
                self._forget(page)

    def clear(self) -> None:
        """Forget every page, as when new weights make all that was computed before untrue."""
        for page in list(self._key_of):
            self._idle.pop(page, None)
            self._forget(page)

    def _forget(self, page: int) -> None:
        del self._page_of[self._key_of.pop(page)]
        self._pool.release(page)

    def holders(self) -> dict[int, int]:
        """Return how often the index itself holds each page: once, for each that it knows."""
        return dict.fromkeys(self._key_of, 1)

    def check_integrity(self) -> None:
        """Check that keys and pages belong together and that idle pages are really idle.

        Raises:
            InternalError: OST5190, with the first page that is wrong.
        """
        if len(self._page_of) != len(self._key_of):
            raise corrupt(f"{len(self._page_of)} keys are known for {len(self._key_of)} pages")
        for key, page in self._page_of.items():
            if self._key_of.get(page) != key:
                raise corrupt(f"page {page} is known by two keys")
            holders = self._pool.holders(page)
            if holders < 1:
                raise corrupt(f"page {page} is known by its content and nobody holds it")
            if (holders == 1) != (page in self._idle):
                raise corrupt(f"page {page} has {holders} holders and is wrongly idle or not")
        if not self._idle.keys() <= self._key_of.keys():
            raise corrupt("a page waits to be evicted and is not known")
