"""Build the static embedding that ships with the package, from its teacher and nothing else.

    python scripts/build_static_embedding.py --teacher FOLDER [--output FOLDER] [--cache FILE]

The teacher is all-MiniLM-L6-v2 (sentence-transformers, Apache-2.0). Its folder has config.json, model.safetensors,
vocab.txt and tokenizer.json. The program reads no text. The teacher embeds pseudo-sentences, which are drawn from its
own vocabulary: function words, words near a topic, random words, and word pieces that continue them. A regression on
its sentence vectors gives a vector for each token. These vectors are whitened, scaled to length 1, and weighted by the
token's rank in the vocabulary, which is sorted by frequency. `context_agent/retrieval/embedders/weights/README.md`
gives the reasons.

The program needs torch, transformers and scipy. It takes ten minutes on one core, nearly all for the pseudo-sentences,
which `--cache` keeps. The result is deterministic on one machine. On another one, the last bit of a value may be
rounded differently.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from safetensors.numpy import save
from tokenizers import Tokenizer

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.integer[Any]]

ROOT = Path(__file__).resolve().parent.parent
WEIGHTS = ROOT / "context_agent" / "retrieval" / "embedders" / "weights"
CLS, SEP = 101, 102
FIRST_CHARACTER, FIRST_WORD = 999, 1996
"""The ids in the vocabulary of BERT uncased where single characters start, and where words start, the most frequent
first.
"""
PUNCTUATION = ". , - ' ( ) \" ?".split()
FUNCTION_WORDS, NEIGHBORS, BATCH = 150, 60, 64
RIDGE, STEPS = 0.05, 14
RANK_POWER, CHARACTER_WEIGHT = 1.75, 0.35


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Word pieces in the order of their ids."""

    pieces: tuple[str, ...]

    def flags(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which pieces continue a word, and which are plain ASCII, each of shape (vocabulary,)."""
        continues = np.array([piece.startswith("##") for piece in self.pieces])
        return continues, np.array([piece.isascii() for piece in self.pieces])


class Sampler:
    """Draws pseudo-sentences: 30% function words, 7% punctuation, 3% rare characters, the rest content words."""

    def __init__(self, vocabulary: Vocabulary, rng: np.random.Generator) -> None:
        continues, plain = vocabulary.flags()
        ids = np.arange(len(vocabulary.pieces))
        self.words = ids[(ids >= FIRST_WORD) & ~continues & plain]
        self._rng = rng
        self._continuations = ids[continues & plain]
        self._odd = ids[(ids >= FIRST_CHARACTER) & ((ids < FIRST_WORD) | ~plain)]
        self._punctuation = [vocabulary.pieces.index(mark) for mark in PUNCTUATION]
        self._function_words = self.words[:FUNCTION_WORDS]
        zipf = 1 / np.arange(2, FUNCTION_WORDS + 2)
        self._zipf = zipf / zipf.sum()

    def sentence(self, length: int, topic: Ints) -> list[int]:
        """Return the token ids of one sentence. `topic` contains the words near its subject."""
        tokens: list[int] = []
        while len(tokens) < length:
            tokens.extend(self._next(topic))
        return tokens[:length]

    def _next(self, topic: Ints) -> list[int]:
        rng = self._rng
        draw = rng.random()
        if draw < 0.30:
            return [int(rng.choice(self._function_words, p=self._zipf))]
        if draw < 0.37:
            return [self._punctuation[rng.integers(len(self._punctuation))]]
        if draw < 0.40:
            return [int(self._odd[rng.integers(len(self._odd))])]
        pool = topic if rng.random() < 0.35 else self.words
        word = [int(pool[rng.integers(len(pool))])]
        # Rare names reach the model as a word piece and its continuations; so must some of these.
        while rng.random() < 0.25:
            word.append(int(self._continuations[rng.integers(len(self._continuations))]))
        return word


def teacher_of(folder: Path, threads: int) -> Any:
    """Return the teacher's transformer, in evaluation mode."""
    import torch
    from transformers import BertModel

    torch.set_num_threads(threads)
    return BertModel.from_pretrained(folder).eval()


def outputs(teacher: Any, ids: Ints) -> Floats:
    """Return the teacher's mean-pooled sentence vectors, shape (n, 384). All rows of ids have the same length."""
    import torch

    with torch.inference_mode():
        rows = torch.tensor(ids)
        hidden = teacher(input_ids=rows, attention_mask=torch.ones_like(rows)).last_hidden_state
        pooled: Floats = hidden.mean(1).numpy()
    return pooled


def single_tokens(teacher: Any, size: int) -> Floats:
    """Return the vector of each token as a sentence of its own, centered and scaled to length 1, shape (vocabulary,
    384).
    """
    parts = []
    for start in range(0, size, 512):
        ids = np.arange(start, min(size, start + 512))
        parts.append(outputs(teacher, np.stack([np.full_like(ids, CLS), ids, np.full_like(ids, SEP)], axis=1)))
    return unit(centered(np.concatenate(parts)))


def pseudo_sentences(teacher: Any, vocabulary: Vocabulary, count: int, seed: int) -> tuple[sp.csr_matrix, Floats]:
    """Return bags of tokens that sum to 1, shape (n, vocabulary), and the teacher's vectors of them, shape (n, 384)."""
    rng = np.random.default_rng(seed)
    sampler = Sampler(vocabulary, rng)
    single = single_tokens(teacher, len(vocabulary.pieces))
    words = sampler.words
    rows: list[Ints] = []
    vectors: list[Floats] = []
    for batch in range(count // BATCH):
        length = int(rng.integers(8, 33))
        subjects = words[rng.integers(len(words), size=BATCH)]
        neighbors = np.argpartition(-(single[subjects] @ single[words].T), NEIGHBORS, axis=1)[:, :NEIGHBORS]
        # Sorted: argpartition's order depends on the last bit of a product, and the draw depends on the order.
        neighbors.sort(axis=1)
        ids = np.array([[CLS, *sampler.sentence(length, words[neighbors[i]]), SEP] for i in range(BATCH)])
        vectors.append(outputs(teacher, ids).astype(np.float16))
        rows.extend(ids)
        if batch % 100 == 0:
            print(f"{batch * BATCH} of {count} pseudo-sentences", file=sys.stderr)
    return bags(rows, len(vocabulary.pieces)), np.concatenate(vectors)


def bags(rows: list[Ints], size: int) -> sp.csr_matrix:
    """Return rows of token ids as bags that sum to 1, shape (n, size)."""
    lengths = np.array([len(row) for row in rows])
    starts = np.concatenate([[0], np.cumsum(lengths)])
    values = np.repeat(1 / lengths, lengths).astype(np.float32)
    matrix = sp.csr_matrix((values, np.concatenate(rows), starts), shape=(len(rows), size))
    matrix.sum_duplicates()
    return matrix


def ridge(bag: sp.csr_matrix, targets: Floats) -> Floats:
    """Return the token vectors W that minimize |bag W - targets|^2 + RIDGE |W|^2.

    They are computed by conjugate gradients, for all columns at once.
    """
    transposed = bag.T.tocsr()
    residual = transposed @ targets
    solution = np.zeros_like(residual)
    direction = residual.copy()
    size = (residual**2).sum(0)
    for _ in range(STEPS):
        image = transposed @ (bag @ direction) + RIDGE * direction
        step = size / np.maximum((direction * image).sum(0), 1e-12)
        solution += step * direction
        residual -= step * image
        next_size = (residual**2).sum(0)
        direction = residual + next_size / np.maximum(size, 1e-12) * direction
        size = next_size
    return solution


def centered(rows: Floats) -> Floats:
    """Return the rows minus their mean."""
    return rows - rows.mean(0)


def unit(rows: Floats) -> Floats:
    """Return the rows scaled to length 1."""
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)


def whitened(rows: Floats, dimension: int) -> Floats:
    """Return the first principal components, each scaled to variance 1, shape (vocabulary, dimension).

    The teacher's last layer norm leaves its 384 values 383 degrees of freedom. So the last component is only rounding
    error, and `dimension` must be below 384.
    """
    rows = centered(rows)
    values, axes = np.linalg.eigh((rows.T @ rows / len(rows)).astype(np.float64))
    order = np.argsort(-values)[:dimension]
    axes = axes[:, order]
    # An eigenvector's sign is arbitrary: fixed, so that every machine builds the same.
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    return np.asarray(rows @ axes / np.sqrt(values[order]), dtype=np.float32)


def token_weights(vocabulary: Vocabulary) -> Floats:
    """Return the weight of each token, shape (vocabulary, 1): (log rank)^p for words, a constant for characters.

    Punctuation has the weight 0.
    """
    ids = np.arange(len(vocabulary.pieces))
    rank = np.maximum(ids - FIRST_WORD + 1, 1)
    weights = (np.log(rank + 1) / np.log(30_001)) ** RANK_POWER
    weights[ids < FIRST_WORD] = CHARACTER_WEIGHT
    weights[ids < FIRST_CHARACTER] = 0
    marks = [len(piece) == 1 and piece.isascii() and not piece.isalnum() for piece in vocabulary.pieces]
    weights[np.array(marks)] = 0
    return np.asarray(weights[:, None], dtype=np.float32)


def quantized(vectors: Floats) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return 8-bit integers and a scale for each row.

    Together they need a quarter of the space, and no retrieval figure changes.
    """
    scales = np.abs(vectors).max(axis=1) / 127
    divisors = np.where(scales > 0, scales, 1)
    return np.round(vectors / divisors[:, None]).astype(np.int8), scales.astype(np.float32)


def write(folder: Path, vectors: Floats, tokenizer: Tokenizer) -> str:
    """Write the two files, and return the embedding's name, which ends with a digest of both."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    text = tokenizer.to_str()
    values, scales = quantized(vectors)
    digest = hashlib.sha256(values.tobytes() + scales.tobytes() + text.encode()).hexdigest()
    name = f"static-minilm-{vectors.shape[1]}@{digest[:8]}"
    metadata = {"name": name, "teacher": "all-MiniLM-L6-v2", "license": "Apache-2.0"}
    folder.mkdir(parents=True, exist_ok=True)
    # Written as bytes: the library's own writer makes a file that only its owner may read.
    content = save({"values": values, "scales": scales}, metadata)
    (folder / "static-minilm.safetensors").write_bytes(content)
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    return name


def load_or_sample(arguments: argparse.Namespace, vocabulary: Vocabulary) -> tuple[sp.csr_matrix, Floats]:
    """Return the pseudo-sentences from the cache. If there is no cache file, draw them, and write the file if one is
    named.
    """
    cache: Path | None = arguments.cache
    if cache is not None and cache.exists():
        with np.load(cache) as archive:
            bag = sp.csr_matrix((archive["data"], archive["indices"], archive["indptr"]), shape=tuple(archive["shape"]))
            return bag, archive["vectors"]
    teacher = teacher_of(arguments.teacher, arguments.threads)
    bag, vectors = pseudo_sentences(teacher, vocabulary, arguments.sentences, arguments.seed)
    if cache is not None:
        parts = {"data": bag.data, "indices": bag.indices, "indptr": bag.indptr, "shape": bag.shape}
        np.savez(cache, vectors=vectors, **parts)
    return bag, vectors


def parsed(argv: list[str] | None) -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--teacher", type=Path, required=True, help="folder of all-MiniLM-L6-v2")
    parser.add_argument("--output", type=Path, default=WEIGHTS, help="folder to write to")
    parser.add_argument("--cache", type=Path, help="where to keep the pseudo-sentences between runs (.npz)")
    parser.add_argument("--sentences", type=int, default=40_000, help="how many, cut to whole batches of 64")
    parser.add_argument("--dimension", type=int, default=380)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Build the embedding and write it."""
    arguments = parsed(argv)
    pieces = (arguments.teacher / "vocab.txt").read_text(encoding="utf-8").split("\n")
    vocabulary = Vocabulary(tuple(pieces[:-1]))
    bag, vectors = load_or_sample(arguments, vocabulary)
    tokens = ridge(bag, centered(unit(vectors.astype(np.float32))))
    table = unit(whitened(tokens, arguments.dimension)) * token_weights(vocabulary)
    tokenizer = Tokenizer.from_file(str(arguments.teacher / "tokenizer.json"))
    print(write(arguments.output, table, tokenizer))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
