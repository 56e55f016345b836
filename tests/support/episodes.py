"""Trajectories for tests of the viewers: short, long, with sub-agents, hostile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from context_agent import Action, Budget, Document, Limits, MemoryCorpus, ScriptedPolicy, SearchAgent, ToolCall
from context_agent.swarm import Swarm
from context_agent.testing.actions import call, prune, rank, rank_all, restore, search, summarize
from context_agent.testing.documents import linked_documents
from context_agent.types import RankedId

QUESTION = "which river meets the bridges?"

HOSTILE = (
    "<script>window.pwned = 'text'</script><img src=x onerror=\"window.pwned = 'image'\"> "
    "</script></pre><!-- --><svg onload=\"window.pwned = 'svg'\"> [click](javascript:window.pwned='link') "
    "\u2028line\u2029paragraph \u202eturned\u202c \x1b[31mred\x1b[0m \x07 {{constructor}} ${window.pwned='template'}"
)


def record(
    corpus: MemoryCorpus,
    steps: Sequence[Action],
    folder: Path,
    *,
    question: str = QUESTION,
    id: str = "q",
    window: int = 4096,
    profile: str = "default",
) -> Path:
    """Play the steps and return the trajectory's file."""
    agent = SearchAgent(
        corpus,
        ScriptedPolicy(list(steps)),
        profile=profile,
        budget=Budget(window),
        limits=Limits(turns=500),
        trajectories=folder,
    )
    return agent.search(question, question_id=id).paths[0]


def edited(corpus: MemoryCorpus, folder: Path, **options: object) -> Path:
    """Five turns: search, prune the first chunk shown, search, restore it, rank."""
    first = corpus.search(QUESTION)[0].chunk.id
    steps = [
        search(QUESTION, limit=3),
        prune(first),
        search("painters and gardens", limit=2),
        restore(first),
        rank(first, "never-seen"),
    ]
    return record(corpus, steps, folder, **options)  # type: ignore[arg-type]


def summarized(corpus: MemoryCorpus, folder: Path, **options: object) -> Path:
    """Six turns: search, summarize two of three, search, bring one back, prune the summary, rank."""
    a, b, c = (hit.chunk.id for hit in corpus.search(QUESTION)[:3])
    steps = [
        search(QUESTION, limit=3),
        summarize("The rivers meet below the bridges.", a, b),
        search("painters and gardens", limit=2),
        restore(b),
        prune("summary:1"),
        rank(b, c),
    ]
    return record(corpus, steps, folder, profile="summary", **options)  # type: ignore[arg-type]


def swarm(corpus: MemoryCorpus, folder: Path) -> list[Path]:
    """Record two turns, and return the main file first. The first starts three sub-agents; the last cannot begin."""
    tasks = ["comets and operas", "rivers", "the task that is too long " * 60]
    searcher_policy = ScriptedPolicy([search("comets and operas", limit=2), rank_all])
    steps = [call("spawn_searchers", tasks=tasks), Action(text="done")]
    agent = SearchAgent(
        corpus,
        ScriptedPolicy(steps),
        budget=8192,
        swarm=Swarm(budget=1024, policy=searcher_policy),
        trajectories=folder,
    )
    return list(agent.search(QUESTION, question_id="q").paths)


def long(folder: Path, turns: int = 128) -> Path:
    """Record an episode of that many turns: searches, greps, reads, mistakes, prunes of most chunks, and restores."""
    corpus = MemoryCorpus(linked_documents(400))
    return record(
        corpus, [*(_step(number) for number in range(turns - 1)), rank("d1_0", "d8_0")], folder, window=16_384
    )


def _step(number: int) -> Action:
    if number % 16 == 15:
        prune_call = ToolCall("prune_chunks", {"all_but": [f"d{item}_0" for item in range(0, 400, 5)]})
        return Action(calls=(prune_call, *search(f"Title {number}", limit=4).calls))
    if number % 16 == 3 and number > 16:
        return call("restore_chunks", chunk_ids=[f"d{item}_0" for item in range(1, 12)])
    match number % 4:
        case 0:
            return call("grep_corpus", pattern=f"SENTINEL-0{number % 40:02d}")
        case 1:
            return call("read_document", doc_id=f"d{number * 7 % 400}")
        case 2 if number % 20 == 2:
            return call("no_such_tool", query="x")
    return search(f"Title {number * 11 % 400} rivers", f"Title {number * 13 % 400} gardens", limit=3)


def hostile(folder: Path) -> Path:
    """Record an episode in which every external text tries to inject code."""
    corpus = MemoryCorpus(
        [Document(f"d{n}{HOSTILE if n == 2 else ''}", f"{HOSTILE} river {n}", f"{HOSTILE} {n}") for n in range(4)]
    )
    search_call = search(f"river {HOSTILE}", limit=3).calls[0]
    steps = [
        Action(calls=(search_call, ToolCall(f"tool{HOSTILE}", {HOSTILE: HOSTILE})), text=HOSTILE, reasoning=HOSTILE),
        Action(ranking=tuple(RankedId(f"d{n}", justification=HOSTILE) for n in range(2)), text=""),
    ]
    return record(corpus, steps, folder, question=f"river? {HOSTILE}", id=HOSTILE)
