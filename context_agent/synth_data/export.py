"""Tasks as parquet or as a `datasets` folder. Columns and their types are fixed, however empty the rows are.

`labels` differ from set to set and are a column of JSON text; all other columns are those of a task.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from context_agent.errors import ConfigError, DataError, MissingExtraError
from context_agent.synth_data.task import Task

if TYPE_CHECKING:
    from datasets import DatasetDict, Features

Format = Literal["parquet", "datasets"]


def export(splits: Mapping[str, Sequence[Task]], out: Path, to: Format) -> list[Path]:
    """Writes `<out>/<split>.parquet` for each split, or `out` as `datasets.load_from_disk` reads it; returns the files.

    The folder appears whole or not at all. One that holds anything is refused with `ConfigError`, so that no old split
    stays beside the new ones.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} is there already and not empty: name another folder")
    made = dataset(splits)
    partial = out.resolve().with_name(f".{out.resolve().name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    files = _write_parquet(made, partial) if to == "parquet" else _save(made, partial)
    partial.replace(out.resolve())
    return [out / path.relative_to(partial) for path in files]


def _write_parquet(made: DatasetDict, folder: Path) -> list[Path]:
    for name, part in made.items():
        part.to_parquet(str(folder / f"{name}.parquet"))
    return [folder / f"{name}.parquet" for name in made]


def _save(made: DatasetDict, folder: Path) -> list[Path]:
    made.save_to_disk(str(folder))
    return sorted(path for path in folder.rglob("*") if path.is_file())


def dataset(splits: Mapping[str, Sequence[Task]]) -> DatasetDict:
    """The splits in memory. Raises `ConfigError` for a split's name that `datasets` refuses."""
    datasets = _datasets()
    columns = features()
    try:
        return datasets.DatasetDict(
            {
                name: datasets.Dataset.from_list(
                    [row_of(task) for task in tasks], features=columns, split=datasets.NamedSplit(name)
                )
                for name, tasks in splits.items()
            }
        )
    except UnicodeEncodeError as error:
        raise ConfigError(f"a text that UTF-8 cannot hold: {error}") from error


def features() -> Features:
    """The columns of a task."""
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


def row_of(task: Task) -> dict[str, Any]:
    """The task as a row of the table."""
    return {**task.to_json(), "labels": json.dumps(task.labels, sort_keys=True)}


def push(splits: Mapping[str, Sequence[Task]], name: str, *, public: bool = False, card: Path | None = None) -> str:
    """Sends the splits to the hub as `owner/set`, private unless asked otherwise, and returns the address.

    The token is the one that `hf auth login` stored, or HF_TOKEN. Raises `ConfigError` for a name or a token that the
    hub refuses, `DataError` where it cannot be reached.
    """
    made = dataset(splits)
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError

    hint = "log in with `hf auth login`, or set HF_TOKEN to a token that may write"
    try:
        made.push_to_hub(name, private=not public)
        if card is not None:
            _push_card(name, card)
    except LocalTokenNotFoundError as error:
        raise ConfigError(f"no token for the hub: {hint}") from error
    except HFValidationError as error:
        raise ConfigError(f"{name!r} is no name for the hub: it is like owner/set") from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        advice = f": {hint}" if status in {401, 403} else ""
        raise ConfigError(f"the hub refused {name} (status {status}){advice}") from error
    except Exception as error:
        # The client's own errors of connection: which library they are of changes with its versions.
        raise DataError(f"{name} was not sent to the hub: {_first_line(error)}") from error
    return f"{HfApi().endpoint}/datasets/{name}"


def quiet() -> None:
    """Turns off the progress bars of `datasets`, for this process."""
    _datasets().disable_progress_bars()


def _push_card(name: str, card: Path) -> None:
    """Puts the card's text under the front matter that the push wrote: the one of a folder names other files."""
    from huggingface_hub import DatasetCard

    own = DatasetCard(card.read_text(encoding="utf-8"))
    pushed = DatasetCard.load(name)
    pushed.text = own.text
    for key in ("license", "license_name"):
        if (value := getattr(own.data, key, None)) is not None:
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
