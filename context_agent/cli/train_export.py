"""The commands `ctx1 train merge` and `ctx1 train export`, which prepare trained models for other programs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from context_agent.cli import output
from context_agent.cli.parameters import EXISTING_FOLDER, OUTPUT_FOLDER, CommonOptions

if TYPE_CHECKING:
    from context_agent.train.export import ExportedModel

MEGABYTE = 1e6

Source = Annotated[
    Path,
    EXISTING_FOLDER,
    Parameter(
        help="Folder of a `ctx1 train sft` or `ctx1 train rl` run, or of one model in it. Of a run, the command takes "
        "the best model."
    ),
]
Out = Annotated[Path, OUTPUT_FOLDER, Parameter(help="New folder for the model.")]


def merge(
    run: Source,
    /,
    *,
    out: Out,
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"] | None, Parameter(show_default="the base model's")
    ] = None,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Merge trained adapters into the weights of their base model.

    The new folder has weights, tokenizer and chat template, so that any server of transformers models can load it.
    The command needs the extra train.

    Args:
        dtype: Type of the merged weights.
    """
    from context_agent.train import export

    return _report(export.merge(run, out, dtype=dtype), as_json=common.json)


def export(run: Source, /, *, out: Out, common: CommonOptions = CommonOptions()) -> int:
    """Export a trained model to a folder that model servers can load.

    Adapters stay adapters, and name their base model. The new folder also has the tokenizer and the chat template.
    The command needs the extra train.
    """
    from context_agent.train import export

    return _report(export.export(run, out), as_json=common.json)


def _report(exported: ExportedModel, *, as_json: bool) -> int:
    out = exported.folder
    if not exported.has_chat_template:
        output.note(
            "the tokenizer has no chat template, so chat servers cannot load this model. To serve it, add a chat "
            "template."
        )
    kind = f"adapters for {exported.base}" if exported.base else "whole weights"
    folder = shlex.quote(str(out))
    served = (
        f"vllm serve {shlex.quote(exported.base)} --enable-lora --lora-modules policy={folder}"
        if exported.base
        else f"transformers serve {folder}, or vllm serve {folder}"
    )
    text = (
        f"{out}: {kind} of {exported.source}, {exported.bytes / MEGABYTE:,.1f} MB\n"
        f"In this process: ctx1 search --policy tokens --model {folder}\nOn a server: {served}"
    )
    data = {"out": str(out), "source": str(exported.source), "base": exported.base, "bytes": exported.bytes}
    output.result({**data, "chat_template": exported.has_chat_template}, text, as_json=as_json)
    return 0
