"""Which model a request means, and how many answers it may have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostinato.serve.openai.errors import HttpProblem

if TYPE_CHECKING:
    from ostinato.serve.services import Model, Services


def known_model(services: Services) -> Model:
    """Return what is served.

    Raises:
        HttpProblem: 503, an engine that is being started has not said what it is.
    """
    model = services.model
    if services.link is not None and not model.max_model_len:
        raise HttpProblem(
            503, "the engine is being started; try again in a few seconds", retry_s=5.0
        )
    return model


def check_model(services: Services, wanted: str | None) -> Model:
    """Return the model that writes, if a request means it or none in particular.

    Raises:
        HttpProblem: 404, it means another; 503, there is none yet.
    """
    model = known_model(services)
    if wanted is not None and wanted != model.name:
        raise HttpProblem(
            404,
            f"there is no model {wanted!r:.120} here; this server has {model.name!r}",
            param="model",
            code="model_not_found",
        )
    return model


def check_answers(services: Services, answers: int, param: str = "n") -> None:
    """Refuse a request for more answers than one may have.

    Args:
        param: The field that asks for them.

    Raises:
        HttpProblem: 400.
    """
    most = services.settings.max_answers
    if answers > most:
        raise HttpProblem(
            400,
            f"the request asks for {answers} answers, and at most {most} are given; ask for fewer",
            param=param,
        )
