"""Prompts in whole words, for models of a few hundred thousand weights that cannot read JSON schemas.

    ; who is the maker of quiet well ?                     the question
    > search quiet well |                                  one call, and the end of a reply
    quiet well : quiet well has the maker kit holt . [60/512]  its result, and the usage line
    > so maker ; keep quiet well ; search kit holt |       a thought, and two calls: prune all but one, and search
    > rank quiet well , kit holt |                         the final ranking
    > spawn home of quiet well , maker of dim lake |       a sub-agent for each of two tasks, if there is a swarm

`so` names the relation that is followed, as a larger model would in its reasoning. `prune` lists the chunks to hide,
`keep` those to leave, `restore` those to bring back. Any other word is a call of an unknown tool, which the episode
answers as it answers any model's mistakes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from context_agent.harness.profile import Profile
from context_agent.harness.tools import SPAWN
from context_agent.policies.tokens.prompt import Ids, Opening
from context_agent.types import Action, RankedId, ToolCall

PAD, UNKNOWN, OPEN, GO, END = "<pad>", "<unk>", "<question>", "<go>", "<end>"


SPECIALS = (PAD, UNKNOWN, OPEN, GO, END)


VERBS = ("search", "keep", "prune", "restore", "rank")


THOUGHT = "so"


SPAWN_WORD = "spawn"


SWARM_WORDS = (
    f"{SPAWN_WORD} searchers document documents nothing failed out time no were started tasks not given before empty"
)
"""Further words that a swarm needs: the call, and the words of its results."""


_COMMON = (THOUGHT, "no", "results", "found", "error", *VERBS, *"0123456789", *".,:;?[]/")


_WORD = re.compile(r"[a-z]+|\d|[.,:;?\[\]/]")


_INDEX = re.compile(r"_\d+")


_EDITS = {"keep": ("prune_chunks", "all_but"), "prune": ("prune_chunks", "chunk_ids")} | {
    "restore": ("restore_chunks", "chunk_ids")
}


def words_profile() -> Profile:
    """Return the harness profile for a tiny model: no instructions, a name as header, and short refusals."""
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
    """A renderer that writes prompts and parses replies in whole words."""

    name = "words"
    parallel = True

    def __init__(self, texts: Iterable[str]) -> None:
        """Build the vocabulary from the words of the texts. All other words are read as unknown."""
        words = sorted({word for text in texts for word in _split_words(text)} | set(_COMMON))
        self.words = (*SPECIALS, *words)
        self._ids = {word: index for index, word in enumerate(self.words)}
        self.counter_name = f"words:{len(self.words)}"
        self.stop: Ids = (self._ids[END],)

    @property
    def padding(self) -> int:
        """Id that fills a batch."""
        return self._ids[PAD]

    def tokenizer(self) -> Any:
        """Return the vocabulary as a tokenizer of transformers, with which a trainer saves and pads."""
        from tokenizers import Tokenizer, models, pre_tokenizers
        from transformers import PreTrainedTokenizerFast

        inner = Tokenizer(models.WordLevel(dict(self._ids), unk_token=UNKNOWN))
        inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        result: Any = PreTrainedTokenizerFast
        return result(tokenizer_object=inner, pad_token=PAD, unk_token=UNKNOWN, bos_token=GO, eos_token=END)

    def encode(self, text: str) -> Ids:
        """Return the ids of the text's words. Chunk marks such as `_0` in ids are left out."""
        return tuple(self._ids.get(word, self._ids[UNKNOWN]) for word in _split_words(text))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the ids' words, separated by spaces."""
        return " ".join(self.words[item] if 0 <= item < len(self.words) else UNKNOWN for item in ids)

    def opening(self, profile: Profile) -> Opening:
        """Return the marks around the question. There are no instructions."""
        return Opening((self._ids[OPEN],), (self._ids[GO],), OPEN)

    def frame(self, reply: Sequence[int], names: Sequence[str]) -> tuple[Ids, ...]:
        """Return the end of a truncated reply, nothing between results, and the mark of the next reply."""
        closed = bool(reply) and reply[-1] in self.stop
        return (() if closed else self.stop, *(() for _ in names[1:]), (self._ids[GO],))

    def reply(self, action: Action) -> Ids:
        """Return an action as ids: a thought if there is one, then calls separated by semicolons, or the ranking."""
        thought = action.text.partition(";")[0].strip() if action.text.startswith(f"{THOUGHT} ") else ""
        text = [_spell_call(call) for call in action.calls]
        if not text:
            text = [f"rank {_list_ids(item.id for item in action.ranking or ())}"]
        if thought:
            text.insert(0, thought)
        return (*self.encode(" ; ".join(text)), *self.stop)

    def parse(self, ids: Sequence[int]) -> Action:
        """Return the calls of a reply. If there are none, return its ranking. Thoughts stay in the text."""
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
