"""Options of a service are checked when they are given."""

from __future__ import annotations

from typing import Any

import pytest

from ostinato.errors import UsageError
from ostinato.serve.settings import Settings


def test_settings_survive_the_way_to_another_process() -> None:
    settings = Settings(engine={"max_batch": 4}, api_keys=("a", "b"), drain_s=5)
    assert Settings.from_json(settings.to_json()) == settings


@pytest.mark.parametrize(
    "wrong",
    [
        {"port": 70000},
        {"front_ends": 0},
        {"drain_s": -1},
        {"progress_s": 0},
        {"unread_s": 0},
        {"progress_s": float("nan")},
        {"max_body_bytes": 0},
        {"log_level": "loud"},
        {"version": ""},
        {"callable": "shop"},
        {"callable": "shop:"},
        {"callable": ":factory"},
        {"api_keys": ("",)},
        {"api_keys": ("späti",)},
    ],
    ids=str,
)
def test_a_value_out_of_its_range_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))) as caught:
        Settings(**wrong)
    assert caught.value.code == "OST6001"


def test_a_key_is_never_in_the_refusal() -> None:
    with pytest.raises(UsageError) as caught:
        Settings(api_keys=("secret\n",))
    assert "secret" not in str(caught.value)


def test_https_takes_both_files() -> None:
    with pytest.raises(UsageError) as caught:
        Settings(tls_cert="a.pem")
    assert caught.value.code == "OST6002"


def test_a_stop_may_take_no_time_at_all() -> None:
    assert Settings(drain_s=0).drain_s == 0
