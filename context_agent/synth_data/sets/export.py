"""Exports of a task set: parquet files, a `datasets` folder, or an upload to the hub.

Exported columns have fixed types, even if a list is empty in every row. `labels` differ from set to set, so they are a
column of JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from reprlib import repr as brief
from typing import TYPE_CHECKING, Any, Literal

from context_agent._support.atomic_files import replacing_folder
from context_agent.errors import ConfigError, DataError, MissingExtraError
from context_agent.synth_data.task import Task

if TYPE_CHECKING:
    from datasets import DatasetDict, Features


ExportFormat = Literal["parquet", "datasets"]


def export_splits(splits: Mapping[str, Sequence[Task]], out: Path, to: ExportFormat) -> list[Path]:
    """Write `<out>/<split>.parquet` for each split, or `out` for `datasets.load_from_disk`, and return the files.

    The folder is written completely or not at all.

    Args:
        splits: The tasks by split.
        out: The folder to write.
        to: The format.

    Raises:
        ConfigError: If the folder is not empty. An old split could otherwise stay in it.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} exists and is not empty. Use another folder.")
    tables = dataset(splits)
    with replacing_folder(out) as partial:
        files = _write_parquet(tables, partial) if to == "parquet" else _write_datasets(tables, partial)
    return [out / path.relative_to(partial) for path in files]


def _write_parquet(tables: DatasetDict, folder: Path) -> list[Path]:
    for name, part in tables.items():
        part.to_parquet(str(folder / f"{name}.parquet"))
    return [folder / f"{name}.parquet" for name in tables]


def _write_datasets(tables: DatasetDict, folder: Path) -> list[Path]:
    tables.save_to_disk(str(folder))
    return sorted(path for path in folder.rglob("*") if path.is_file())


def dataset(splits: Mapping[str, Sequence[Task]]) -> DatasetDict:
    """Return the splits as a dataset in memory.

    Raises:
        ConfigError: If UTF-8 cannot encode a text.
    """
    datasets = _datasets()
    columns = features()
    try:
        return datasets.DatasetDict(
            {
                name: datasets.Dataset.from_list(
                    [table_row(task) for task in tasks], features=columns, split=datasets.NamedSplit(name)
                )
                for name, tasks in splits.items()
            }
        )
    except UnicodeEncodeError as error:
        raise ConfigError(f"a text cannot be encoded as UTF-8 ({error}). Remove its lone surrogates.") from error


def features() -> Features:
    """Return the columns of the table of tasks, with their types."""
    datasets = _datasets()
    text, number = datasets.Value("string"), datasets.Value("int64")
    texts = datasets.List(text)
    support = {
        "id": text,
        "chunks": texts,
        "clue_quotes": texts,
        "item_quotes": texts,
        "contains_truth": datasets.Value("bool"),
        "truth_quotes": texts,
    }
    columns = {"id": text, "question": text, "answer": text, "gold": texts, "type": text, "hops": number}
    columns |= {"facts": datasets.List(texts), "level": number, "clues": text, "truth_type": text}
    columns |= {"supporting": datasets.List(support), "distractors": texts, "bridge": text, "domain": text}
    columns |= {"origin": text, "split": text, "labels": text}
    return datasets.Features(columns)


def table_row(task: Task) -> dict[str, Any]:
    """Return the task as a row of the table."""
    return {**task.to_json(), "labels": json.dumps(task.labels, sort_keys=True)}


def check_hub_name(name: str) -> None:
    """Check the name of a set on the hub, without asking the hub.

    Raises:
        ConfigError: If the hub has no such names.
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(name)
    except HFValidationError:
        raise ConfigError(f"the name of a set on the hub must have the form owner/set; got {brief(name)}") from None


def push_splits(
    splits: Mapping[str, Sequence[Task]], name: str, *, public: bool = False, card: Path | None = None
) -> str:
    """Upload the splits to the hub, and return the address.

    The function uses the token that `hf auth login` stored, or the token in HF_TOKEN.

    Args:
        splits: The tasks by split.
        name: The name of the set on the hub, as `owner/set`.
        public: True if everyone can see the set.
        card: The data card to upload.

    Raises:
        ConfigError: If the hub refuses the name or the token.
        DataError: If the hub cannot be reached.
    """
    check_hub_name(name)
    tables = dataset(splits)
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError

    hint = "Log in with `hf auth login`, or set HF_TOKEN to a token that may write."
    try:
        tables.push_to_hub(name, private=not public)
        if card is not None:
            _push_card(name, card)
    except LocalTokenNotFoundError as error:
        raise ConfigError(f"there is no token for the hub. {hint}") from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        advice = f". {hint}" if status in {401, 403} else ""
        raise ConfigError(f"the hub refused {name} (HTTP {status}){advice}") from error
    except Exception as error:
        # The client's connection errors. The library that defines them differs between versions of the client.
        raise DataError(
            f"{name} was not uploaded to the hub ({_first_line(error)}). Check the network, and try again."
        ) from error
    return f"{HfApi().endpoint}/datasets/{name}"


def disable_progress_bars() -> None:
    """Disable the progress bars of `datasets` in this process."""
    _datasets().disable_progress_bars()


def _push_card(name: str, card: Path) -> None:
    """Upload the card's text below the front matter that the hub has.

    The card's own front matter names the files of the local folder, so only its license is taken.
    """
    from huggingface_hub import DatasetCard

    local = DatasetCard(card.read_text(encoding="utf-8"))
    pushed = DatasetCard.load(name)
    pushed.text = local.text
    for key in ("license", "license_name"):
        if (value := getattr(local.data, key, None)) is not None:
            setattr(pushed.data, key, value)
    pushed.push_to_hub(name, repo_type="dataset")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _datasets() -> Any:
    try:
        import datasets
    except ImportError as error:
        raise MissingExtraError("datasets", "datasets") from error
    return datasets
