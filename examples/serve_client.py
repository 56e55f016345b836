"""Start `ctx1 serve` on a few documents, and call it as a retriever, as events, as a chat model and with a judgment.

    python examples/serve_client.py

This script needs `pip install "context-agent[serve]" openai`. The server ends with the program.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx
import openai

from context_agent import Document, index_documents

DOCUMENTS = [
    Document("rope", "Rope is a film of 1948 directed by Alfred Hitchcock.", "Rope"),
    Document("hitchcock", "Alfred Hitchcock received the AFI Life Achievement Award in 1979.", "Alfred Hitchcock"),
    Document("bread", "Bread is made of flour, water and salt.", "Bread"),
]
QUESTION = "Which award did the director of Rope receive?"


def main() -> None:
    """Start the server, and make the calls one after another."""
    with tempfile.TemporaryDirectory() as folder:
        index_documents(DOCUMENTS, path=f"{folder}/index")
        ctx1 = str(Path(sys.executable).with_name("ctx1"))
        options = ["--path", f"{folder}/index", "--save", f"{folder}/kept", "--port", "0", "--json"]
        command = [ctx1, "serve", *options, "--log-level", "error"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            try:
                call(json.loads(server.stdout.readline())["url"])
            finally:
                server.terminate()


def call(url: str) -> None:
    """Call the server at this address in four ways."""
    asked = {"question": QUESTION, "k": 2}
    found = httpx.post(f"{url}/v1/retrieve", json=asked, timeout=60).json()
    for document in found["documents"]:
        print(f"retrieved {document['title']}: {document['chunks'][0]['text']}")

    with httpx.stream("POST", f"{url}/v1/retrieve", json={**asked, "stream": True}, timeout=60) as events:
        names = [line.removeprefix("event: ") for line in events.iter_lines() if line.startswith("event: ")]
    print(f"events: {names[0]}, ..., {names[-1]}")

    client = openai.OpenAI(base_url=f"{url}/v1", api_key="unused")
    completion = client.chat.completions.create(
        model="context-agent", messages=[{"role": "user", "content": QUESTION}], extra_body={"k": 1}
    )
    print(f"as a chat model: {completion.choices[0].message.content!r}")

    judgment = {"request_id": found["request_id"], "relevant": ["rope", "hitchcock"], "rating": 5}
    judged = httpx.post(f"{url}/v1/feedback", json=judgment)
    print(f"judged: {judged.status_code}")


if __name__ == "__main__":
    main()
