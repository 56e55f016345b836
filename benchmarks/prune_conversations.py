"""Simulated conversations of agents with known evidence, for `prune_any.py`.

The questions are about documents, code, logs and records. Questions about code, logs and records use other words than
the text that answers them, like a colleague who has not seen the text. They contain no id, because the number of a
request or of an order alone would identify the passage.
"""

from __future__ import annotations

import ast
import gzip
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import context_agent
from context_agent._support.question_files import load_questions
from context_agent.retrieval.index.bm25 import Bm25Entry, Bm25Index
from context_agent.tokens import HarmonyCounter

HITS, DUMP = 8, 40
"""The number of hits of a search in a long run, and in a dump."""
COUNTER = HarmonyCounter()
Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Hit:
    """A document as a search returns it."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class PlayedConversation:
    """Messages in OpenAI's chat format, and the sentences that the task needs."""

    messages: list[Message]
    evidence: tuple[str, ...]


class Player:
    """A writer of the messages of one simulated agent."""

    def __init__(self, question: str, draw: random.Random) -> None:
        self.messages: list[Message] = [
            {"role": "system", "content": "You are a careful agent. Use the tools, then answer."},
            {"role": "user", "content": question},
        ]
        self.tokens = 0
        self._draw, self._numbers = draw, count()

    def call(self, name: str, arguments: dict[str, Any], result: str) -> None:
        """Add one call and its result."""
        call_id = f"call_{next(self._numbers)}_{self._draw.randrange(1 << 30):x}"
        function = {"name": name, "arguments": json.dumps(arguments)}
        calls = [{"id": call_id, "type": "function", "function": function}]
        self.messages += [
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": call_id, "content": result},
        ]
        self.tokens += COUNTER.count(result)

    def search(self, query: str, hits: Sequence[Hit]) -> None:
        """Add a search. Its result has one of three formats."""
        self.call("search", {"query": query}, self._draw.choice((numbered, as_json, tagged))(hits))


def numbered(hits: Sequence[Hit]) -> str:
    """Return hits as numbered text."""
    return "\n\n".join(f"{number}. {hit.title}\n\n{hit.text}" for number, hit in enumerate(hits, 1))


def as_json(hits: Sequence[Hit]) -> str:
    """Return hits as JSON."""
    return json.dumps({"results": [{"title": hit.title, "text": hit.text} for hit in hits]}, ensure_ascii=False)


def tagged(hits: Sequence[Hit]) -> str:
    """Return hits as tagged documents."""
    return "\n".join(f"<document>\n<title>{hit.title}</title>\n{hit.text}\n</document>" for hit in hits)


def sentences(text: str) -> list[str]:
    """Return the sentences of a document that are long enough to be distinct."""
    return [part for part in text.replace("! ", ". ").replace("? ", ". ").split(". ") if len(part) >= 20] or [text]


class QuestionSet:
    """A corpus that is searched by BM25, and its questions."""

    def __init__(self, folder: Path, split: str) -> None:
        with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        self.hits = {row["id"]: Hit(row["title"], row["text"]) for row in rows}
        self.questions = [q for q in load_questions(folder / f"queries.{split}.jsonl") if q.gold]
        self._index = Bm25Index.of(Bm25Entry(row["id"], row["title"], row["text"]) for row in rows)

    def conversation(self, number: int, style: str, tokens: int, seed: int) -> PlayedConversation:
        """Return the conversation of one question."""
        question, draw = self.questions[number], random.Random(f"{seed}:{number}:{style}:{tokens}")
        player = Player(question.question, draw)
        gold = [document for document in question.gold if document in self.hits]
        if style == "dump":
            player.search(question.question, self._hits(question.question, DUMP, gold, draw))
        else:
            player.search(question.question, self._hits(question.question, HITS, gold[:1], draw))
        while player.tokens < tokens // 2:
            self._elsewhere(player, style, draw)
        if style != "dump":
            for document in gold:
                query = self.hits[document].title
                player.search(query, self._hits(query, HITS, [document], draw))
        while player.tokens < tokens:
            self._elsewhere(player, style, draw)
        player.call("note", {"text": "Next I will write the answer."}, "saved")
        texts = [self.hits[document].text for document in gold]
        return PlayedConversation(player.messages, tuple(part for text in texts for part in sentences(text)))

    def _hits(self, query: str, k: int, gold: Sequence[str], draw: random.Random) -> list[Hit]:
        ids = [document for document, _ in self._index.search(query, k)]
        missing = [document for document in gold if document not in ids]
        ids = ids[: k - len(missing)]
        for document in missing:
            ids.insert(draw.randrange(len(ids) + 1), document)
        return [self.hits[document] for document in ids]

    def _elsewhere(self, player: Player, style: str, draw: random.Random) -> None:
        """Add a call that the question does not need."""
        if style == "mixed" and draw.random() < 0.5:
            name, result = draw.choice((code_search, log_query, ticket_query))(draw)
            player.call(name, {"page": draw.randrange(100)}, result)
        else:
            query = draw.choice(self.questions).question
            player.search(query, self._hits(query, DUMP if style == "dump" else HITS, [], draw))


class InventedSet:
    """Generated questions about code, logs or records."""

    def __init__(self, make: Callable[[random.Random, int], PlayedConversation], questions: int = 200) -> None:
        self.questions = range(questions)
        self._make = make

    def conversation(self, number: int, style: str, tokens: int, seed: int) -> PlayedConversation:
        """Return the conversation of one question. The style makes no difference."""
        return self._make(random.Random(f"{seed}:{number}:{tokens}"), tokens)


def _filled(
    question: str,
    results: Sequence[str],
    other: Callable[[random.Random], tuple[str, str]],
    draw: random.Random,
    tokens: int,
) -> list[Message]:
    """Return the messages of an agent that gets these results at random times, among other results of the same tool."""
    player = Player(question, draw)
    pending = [*zip(sorted(draw.randrange(tokens) for _ in results), results, strict=True)]
    while player.tokens < tokens or pending:
        name, result = other(draw)
        if pending and player.tokens >= pending[0][0]:
            result = pending.pop(0)[1]
        player.call(name, {"page": draw.randrange(100)}, result)
    player.call("note", {"text": "Next I will write the answer."}, "saved")
    return player.messages


class SourceFunction(NamedTuple):
    """A function of this package: the first line of its docstring, and its source without the docstring."""

    file: Path
    summary: str
    lines: tuple[str, ...]


@cache
def source_functions() -> tuple[SourceFunction, ...]:
    """Return the functions of this package whose docstring has a first line of more than 40 characters."""
    root = Path(context_agent.__file__).parent
    rows = []
    for file in sorted(root.rglob("*.py")):
        lines = file.read_text(encoding="utf-8").split("\n")
        for node in ast.walk(ast.parse("\n".join(lines))):
            if not isinstance(node, ast.FunctionDef) or len(node.body) < 2:
                continue
            summary, doc = (ast.get_docstring(node) or "").split("\n")[0], node.body[0]
            if len(summary) > 40:
                source = [*lines[node.lineno - 1 : doc.lineno - 1], *lines[doc.end_lineno or 0 : node.end_lineno]]
                rows.append(SourceFunction(file.relative_to(root.parent), summary, tuple(source[:14])))
    return tuple(rows)


def matches(chosen: Sequence[SourceFunction]) -> str:
    """Return functions in the format of a code search."""
    return "\n\n".join(
        "\n".join(f"{function.file}:{number}: {line}" for number, line in enumerate(function.lines, 10))
        for function in chosen
    )


def code_search(draw: random.Random) -> tuple[str, str]:
    """Return the name of the code search tool, and a result."""
    return "code_search", matches(draw.sample(source_functions(), 8))


def code_conversation(draw: random.Random, tokens: int) -> PlayedConversation:
    """Return a question that describes a function in the words of its docstring. The results have no docstrings."""
    target = draw.choice(source_functions())
    chosen = [*draw.sample(source_functions(), 7), target]
    draw.shuffle(chosen)
    question = f"Which function does this, and how is it implemented: {target.summary}"
    messages = _filled(question, [matches(chosen)], code_search, draw, tokens)
    return PlayedConversation(messages, tuple(line for line in matches([target]).split("\n") if len(line) > 40))


SERVICES = ("gateway", "billing", "search", "mailer", "inventory", "login")
EVENTS = (
    "request accepted in {n} ms", "cache miss for key user:{n}", "retrying upstream, attempt {n}", "query took {n} ms",
    "connection pool has {n} idle connections", "job {n} scheduled", "session {n} refreshed",
)  # fmt: skip
INCIDENTS = {
    "x509: certificate has expired, peer 10.0.3.{n}": "Since when do we no longer trust the identity of the partner?",
    "no space left on device, segment {n} not written": "Which machine filled up its storage?",
    "deadlock detected, transaction {n} rolled back": "Two writers blocked each other in the database. Where was that?",
    "schema version {n} found, a newer one required": "What did not come up because nobody had run the migrations?",
    "429 from payments.example, backing off {n} s": "Where did the card processor throttle us?",
    "clock skew of {n} s exceeds tolerance, token rejected": "Whose time is so wrong that sign-ins are refused?",
    "OOMKilled: container exceeded {n} MiB": "Which process ate too much memory and was ended by the kernel?",
    "lookup db-primary on 10.0.0.{n}: no such host": "Where could a name not be resolved to an address?",
    "feature flag checkout_v2 enabled by user {n}": "Who activated the new purchase flow, and when?",
    "leader lost, election of term {n} started": "When had the cluster no coordinator?",
    "malformed UTF-8 in column comment, row {n} skipped": "Which record was dropped because of a broken encoding?",
    "5 wrong passwords for account {n}, locked": "Where do we see that somebody tried to guess credentials?",
    "snapshot {n} restored, later writes discarded": "Did we lose data when the backup was brought back?",
    "queue depth {n}, consumers 0": "When did messages pile up because nobody picked them up?",
    "replica lag {n} s, reads go to the primary": "When did the copies of the database fall behind?",
    "unexpected key 'retires' in line {n}, reload skipped": "Which typo in the settings kept the old ones active?",
}
"""The log line of each incident, and a question about it."""


def log_line(draw: random.Random, text: str, level: str = "INFO") -> str:
    """Return one line of a log."""
    clock = f"2026-03-{draw.randrange(1, 29):02d} {draw.randrange(24):02d}:{draw.randrange(60):02d}:01"
    request = f"{draw.randrange(1 << 40):010x}"
    return f"{clock} {level} {draw.choice(SERVICES)} request={request} {text.format(n=draw.randrange(9_000))}"


def log_lines(draw: random.Random, number: int, without: str = "") -> list[str]:
    """Return lines of a log. About one in thirty reports an incident, but never the incident `without`."""
    others = [incident for incident in INCIDENTS if incident != without]
    return [
        log_line(draw, draw.choice(others), "WARN") if draw.random() < 1 / 30 else log_line(draw, draw.choice(EVENTS))
        for _ in range(number)
    ]


def log_query(draw: random.Random, without: str = "") -> tuple[str, str]:
    """Return the name of the log query tool, and a result."""
    return "query_logs", "\n".join(log_lines(draw, 40, without))


def log_conversation(draw: random.Random, tokens: int) -> PlayedConversation:
    """Return a question about an incident. Two lines in two results answer it."""
    incident = draw.choice(list(INCIDENTS))
    evidence = [log_line(draw, incident, "WARN") for _ in range(2)]
    results = []
    for line in evidence:
        lines = log_lines(draw, 39, incident)
        lines.insert(draw.randrange(40), line)
        results.append("\n".join(lines))
    messages = _filled(INCIDENTS[incident], results, lambda draw: log_query(draw, incident), draw, tokens)
    return PlayedConversation(messages, tuple(evidence))


NAMES = "Ana Berg,Jon Dahl,Mia Holm,Leo Stern,Ida Lund,Max Kern,Eva Blau,Tom Rohde,Lea Winter,Nils Aas".split(",")
CITIES = "Tromsø,Graz,Porto,Turku,Bergen,Ghent,Basel,Kiel,Lyon,Brno".split(",")
ROUTINE = (
    "Where is my parcel? It was sent {n} days ago.", "Thank you, it works now.", "Which colours are there?",
    "Can I pick it up in the shop on {n} Main Street?", "I would like to change the address to number {n}.",
    "How long is the warranty?", "Please send the manual again.", "Do you also ship to islands?",
)  # fmt: skip
COMPLAINTS = {
    "The screen was cracked when I opened the box.": "Whose goods were broken on arrival?",
    "You billed me twice for the same month.": "Which customer paid double?",
    "Since the update the app closes as soon as I open the camera.": "For whom does it crash when taking pictures?",
    "The courier left it with a neighbour who has moved away.": "Whose delivery went to somebody who is gone?",
    "I changed my phone and never get the login code.": "Who is locked out because of the second factor?",
    "Please delete everything you know about me.": "Who demands the erasure of personal data?",
    "The invoice lacks our tax number, so we cannot book it.": "Whose bill needs a VAT id?",
    "It gets hot enough to burn my hand while charging.": "Is there a report of a dangerous battery?",
    "I ordered size 42 and got 39.": "To whom did we send shoes that do not fit?",
    "The discount code from your letter is rejected.": "Whose voucher is not accepted at checkout?",
    "Your newsletter keeps coming though I unsubscribed.": "Who gets advertising against their will?",
    "My late father's account should be closed.": "Which account belongs to a person who died?",
    "The page is silent in my screen reader.": "Which blind visitor cannot use the site?",
    "Customs want 40 euros before they release it.": "Whose shipment is stuck at the border until duties are paid?",
    "We need 200 pieces, is there a lower price?": "Who wants to buy in bulk and hopes for a rebate?",
    "It makes a grinding noise and then stops spinning.": "Which machine has a mechanical defect?",
}
"""The text of each complaint, and a question about it."""


def ticket(draw: random.Random, text: str) -> dict[str, Any]:
    """Return a support ticket."""
    return {
        "ticket": f"A-{draw.randrange(10**6):06d}",
        "customer": {"name": draw.choice(NAMES), "city": draw.choice(CITIES)},
        "product": f"S{draw.randrange(10**5)}",
        "status": draw.choice(("open", "waiting", "closed")),
        "text": text.format(n=draw.randrange(90)),
    }


def tickets(draw: random.Random, number: int, without: str = "") -> list[dict[str, Any]]:
    """Return support tickets. About one in four is a complaint, but never the complaint `without`."""
    others = [complaint for complaint in COMPLAINTS if complaint != without]
    return [ticket(draw, draw.choice(others if draw.random() < 1 / 4 else ROUTINE)) for _ in range(number)]


def as_tickets(rows: Sequence[dict[str, Any]]) -> str:
    """Return tickets as JSON."""
    return json.dumps({"tickets": rows}, ensure_ascii=False)


def ticket_query(draw: random.Random, without: str = "") -> tuple[str, str]:
    """Return the name of the ticket query tool, and a result."""
    return "list_tickets", as_tickets(tickets(draw, 20, without))


def ticket_conversation(draw: random.Random, tokens: int) -> PlayedConversation:
    """Return a question about one ticket."""
    complaint = draw.choice(list(COMPLAINTS))
    target = ticket(draw, complaint)
    rows = tickets(draw, 19, complaint)
    rows.insert(draw.randrange(20), target)
    question = COMPLAINTS[complaint]
    messages = _filled(question, [as_tickets(rows)], lambda draw: ticket_query(draw, complaint), draw, tokens)
    return PlayedConversation(messages, (json.dumps(target, ensure_ascii=False),))


INVENTED = {"code": code_conversation, "logs": log_conversation, "json": ticket_conversation}
