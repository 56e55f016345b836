"""Tool results for tests of agents: long texts, one of which answers the question."""

QUESTION = "When is high tide in Orm?"
TOPICS = ("violins", "high tide in Orm", "weather", "orchards")
ANSWER = "High tide in Orm is at six."
BUDGET = 500
OPTIONS = {"strategy": "bm25"}


def search(topic: str) -> str:
    """Entries on a topic."""
    first = f"{ANSWER} " if topic == TOPICS[1] else ""
    return "\n\n".join(f"{first}Entry {number} on {topic}. " + f"More about {topic}. " * 40 for number in range(4))
