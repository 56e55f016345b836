"""The rules of an invented world: kinds of entities, relations between them, and their wording.

A relation has one object for each subject: a person has one birthplace, for example. Only the subject's document states
it. The document and the question use different words. So a search for the question's words finds the first hop and no
further one.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

KINDS = ("person", "town", "work", "institution", "region", "prize")
SHARES = MappingProxyType({"town": 0.18, "work": 0.22, "institution": 0.09, "region": 0.05, "prize": 0.04})
"""The share of each kind among the entities. The rest are persons."""
YEAR, WORD = "year", "word"
"""The targets of relations that do not lead to an entity."""


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation from one kind of entity to another, to a year or to a word.

    In the texts, {x} is the subject and {y} is the object.

    Attributes:
        name: The name of the relation.
        source: The kind of the subject.
        target: The kind of the object, `year` or `word`.
        says: Sentences of a document that state the relation.
        asks: Questions for the object.
        noun: Descriptions of the object by its subject. The first one can be nested: `the N of {x}`.
        clause: Properties of the subject.
        earlier: The question that compares two subjects, {a} and {b}, by this year.
        hidden: The words of a clue in place of the object.
    """

    name: str
    source: str
    target: str
    says: tuple[str, ...]
    asks: tuple[str, ...]
    noun: tuple[str, ...] = ()
    clause: tuple[str, ...] = ()
    earlier: str = ""
    hidden: str = ""

    @property
    def to_entity(self) -> bool:
        """True if the object is an entity, from which another hop can start."""
        return self.target in KINDS


@dataclass(frozen=True, slots=True)
class Wording:
    """The relations of a world in the words of one vocabulary."""

    relations: tuple[Relation, ...]

    def of(self, kind: str) -> tuple[Relation, ...]:
        """Return the relations of a kind of entity."""
        return tuple(relation for relation in self.relations if relation.source == kind)

    def relation(self, source: str, name: str) -> Relation:
        """Return the relation with that subject and name."""
        return next(relation for relation in self.relations if relation.source == source and relation.name == name)

    def words(self) -> set[str]:
        """Return every word of the sentences in lower case. Invented names must avoid these words."""
        texts = [
            text
            for relation in self.relations
            for text in (*relation.says, *relation.asks, *relation.noun, *relation.clause, relation.earlier)
        ]
        texts += [relation.hidden for relation in self.relations]
        return {word.strip("{}.,?").lower() for text in (*texts, *KINDS) for word in text.split()}


FULL = Wording(
    relations=(
        Relation(
            "trade", "person", WORD, hidden="certain artisan",
            says=("{x} was a {y} by trade.", "{x} made a living as a {y}.", "{x} is remembered as a {y}."),
            asks=("What was the profession of {x}?", "What did {x} do for a living?"),
        ),
        Relation(
            "birthplace", "person", "town", hidden="some town",
            says=("{x} came into the world in {y}.", "{x} was a native of {y}.", "{x} hailed from {y}."),
            asks=("Where was {x} born?", "In which town was {x} born?"),
            noun=("the birthplace of {x}", "the town where {x} was born"),
            clause=("was born in {y}",),
        ),
        Relation(
            "born", "person", YEAR, hidden="a certain year",
            says=("{x} first saw the light of day in {y}.", "{x} arrived as the youngest of the house in {y}."),
            asks=("In what year was {x} born?", "When was {x} born?"),
            earlier="Who was born earlier, {a} or {b}?",
        ),
        Relation(
            "teacher", "person", "person", hidden="someone older",
            says=("{x} was a pupil of {y}.", "{x} learned the craft from {y}.", "{x} spent years apprenticed to {y}."),
            asks=("Who taught {x}?", "Who was the teacher of {x}?"),
            noun=("the teacher of {x}", "the person who taught {x}"),
            clause=("was taught by {y}", "studied with {y}"),
        ),
        Relation(
            "employer", "person", "institution", hidden="some institution",
            says=("{x} served {y} for many years.", "{x} was on the payroll of {y}.", "{x} joined {y} when young."),
            asks=("Which institution did {x} work for?", "Who employed {x}?"),
            noun=("the employer of {x}", "the institution that {x} worked for"),
            clause=("worked for {y}", "was employed by {y}"),
        ),
        Relation(
            "prize", "person", "prize", hidden="some prize",
            says=("{x} was honoured with {y}.", "{x} took home {y}.", "{x} was a laureate of {y}."),
            asks=("Which prize did {x} win?", "What award did {x} receive?"),
            noun=("the prize won by {x}", "the award that {x} received"),
            clause=("won {y}", "received {y}"),
        ),
        Relation(
            "region", "town", "region", hidden="some region",
            says=("{x} belongs to {y}.", "{x} is a settlement in the south of {y}.", "{x} stands on a hill in {y}."),
            asks=("In which region does {x} lie?", "Which region is {x} part of?"),
            noun=("the region of {x}", "the region where {x} lies"),
            clause=("lies in {y}",),
        ),
        Relation(
            "craft", "town", WORD, hidden="something it makes",
            says=("{x} sells its {y} far and wide.", "{x} lives from {y}.", "{x} has long been renowned for {y}."),
            asks=("What is {x} known for?", "Which product is {x} known for?"),
        ),
        Relation(
            "chartered", "town", YEAR, hidden="a certain year",
            says=("{x} got its charter in {y}.", "{x} has had market rights since {y}."),
            asks=("In what year did {x} become a town?",),
            earlier="Which became a town earlier, {a} or {b}?",
        ),
        Relation(
            "capital", "region", "town", hidden="one of its towns",
            says=("{x} is governed from {y}.", "{x} has its assembly in {y}."),
            asks=("What is the capital of {x}?",),
            noun=("the capital of {x}",),
            clause=("has {y} as its capital",),
        ),
        Relation(
            "ruler", "region", "person", hidden="somebody",
            says=("{x} was united under {y}.", "{x} owes its laws to {y}, who led it at the start."),
            asks=("Who first ruled {x}?", "Who was the first ruler of {x}?"),
            noun=("the first ruler of {x}", "the person who first ruled {x}"),
            clause=("was first ruled by {y}",),
        ),
        Relation(
            "maker", "work", "person", hidden="somebody",
            says=("{x} is from the hand of {y}.", "{x} was brought before the public by {y}.", "{x} is signed by {y}."),
            asks=("Who created {x}?", "Who is the author of {x}?"),
            noun=("the author of {x}", "the person who created {x}"),
            clause=("was created by {y}",),
        ),
        Relation(
            "setting", "work", "town", hidden="some town",
            says=("{x} takes place in {y}.", "{x} plays out in the streets of {y}."),
            asks=("Where is {x} set?", "In which town is {x} set?"),
            noun=("the setting of {x}", "the town where {x} is set"),
            clause=("is set in {y}",),
        ),
        Relation(
            "sort", "work", WORD, hidden="some kind",
            says=("{x} is usually filed under {y}.", "{x} stands on the shelf marked {y}."),
            asks=("What kind of work is {x}?",),
        ),
        Relation(
            "shown", "work", YEAR, hidden="a certain year",
            says=("{x} reached its audience in {y}.", "{x} had its first showing in {y}."),
            asks=("In what year did {x} come out?", "When was {x} published?"),
            earlier="Which work came out earlier, {a} or {b}?",
        ),
        Relation(
            "founder", "institution", "person", hidden="somebody",
            says=("{x} goes back to {y}.", "{x} was called to life by {y}.", "{x} owes its existence to {y}."),
            asks=("Who founded {x}?", "Who was the founder of {x}?"),
            noun=("the founder of {x}", "the person who founded {x}"),
            clause=("was founded by {y}",),
        ),
        Relation(
            "seat", "institution", "town", hidden="some town",
            says=("{x} has its halls in {y}.", "{x} keeps its offices in {y}."),
            asks=("Where is {x} based?", "In which town is {x} based?"),
            noun=("the seat of {x}", "the town where {x} is based"),
            clause=("is based in {y}",),
        ),
        Relation(
            "opened", "institution", YEAR, hidden="a certain year",
            says=("{x} opened its doors in {y}.", "{x} held its first meeting in {y}."),
            asks=("In what year was {x} founded?", "When was {x} founded?"),
            earlier="Which institution was founded earlier, {a} or {b}?",
        ),
        Relation(
            "giver", "prize", "institution", hidden="some institution",
            says=("{x} is handed out by {y}.", "{x} is paid for by {y}."),
            asks=("Which institution awards {x}?",),
            noun=("the giver of {x}", "the institution that awards {x}"),
            clause=("is awarded by {y}",),
        ),
        Relation(
            "memory", "prize", "person", hidden="somebody",
            says=("{x} keeps alive the memory of {y}.", "{x} commemorates {y}."),
            asks=("In whose honour was {x} established?", "Who is honoured by {x}?"),
            noun=("the person honoured by {x}", "the person in whose honour {x} was established"),
            clause=("honours {y}",),
        ),
        Relation(
            "begun", "prize", YEAR, hidden="a certain year",
            says=("{x} was handed over for the first time in {y}.",),
            asks=("In what year was {x} first awarded?",),
            earlier="Which prize was first awarded earlier, {a} or {b}?",
        ),
    ),
)  # fmt: skip
"""The wording with a free vocabulary. It has several ways to state each relation and to ask for it."""


def _small_relation(name: str, source: str, target: str, *, noun: str = "", earlier: str = "") -> Relation:
    """Return a relation in few words, stated as `x has the noun y` and asked as `who (what) is the noun of x`.

    Statement and question use the same word, so a small model need not learn synonyms.
    """
    what = noun or name
    asks = f"{'Who' if target == 'person' else 'What'} is the {what} of {{x}} ?"
    to_entity = target in KINDS
    return Relation(
        name,
        source,
        target,
        says=(f"{{x}} has the {what} {{y}} .",),
        asks=(asks,),
        noun=(f"the {what} of {{x}}",) if to_entity else (),
        clause=(f"has the {what} {{y}}",) if to_entity else (),
        earlier=earlier,
        hidden="some one",
    )


SMALL = Wording(
    relations=(
        _small_relation("trade", "person", WORD),
        _small_relation("home", "person", "town"),
        _small_relation("birth", "person", YEAR, noun="birth year", earlier="Who is older , {a} or {b} ?"),
        _small_relation("teacher", "person", "person"),
        _small_relation("house", "person", "institution"),
        _small_relation("prize", "person", "prize"),
        _small_relation("region", "town", "region"),
        _small_relation("craft", "town", WORD),
        _small_relation("start", "town", YEAR, noun="start year", earlier="Which town is older , {a} or {b} ?"),
        _small_relation("capital", "region", "town"),
        _small_relation("ruler", "region", "person"),
        _small_relation("maker", "work", "person"),
        _small_relation("scene", "work", "town"),
        _small_relation("sort", "work", WORD),
        _small_relation("date", "work", YEAR, earlier="Which work is older , {a} or {b} ?"),
        _small_relation("founder", "institution", "person"),
        _small_relation("seat", "institution", "town"),
        _small_relation(
            "opening",
            "institution",
            YEAR,
            noun="opening year",
            earlier="Which house is older , {a} or {b} ?",
        ),
        _small_relation("giver", "prize", "institution"),
        _small_relation("patron", "prize", "person"),
        _small_relation("award", "prize", YEAR, noun="award year", earlier="Which prize is older , {a} or {b} ?"),
    ),
)
"""The wording for small models. It has one way to state and one way to ask, with punctuation separated from words."""
