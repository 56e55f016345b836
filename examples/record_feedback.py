"""Record people's judgments on searches, and turn them into questions to train and measure on.

    python examples/record_feedback.py

`ctx1 serve` takes judgments over HTTP, and `ctx1 synth from-feedback` makes the questions.
"""

from __future__ import annotations

import tempfile

from context_agent import Document, MemoryCorpus, SearchAgent
from context_agent.integrations.feedback import FeedbackLog, judgment, load_judgments
from context_agent.synth_data.demonstrations.feedback_tasks import tasks_from_feedback

QUESTION = "Which award did the director of Rope receive?"
DOCUMENTS = [
    Document("rope", "Rope is a film of 1948 directed by Alfred Hitchcock.", "Rope"),
    Document("hitchcock", "Alfred Hitchcock received the AFI Life Achievement Award in 1979.", "Alfred Hitchcock"),
    Document("bread", "Bread is made of flour, water and salt.", "Bread"),
]


def main() -> None:
    """Print the question that two people's judgments became."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = MemoryCorpus(DOCUMENTS)
        with SearchAgent(corpus, trajectories=folder) as agent:
            result = agent.search(QUESTION)
        assert result.trajectory is not None
        searched = result.trajectory.stem
        log = FeedbackLog(folder)
        log.add(judgment(trajectory=searched, relevant=["rope", "hitchcock"], irrelevant=["bread"], user="ann"))
        log.add(judgment(trajectory=searched, relevant=["hitchcock"], rating=5, user="ben"))
        tasks, report = tasks_from_feedback(load_judgments(f"{folder}/feedback.jsonl"), log, corpus)
        print(f"{report.read} judgments, {report.tasks} question")
        for task in tasks:
            print(f"{task.question} gold: {', '.join(sorted(task.gold))}")


if __name__ == "__main__":
    main()
