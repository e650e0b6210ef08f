"""An address that cannot be had is told with what helps there: another host, or another port."""

from __future__ import annotations

import errno
import socket

import pytest

from ostinato.errors import ResourceError
from ostinato.serve import supervisor
from ostinato.serve.settings import Settings


def refusal(host: str, port: int = 0) -> ResourceError:
    with pytest.raises(ResourceError) as caught:
        supervisor._listen(Settings(host=host, port=port))
    assert caught.value.code == "OST6003"
    return caught.value


def test_a_host_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*words: object, **options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    told = refusal("nosuch.host")
    assert "nosuch.host" in str(told)
    assert "--host" in told.remedy
    assert "--port" not in told.remedy


def test_a_host_that_is_no_name() -> None:
    assert "--host" in refusal("a" * 70 + ".example").remedy


def test_an_address_of_another_machine() -> None:
    assert "--host" in refusal("192.0.2.1").remedy


def test_a_port_that_is_taken_or_not_for_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        told = refusal("127.0.0.1", other.getsockname()[1])
    assert "--port" in told.remedy
    assert "--host" not in told.remedy

    def forbidden(*words: object, **options: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket, "getaddrinfo", forbidden)
    assert "--port" in refusal("127.0.0.1", 80).remedy
