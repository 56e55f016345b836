"""The transformers that ship with the package: where their files are, and how they are opened.

They lie beside the code that they were trained for. Layers that know nothing of each other run them: the embedder and
the embedded policy, and the pruning of conversations.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from context_agent._support.onnx import OnnxModel

_PACKAGE = Path(__file__).parents[1]
TOKENIZER_FILE = _PACKAGE / "retrieval" / "embedders" / "weights" / "tokenizer.json"
"""The vocabulary of all-MiniLM-L6-v2; the static embedding reads the same file."""
MINILM_FILE = TOKENIZER_FILE.with_name("minilm-int8.onnx")
MINILM_FORMAT = "sentence-embedding-1"
READER_FILE = _PACKAGE / "policies" / "bridge" / "reader-int8.onnx"
READER_FORMAT = "ctx1-reader-1"
"""A row is the log-odds and then the pooled vector that they are computed from."""


@cache
def shipped_reader() -> OnnxModel:
    """The cross-encoder: how likely a passage belongs to the evidence for a question."""
    return OnnxModel(READER_FILE, TOKENIZER_FILE, format=READER_FORMAT)


@cache
def shipped_minilm() -> OnnxModel:
    """all-MiniLM-L6-v2: a vector for each text."""
    return OnnxModel(MINILM_FILE, TOKENIZER_FILE, format=MINILM_FORMAT)
