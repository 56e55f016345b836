"""Unicode normalization: the same as Python's, but linear in combining marks."""

from __future__ import annotations

import gc
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_agent.eval.gold import normalized, words
from context_agent.text.normalization import MAX_MARKS, normal_form, without_marks, without_silent
from context_agent.text.scripts import segmented
from context_agent.text.words import fold
from tests.support.growth import REPEATS, growth, seconds

FORMS = ("NFC", "NFD", "NFKC", "NFKD")


@pytest.mark.parametrize("form", FORMS)
@given(text=st.text(max_size=MAX_MARKS) | st.text("aé漢\u0301\u0316 ", max_size=60))
def test_it_is_that_of_python(form: str, text: str) -> None:
    if max(map(len, text.replace("\u0316", "\u0301").split()), default=0) <= MAX_MARKS:
        assert normal_form(form, text) == unicodedata.normalize(form, text)  # type: ignore[arg-type]


@pytest.mark.parametrize("marks", ["\u0301\u0316", "\u0f73", "\u0344\u0316", "\u3099\u0301\u0316", "\U0001d165\u0301"])
@pytest.mark.parametrize("form", FORMS)
def test_marks_in_a_row_take_linear_time(form: str, marks: str) -> None:
    def run(text: str) -> None:
        assert len(normal_form(form, text)) <= 3 * MAX_MARKS + 3  # type: ignore[arg-type]

    assert growth(run, lambda size: "a" + marks * size, 2_000) < 9


@pytest.mark.parametrize("read", [fold, segmented, words, normalized])
def test_what_reads_texts_takes_linear_time(read: object) -> None:
    assert callable(read)
    assert growth(read, lambda size: "東a" + "\u0301\u0316" * size, 2_000) < 9


@pytest.mark.parametrize(("power", "expected"), [(1, 4), (2, 16)])
def test_timing_repeats_a_call_that_seems_slow(monkeypatch: pytest.MonkeyPatch, power: int, expected: int) -> None:
    now = 0.0
    sizes: list[int] = []

    def call(size: int) -> None:
        nonlocal now
        sizes.append(size)
        # The first call with a size takes three times as long, as on a busy machine.
        now += 0.02 * (size / 200) ** power * (3 if sizes.count(size) == 1 else 1)

    monkeypatch.setattr(time, "process_time", lambda: now)
    assert growth(call, lambda size: size, 200) == pytest.approx(expected)
    assert sizes.count(800) >= 2


def test_timing_measures_growth_again_if_a_measurement_was_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    sizes: list[int] = []

    def call(size: int) -> None:
        nonlocal now
        sizes.append(size)
        # Each call of the first measurement with the larger size takes three times as long.
        now += 0.02 * (size / 200) * (3 if size == 800 and sizes.count(800) <= REPEATS else 1)

    monkeypatch.setattr(time, "process_time", lambda: now)
    assert growth(call, lambda size: size, 200) == pytest.approx(4)


def test_timing_leaves_garbage_collection_as_it_was() -> None:
    before, during = gc.isenabled(), []
    try:
        for state in (gc.enable, gc.disable):
            state()
            enabled = gc.isenabled()
            seconds(lambda _: during.append(gc.isenabled()), "")
            assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()
    assert not any(during)


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("لَمْ يُولَدْ كتـــاب", "لم يولد كتاب"),
        ("בְּרֵאשִׁית", "בראשית"),
        ("می\u200cخواهم", "ميخواهم"),
        ("Donau\u00addampf\u00adschiff", "Donaudampfschiff"),
        ("ударе́ние", "ударение"),
        ("e\u0301cole", "école"),
        ("ज़मीन", "जमीन"),
        ("İstanbul", "Istanbul"),
        ("plain", "plain"),
    ],
)
def test_what_writers_may_leave_out_is_dropped(written, plain):
    assert without_silent(written) == plain
    assert without_silent(plain) == plain


def test_latin_letters_lose_their_marks_and_strokes():
    assert without_marks("Łódź, Größe, Ærø, ışık") == "Lodz, Grosse, AEro, isik"
