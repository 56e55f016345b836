"""The paths of model APIs whose requests contain a conversation, and the API whose prefix cache a request uses."""

from __future__ import annotations

import re

COHERE_HISTORY = "chat_history"
"""The field of Cohere's first chat API, in which the newest messages have fields of their own."""
CODE_ASSIST_CONTENTS = "request.contents"
"""The path to the contents in requests to Gemini Code Assist, which Gemini CLI sends after a login with Google."""
DASHSCOPE_MESSAGES = "input.messages"
"""The path to the messages in requests to DashScope's own API, which Alibaba's client and Qwen-Agent use."""
CONVERSATION_FIELDS = {
    "/v1/chat/completions": "messages",
    "/chat/completions": "messages",
    "/v1/responses": "input",
    "/responses": "input",
    "/v1/responses/compact": "input",
    "/responses/compact": "input",
    "/v1/messages": "messages",
    "/v2/chat": "messages",
    "/v1/chat": COHERE_HISTORY,
    "/api/chat": "messages",
    "/interactions": "input",
    "/v1/conversations": "inputs",
    "/v1/agents/completions": "messages",
    "/aigc/text-generation/generation": DASHSCOPE_MESSAGES,
    "/aigc/multimodal-generation/generation": DASHSCOPE_MESSAGES,
}
"""The ends of paths whose requests are pruned, and the field that holds the conversation.

Some servers that speak OpenAI's API have no `/v1`, such as the one of ChatGPT plans. Cohere has `/v1/chat` and
`/v2/chat`. Ollama's own API has `/api/chat`, and Gemini's Interactions API has `/v1beta/interactions`. Mistral has
`/v1/conversations` and `/v1/agents/completions`. Gateways and clouds have more before these ends, such as
`/openai/deployments/NAME`. What OpenAI summarizes for `/v1/responses/compact` may be larger than the model's window,
unless it is pruned as before.
"""
_MODEL_PATHS = (
    (
        re.compile(
            r"/v1(?:alpha|beta)?\d?/(?:[^/]{1,200}/){0,8}(?:models|tunedModels|endpoints)/[^/]{1,200}"
            r":(?:stream)?generateContent\Z",
            re.I,
        ),
        "contents",
    ),
    (re.compile(r"/v1internal:(?:stream)?generateContent\Z", re.I), CODE_ASSIST_CONTENTS),
    (re.compile(r"/model/[^/]{1,400}/(?:converse(?:-stream)?|invoke(?:-with-response-stream)?)\Z"), "messages"),
    (re.compile(r"/v1/(?:[^/]{1,200}/){0,8}models/[^/]{1,200}:(?:streamR|r)awPredict\Z"), "messages"),
)
"""The paths that name a model, of Gemini's API, of Bedrock's APIs, and of partners' models on Vertex AI.

Gateways have more before them. On Vertex AI, a tuned model of Gemini is an endpoint. The body of Bedrock's `invoke` is
the model's own. Those of Anthropic's and of Amazon's models have `messages`.
"""
_ANTHROPIC_PATH = re.compile(r"/v1/messages|/publishers/anthropic/|/model/[^/]{0,400}anthropic[^/]{0,400}/invoke")
"""A part of the paths of Anthropic's API: of Anthropic itself, of Vertex AI and of Bedrock."""
_BEDROCK_OPERATION = re.compile(r"/model/[^/]{1,400}/(converse|invoke)(?:-stream|-with-response-stream)?\Z")
OPENAI_HOST = "api.openai.com"
"""The host of OpenAI's API. The hosts of its regions end with it."""


def conversation_field(path: str) -> str | None:
    """Return the field that holds the conversation in requests to this path. For any other path, return None.

    Many servers ignore slashes at the end of a path.
    """
    path = path.rstrip("/")
    by_end = (field for end, field in CONVERSATION_FIELDS.items() if path.endswith(end))
    by_model = (field for pattern, field in _MODEL_PATHS if pattern.search(path))
    return next(by_end, None) or next(by_model, None)


def bedrock_operation(path: str) -> str:
    """Return the operation of Bedrock that a path names, `converse` or `invoke`. For any other path, return `""`."""
    found = _BEDROCK_OPERATION.search(path.rstrip("/"))
    return found[1] if found else ""


def caching_api(host: str, path: str) -> str:
    """Return the API whose prefix cache a request to this host and path uses: `anthropic`, `openai` or neither."""
    if _ANTHROPIC_PATH.search(path):
        return "anthropic"
    return "openai" if f".{host}".endswith(f".{OPENAI_HOST}") else ""
