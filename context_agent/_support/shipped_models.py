"""The transformers that ship with the package: the cross-encoder that reads passages, and all-MiniLM-L6-v2.

The shipped models are stored in the folders of the code that they were trained for. Independent layers run them: the
embedder, the embedded policy, and the pruning of conversations.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from context_agent._support.onnx import OnnxModel

_PACKAGE = Path(__file__).parents[1]
TOKENIZER_FILE = _PACKAGE / "retrieval" / "embedders" / "weights" / "tokenizer.json"
"""The vocabulary of all-MiniLM-L6-v2. The static embedding reads the same file."""
MINILM_FILE = TOKENIZER_FILE.with_name("minilm-int8.onnx")
MINILM_FORMAT = "sentence-embedding-1"
READER_FILE = _PACKAGE / "policies" / "bridge" / "reader-int8.onnx"
READER_FORMAT = "ctx1-reader-1"
"""The format of the reader. A row is the log-odds, followed by the pooled vector that they are computed from."""


@cache
def shipped_reader() -> OnnxModel:
    """Return the cross-encoder that judges how likely a passage is evidence for a question."""
    return OnnxModel(READER_FILE, TOKENIZER_FILE, format=READER_FORMAT)


@cache
def shipped_minilm() -> OnnxModel:
    """Return all-MiniLM-L6-v2, which turns each text into a vector."""
    return OnnxModel(MINILM_FILE, TOKENIZER_FILE, format=MINILM_FORMAT)
