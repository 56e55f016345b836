"""Small transformers on onnxruntime, which turn texts or pairs of texts into rows.

Each run takes one text and one thread. Several texts run on as many threads as there are cores, but at most
`OMP_NUM_THREADS`, and the whole process shares these threads. Nothing is padded, so a row never depends on other texts.
In a batch it would, because an int8 model scales its activations by the largest value in the tensor. Batches would not
be faster either: above 40 word pieces, the cost of a piece no longer falls. A session without its own threads also
survives a fork.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from context_agent._support.cancellation import check_cancelled
from context_agent._support.processes import available_cores
from context_agent._support.telemetry import disable_onnxruntime_telemetry
from context_agent._support.thread_pool import ThreadPool
from context_agent.errors import ConfigError, reason_of
from context_agent.text.normalization import well_formed

Rows = NDArray[np.float32]
FORMAT, NAME, MAX_LENGTH = "format", "name", "max_length"
"""Keys of a model file's metadata: what the model computes, its identity, and the most word pieces of its input."""

STATES = "states"
"""The name of a model's second output: the states of the word pieces, shape (1, n, width)."""

_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_BLOCK = 256
"""The number of texts tokenized at a time, which bounds memory."""
_CHARACTERS = 32
"""The number of characters tokenized for each word piece of the model's input.

The rest of a very long text is not read.
"""
_LONGEST_QUOTE = 200


class PairModel(Protocol):
    """A model of pairs of texts."""

    @property
    def width(self) -> int:
        """The length of each row."""

    def encode_pairs(self, pairs: Sequence[tuple[str, str]]) -> Rows:
        """Return the model's output row for each pair, shape (n_pairs, width)."""


class OnnxModel:
    """A model file and its tokenizer, loaded on first use and once per process. Threads may share it.

    The graph takes `input_ids` and, if it names them, `attention_mask` and `token_type_ids`, int64 of shape (1, n). It
    returns one row, float32 of shape (1, width), and may also return `STATES`. Its metadata states its `format`, its
    `name`, which is its identity, and its `max_length` in word pieces. Every method raises `ConfigError` if a file is
    missing or damaged, has another format, or does not fit the tokenizer.

    Args:
        file: The model file.
        tokenizer_file: The file of the tokenizer.
        format: The format that the model file must state.
    """

    __slots__ = ("_file", "_format", "_tokenizer_file")

    def __init__(self, file: Path, tokenizer_file: Path, *, format: str) -> None:
        self._file, self._tokenizer_file = file.absolute(), tokenizer_file.absolute()
        self._format = format

    def __repr__(self) -> str:
        return f"OnnxModel({str(self._file)!r}, format={self._format!r})"

    @property
    def name(self) -> str:
        """The identity that the file states. Models with the same name return the same rows."""
        return self._graph().name

    @property
    def width(self) -> int:
        """The length of each row."""
        return self._graph().width

    def encode(self, texts: Sequence[str]) -> Rows:
        """Return a row for each text, shape (n_texts, width). A text without a known word piece has a row of zeros.

        A text that is too long is truncated.
        """
        graph = self._graph()
        rows = np.zeros((len(texts), graph.width), dtype=np.float32)
        for start in range(0, len(texts), _BLOCK):
            block = texts[start : start + _BLOCK]
            rows[start : start + _BLOCK] = _parallel(graph.text_row, graph.word_pieces(block))
        return rows

    def encode_pairs(self, pairs: Sequence[tuple[str, str]]) -> Rows:
        """Return a row for each pair of texts, shape (n_pairs, width).

        If a pair is too long, the second text is truncated. The first text is truncated only if it takes more than half
        the room.
        """
        graph = self._graph()
        rows = np.zeros((len(pairs), graph.width), dtype=np.float32)
        for start in range(0, len(pairs), _BLOCK):
            first, second = zip(*pairs[start : start + _BLOCK], strict=True)
            pieces = graph.word_pieces(first), graph.word_pieces(second)
            rows[start : start + _BLOCK] = _parallel(graph.pair_row, *pieces)
        return rows

    def encode_pieces(self, texts: Sequence[str], longest: int | None = None) -> list[Rows]:
        """Return the states of each text's word pieces, shape (n_pieces + 2, width).

        The first and the last state are those of the frame. A text is truncated after `longest` pieces, and where it is
        too long for the model. If the model has no output `STATES`, raise `ConfigError`.
        """
        graph = self._graph()
        if not graph.has_states:
            raise self._error(f"the model file {self._file} has no output {STATES!r}")
        return _parallel(graph.states, [pieces[:longest] for pieces in graph.word_pieces(texts)]) if texts else []

    def _graph(self) -> _Graph:
        key = (self._file, self._tokenizer_file, self._format)
        with _GRAPHS.lock:
            if (graph := _GRAPHS.get(key)) is None:
                graph = _GRAPHS[key] = self._open()
            return graph

    def _open(self) -> _Graph:
        try:
            tokenizer = Tokenizer.from_str(self._tokenizer_file.read_text(encoding="utf-8"))
        except Exception as error:  # `tokenizers` raises bare exceptions on a damaged file
            raise self._error(f"the tokenizer {self._tokenizer_file} cannot be read ({_quoted(error)})") from error
        # A text may contain "[SEP]", which must not end a segment.
        tokenizer.encode_special_tokens = True
        session = self._session()
        metadata = session.get_modelmeta().custom_metadata_map
        if (stated := metadata.get(FORMAT)) != self._format:
            stated = f"has the format {stated!r}" if stated else "states no format"
            raise self._error(f"the model file {self._file} {stated}, but this version reads {self._format!r}")
        inputs = tuple(column.name for column in session.get_inputs())
        if _INPUTS[0] not in inputs or not set(inputs) <= set(_INPUTS):
            raise self._error(
                f"the model file {self._file} has the inputs {', '.join(inputs)}, but it must have {_INPUTS[0]} and "
                f"may only have {' and '.join(_INPUTS[1:])} besides"
            )
        return self._tried(session, tokenizer, inputs, metadata)

    def _session(self) -> Any:
        disable_onnxruntime_telemetry()
        from onnxruntime import InferenceSession, SessionOptions

        options = SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        # Otherwise a memory pattern is kept for each length of text.
        options.enable_mem_pattern = False
        options.log_severity_level = 4
        try:
            return InferenceSession(
                self._file.read_bytes(),
                options,
                providers=["CPUExecutionProvider"],
                # The fused sum and normalization takes six times as long as both one after the other.
                disabled_optimizers=["SkipLayerNormFusion"],
            )
        except OSError as error:
            raise self._error(f"the model file {self._file} cannot be read ({reason_of(error)})") from error
        except Exception as error:  # onnxruntime's exceptions have no common class
            raise self._error(
                f"the model file {self._file} is damaged, or was not written for this version of onnxruntime "
                f"({_quoted(error)})"
            ) from error

    def _tried(self, session: Any, tokenizer: Tokenizer, inputs: tuple[str, ...], metadata: dict[str, str]) -> _Graph:
        """Return the graph after a test run with the last piece of the vocabulary."""
        try:
            graph = _Graph(metadata[NAME], int(metadata[MAX_LENGTH]), inputs, session, tokenizer)
            row = graph.row([tokenizer.get_vocab_size() - 1])
            fits = row.shape == (graph.width,) and np.isfinite(row).all()
        except Exception as error:  # onnxruntime's exceptions have no common class
            raise self._error(f"the model file {self._file} does not fit its tokenizer ({_quoted(error)})") from error
        if not fits:
            raise self._error(f"the model file {self._file} does not return one row of finite numbers for a text")
        return graph

    def _error(self, message: str) -> ConfigError:
        return ConfigError(f"{message}. Reinstall context-agent.")


@dataclass(frozen=True, slots=True)
class _Graph:
    """An open model."""

    name: str
    max_length: int
    inputs: tuple[str, ...]
    session: Any
    tokenizer: Tokenizer

    @property
    def width(self) -> int:
        """The length of each row."""
        return int(self.session.get_outputs()[0].shape[-1])

    @property
    def has_states(self) -> bool:
        """True if the model returns the states of word pieces."""
        return any(output.name == STATES for output in self.session.get_outputs())

    def word_pieces(self, texts: Iterable[str]) -> list[list[int]]:
        """Return the ids of each text's word pieces."""
        longest = _CHARACTERS * self.max_length
        encodings = self.tokenizer.encode_batch_fast(
            [well_formed(text.lstrip()[:longest]) for text in texts], add_special_tokens=False
        )
        return [encoding.ids for encoding in encodings]

    def text_row(self, pieces: Sequence[int]) -> Rows:
        """Return the row of a text, shape (width,)."""
        unknown = self.tokenizer.token_to_id("[UNK]")
        if all(piece == unknown for piece in pieces):
            return np.zeros(self.width, dtype=np.float32)
        return self.row(pieces[: self.max_length - 2])

    def states(self, pieces: Sequence[int]) -> Rows:
        """Return the states of a text's pieces and of its frame, shape (n_pieces + 2, width)."""
        return self._run(STATES, pieces[: self.max_length - 2])

    def pair_row(self, first: Sequence[int], second: Sequence[int]) -> Rows:
        """Return the row of a pair of texts, shape (width,)."""
        room = self.max_length - 3
        first = first[: max(room - len(second), room // 2)]
        return self.row(first, second[: room - len(first)])

    def row(self, first: Sequence[int], second: Sequence[int] | None = None) -> Rows:
        """Return the row for the pieces of one text or two, shape (width,).

        The pieces are framed as BERT expects them.
        """
        return self._run(self.session.get_outputs()[0].name, first, second)

    def _run(self, output: str, first: Sequence[int], second: Sequence[int] | None = None) -> Rows:
        """Return one output for the framed pieces of one text or two, without the dimension of the batch."""
        start, end = (self.tokenizer.token_to_id(mark) for mark in ("[CLS]", "[SEP]"))
        ids = [start, *first, end]
        types = [0] * len(ids)
        if second is not None:
            ids += [*second, end]
            types += [1] * (len(second) + 1)
        columns = dict(zip(_INPUTS, (ids, [1] * len(ids), types), strict=True))
        feed = {name: np.array([columns[name]], dtype=np.int64) for name in self.inputs}
        return np.asarray(self.session.run([output], feed)[0][0], dtype=np.float32)


class _OpenGraphs(dict[tuple[Path, Path, str], _Graph]):
    """The graphs that this process has opened, and the lock for opening one."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


_GRAPHS = _OpenGraphs()


def _parallel(row: Callable[..., Rows], *columns: Sequence[Sequence[int]]) -> list[Rows]:
    """Return the row of each item, in order. A single item is computed in this thread.

    The longest items come first. So the threads end at almost the same time.
    """
    if len(columns[0]) == 1:
        return [row(*(column[0] for column in columns))]
    sizes = [sum(map(len, item)) for item in zip(*columns, strict=True)]
    order = sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True)
    rows = _workers().map(row, *([column[place] for place in order] for column in columns))
    by_place: dict[int, Rows] = {}
    for place, computed in zip(order, rows, strict=True):
        check_cancelled()
        by_place[place] = computed
    return [by_place[place] for place in range(len(order))]


_MOST_DIGITS = 6
"""A number of cores with more digits limits nothing. Python refuses to read numbers of more than 4,300 digits."""


@cache
def _workers() -> ThreadPool:
    return ThreadPool(_cores(), name="onnx")


def _cores() -> int:
    """Return the number of cores that this process may use, at most `OMP_NUM_THREADS`."""
    available = available_cores()
    limit = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    if not limit.isdecimal() or len(limit) > _MOST_DIGITS:
        return available
    return min(available, int(limit) or available)


def _after_fork() -> None:
    """Replace a lock that another thread may have held during the fork."""
    _GRAPHS.lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def _quoted(error: Exception) -> str:
    """Return the first line of another library's error, shortened."""
    return str(error).partition("\n")[0][:_LONGEST_QUOTE]
