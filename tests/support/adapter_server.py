"""A server in vLLM's place: it speaks its interface, loads LoRA adapters, and samples with a tiny model.

`fault` is what it does wrong with the adapters that it accepts.
"""

from __future__ import annotations

import asyncio
import copy
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from context_agent.policies.tokens.engines import SampleRequest
from context_agent.policies.tokens.engines.transformers import TransformersEngine


class Fault(StrEnum):
    """What a server does with an adapter that it has accepted."""

    NONE = "none"
    FROZEN = "frozen"
    """It samples from the base model."""
    SWAPPED = "swapped"
    """It samples with the adapter that it had before."""
    HALF = "half"
    """It has only every other tensor of the adapter."""


class AdapterServer(ThreadingHTTPServer):
    """Serves each loaded adapter by its name. It refuses names that end with `refused`, and names that it has loaded.

    One reply is sampled at a time, so a seed's reply does not depend on what else is asked.
    """

    def __init__(self, model: Any) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.model = model
        self.engines: dict[str, TransformersEngine] = {}
        self.asked: list[str] = []
        self.scored: list[str] = []
        self.refused = ""
        self.fault = Fault.NONE
        self._before: Any = model

    @property
    def url(self) -> str:
        """Its address, as `engine.base_url` takes it."""
        return f"http://127.0.0.1:{self.server_port}/v1"

    @property
    def loaded(self) -> set[str]:
        """The names of the loaded adapters."""
        return set(self.engines)

    def reset(self) -> None:
        """Forget adapters, requests and faults."""
        for name in list(self.engines):
            self.unload(name)
        self.asked.clear()
        self.scored.clear()
        self.refused, self.fault, self._before = "", Fault.NONE, self.model

    def serve(self, name: str, model: Any = None) -> None:
        """Serve a model, by default the base, under a name."""
        self.engines[name] = TransformersEngine(model or self.model, version=name, max_batch=1, wait=0.0)

    def load(self, name: str, folder: str) -> None:
        """Load an adapter, or fail as the fault says."""
        import torch
        from peft import PeftModel

        adapted = PeftModel.from_pretrained(copy.deepcopy(self.model), folder).eval()
        if self.fault is Fault.HALF:
            with torch.no_grad():
                for number, (weight, value) in enumerate(adapted.named_parameters()):
                    if "lora_B" in weight and number % 4 == 1:
                        value.zero_()
        before, self._before = self._before, adapted
        served = {Fault.FROZEN: self.model, Fault.SWAPPED: before}.get(self.fault, adapted)
        self.serve(name, served)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that have gone, because a run that stops leaves requests behind."""

    def unload(self, name: str) -> None:
        """Forget an adapter."""
        self.engines.pop(name).close()


class _Handler(BaseHTTPRequestHandler):
    server: AdapterServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        match self.path:
            case "/v1/load_lora_adapter" if (end := self.server.refused) and body["lora_name"].endswith(end):
                self._answer(500, {"error": "no room for adapters"})
            case "/v1/load_lora_adapter" if body["lora_name"] in self.server.engines:
                self._answer(400, {"error": "the adapter has already been loaded"})
            case "/v1/load_lora_adapter":
                assert (Path(body["lora_path"]) / "adapter_model.safetensors").is_file()
                self.server.load(body["lora_name"], body["lora_path"])
                self._answer(200, {})
            case "/v1/unload_lora_adapter":
                self.server.unload(body["lora_name"])
                self._answer(200, {})
            case _ if body["model"] not in self.server.engines:
                self._answer(404, {"error": f"no model {body['model']}"})
            case _ if "prompt_logprobs" in body:
                self._score(body)
            case _:
                self._complete(body)

    def _complete(self, body: dict[str, Any]) -> None:
        self.server.asked.append(body["model"])
        request = SampleRequest(
            body["prompt"],
            body["max_tokens"],
            body["stop_token_ids"],
            body["temperature"],
            body["top_p"],
            body.get("seed"),
        )
        sample = asyncio.run(self.server.engines[body["model"]].generate(request))
        choice = {
            "token_ids": sample.ids,
            "logprobs": {"token_logprobs": sample.logprobs},
            "finish_reason": sample.finish.value,
        }
        self._answer(200, {"choices": [choice]})

    def _score(self, body: dict[str, Any]) -> None:
        self.server.scored.append(body["model"])
        ids = body["prompt"]
        score = asyncio.run(self.server.engines[body["model"]].score(ids))
        entries = [
            {str(token): {"logprob": value, "rank": 1, "decoded_token": "w"}}
            for token, value in zip(ids[1:], score.logprobs, strict=True)
        ]
        self._answer(200, {"choices": [{"text": "", "finish_reason": "length", "prompt_logprobs": [None, *entries]}]})

    def _answer(self, status: int, data: dict[str, Any]) -> None:
        text = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def serving(folder: Path) -> Iterator[AdapterServer]:
    """Yield a server of the model in the folder."""
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    server = AdapterServer(model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.reset()
        server.shutdown()
