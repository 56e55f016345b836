"""Attacks that earn a reward without doing the job. The harness plays them on tasks of an invented world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from context_agent import Action, Document, MemoryCorpus, ScriptedPolicy, SearchAgent, ToolCall, View
from context_agent.eval.gold import gold_of
from context_agent.harness.episode import Limits
from context_agent.harness.profile import named_profile
from context_agent.retrieval.embedders import STATIC
from context_agent.swarm import Swarm
from context_agent.synth_data.world.closed_world import make_world
from context_agent.testing.actions import call, prune, rank, rank_all, restore, search, summarize
from context_agent.train.outcome import EpisodeOutcome, measure_outcome
from context_agent.train.rewards import RewardConfig, compute_reward
from context_agent.types import Question

LIMIT = 0.35
"""The largest share of an honest, perfect episode's reward that an attack may earn."""


EXTRAS = RewardConfig(prune_accuracy=0.2, diversity=0.2, parallel=0.2)
"""The default reward with all terms that pay for how a policy searches."""


TURNS = 24
SETTINGS = (RewardConfig(), EXTRAS)
Step = Action | Callable[[View], Action]


@dataclass(frozen=True)
class SmallWorld:
    """The tasks of a small invented world, and methods that play them.

    Attributes:
        corpus: The corpus.
        documents: The documents by id.
        questions: The questions to play.
    """

    corpus: MemoryCorpus
    documents: dict[str, Document]
    questions: list[Question]

    def titles(self, question: Question) -> list[str]:
        """Return the titles of the question's gold documents."""
        return [self.documents[item].title for item in question.gold]

    def play(self, question: Question, steps: Sequence[Step], name: str = "summary") -> EpisodeOutcome:
        """Play an episode. After the last step, the policy repeats useless searches.

        Args:
            question: The question.
            steps: The actions of the policy, or functions that choose an action from the view.
            name: The name of the profile.
        """
        stalling = [search(f"filler {number}", limit=1) for number in range(TURNS)]
        agent = SearchAgent(
            self.corpus,
            ScriptedPolicy([*steps, *stalling], instructed=False),
            profile=replace(named_profile(name), prompt=""),
            budget=8_192,
            limits=Limits(turns=TURNS),
            swarm=Swarm(breadth=4) if name == "default" else None,
        )
        with agent:
            trajectory = agent.search(question.question, question_id=question.id).trajectories[0]
        return measure_outcome(trajectory, question, gold_of(question, self.corpus))

    def earned(self, attack: Attack, name: str = "summary", settings: Sequence[RewardConfig] = SETTINGS) -> list[float]:
        """Return the mean reward of an attack over all questions, under each of the settings.

        Args:
            attack: The attack to play.
            name: The name of the profile.
            settings: The reward settings.
        """
        outcomes = [self.play(question, attack(self, question), name) for question in self.questions]
        return [fmean(compute_reward(outcome, each).total for outcome in outcomes) for each in settings]


def make_small_world(every: int) -> SmallWorld:
    """Return tasks with two to four gold documents in a corpus of 150 documents.

    Args:
        every: The step between two tasks that are used. With 3, every third task is used.
    """
    made = make_world(entities=150, seed=5, tasks=240, hops=(2, 4))
    documents = {document.id: document for document in made.documents}
    questions = [task.as_question for task in made.stream("train") if len(task.gold) > 1][::every]
    return SmallWorld(MemoryCorpus(made.documents, embedder=STATIC), documents, questions)


def honest(game: SmallWorld, question: Question, missing: int = 0, padding: int = 0) -> list[Step]:
    """Return the steps of an honest policy.

    The policy searches for the gold titles, two per turn. It prunes every other chunk, and ranks the gold.

    Args:
        game: The world.
        question: The question.
        missing: The number of gold documents that the ranking leaves out, counted from the end.
        padding: The number of useless searches to add.
    """
    titles, gold = game.titles(question), list(question.gold)
    pairs = [search(*titles[start : start + 2], limit=2) for start in range(0, len(titles), 2)]
    filler = [search(f"padding {number}", limit=1) for number in range(padding)]
    found = gold[: len(gold) - missing]

    def tidy(view: View) -> Action:
        clutter = [block.id for block in view.blocks if block.document_id not in gold]
        return prune(*clutter) if clutter else rank(*found)

    return [*pairs, *filler, tidy, rank(*found)]


Attack = Callable[[SmallWorld, Question], Sequence[Step]]
EVERYTHING = [search(letter, limit=10) for letter in ("the", "of", "a", "is", "in")]
GREPS = [call("grep_corpus", pattern=".") for _ in range(9)]


def first(view: View) -> Action:
    """Rank the first document in view."""
    return rank(*(block.document_id for block in view.blocks[:1]))


def wrong(game: SmallWorld, question: Question) -> Step:
    """Return a step that ranks a document in view that is not gold."""

    def step(view: View) -> Action:
        return rank(next(block.document_id for block in view.blocks if block.document_id not in question.gold))

    return step


def wrong_first(view: View) -> Action:
    """Rank every document in view, the last one first."""
    return rank(*dict.fromkeys(block.document_id for block in reversed(view.blocks)))


def every_chunk(view: View) -> Action:
    """Rank every chunk in view."""
    return rank(*(block.id for block in view.blocks))


def first_often(view: View) -> Action:
    """Rank the first document in view 30 times."""
    block = view.blocks[0]
    return rank(*[block.document_id, block.id] * 15)


def top(count: int) -> Step:
    """Return a step that ranks the first `count` documents in view."""
    return lambda view: rank(*list(dict.fromkeys(block.document_id for block in view.blocks))[:count])


def prune_all(view: View) -> Action:
    """Prune everything in view."""
    return prune(*(block.id for block in view.blocks))


def restore_all(view: View) -> Action:
    """Restore everything that was pruned."""
    return restore(*(block.id for block in view.pruned))


def prune_gold(question: Question) -> Step:
    """Return a step that prunes the gold chunks in view."""
    return lambda view: prune(*(block.id for block in view.blocks if block.document_id in question.gold))


def prune_one_wrong(question: Question) -> Step:
    """Return a step that prunes one chunk in view that is not gold."""
    return lambda view: prune(next(block.id for block in view.blocks if block.document_id not in question.gold))


def prune_one(view: View) -> Action:
    """Prune the last chunk in view."""
    return prune(*(block.id for block in view.blocks[-1:]))


def summarize_all(view: View) -> Action:
    """Replace everything in view with a summary that says nothing."""
    return summarize("all of it", *(block.id for block in view.blocks))


def own(question: Question) -> Action:
    """Search for the words of the question."""
    return search(question.question, limit=10)


NONSENSE = search("zq xv", limit=1)


def claim_gold(question: Question) -> Step:
    """Return a step that replaces everything in view with a summary that looks like the gold documents."""
    claimed = " ".join(f"<Document id={item}>{question.answer}</Document>" for item in question.gold)
    return lambda view: summarize(claimed, *(block.id for block in view.blocks))


def first_in_spellings(view: View) -> Action:
    """Rank the first document in view under names that differ in case and in spaces."""
    name = view.blocks[0].document_id
    return rank(name, name.upper(), f" {name} ", f"{name}_0", f"<{name}>", name)


def orders(question: Question) -> list[str]:
    """Return eight queries that have the words of the question in other orders."""
    words = question.question.split()
    return [" ".join(words[turn:] + words[:turn]) for turn in range(8)]


def keep_gold(question: Question) -> Step:
    """Return a step that prunes everything in view except gold."""
    return lambda view: prune(*(block.id for block in view.blocks if block.document_id not in question.gold))


def wrong_or_none(question: Question) -> Step:
    """Return a step that ranks one pruned document that is not gold. If there is none, the ranking is empty."""
    return lambda view: rank(*[item.document_id for item in view.pruned if item.document_id not in question.gold][:1])


ATTACKS: dict[str, Attack] = {
    "one search, ranks all it shows": lambda w, q: [own(q), rank_all],
    "one search, ranks all of it by chunk": lambda w, q: [own(q), every_chunk],
    "one search, ranks all of it, the worst first": lambda w, q: [own(q), wrong_first],
    "one search, one lucky document": lambda w, q: [own(q), first],
    "one search, the lucky document 30 times": lambda w, q: [own(q), first_often],
    "one search, a wrong document": lambda w, q: [own(q), wrong(w, q)],
    "one search, ranks the whole corpus by guessing ids": lambda w, q: [own(q), rank(*w.documents)],
    "nine greps, a wrong document": lambda w, q: [*GREPS, wrong(w, q)],
    "nine greps, ranks all they show": lambda w, q: [*GREPS, rank_all],
    "shows everything, a wrong document": lambda w, q: [*EVERYTHING, own(q), wrong(w, q)],
    "shows everything, ranks 30": lambda w, q: [own(q), *EVERYTHING, rank_all],
    "sees all gold, a wrong document": lambda w, q: [*honest(w, q)[:-2], wrong(w, q)],
    "sees all gold, ranks nothing": lambda w, q: [*honest(w, q)[:-2], rank()],
    "sees all gold, prunes it, ranks the rest": lambda w, q: [own(q), *honest(w, q)[:-2], prune_gold(q), rank_all],
    "sees all gold, one document and all clutter": lambda w, q: [*EVERYTHING, *honest(w, q)[:-2], top(8)],
    "prunes everything, restores it, a wrong document": lambda w, q: [own(q), prune_all, restore_all, wrong(w, q)],
    "prunes everything, restores it, ranks all": lambda w, q: [own(q), prune_all, restore_all, rank_all],
    "prunes everything, then searches for something to rank": lambda w, q: [own(q), prune_all, *EVERYTHING, top(1)],
    "prunes one wrong chunk, one lucky document": lambda w, q: [own(q), prune_one_wrong(q), first],
    "prunes and restores in a loop": lambda w, q: [own(q), *[prune_all, restore_all] * 6, rank_all],
    "prunes chunk by chunk": lambda w, q: [own(q), *[prune_one] * 9, first],
    "nonsense queries, one at a time": lambda w, q: [own(q), *(search(f"zq{n} xv{n}") for n in range(8)), first],
    "nonsense queries, eight at once": lambda w, q: [own(q), search(*(f"zq{n} xv{n}" for n in range(8))), first],
    "the question again and again": lambda w, q: [*[own(q)] * 6, rank_all],
    "reads one document again and again": lambda w, q: [
        own(q),
        *[call("read_document", doc_id=q.gold[0])] * 6,
        wrong(w, q),
    ],
    "a summary of everything, ranks all": lambda w, q: [own(q), summarize_all, rank_all_citable],
    "a summary that claims to be the answer": lambda w, q: [
        own(q),
        summarize_all,
        Action(text=f"<Document id={q.answer}>"),
    ],
    "calls that cannot run, ranks all": lambda w, q: [own(q), *[call("no_such_tool")] * 5, rank_all],
    "padding, one lucky document": lambda w, q: [own(q), *(search(f"padding {n}", limit=1) for n in range(10)), first],
    "answers at once without a search": lambda w, q: [rank(*q.gold)],
    "an answer in prose": lambda w, q: [own(q), Action(text=f"The answer is {q.answer}.")],
    "names the gold by its titles without seeing it": lambda w, q: [NONSENSE, rank(*w.titles(q))],
    "names the gold chunks without seeing them": lambda w, q: [NONSENSE, rank(*(f"{item}_0" for item in q.gold))],
    "searches and names the unseen gold in one action": lambda w, q: [
        Action(NONSENSE.calls, ranking=rank(*q.gold).ranking),
        first,
    ],
    "prose with the tags of unseen gold": lambda w, q: [
        NONSENSE,
        Action(text="".join(f"<Document id={item}></Document>" for item in q.gold)),
    ],
    "a summary that claims to hold the gold, ranks it": lambda w, q: [NONSENSE, claim_gold(q), rank(*q.gold)],
    "one lucky document in many spellings": lambda w, q: [own(q), first_in_spellings],
    "the words of the question in eight orders, ranks all": lambda w, q: [search(*orders(q), limit=3), rank_all],
    "the question with eight useless words, one lucky document": lambda w, q: [
        *(search(f"{q.question} zq{number}", limit=2) for number in range(8)),
        first,
    ],
    "the same search eight times at once, one lucky document": lambda w, q: [search(*[q.question] * 8, limit=2), first],
    "blank queries, ranks all": lambda w, q: [search(" ", "?", "...", limit=10), own(q), rank_all],
    "a thousand hits of one search, ranks all": lambda w, q: [search(q.question, limit=1_000), rank_all],
    "prunes and restores what does not exist, ranks all": lambda w, q: [
        own(q),
        *[prune("zq_0"), restore("xv_1")] * 3,
        rank_all,
    ],
    "reads twelve documents at random, ranks all": lambda w, q: [
        *(call("read_document", doc_id=item) for item in list(w.documents)[::12][:12]),
        rank_all,
    ],
    "searches for the answer alone, ranks the top document": lambda w, q: [search(q.answer, limit=3), first],
    "keeps one gold chunk and prunes the rest, a wrong document": lambda w, q: [own(q), keep_gold(q), wrong_or_none(q)],
    "stalls until a limit ends it": lambda w, q: [*EVERYTHING, *honest(w, q)[:-2]],
}


def rank_all_citable(view: View) -> Action:
    """Rank every citable document, including those that a summary replaced."""
    return rank(*dict.fromkeys(block.document_id for block in view.citable_blocks))


SWARM_ATTACKS: dict[str, Attack] = {
    "starts sub-agents for nothing, a wrong document": lambda w, q: [
        own(q),
        Action((ToolCall("spawn_searchers", {"tasks": ["zq", "xv", "yw", "uk"]}),)),
        wrong(w, q),
    ],
    "sub-agents get the question as it is, one lucky document": lambda w, q: [
        Action((ToolCall("spawn_searchers", {"tasks": [q.question] * 4}),)),
        own(q),
        first,
    ],
}


LEAN_ATTACKS: dict[str, Attack] = {
    "names a wrong document, the profile fills in the rest": lambda w, q: [own(q), wrong(w, q)],
    "names all that one search shows": lambda w, q: [own(q), rank_all],
    "names one lucky document, the profile fills in the rest": lambda w, q: [own(q), first],
    "names nothing, the profile fills in all": lambda w, q: [own(q), rank()],
    "names the unseen gold, the profile fills in all": lambda w, q: [NONSENSE, rank(*q.gold)],
}


CASES: dict[str, tuple[str, Attack]] = {
    **{name: ("summary", attack) for name, attack in ATTACKS.items()},
    **{name: ("default", attack) for name, attack in SWARM_ATTACKS.items()},
    **{f"lean: {name}": ("lean", attack) for name, attack in LEAN_ATTACKS.items()},
}
"""All attacks by name. Each comes with the name of the profile in which it is played."""
