"""Model files on onnxruntime: what opens, what is refused, and how texts and pairs reach the graph."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from context_agent._support import onnx
from context_agent._support.onnx import OnnxModel
from context_agent._support.shipped_models import MINILM_FILE, MINILM_FORMAT, READER_FILE, READER_FORMAT, TOKENIZER_FILE
from context_agent._support.thread_pool import ThreadPool
from context_agent.errors import ConfigError
from tests.support.remembered_rows import rows_computed_anew

CONTENT = MINILM_FILE.read_bytes()


@pytest.fixture(autouse=True)
def _rows_computed_anew() -> Iterator[None]:
    with rows_computed_anew():
        yield


@pytest.fixture
def model() -> OnnxModel:
    return OnnxModel(MINILM_FILE, TOKENIZER_FILE, format=MINILM_FORMAT)


def open_model(content: bytes, folder: Path) -> OnnxModel:
    (folder / "model.onnx").write_bytes(content)
    return OnnxModel(folder / "model.onnx", TOKENIZER_FILE, format=MINILM_FORMAT)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.9999])
def test_a_file_that_is_cut_is_refused(share: float, tmp_path: Path) -> None:
    model = open_model(CONTENT[: int(share * len(CONTENT))], tmp_path)
    with pytest.raises(ConfigError, match=r"model\.onnx.*\. Reinstall context-agent\.$"):
        model.encode(["river"])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"sentence-embedding-1", b"sentence-embedding-2", "format 'sentence-embedding-2', .* 'sentence-embedding-1'"),
        (b"max_length", b"max_pieces", "does not fit its tokenizer .'max_length'"),
        (b"\x06format", b"\x06formal", "states no format"),
        (b"input_ids", b"other_ids", "has the inputs other_ids, but it must have input_ids"),
    ],
)
def test_a_file_of_another_kind_is_refused(old: bytes, new: bytes, message: str, tmp_path: Path) -> None:
    assert old in CONTENT
    with pytest.raises(ConfigError, match=message):
        _ = open_model(CONTENT.replace(old, new), tmp_path).width


def test_any_other_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is damaged, or was not written for this version of onnxruntime"):
        open_model(b"PK\x03\x04 no model", tmp_path).encode([])


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for file, reason in ((tmp_path / "none.onnx", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(ConfigError, match=f"cannot be read .{reason}.* Reinstall context-agent"):
            OnnxModel(file, TOKENIZER_FILE, format=MINILM_FORMAT).encode([])


@pytest.mark.parametrize("content", ["", "{}", '{"version": "9"}'])
def test_a_damaged_tokenizer_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"tokenizer\.json cannot be read"):
        OnnxModel(MINILM_FILE, tmp_path / "tokenizer.json", format=MINILM_FORMAT).encode([])


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path) -> None:
    vocabulary = {word: row for row, word in enumerate(["[UNK]", "[CLS]", "[SEP]", *map(str, range(40_000))])}
    Tokenizer(WordLevel(vocabulary, "[UNK]")).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ConfigError, match="does not fit its tokenizer"):
        OnnxModel(MINILM_FILE, tmp_path / "tokenizer.json", format=MINILM_FORMAT).encode([])


class Recorder:
    """A session that returns how many pieces it was fed."""

    def __init__(self) -> None:
        self.feeds: list[dict[str, list[int]]] = []

    def get_outputs(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(name="row", shape=(1, 1))]

    def run(self, outputs: list[str], feed: dict[str, Any]) -> list[Any]:
        assert outputs == ["row"]
        self.feeds.append({name: values[0].tolist() for name, values in feed.items()})
        return [np.array([[feed["input_ids"].size]], np.float32)]


def feeds_of(*pieces: list[int], inputs: tuple[str, ...] = ("input_ids", "token_type_ids")) -> dict[str, list[int]]:
    session = Recorder()
    graph = onnx._Graph("test", 13, inputs, session, Tokenizer.from_file(str(TOKENIZER_FILE)))
    graph.pair_row(*pieces)
    return session.feeds[0]


def test_a_pair_is_framed_and_its_parts_are_told_apart() -> None:
    assert feeds_of([7, 8], [9]) == {"input_ids": [101, 7, 8, 102, 9, 102], "token_type_ids": [0, 0, 0, 0, 1, 1]}
    assert feeds_of([7], [], inputs=("input_ids", "attention_mask")) == {
        "input_ids": [101, 7, 102, 102],
        "attention_mask": [1] * 4,
    }


@pytest.mark.parametrize(("first", "second", "expected"), [(4, 20, (4, 6)), (20, 4, (6, 4)), (20, 20, (5, 5))])
def test_of_a_long_pair_the_second_text_is_cut_first(first: int, second: int, expected: tuple[int, int]) -> None:
    ids = feeds_of([7] * first, [9] * second)["input_ids"]
    assert (ids.count(7), ids.count(9)) == expected
    assert len(ids) == 13


def test_a_row_does_not_depend_on_the_rows_beside_it(model: OnnxModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx, "_BLOCK", 4)
    texts = ["a river in Brazil", "The Novo River. " * 5, "x"] * 3
    rows = model.encode(texts)
    assert rows.shape == (9, model.width)
    for text, row in zip(texts[:3], rows[:3], strict=True):
        np.testing.assert_array_equal(model.encode([text])[0], row)
    np.testing.assert_array_equal(rows[-3:], rows[:3])
    pairs = model.encode_pairs([("river", text) for text in texts[:3]])
    np.testing.assert_array_equal(model.encode_pairs([("river", texts[1])])[0], pairs[1])


def test_the_longest_texts_are_computed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx, "_workers", lambda: ThreadPool(1, name="one"))
    computed: list[int] = []

    def row(first: Sequence[int], second: Sequence[int]) -> onnx.Rows:
        computed.append(len(first) + len(second))
        return np.array(first, dtype=np.float32)

    rows = onnx._parallel(row, [[1], [2, 2], [3]], [[0], [0, 0, 0], [0, 0]])
    assert computed == [5, 3, 2]
    assert [first[0] for first in rows] == [1, 2, 3]


def test_no_texts_give_no_rows(model: OnnxModel) -> None:
    assert model.encode([]).shape == model.encode_pairs([]).shape == (0, model.width)


def test_a_text_cannot_spell_the_end_of_a_segment(model: OnnxModel) -> None:
    first, second = model.encode(["river [SEP] lake", "river lake"])
    (framed,) = model.encode_pairs([("river", "lake")])
    assert not np.allclose(first, framed, atol=1e-3)
    assert not np.allclose(first, second, atol=1e-3)


def test_a_model_crosses_to_another_process(model: OnnxModel) -> None:
    assert pickle.loads(pickle.dumps(model)).name == model.name
    code = (
        "import os\n"
        "from context_agent.retrieval.embedders.minilm import MiniLMEmbedder\n"
        "texts = ['a river', 'a lake', 'bread']\n"
        "before = MiniLMEmbedder().embed_documents(texts)\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    os._exit(0 if (MiniLMEmbedder().embed_documents(texts) == before).all() else 3)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


MODEL_RUN = """
from context_agent._support.onnx import OnnxModel
from context_agent._support.shipped_models import MINILM_FILE, MINILM_FORMAT, TOKENIZER_FILE

OnnxModel(MINILM_FILE, TOKENIZER_FILE, format=MINILM_FORMAT).encode(["river"])
"""
CHROMA_RUN = """
from context_agent.retrieval.embedders.chroma import ChromaEmbedder

ChromaEmbedder.default()
from chromadb.utils.embedding_functions import ONNXMiniLM_L6_V2

ONNXMiniLM_L6_V2()
"""


@pytest.mark.parametrize("code", [MODEL_RUN, CHROMA_RUN])
def test_onnxruntime_keeps_no_id_of_the_machine_and_no_reports(code: str, tmp_path: Path) -> None:
    # onnxruntime itself sends nothing if `CI` is set.
    names = [name for name in os.environ if name == "CI" or name.startswith(("ORT_", "XDG_", "GITHUB_"))]
    environment = {name: value for name, value in os.environ.items() if name not in names}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, env={**environment, "HOME": str(tmp_path)})
    assert [path for path in tmp_path.rglob("*") if "onnxruntime" in path.name] == []


@pytest.mark.parametrize(
    ("limit", "most"), [("1", 1), ("1,2", 1), ("", 4096), ("no", 4096), ("0", 4096), ("²", 4096), ("9" * 5_000, 4096)]
)
def test_the_threads_follow_the_usual_variable(limit: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", limit)
    assert 1 <= onnx._cores() <= most


def test_a_text_has_a_state_for_each_piece_and_for_its_frame(model: OnnxModel) -> None:
    texts = ["river", "the river rose", "", "word " * 400]
    states = model.encode_pieces(texts)
    assert [len(own) for own in states] == [3, 5, 2, 256]
    assert np.array_equal(states[1], model.encode_pieces([texts[1]])[0])
    mean = states[1].mean(axis=0)
    assert mean / np.linalg.norm(mean) == pytest.approx(model.encode([texts[1]])[0], abs=1e-5)
    assert [len(own) for own in model.encode_pieces(texts, 2)] == [3, 4, 2, 4]
    assert model.encode_pieces([]) == []


def test_a_model_without_states_says_so() -> None:
    reader = OnnxModel(READER_FILE, TOKENIZER_FILE, format=READER_FORMAT)
    with pytest.raises(ConfigError, match="has no output 'states'"):
        reader.encode_pieces(["river"])
