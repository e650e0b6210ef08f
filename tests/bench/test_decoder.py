"""The traffic's decoder: a prompt and steps give what one run over the whole text gives."""

import torch

from ostinato.bench.decoder import Decoder, DecoderShape

SHAPE = DecoderShape(layers=2, width=32, heads=2, vocabulary=128, columns=64)


def last(length: int) -> torch.Tensor:
    return torch.tensor([length - 1])


def caches(decoder: Decoder) -> list[torch.Tensor]:
    return [buffer for name, buffer in decoder.named_buffers() if name.endswith("_HCD")]


@torch.inference_mode()
def test_steps_continue_a_prompt_as_a_longer_prompt_would() -> None:
    decoder = Decoder(SHAPE).eval()
    for buffer in caches(decoder):
        buffer.normal_(std=100)  # what another request left there
    text = torch.randint(128, (10,))
    token, position = decoder.prefill(text, last(10)), torch.tensor([10])
    made = [token]
    for _ in range(8):
        token, position = decoder.decode(token, position)
        made.append(token)
    for count in range(1, 9):
        longer = torch.cat([text, *made[:count]])
        assert torch.equal(decoder.prefill(longer, last(10 + count)), made[count])


@torch.inference_mode()
def test_padding_behind_a_prompt_changes_neither_its_token_nor_the_steps_after_it() -> None:
    decoder = Decoder(SHAPE).eval()
    text = torch.randint(128, (10,))
    answers = []
    for padding in (torch.empty(0, dtype=torch.long), torch.randint(128, (20,))):
        token = decoder.prefill(torch.cat([text, padding]), last(10))
        assert not any(buffer[:, 10:].any() for buffer in caches(decoder))
        position, made = torch.tensor([10]), [token]
        for _ in range(25):
            token, position = decoder.decode(token, position)
            made.append(token)
        answers.append(torch.cat(made))
        for buffer in caches(decoder):
            buffer.zero_()
    assert torch.equal(*answers)
