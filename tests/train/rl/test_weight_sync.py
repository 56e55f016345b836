"""What a server is told when weights change, as a fake server records it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from context_agent.errors import ConfigError, PolicyError
from context_agent.policies.tokens.engines.vllm import VllmEngine

pytest.importorskip("trl", reason="needs the train extra")

from context_agent.train.config import RolloutConfig
from context_agent.train.rl.loop import ReinforcementLoop
from context_agent.train.rl.weight_sync import NOTHING_SENT, AdapterSync, SentWeights
from tests.support.rollout_loops import NoSync


class Model:
    """A model that saves a placeholder as its adapter."""

    peft_config = "an adapter's"

    def named_parameters(self) -> Any:
        import torch

        return iter([("weight", torch.zeros(100)), ("lora_A", torch.zeros(5))])

    def save_pretrained(self, folder: Path, *, selected_adapters: list[str]) -> None:
        assert selected_adapters == ["default"]
        folder.mkdir(parents=True)
        (folder / "adapter_model.safetensors").write_bytes(b"weights")


def trainer(model: Any) -> Any:
    accelerator = SimpleNamespace(
        unwrap_model=lambda wrapped: wrapped, is_main_process=True, wait_for_everyone=lambda: None
    )
    return SimpleNamespace(accelerator=accelerator, model=model)


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            exists = Path(body["lora_path"]).is_dir() if "lora_path" in body else None
            self.server.told.append((self.path, body["lora_name"], exists))  # type: ignore[attr-defined]
            self.send_response(self.server.status)  # type: ignore[attr-defined]
            self.end_headers()
            self.wfile.write(b"Success")

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    http_server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http_server.told, http_server.status = [], 200  # type: ignore[attr-defined]
    threading.Thread(target=http_server.serve_forever, daemon=True).start()
    yield http_server
    http_server.shutdown()


def adapters(server: Any, folder: Path) -> tuple[AdapterSync, VllmEngine]:
    url = f"http://127.0.0.1:{server.server_port}/v1"
    engine = VllmEngine(url, "base", version="0")
    return AdapterSync(engine, url, folder, "policy"), engine


def test_each_version_is_loaded_under_its_own_name_and_the_last_one_taken_off(server: Any, tmp_path: Path) -> None:
    weights, engine = adapters(server, tmp_path)
    fake_trainer = trainer(Model())
    weights.attach(fake_trainer)
    weights.push(fake_trainer, 0)
    prefix = engine.model.removesuffix("-0")
    assert prefix.startswith("policy-")
    assert (engine.model, engine.version) == (f"{prefix}-0", "0")
    sent = weights.push(fake_trainer, 4)
    assert (sent.sent, sent.full) == (len(b"weights"), 400)
    assert not weights.push(fake_trainer, 4).metrics, "an update is sent once"
    assert (engine.model, engine.version) == (f"{prefix}-4", "4")
    assert server.told == [
        ("/v1/load_lora_adapter", f"{prefix}-0", True),
        ("/v1/load_lora_adapter", f"{prefix}-4", True),
        ("/v1/unload_lora_adapter", f"{prefix}-0", None),
    ]
    assert [path.name for path in tmp_path.iterdir()] == [f"{prefix}-4"]


def test_two_processes_use_different_names(server: Any, tmp_path: Path) -> None:
    names = set()
    for _ in range(2):
        weights, engine = adapters(server, tmp_path)
        weights.attach(trainer(Model()))
        weights.push(trainer(Model()), 4)
        names.add(engine.model)
    assert len(names) == 2


def test_a_server_that_refuses_or_is_gone_is_reported(server: Any, tmp_path: Path) -> None:
    weights, engine = adapters(server, tmp_path)
    server.status = 404
    with pytest.raises(PolicyError, match=r"refused load_lora_adapter of policy-2 .HTTP 404.*VLLM_ALLOW_RUNTIME_LORA"):
        weights.push(trainer(Model()), 2)
    assert engine.version == "0", "what samples is still the old one"
    server.shutdown()
    server.server_close()
    with pytest.raises(PolicyError, match=r"did not run load_lora_adapter of policy-3: .*cannot connect"):
        weights.push(trainer(Model()), 3)


def test_a_model_without_adapters_has_none_to_load(server: Any, tmp_path: Path) -> None:
    weights, _ = adapters(server, tmp_path)
    with pytest.raises(ConfigError, match=r"needs \[model\.lora\]"):
        weights.attach(trainer(object()))


@pytest.mark.parametrize(("every", "sent"), [(0, [0, 1, 2, 3, 4, 5, 6, 7]), (1, [0, 2, 4, 6]), (2, [0, 4])])
def test_a_server_gets_weights_every_so_many_steps_and_a_shared_model_after_each_update(
    every: int, sent: list[int]
) -> None:
    updates: list[int] = []

    class Recorder(NoSync):
        def push(self, trainer: Any, update: int) -> SentWeights:
            updates.append(update)
            return NOTHING_SENT

    config = RolloutConfig(steps=4, groups=2, rollouts=2, substeps=2)
    unused: Any = None
    loop = ReinforcementLoop(unused, unused, config, Recorder(), sync_every=every)
    for update in range(config.steps * config.substeps):
        loop.sync_weights(Mock(), update)
    assert updates == sent
