"""An agent that asks through a base address of its environment, and the server that answers it."""

import json

from tests.support.upstream import Reply

OPENAI_ANSWER = {
    "id": "x", "object": "chat.completion", "created": 1, "model": "gpt-5",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "At six."}}],
}  # fmt: skip


ANTHROPIC_ANSWER = {
    "id": "x", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "stop_reason": "end_turn",
    "content": [{"type": "text", "text": "At six."}], "usage": {"input_tokens": 1, "output_tokens": 1},
}  # fmt: skip


AGENT = """
import json, openai, sys
messages = json.load(open("conversation.json"))
answer = openai.OpenAI(max_retries=0).chat.completions.create(model="gpt-5", messages=messages)
print(answer.choices[0].message.content)
sys.exit(7)
"""


def answer(received):
    body = ANTHROPIC_ANSWER if received.path.startswith("/v1/messages") else OPENAI_ANSWER
    return Reply(json.dumps(body).encode(), headers=[("Content-Type", "application/json")])
