"""Who holds which page of keys and values.

Memory for keys and values is cut into pages of a few tokens. A page is free, or has holders: the
requests whose tokens are in it, and the prefix index when its content may be of use again. This
module counts them; it is arithmetic only (no torch, no device). Page 0 is never granted: padding
rows and padding tokens write there.

Pages go back at once, while the device may still be busy with them. That is safe because whatever
the next holder writes is queued behind on the same stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ostinato.errors import InternalError, UsageError


class PagePool:
    """A fixed number of pages, each free or held.

    Args:
        pages: How many pages the store has, page 0 included.

    Raises:
        UsageError: OST5007, fewer than 2 pages: page 0 serves padding, so nothing could run.
    """

    def __init__(self, pages: int) -> None:
        if pages < 2:
            raise UsageError(
                f"a pool needs at least 2 pages, page 0 being that of padding, got {pages}",
                code="OST5007",
                remedy="give the keys and values more memory",
            )
        self._pages = pages
        # Reversed, so that the first grants are the low numbers and the last one freed, whose
        # content is likeliest in a cache of the device, is the next one granted.
        self._free = list(range(pages - 1, 0, -1))
        self._holders = [0] * pages

    @property
    def capacity(self) -> int:
        """How many pages can be held at all."""
        return self._pages - 1

    @property
    def free(self) -> int:
        """How many pages nobody holds."""
        return len(self._free)

    def holders(self, page: int) -> int:
        """Return how many hold `page`."""
        return self._holders[page]

    def grant(self, count: int) -> list[int] | None:
        """Return `count` free pages, each now with one holder; None, and no change, if too few."""
        assert count >= 0
        if count > len(self._free):
            return None
        if count == 0:
            return []
        granted = self._free[-count:][::-1]
        del self._free[-count:]
        for page in granted:
            self._holders[page] = 1
        return granted

    def share(self, page: int) -> None:
        """Add a holder to a page that has one.

        Raises:
            InternalError: OST5190, nobody holds the page.
        """
        if not 0 < page < self._pages or not self._holders[page]:
            raise _unheld(page, "shared")
        self._holders[page] += 1

    def release(self, page: int) -> int:
        """Take a holder from a page and return how many are left; with none left it is free.

        Raises:
            InternalError: OST5190, nobody holds the page.
        """
        if not 0 < page < self._pages or not self._holders[page]:
            raise _unheld(page, "released")
        left = self._holders[page] = self._holders[page] - 1
        if left == 0:
            self._free.append(page)
        return left

    def release_all(self, pages: Iterable[int]) -> None:
        """Release one page after the other.

        Raises:
            InternalError: OST5190, nobody holds one of them; those before it are released.
        """
        holders, free = self._holders, self._free
        for page in pages:
            if 0 < page < self._pages and holders[page] == 1:  # nearly always
                holders[page] = 0
                free.append(page)
            else:
                self.release(page)

    def check_integrity(self, holders: Mapping[int, int] | None = None) -> None:
        """Check that every page is either free or held, and by no more and no less than it says.

        Args:
            holders: How often each held page is really held, when the caller knows.

        Raises:
            InternalError: OST5190, with the first page that is wrong.
        """
        free = set(self._free)
        if len(free) != len(self._free):
            raise corrupt("a page is in the free list twice")
        if self._holders[0] or 0 in free:
            raise corrupt("page 0, that of padding, was granted")
        for page in range(1, self._pages):
            if (self._holders[page] == 0) != (page in free):
                raise corrupt(f"page {page} has {self._holders[page]} holders and is not in place")
            if holders is not None and self._holders[page] != holders.get(page, 0):
                raise corrupt(
                    f"page {page} counts {self._holders[page]} holders and has "
                    f"{holders.get(page, 0)}"
                )


def _unheld(page: int, what: str) -> InternalError:
    return corrupt(f"page {page} was {what}, but nobody holds it")


def corrupt(problem: str) -> InternalError:
    """Return the error for bookkeeping of pages that does not add up."""
    return InternalError(problem, code="OST5190", remedy="report this with the text of the error")
