"""A stranger's models, adapters, checkpoints, rows and caches: nothing is unpickled, fetched or run."""

from __future__ import annotations

import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from context_agent._support.atomic_files import replace_file
from context_agent.errors import ConfigError, CorpusCorruptError, DataError
from context_agent.eval.benchmarks.corpus_cache import CHUNKS_FILE, VECTORS_FILE, CachedCorpus
from context_agent.policies.bridge.networks import Scorer
from context_agent.policies.tokens.model_files import MAX_RANK, check_adapter, check_model
from context_agent.train.batches import StepRows
from context_agent.train.checkpoints import Checkpoints
from context_agent.train.row_files import open_folder, write_row_folder
from tests.support.bounded import bounded

ADAPTER = {
    "auto_mapping": None,
    "base_model_name_or_path": "base",
    "init_lora_weights": True,
    "layers_to_transform": [0],
    "lora_alpha": 8,
    "megatron_config": None,
    "megatron_core": "megatron.core",
    "peft_type": "LORA",
    "qalora_group_size": 16,
    "r": 4,
    "runtime_config": {"ephemeral_gpu_offload": False},
    "target_modules": ["q_proj", "model.layers.0.v_proj"],
    "task_type": "CAUSAL_LM",
}
MODEL = {"model_type": "llama", "hidden_size": 8, "num_hidden_layers": 1, "vocab_size": 16, "intermediate_size": 16}


class Bomb:
    """A pickle that leaves a trace when it is loaded."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.trace),)


def adapter(folder: Path, **changes: Any) -> Path:
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({**ADAPTER, **changes}))
    save_file({"lora_A": np.zeros((2, 2), np.float32)}, folder / "adapter_model.safetensors")
    return folder


def model(folder: Path, **changes: Any) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**MODEL, **changes}))
    save_file({f"layer.{n}": np.zeros((16, 8), np.float32) for n in range(4)}, folder / "model.safetensors")
    return folder


def test_plain_folders_pass(tmp_path: Path) -> None:
    assert check_adapter(adapter(tmp_path / "a"))["r"] == 4
    check_model(model(tmp_path / "m"))
    check_model("no/folder")


def test_what_is_no_model_is_refused_with_what_is_expected(tmp_path: Path) -> None:
    (tmp_path / "run" / "final").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"config\.json and the tokenizer are missing.* its folder final"):
        check_model(tmp_path / "run")
    (tmp_path / "run.toml").touch()
    with pytest.raises(ConfigError, match=r"is a file\. Name the folder of a model"):
        check_model(tmp_path / "run.toml")


@pytest.mark.parametrize(
    "change",
    [
        {"auto_mapping": {"base_model_class": "System", "parent_library": "os"}},
        {"megatron_config": {"a": 1}, "megatron_core": "antigravity"},
        {"megatron_core": "antigravity"},
        {"layer_replication": [[0, 1]] * 100_000},
        {"loftq_config": {"loftq_bits": 4}},
        {"corda_config": {"cache_file": "cache.pt"}},
        {"eva_config": {"rho": 2}},
        {"a_setting_of_tomorrow": "os.system"},
        {"target_modules": "(a+)+$"},
        {"target_modules": ["(a+)+$"]},
        {"target_modules": ["q_proj"] * 100_000},
        {"exclude_modules": "(a|a)*b"},
        {"layers_pattern": "(a|a)*b"},
        {"modules_to_save": "(a|a)*b"},
        {"rank_pattern": {"(a+)+$": 4}},
        {"rank_pattern": {"q_proj": 10**9}},
        {"alpha_pattern": [1]},
        {"r": 10**9},
        {"r": MAX_RANK + 1},
        {"r": True},
        {"r": float("inf")},
        {"layers_to_transform": "0"},
        {"init_lora_weights": "pissa_niter_1000000"},
        {"peft_type": "XLORA"},
        {"peft_type": ["LORA"]},
    ],
)
def test_an_adapter_whose_settings_do_more_than_describe_it_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"cannot be used|no LoRA adapter"):
        check_adapter(adapter(tmp_path / "a", **change))


@pytest.mark.parametrize("text", ["[" * 3_000_000, '{"peft_type":' * 1_000_000, "[]", "1", "nul", "", " " * 5_000_000])
def test_settings_that_are_no_small_object_are_refused(tmp_path: Path, text: str) -> None:
    (adapter(tmp_path / "a") / "adapter_config.json").write_text(text)
    with pytest.raises(ConfigError, match="no LoRA adapter"):
        check_adapter(tmp_path / "a")
    folder = model(tmp_path / "m")
    (folder / "tokenizer_config.json").write_text(text)
    if text.startswith(("[[", '{"', "nul")) or not text.strip():
        with pytest.raises(ConfigError, match="cannot be read"):
            check_model(folder)


def test_an_adapter_in_a_pickle_alone_is_refused(tmp_path: Path) -> None:
    folder = adapter(tmp_path / "a")
    (folder / "adapter_model.safetensors").unlink()
    (folder / "adapter_model.bin").write_bytes(pickle.dumps(Bomb(tmp_path / "trace")))
    with pytest.raises(ConfigError, match="pickled weights are not read"):
        check_adapter(folder)
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"auto_map": {"AutoModelForCausalLM": "modeling.Model"}}, "needs custom code"),
        ({"text_config": {"auto_map": {"AutoConfig": "a.B"}}}, "needs custom code"),
        ({"trust_remote_code": True}, "needs custom code"),
        ({"attn_implementation": "attacker/kernel"}, "kernel to download"),
        ({"_attn_implementation": {"": "attacker/kernel@main"}}, "kernel to download"),
        ({"num_hidden_layers": 10**9}, "larger model"),
        ({"hidden_size": 10**9}, "larger model"),
        ({"vocab_size": 10**12}, "larger model"),
        ({"intermediate_size": float("inf")}, "larger model"),
        ({"n_layer": 10**6}, "larger model"),
        ({"max_position_embeddings": 10**30}, "larger model"),
    ],
)
def test_a_model_that_names_code_or_sizes_that_it_does_not_have_is_refused(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        check_model(model(tmp_path / "m", **change))


def test_a_tokenizer_with_code_and_a_model_that_names_a_base_are_refused(tmp_path: Path) -> None:
    (model(tmp_path / "m") / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": ["a.B", null]}}')
    with pytest.raises(ConfigError, match="needs custom code"):
        check_model(tmp_path / "m")
    with pytest.raises(ConfigError, match="has a LoRA adapter, not a whole model"):
        check_model(adapter(tmp_path / "a", base_model_name_or_path="attacker/model"))


@pytest.mark.parametrize(
    "header",
    [struct.pack("<Q", 2**62), struct.pack("<Q", 10**9), struct.pack("<Q", 4) + b"[[[[", struct.pack("<Q", 2) + b"[]"],
)
def test_weights_with_a_forged_header_are_refused(tmp_path: Path, header: bytes) -> None:
    (model(tmp_path / "m") / "model.safetensors").write_bytes(header + b"x" * 100)
    with pytest.raises(ConfigError, match=r"model\.safetensors (cannot be read|have a damaged header)"):
        check_model(tmp_path / "m")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors", "adapter_config.json"])
def test_pipes_and_holes_among_the_files_of_a_model_are_refused(tmp_path: Path, name: str) -> None:
    for number, check in enumerate((check_model, check_adapter)):
        folder = model(tmp_path / f"m{number}")
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)
        with pytest.raises(ConfigError, match="is a pipe"):
            check(folder)
        (folder / name).unlink()
        (folder / name).touch()
        os.truncate(folder / name, 1 << 40)
        with pytest.raises(ConfigError, match="almost none"):
            check(folder)


# Weights of a reader -----------------------------------------------------------------------------------------------


def reader_weights(path: Path, tensors: Mapping[str, np.ndarray], **notes: str) -> Path:
    save_file(dict(tensors), path, metadata=notes)
    return path


def shipped_tensors() -> dict[str, np.ndarray]:
    from importlib.resources import files

    from safetensors.numpy import load

    return load((files("context_agent.policies.bridge") / "weights.safetensors").read_bytes())


def notes() -> dict[str, str]:
    from context_agent.policies.bridge.networks import FEATURES_VERSION, INPUTS

    return {"format": str(FEATURES_VERSION), "inputs": json.dumps(INPUTS)}


DAMAGES: dict[str, Callable[[dict[str, np.ndarray]], object]] = {
    "a missing scaling": lambda tensors: tensors.pop("first.mean"),
    "a missing bias": lambda tensors: tensors.pop("first.0.0.bias"),
    "no members": lambda tensors: [
        tensors.pop(name) for name in list(tensors) if name.startswith("first.") and "0" in name
    ],
    "a matrix of another shape": lambda tensors: tensors.update({"first.0.0.weight": np.zeros((3, 3), np.float32)}),
    "a matrix of no dimension": lambda tensors: tensors.update({"first.0.0.weight": np.zeros((), np.float32)}),
    "a scaling of another shape": lambda tensors: tensors.update({"first.spread": np.zeros(1, np.float32)}),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_weights_that_do_not_fit_are_refused_when_they_are_loaded(tmp_path: Path, name: str) -> None:
    tensors = shipped_tensors()
    DAMAGES[name](tensors)
    with pytest.raises(ConfigError, match="lacks weights"):
        Scorer.load(reader_weights(tmp_path / "w.safetensors", tensors, **notes()))


@pytest.mark.parametrize("change", [{"inputs": "[" * 100_000}, {"inputs": "5"}, {"inputs": "nul"}, {"format": "9"}])
def test_notes_that_are_not_those_of_weights_are_refused(tmp_path: Path, change: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        Scorer.load(reader_weights(tmp_path / "w.safetensors", shipped_tensors(), **{**notes(), **change}))


def load_scorer(path: Path) -> str:
    return Scorer.load(path).digest


def test_a_sparse_file_of_weights_takes_no_memory(tmp_path: Path) -> None:
    (tmp_path / "w").touch()
    os.truncate(tmp_path / "w", 1 << 40)
    assert isinstance(bounded(load_scorer, tmp_path / "w").require(memory=200_000_000, seconds=5).error, ConfigError)


# Folders of a run --------------------------------------------------------------------------------------------------


def checkpoint(out: Path, **changes: Any) -> Path:
    folder = out / "checkpoints" / "step-00000003"
    folder.mkdir(parents=True)
    manifest = {"form": 1, "step": 3, "kind": "sft", "files": {}, "settings": {}, **changes}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


@pytest.mark.parametrize(
    "change",
    [
        {"step": float("inf")},
        {"step": "x"},
        {"files": [1]},
        {"files": {"../../../etc/passwd": -1}},
        {"settings": 7},
        {"kind": None, "form": 9},
    ],
)
def test_a_manifest_of_a_checkpoint_with_absurd_values_is_no_checkpoint(tmp_path: Path, change: dict[str, Any]) -> None:
    checkpoint(tmp_path, **change)
    assert Checkpoints(tmp_path / "checkpoints", kind="sft", settings={}).all() == []


@pytest.mark.parametrize("damage", ["deep", "sparse", "pipe"])
def test_a_manifest_of_a_checkpoint_that_cannot_be_read_is_no_checkpoint(tmp_path: Path, damage: str) -> None:
    manifest = checkpoint(tmp_path) / "manifest.json"
    manifest.unlink()
    if damage == "pipe":
        os.mkfifo(manifest)
    else:
        manifest.write_text("[" * 1_000_000)
        os.truncate(manifest, 1 << 40 if damage == "sparse" else 1_000_000)
    assert Checkpoints(tmp_path / "checkpoints", kind="sft", settings={}).all() == []


def test_saved_rollouts_with_endless_parts_are_refused(tmp_path: Path) -> None:
    for parts in ("1e999", "1000000000000", "-1", '"a"', "[]"):
        (tmp_path / "rollouts-0.jsonl").write_text(f'{{"number": 1, "parts": {parts}}}\n')
        with pytest.raises(DataError, match="cannot read the rollouts"):
            StepRows.load(tmp_path, 0)


def test_a_link_in_a_folder_of_rows_is_not_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in ("rows.jsonl", "rows.parquet", "rows.json.partial"):
        folder = tmp_path / f"rows-{name}"
        folder.mkdir()
        (folder / name).symlink_to(victim)
        with pytest.raises(DataError, match="is a link"):
            write_row_folder([], folder, tokenizer="t")
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("text", ["[" * 1_000_000, '{"path": "x"}', "[]", '{"rows": 1e999, "unknown": 1}'])
def test_a_folder_of_rows_with_a_strange_list_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "rows.json").write_text(text)
    with pytest.raises(DataError):
        open_folder(tmp_path)


def test_a_replaced_file_is_not_written_through_a_link(tmp_path: Path) -> None:
    victim, run = tmp_path / "victim", tmp_path / "run.json"
    victim.write_text("precious")
    (tmp_path / ".run.json.partial").symlink_to(victim)
    replace_file(run, "{}")
    assert (victim.read_text(), run.read_text()) == ("precious", "{}")
    assert not run.is_symlink()


# Caches ------------------------------------------------------------------------------------------------------------


CHUNK = {"id": "a_0", "document_id": "a", "index": 0, "text": "t", "start": 0, "end": 1, "tokens": 1}


def npy(shape: str, kind: str = "<f4") -> bytes:
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()


VECTORS = {
    "a huge shape": npy("(1, 1000000000000)"),
    "another count": npy("(2, 1)") + b"\0" * 8,
    "objects": npy("(1, 1)", "|O") + b"\0" * 8,
    "long texts": npy("(1, 1)", "<U100000000") + b"\0" * 8,
    "a deep header": npy("(" * 50),
    "nothing": b"",
}


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_in_a_cache_that_a_stranger_replaced_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / CHUNKS_FILE).write_text(json.dumps(CHUNK) + "\n")
    (tmp_path / VECTORS_FILE).write_bytes(VECTORS[name])
    outcome = bounded(CachedCorpus(tmp_path, "static")).require(memory=300_000_000)
    assert isinstance(outcome.error, CorpusCorruptError)


def test_a_pickle_or_an_archive_in_place_of_vectors_is_not_loaded(tmp_path: Path) -> None:
    (tmp_path / CHUNKS_FILE).write_text(json.dumps(CHUNK) + "\n")
    (tmp_path / VECTORS_FILE).write_bytes(pickle.dumps(Bomb(tmp_path / "trace")))
    with pytest.raises(CorpusCorruptError):
        CachedCorpus(tmp_path, "static")()
    with zipfile.ZipFile(tmp_path / VECTORS_FILE, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", b"\0" * 50_000_000)
    with pytest.raises(CorpusCorruptError):
        CachedCorpus(tmp_path, "static")()
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize("line", ["[" * 1_000_000, "[]", '{"id": 1}', "nul"])
def test_chunks_in_a_cache_that_a_stranger_replaced_are_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / CHUNKS_FILE).write_text(line + "\n")
    np.save(tmp_path / VECTORS_FILE, np.zeros((1, 1), np.float32))
    with pytest.raises(CorpusCorruptError, match=r"Delete the folder\. The next run makes it again"):
        CachedCorpus(tmp_path, "static")()
