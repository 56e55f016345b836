"""Pages on films and their directors, written like an encyclopedia."""

import random

from context_agent import Document

FIRST = "Alda Boris Clea Doran Elka Faro Gerda Hanno Ilse Jorn Katja Lenz".split()
LAST = "Abeling Brunner Castor Delius Ebner Fabri Gruber Holst Imhof Janke Keller Lorenz".split()
TOWNS = "Varnholt Osterby Lindhaven Mirrow Kestenau Drellen".split()
NOUNS = "Lantern Harvest Signal Orchard Crossing Quarry Winter Passage".split()


def films(seed=0, count=60):
    """Films and their directors, written like an encyclopedia."""
    rng = random.Random(seed)
    names = [f"{first} {last}" for first in FIRST for last in LAST]
    rng.shuffle(names)
    documents = []
    for number in range(count):
        name, town = names[number], rng.choice(TOWNS)
        born = f"{rng.randint(1, 28)} May {rng.randint(1900, 1950)}"
        documents.append(
            Document(
                f"p{number}",
                f"{name} (born {born}) is a Norland film director. He was born in {town}. "
                f"He moved to the coast in {rng.randint(1951, 1990)} after a long illness.",
                name,
            )
        )
        title = f"The {names[-number - 1].split()[1]} {NOUNS[number % len(NOUNS)]} of {number}"
        documents.append(
            Document(
                f"f{number}",
                f"{title} is a {1950 + number % 40} Norland drama film directed by {name}. It was shot near {town}.",
                title,
            )
        )
    return documents
