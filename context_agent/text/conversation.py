"""Conversations that are passed as one question, with lines such as `User: …` and `Assistant: …`."""

from __future__ import annotations

import re

_ANSWER = re.compile(r"^(?:assistant|ai|bot|agent): .*?(?=^(?:user|human|customer): |\Z)", re.M | re.S | re.I)


def without_answers(question: str) -> str:
    """Return a question without the answers in it. What an answer says is not what the user asks for."""
    return _ANSWER.sub("", question)
