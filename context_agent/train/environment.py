"""The toy environment: a generated corpus with questions, prompts in whole words, and a noisy expert that searches it.

A model of a few hundred thousand weights cannot read JSON schemas, so its prompts are spelled over a vocabulary of
whole words (`WordRenderer`):

    ; who is the maker of quiet well ?                     the question
    > search quiet well |                                  one call, and the end of a reply
    quiet well : quiet well has the maker kit holt . [60/512]  its result, and the usage line
    > so maker ; keep quiet well ; search kit holt |       a thought, and two calls: prune all but one, and search
    > rank quiet well , kit holt |                         the final ranking
    > spawn home of quiet well , maker of dim lake |       a sub-agent for each of two tasks, if there is a swarm

`so` names the relation that is followed, as a larger model would in its reasoning. `prune` lists the chunks to hide,
`keep` those to leave, `restore` those to bring back. Any other word is a call of an unknown tool, which the episode
answers as it answers any model's mistakes. Such a model cannot copy numbers that it has never seen, so the id of a
document is its title, and the gold ids of questions are changed alike.

The expert searches the chain of documents name by name, prunes, and ranks what it retrieved. It states the relation
that it follows before it searches for the name at its end, so that each word of a demonstration can be derived from the
words before it. It is noisy on purpose, since a perfect expert would leave nothing to learn from rewards: at each turn
it may stop early, search for something else in view, or skip a prune. It searches a question of several branches branch
by branch, or it leads: it starts a sub-agent for each branch and ranks their results, sometimes after a search for what
they missed.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import PositiveInt

from context_agent.harness.profile import Profile
from context_agent.harness.tools import SPAWN
from context_agent.policies.tokens.prompt import Ids, Opening
from context_agent.pruning.view import View
from context_agent.retrieval.corpus import Corpus
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.synth_data.world import make as make_world
from context_agent.tokens import TokenCounter
from context_agent.types import Action, Document, Question, RankedId, ToolCall

PAD, UNKNOWN, OPEN, GO, END = "<pad>", "<unk>", "<question>", "<go>", "<end>"
SPECIALS = (PAD, UNKNOWN, OPEN, GO, END)
VERBS = ("search", "keep", "prune", "restore", "rank")
THOUGHT = "so"
SPAWN_WORD = "spawn"
SWARM_WORDS = (
    f"{SPAWN_WORD} searchers document documents nothing failed out time no were started tasks not given before empty"
)
"""More words for a swarm: the call, and the words of its results."""
_COMMON = (THOUGHT, "no", "results", "found", "error", *VERBS, *"0123456789", *".,:;?[]/")
_WORD = re.compile(r"[a-z]+|\d|[.,:;?\[\]/]")
_INDEX = re.compile(r"_\d+")
_EDITS = {"keep": ("prune_chunks", "all_but"), "prune": ("prune_chunks", "chunk_ids")} | {
    "restore": ("restore_chunks", "chunk_ids")
}


def words_profile() -> Profile:
    """Return the harness profile for such a model: no instructions, a name as header, short refusals."""
    return Profile(
        name="words",
        tools=("search_corpus", "prune_chunks", "restore_chunks"),
        prompt="",
        question="{question}",
        header="{id} : ",
        usage="[{used}/{window}]",
        nothing="no results found",
        hard_refusal="error",
        extended_arguments=True,
        search_limit=3,
    )


class WordRenderer:
    """Spells prompts and reads replies in whole words."""

    name = "words"
    parallel = True

    def __init__(self, texts: Iterable[str]) -> None:
        """The vocabulary is the words of the texts; any other reads as unknown."""
        words = sorted({word for text in texts for word in _split_words(text)} | set(_COMMON))
        self.words = (*SPECIALS, *words)
        self._ids = {word: index for index, word in enumerate(self.words)}
        self.counter_name = f"words:{len(self.words)}"
        self.stop: Ids = (self._ids[END],)

    @property
    def padding(self) -> int:
        """The id that fills a batch."""
        return self._ids[PAD]

    def tokenizer(self) -> Any:
        """Return the vocabulary as transformers has it, for a trainer that saves and pads with it."""
        from tokenizers import Tokenizer, models, pre_tokenizers
        from transformers import PreTrainedTokenizerFast

        inner = Tokenizer(models.WordLevel(dict(self._ids), unk_token=UNKNOWN))
        inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        result: Any = PreTrainedTokenizerFast
        return result(tokenizer_object=inner, pad_token=PAD, unk_token=UNKNOWN, bos_token=GO, eos_token=END)

    def encode(self, text: str) -> Ids:
        """Return the text's words, without the chunk marks of ids."""
        return tuple(self._ids.get(word, self._ids[UNKNOWN]) for word in _split_words(text))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the words with spaces between them."""
        return " ".join(self.words[item] if 0 <= item < len(self.words) else UNKNOWN for item in ids)

    def opening(self, profile: Profile) -> Opening:
        """No instructions: the question between two marks."""
        return Opening((self._ids[OPEN],), (self._ids[GO],), OPEN)

    def frame(self, reply: Sequence[int], names: Sequence[str]) -> tuple[Ids, ...]:
        """Return the end of a reply where it was cut, nothing between results, and the mark of the next reply."""
        closed = bool(reply) and reply[-1] in self.stop
        return (() if closed else self.stop, *(() for _ in names[1:]), (self._ids[GO],))

    def reply(self, action: Action) -> Ids:
        """Return a thought if there is one, then calls with semicolons between them, or the ranking."""
        thought = action.text.partition(";")[0].strip() if action.text.startswith(f"{THOUGHT} ") else ""
        text = [_spell_call(call) for call in action.calls]
        if not text:
            text = [f"rank {_list_ids(item.id for item in action.ranking or ())}"]
        if thought:
            text.insert(0, thought)
        return (*self.encode(" ; ".join(text)), *self.stop)

    def parse(self, ids: Sequence[int]) -> Action:
        """Return the calls of a reply; its ranking only if there is no call. Thoughts stay in the text."""
        end = next((index for index, item in enumerate(ids) if item in self.stop), len(ids))
        text = self.decode(ids[:end])
        parts = [part.split() for part in text.split(";") if part.strip()]
        calls = tuple(_parse_call(part) for part in parts if part[0] not in {"rank", THOUGHT})
        ranked = [_ids(part[1:]) for part in parts if part[0] == "rank"]
        if calls or not ranked:
            return Action(calls, text=text)
        return Action(ranking=tuple(RankedId(item) for item in ranked[-1]), text=text)


def _split_words(text: str) -> list[str]:
    return _WORD.findall(_INDEX.sub("", text.lower()))


def _list_ids(ids: Iterable[str]) -> str:
    return " , ".join(_INDEX.sub("", item).replace("-", " ") for item in ids)


def _ids(words: Sequence[str]) -> list[str]:
    names = " ".join(words).split(",")
    return ["-".join(name.split()) for name in names if name.strip()]


def _spell_call(call: ToolCall) -> str:
    arguments = call.arguments if not isinstance(call.arguments, str) else {}
    if call.name == SPAWN:
        return f"{SPAWN_WORD} {' , '.join(arguments.get('tasks', ()))}"
    for verb, (name, key) in _EDITS.items():
        if call.name == name and key in arguments:
            return f"{verb} {_list_ids(arguments[key])}"
    return f"search {arguments.get('query', '')}"


def _parse_call(words: Sequence[str]) -> ToolCall:
    verb, rest = words[0], words[1:]
    if verb == "search":
        return ToolCall("search_corpus", {"query": " ".join(rest)})
    if verb == SPAWN_WORD:
        tasks = " ".join(rest).split(",")
        return ToolCall(SPAWN, {"tasks": [task.strip() for task in tasks if task.strip()]})
    if verb in _EDITS:
        name, key = _EDITS[verb]
        return ToolCall(name, {key: [f"{item}_0" for item in _ids(rest)]})
    return ToolCall(verb, {})


TYPES = ("single", "bridge")
"""Kinds of question asked here: chains of documents, each of which names the next."""
SPLITS = ("train", "dev", "test")
BRANCH_SEPARATOR = " , "
"""Stands between the branches of a question, each of which can be followed without the others."""


@dataclass(frozen=True, slots=True)
class WorldConfig:
    """A toy environment made when the run starts: corpus and questions (`train.environment`).

    - `entities`: documents of the corpus.
    - `tasks`: questions of all splits and types.
    - `seed`: random seed.
    - `hops`: fewest and most documents that a question leads through.
    - `worlds`: environments of consecutive seeds for demonstrations; questions for rewards use the first one.
    - `branches`: chains of documents that a question asks for at once.
    """

    entities: PositiveInt = 800
    tasks: PositiveInt = 6_000
    seed: int = 0
    hops: tuple[PositiveInt, PositiveInt] = (1, 3)
    worlds: PositiveInt = 1
    branches: PositiveInt = 1


@dataclass(frozen=True, slots=True)
class ToyEnvironment:
    """A corpus, and for each split questions whose gold is in hop order. No gold of one split is gold of another.

    `others` are further environments, in which the same names mean something else.
    """

    corpus: MemoryCorpus
    questions: dict[str, list[Question]]
    titles: dict[str, str]
    """By document id."""
    others: tuple[ToyEnvironment, ...] = ()


def make_environment(config: WorldConfig) -> ToyEnvironment:
    """Return a toy environment with the questions of the supported `TYPES`. Equal settings give equal environments.

    Demonstrations in several worlds teach a policy to read names; demonstrations in one teach it to remember them. With
    more than one of the `branches` each question asks for several chains at once (`join_questions`). Raises
    `ConfigError` for more questions than such a world has.
    """
    generated = make_world(
        entities=config.entities,
        seed=config.seed,
        tasks=config.tasks,
        hops=config.hops,
        distractors=0,
        vocabulary="small",
    )
    ids = {document.id: document.title.lower().replace(" ", "-") for document in generated.documents}
    documents = [Document(ids[document.id], document.text, document.title) for document in generated.documents]
    titles = {ids[document.id]: document.title for document in generated.documents}
    questions: dict[str, list[Question]] = {}
    for split in SPLITS:
        tasks = [task for task in generated.stream(split) if task.type in TYPES]
        questions[split] = [
            replace(task.as_question, gold=tuple(ids[document] for document in task.gold), facts=()) for task in tasks
        ]
        if config.branches > 1:
            questions[split] = join_questions(questions[split], config.branches, seed=config.seed)
    further = (make_environment(replace(config, seed=config.seed + n, worlds=1)) for n in range(1, config.worlds))
    return ToyEnvironment(MemoryCorpus(documents), questions, titles, tuple(further))


def join_questions(questions: Sequence[Question], branches: int, *, seed: int = 0) -> list[Question]:
    """Questions that ask for so many chains at once: `ruler of garth coast , craft of the scene of dark bell ?`.

    A branch is a chain without what is asked about its last document, so its gold is what its words lead to. As many
    questions as were given, of branches without a document in common. Questions of one document make no branch.
    """
    branches_of = list({_branch(question): question for question in questions if len(question.gold) > 1}.items())
    rng = random.Random(f"joined/{seed}/{branches}")
    joined: dict[str, Question] = {}
    for _ in range(2 * len(questions)):
        drawn = rng.sample(branches_of, min(branches, len(branches_of)))
        gold = tuple(document for _, question in drawn for document in question.gold)
        if len(joined) < len(questions) and len(drawn) == branches and len(set(gold)) == len(gold):
            text = f"{BRANCH_SEPARATOR.join(branch for branch, _ in drawn)} ?"
            first = drawn[0][1]
            joined[text] = Question(f"{first.id}-{len(joined)}", text, gold=gold, type="joined", hops=len(gold))
    return list(joined.values())


def split_branches(question: Question) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the branches of a question with the gold of each, in hop order; the question itself where it has but
    one.
    """
    if question.type != "joined":
        yield question.question, question.gold
        return
    gold = iter(question.gold)
    for branch in question.question.removesuffix(" ?").split(BRANCH_SEPARATOR):
        yield branch, tuple(next(gold) for _ in range(branch.count(" of ") + 1))


def _branch(question: Question) -> str:
    """`What is the house of the ruler of Garth Coast ?` is `ruler of garth coast`."""
    return question.question.lower().removesuffix(" ?").partition(" of ")[2].removeprefix("the ")


@dataclass(frozen=True, slots=True)
class ExpertNoise:
    """Probabilities in a turn: to end before the chain is complete, to search for something else, to skip a prune.

    `leads` is the probability of an episode with sub-agents, `trust` that of ranking their results as they are.
    """

    stop: float = 0.5
    stray: float = 0.05
    untidy: float = 0.3
    trust: float = 0.0
    leads: float = 0.0


LEADING_NOISE = ExpertNoise(stop=0.1, stray=0.0, untidy=1.0, trust=0.7, leads=0.5)
"""For an expert that demonstrates episodes with and without sub-agents; both find about as much."""
SUBAGENT_NOISE = ExpertNoise(stop=0.5, stray=0.0, untidy=1.0)
"""For its sub-agents, which rank half of their chains too soon."""


class NoisyExpert:
    """A policy that knows each question's gold, in hop order, and the titles by which documents name each other."""

    name = "expert"

    def __init__(
        self,
        questions: Sequence[Question],
        titles: Mapping[str, str],
        noise: ExpertNoise | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        self._branches = {question.question: tuple(split_branches(question)) for question in questions}
        self._branches |= {
            branch: ((branch, gold),) for branch_list in self._branches.values() for branch, gold in branch_list
        }
        self._titles = titles
        self._noise = noise or ExpertNoise()
        self.counter = counter

    def instructions(self, profile: Profile) -> str:
        """None: it needs none."""
        return ""

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> NoisyExpertActor:
        """Return an actor that follows the question's chain, or that of one branch of a question."""
        return NoisyExpertActor(
            self._branches[question], self._titles, self._noise, random.Random(f"{seed}:{question}")
        )


class NoisyExpertActor:
    """The expert in one episode."""

    def __init__(
        self,
        branches: Sequence[tuple[str, Sequence[str]]],
        titles: Mapping[str, str],
        noise: ExpertNoise,
        rng: random.Random,
    ) -> None:
        self._branches = branches
        self._chain = [document for _, chain in branches for document in chain]
        self._titles = titles
        self._noise = noise
        self._rng = rng
        self._leads = len(branches) > 1 and rng.random() < noise.leads
        self._trusts = self._leads and rng.random() < noise.trust

    async def act(self, view: View) -> Action:
        """Prunes and searches on, or ranks what of the chain is in view; one that leads starts sub-agents first."""
        if self._leads:
            self._leads = False
            return Action((ToolCall(SPAWN, {"tasks": [branch for branch, _ in self._branches]}),))
        visible = list(dict.fromkeys(block.document_id for block in view.blocks))
        visible_gold = [document for document in self._chain if document in visible]
        has_results = bool(visible)
        stops = has_results and (self._trusts or self._rng.random() < self._noise.stop)
        if len(visible_gold) == len(self._chain) or stops:
            ranked = (
                visible_gold
                if len(self._branches) == 1
                else [document for document in visible if document in self._chain]
            )
            return Action(ranking=tuple(RankedId(document) for document in ranked or visible[:1]))
        target = next(document for document in self._chain if document not in visible)
        thought = self._thought(target)
        if has_results and self._rng.random() < self._noise.stray:
            target = self._rng.choice(visible)
        search = ToolCall("search_corpus", {"query": self._titles[target].lower()})
        tidy = visible_gold and len(visible_gold) < len(visible) and self._rng.random() >= self._noise.untidy
        prune = (ToolCall("prune_chunks", {"all_but": [f"{document}_0" for document in visible_gold]}),) if tidy else ()
        return Action((*prune, search), text=thought)

    def _thought(self, target: str) -> str:
        """Return the relation that leads to that document: `What is the home of the maker of X ?` is read from its
        end.
        """
        question, chain = next(branch for branch in self._branches if target in branch[1])
        hop = chain.index(target)
        relations = question.split(" of ")[:-1]
        return f"{THOUGHT} {relations[-hop].rpartition(' the ')[2].removeprefix('the ')}" if hop else ""
