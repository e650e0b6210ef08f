"""The GGUF reader: what a file says, and one clear error for every way it can be broken."""

import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from checkpoints.written_gguf import (
    Written,
    gguf_bytes,
    numbers_of,
    random_tensor,
    string,
    tiny_metadata,
    tiny_tensors,
    write_gguf,
)
from ostinato.checkpoints import GgufFile
from ostinato.errors import OstinatoError, UsageError

METADATA = {
    "a.flag": True,
    "a.count": 7,
    "a.share": 0.5,
    "a.name": "naïve Ġ",
    "a.numbers": [3, -1, 2],
    "a.words": ["", "one", "zwölf"],
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.gguf"


def refusal(path: Path) -> UsageError:
    with pytest.raises(UsageError) as caught:
        GgufFile(path)
    assert caught.value.code == "OST2001"
    return caught.value


def test_metadata_comes_back_with_its_types(path: Path) -> None:
    with GgufFile(write_gguf(path, METADATA, {})) as file:
        assert file.metadata == METADATA
        assert [type(item) for item in file.metadata.values()] == [
            bool,
            int,
            float,
            str,
            list,
            list,
        ]


def test_every_scalar_type_of_the_format_is_read(path: Path) -> None:
    forms = "BbHhIif?__Qqd"
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 11)
    for kind, form in enumerate(forms):
        if form != "_":
            head += string(f"k{kind}") + struct.pack("<I", kind) + struct.pack(f"<{form}", 1)
    path.write_bytes(head)
    with GgufFile(path) as file:
        assert list(file.metadata.values()) == [1] * 11


def test_tensors_have_row_major_shapes_and_their_numbers(path: Path) -> None:
    tensor = random_tensor("Q4_1", (3, 64), seed=5)
    with GgufFile(write_gguf(path, {}, {"w": tensor})) as file:
        assert file.tensors["w"].shape == (3, 64)
        assert file.tensors["w"].type_name == "Q4_1"
        array = file.array("w")
    blocks = [tensor.raw[start : start + 20] for start in range(0, len(tensor.raw), 20)]
    expected = [number for raw in blocks for number in numbers_of("Q4_1", raw)]
    assert array.reshape(-1).tolist() == expected
    assert array.shape == (3, 64)


@pytest.mark.parametrize("alignment", [8, 64, 1024])
def test_another_alignment_is_followed(path: Path, alignment: int) -> None:
    tensors = {name: random_tensor("F32", (3,), seed) for seed, name in enumerate("ab")}
    write_gguf(path, {"general.alignment": alignment}, tensors, alignment=alignment)
    with GgufFile(path) as file:
        for name, tensor in tensors.items():
            assert file.array(name).tobytes() == tensor.raw


def test_version_2_is_read(path: Path) -> None:
    with GgufFile(write_gguf(path, METADATA, {}, version=2)) as file:
        assert file.metadata == METADATA


def test_a_file_that_is_not_there_is_named(path: Path) -> None:
    assert f"{path} is not a readable GGUF file: it cannot be read" in str(refusal(path))


def test_an_empty_file_is_called_empty(path: Path) -> None:
    path.write_bytes(b"")
    assert "it is empty" in str(refusal(path))


def test_another_kind_of_file_is_shown_by_its_first_bytes(path: Path) -> None:
    path.write_bytes(b"PK\x03\x04 something else")
    assert r"it begins with b'PK\x03\x04'" in str(refusal(path))


@pytest.mark.parametrize(
    ("version", "words"), [(1, "version 1"), (4, "version 4"), (3 << 24, "a big-endian file")]
)
def test_versions_that_are_not_read_are_named(path: Path, version: int, words: str) -> None:
    write_gguf(path, {}, {}, version=version)
    assert f"it is {words}" in str(refusal(path))


def test_a_file_cut_short_anywhere_is_refused(path: Path) -> None:
    whole = gguf_bytes(METADATA, {"w": random_tensor("Q8_0", (2, 32), seed=1)})
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        refusal(path)


def test_a_tensor_cut_short_says_how_many_bytes_are_missing(path: Path) -> None:
    path.write_bytes(gguf_bytes({}, {"w": random_tensor("F32", (8,), seed=1)})[:-5])
    assert "tensor 'w' lacks 5 bytes" in str(refusal(path))


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=some.data())
def test_a_file_with_one_wrong_byte_is_read_or_refused_and_nothing_else(
    path: Path, data: some.DataObject
) -> None:
    raw = bytearray(gguf_bytes(METADATA, {"w": random_tensor("Q8_0", (2, 32), seed=1)}))
    # The bytes of the tensor itself are not described by anything that could contradict them.
    at = data.draw(some.integers(0, len(raw) - 69))
    raw[at] = data.draw(some.integers(0, 255))
    path.write_bytes(raw)
    try:
        with GgufFile(path) as file:
            for name in file.tensors:
                file.array(name)
    except OstinatoError as error:
        assert error.code in ("OST2001", "OST2002")  # noqa: PT017 - an error is only allowed


def test_a_string_that_is_not_utf8_is_refused(path: Path) -> None:
    path.write_bytes(gguf_bytes({"a.name": "abc"}, {}).replace(b"abc", b"a\xffc"))
    assert "a string is not UTF-8" in str(refusal(path))


def test_a_key_given_twice_is_refused(path: Path) -> None:
    path.write_bytes(gguf_bytes({"a.x": 1, "a.y": 2}, {}).replace(b"a.y", b"a.x"))
    assert "the key 'a.x' appears twice" in str(refusal(path))


def test_a_tensor_given_twice_is_refused(path: Path) -> None:
    tensors = {name: random_tensor("F32", (1,), 1) for name in ("w1", "w2")}
    path.write_bytes(gguf_bytes({}, tensors).replace(b"w2", b"w1"))
    assert "the tensor 'w1' appears twice" in str(refusal(path))


def test_an_array_that_announces_too_many_strings_is_refused_before_it_is_read(path: Path) -> None:
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + string("a.words")
    path.write_bytes(head + struct.pack("<IIQ", 9, 8, 1 << 60))
    assert f"an array announces {1 << 60} strings" in str(refusal(path))


@pytest.mark.parametrize("alignment", [0, 12])
def test_an_impossible_alignment_is_refused(path: Path, alignment: int) -> None:
    write_gguf(path, {"general.alignment": alignment}, {})
    assert f"general.alignment is {alignment}" in str(refusal(path))


def test_rows_that_are_not_whole_blocks_are_refused(path: Path) -> None:
    write_gguf(path, {}, {"w": Written((2, 48), "Q8_0", b"\0" * 102)})
    assert "tensor 'w' has rows of 48, not whole blocks" in str(refusal(path))


def table_with(sizes: tuple[int, ...], offset: int) -> bytes:
    """A file with one F32 tensor `w`, described as `sizes` at `offset`."""
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + string("w")
    head += struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, 0, offset)
    return head + b"\0" * 512


@pytest.mark.parametrize("sizes", [(), (1, 1, 1, 1, 1)])
def test_a_tensor_has_one_to_four_dimensions(path: Path, sizes: tuple[int, ...]) -> None:
    path.write_bytes(table_with(sizes, 0))
    assert f"tensor 'w' has {len(sizes)} dimensions" in str(refusal(path))


def test_a_tensor_that_is_not_aligned_is_refused(path: Path) -> None:
    path.write_bytes(table_with((4,), 4))
    assert "tensor 'w' is not aligned to 32 bytes" in str(refusal(path))


def test_a_storage_type_that_is_not_known_is_refused_only_when_it_is_read(path: Path) -> None:
    write_gguf(path, {}, {"w": Written((256,), "Q4_K", b"\0" * 144)})
    with (
        GgufFile(path) as file,
        pytest.raises(UsageError, match=r"'w' of model\.gguf is stored as Q4_K") as caught,
    ):
        file.array("w")
    assert caught.value.code == "OST2002"


def test_closing_is_possible_while_an_array_lives_on(path: Path) -> None:
    file = GgufFile(write_gguf(path, tiny_metadata(), tiny_tensors()))
    array = file.array("output_norm.weight")
    file.close()
    assert array.sum() == array.sum()
