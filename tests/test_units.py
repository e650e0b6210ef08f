"""Units: what people write becomes bytes, and bytes become what people read."""

import pytest

from ostinato.errors import UsageError
from ostinato.units import format_bytes, format_us, parse_bytes


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("2GiB", 2 * 1024**3),
        ("512MiB", 512 * 1024**2),
        ("1.5 GB", 1_500_000_000),
        (" 64 kib ", 65_536),
        ("1TiB", 1024**4),
        (".5KB", 500),
        ("17B", 17),
        ("17", 17),
        (4096, 4096),
        (0, 0),
    ],
)
def test_an_amount_of_bytes_is_read(text: int | str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize(
    "text", ["", "GiB", "2 gigs", "-1GiB", "1e9", "1 2GiB", "٣GiB", -1, True, 1.5, None]
)
def test_what_is_no_amount_of_bytes_is_refused_with_the_value_seen(text: object) -> None:
    with pytest.raises(UsageError) as caught:
        parse_bytes(text)  # type: ignore[arg-type]
    assert caught.value.code == "OST1001"
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1024**2 - 1, "1.0 MiB"),
        (2 * 1024**3, "2.0 GiB"),
        (3 * 1024**4, "3.0 TiB"),
        (2000 * 1024**4, "2000.0 TiB"),
        (-2048, "-2.0 KiB"),
    ],
)
def test_bytes_are_written_in_the_unit_that_reads_best(count: int, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("duration_us", "text"),
    [
        (0.0, "0.00 us"),
        (4.123, "4.12 us"),
        (41.23, "41.2 us"),
        (412.3, "412 us"),
        (999.7, "1.00 ms"),
        (1900.0, "1.90 ms"),
        (9.996e3, "10.0 ms"),
        (2.31e6, "2.31 s"),
        (4.1e9, "4100 s"),
    ],
)
def test_a_duration_is_written_with_three_figures(duration_us: float, text: str) -> None:
    assert format_us(duration_us) == text
