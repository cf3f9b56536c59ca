import time

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from mlrforecast.tasks.language_model import VOCABULARIES, Vocabulary, get_vocabulary

CHARACTERS, BYTES = get_vocabulary("characters"), get_vocabulary("bytes")
PRINTABLE = "\n" + "".join(map(chr, range(32, 127)))


def test_the_characters_are_the_96_of_the_paper() -> None:
    assert CHARACTERS.size == 96
    assert list(VOCABULARIES) == ["bytes", "characters"]
    assert CHARACTERS.encode(PRINTABLE).tolist() == list(range(96))
    assert CHARACTERS.decode(range(96)) == PRINTABLE


@given(st.text(st.sampled_from(PRINTABLE)))
def test_characters_come_back(text: str) -> None:
    tokens, dropped = CHARACTERS.encode_counting(text)
    assert tokens.dtype == np.uint8
    assert (CHARACTERS.decode(tokens), dropped) == (text, 0)


@given(st.text())
def test_bytes_come_back(text: str) -> None:
    assert BYTES.decode(BYTES.encode(text)) == text


@given(st.text(st.one_of(st.characters(), st.sampled_from("\r\n\té€😀"))))
@example("a\r\nb\r\r\nc\rd\n\r")
def test_other_characters_are_dropped_and_counted(text: str) -> None:
    tokens, dropped = CHARACTERS.encode_counting(text)
    normal = text.replace("\r\n", "\n")
    kept = [sign for sign in normal if sign in PRINTABLE]
    assert CHARACTERS.decode(tokens) == "".join(kept)
    assert dropped == len(normal) - len(kept)


def test_half_a_pair_is_no_error() -> None:
    assert BYTES.decode(BYTES.encode("a\ud800b")) == "a?b"


@pytest.mark.parametrize(
    "tokens", [[3, 4], np.array([3, 4], np.int64), torch.tensor([3, 4], dtype=torch.uint8)]
)
def test_tokens_come_in_any_form(tokens: object) -> None:
    assert CHARACTERS.decode(tokens) == '"#'
    assert CHARACTERS.decode([]) == ""


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert BYTES.decode([255, 65]) == "\ufffdA"


@pytest.mark.parametrize(
    ("tokens", "kind", "message"),
    [
        ([96], ValueError, "`tokens` must lie in 0 to 95, got 96"),
        ([-1], ValueError, "got -1"),
        ([[1]], ValueError, r"one axis, got the shape \(1, 1\)"),
        ([1.0], TypeError, "`tokens` must be integers, got float64"),
    ],
)
def test_wrong_tokens_are_refused(tokens: object, kind: type, message: str) -> None:
    with pytest.raises(kind, match=message):
        CHARACTERS.decode(tokens)


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(TypeError, match="`text` must be a str, got a bytes"):
        CHARACTERS.encode(b"a")
    with pytest.raises(ValueError, match=r"'words'\. Available: bytes, characters"):
        get_vocabulary("words")


@pytest.mark.parametrize("content", [b"", b"aa", b"a\xff"])
def test_a_vocabulary_must_be_one(content: bytes) -> None:
    with pytest.raises(ValueError, match="`content` must hold"):
        Vocabulary(name="x", content=content)


def test_text_is_encoded_fast() -> None:
    text = "The quick brown fox jumps; caf\u00e9.\r\n" * 120_000
    took = []
    for _ in range(3):
        start = time.perf_counter()
        CHARACTERS.encode_counting(text)
        took.append(time.perf_counter() - start)
    # 4 million characters: 0.04 s where it was written, and seconds if done one by one.
    assert min(took) < 0.5
