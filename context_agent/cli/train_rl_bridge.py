"""`ctx1 train rl --policy bridge`: the embedded policy by the same rewards as a language model. numpy alone, no GPU."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from context_agent.cli import console, options
from context_agent.cli.train_bridge import material, open_sources

if TYPE_CHECKING:
    from collections.abc import Mapping

    from context_agent.train.bridge_rl.settings import BridgeRl
    from context_agent.train.bridge_rl.training import Trained

DECISIONS = ("follow", "keep", "rank")
MOST = {"steps": 40, "groups": 48, "rollouts": 8, "window": 4096}


@click.command("rl")
@material
@click.option("--policy", type=click.Choice(["bridge"]), required=True, help="What is trained: the embedded policy.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE.safetensors",
    help="Where the weights go; search with them by --weights. Metrics go beside it, as FILE.metrics.jsonl.",
)
@click.option(
    "--weights",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Weights to start from.  [default: those that ship]",
)
@click.option("--steps", type=click.IntRange(1), default=MOST["steps"], show_default=True, help="Steps at most.")
@click.option("--groups", type=click.IntRange(1), default=MOST["groups"], show_default=True, help="Questions a step.")
@click.option("--rollouts", type=click.IntRange(2), default=MOST["rollouts"], show_default=True, help="Episodes each.")
@click.option("--window", type=int, default=MOST["window"], show_default=True, help="Tokens of an episode's window.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), default=3e-4, show_default=True, help="Learning rate.")
@click.option(
    "--temperature",
    type=click.FloatRange(0, min_open=True),
    default=0.5,
    show_default=True,
    help="How far from its best guess the policy explores.",
)
@click.option(
    "--decision",
    "decisions",
    type=click.Choice(DECISIONS),
    multiple=True,
    help="Decision that is trained; may be repeated.  [default: all]",
)
@click.option("--held-out", type=click.IntRange(0, 4), default=0, show_default=True, help="Fifth that measures.")
@click.option("--resume", is_flag=True, help="Go on from FILE.state, which every step leaves beside the weights.")
@options.common
def bridge(
    *,
    pairs: tuple[str, ...],
    policy: str,
    out: Path,
    weights: Path | None,
    resume: bool,
    embedder: str,
    collection: str,
    as_json: bool,
    **chosen: Any,
) -> int:
    """Train the embedded policy by what its episodes find: which names it follows, what it keeps, how it ranks.

    A CORPUS is an index that `ctx1 index` made, or documents as it reads them; QUESTIONS.jsonl holds a
    {"id", "question", "gold": [document ids]} a line, at least twenty. Several pairs may follow each other and count
    alike. A fifth of the questions is never trained on; the weights that do best on it are written.
    """
    from context_agent.policies.bridge import Scorer
    from context_agent.train.bridge_rl.remembering import Remembering

    start = None if weights is None else Scorer.load(weights)
    settings = _settings(**chosen)
    state = out.with_name(out.name + ".state")
    if not resume:
        state.unlink(missing_ok=True)
    with ExitStack() as stack:
        sources = open_sources(pairs, embedder, collection, stack, wrap=Remembering)
        trained = _train(sources, settings, start=start, log=out.with_name(out.name + ".metrics.jsonl"), state=state)
    trained.scorer.save(out, trained.notes())
    state.unlink(missing_ok=True)
    if as_json:
        console.print_json(_to_json(trained, out))
    else:
        _show(trained, out)
    return 0


def _settings(*, decisions: tuple[str, ...], **chosen: Any) -> BridgeRl:
    from context_agent.policies.bridge.exploring import Kind
    from context_agent.train.bridge_rl.settings import BridgeRl

    return BridgeRl(decisions=tuple(map(Kind, decisions)) or tuple(Kind), **chosen)


def _train(sources: Any, settings: BridgeRl, **how: Any) -> Trained:
    from context_agent.train.bridge_rl.training import train

    with console.progress("Training", "steps") as advance:

        def report(step: int, metrics: Mapping[str, float]) -> None:
            advance(step + 1, settings.steps)
            if "held_out_recall" in metrics:
                found = f"recall@{settings.cutoff} on questions held out {metrics['held_out_recall']:.3f}"
                console.note(f"ctx1 train rl: step {step + 1}: reward {metrics['reward']:.3f}, {found}")

        return train(sources, settings, report=report, **how)


def _show(trained: Trained, out: Path) -> None:
    from context_agent.eval.statistics import Figure

    for name, recalls in trained.best.items():
        start, best = Figure.of(list(trained.start[name])), Figure.of(list(recalls))
        click.echo(console.printable(f"{name}: recall on questions held out {best}, at the start {start}"))
    click.echo(f"gain {trained.gain}, by the questions that chose the weights; {_made(trained)}")
    click.echo(f"weights {trained.scorer.digest} written to {out}")


def _made(trained: Trained) -> str:
    if not trained.best_step:
        return f"none of {trained.steps} steps beat the start, whose weights these are"
    return f"the weights are those of step {trained.best_step} of {trained.steps}"


def _to_json(trained: Trained, out: Path) -> dict[str, Any]:
    from context_agent.eval.statistics import Figure

    return {
        "weights": str(out),
        "digest": trained.scorer.digest,
        "steps": trained.steps,
        "best_step": trained.best_step,
        "start": {name: asdict(Figure.of(list(values))) for name, values in trained.start.items()},
        "best": {name: asdict(Figure.of(list(values))) for name, values in trained.best.items()},
        "gain": asdict(trained.gain),
    }
