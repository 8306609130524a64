"""Predict with llama.cpp through the package xllamacpp. No torch.

The package has no other way to give tokens than its HTTP server. That answers on this machine alone, and nothing to
anyone without a key that is made for each engine and that only this process knows: no page of llama.cpp's own, no list
of models or slots; the paths themselves are unknown to others, and no web page may read an answer.
"""

from __future__ import annotations

import importlib
import json
import secrets
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.config import DecodeConfig
from glassformer.errors import CheckpointError, UsageError
from glassformer.interop.choose import Engine
from glassformer.interop.export_facts import ExportFacts
from glassformer.interop.gguf_writer import check_gguf
from glassformer.runs.folder import TOKENIZER
from glassformer.text.tokenizer import Tokenizer

FILE = "model.gguf"
N_POSITIONS = 4
"""Positions of a text whose logits are computed, each by a request of its own."""
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def load_engine(path: Path, facts: ExportFacts, device: str) -> GgufEngine:
    """Return the engine of an exported folder; keys and values are float32, where llama.cpp's default is float16.

    Raises:
        CheckpointError: the library cannot read the file.
        UsageError: it is not installed.
    """
    try:
        xllamacpp: Any = importlib.import_module("xllamacpp")
    except ImportError as error:
        hint = 'install it: pip install "glassformer[gguf]"'
        raise UsageError("an export for gguf needs the package xllamacpp", hint) from error
    p = xllamacpp.CommonParams()
    p.model.path = str(path / FILE)
    p.n_ctx, p.n_parallel, p.warmup, p.verbosity = facts.context + 1, 1, False, -1
    # Its threads spin while they wait for each other: while another program ran, two took 25 times as long as one.
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 1
    p.n_gpu_layers = 0 if device == "cpu" else -1
    p.cache_type_k = p.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    p.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    key, prefix = secrets.token_urlsafe(32), f"/{secrets.token_urlsafe(32)}"
    p.hostnames, p.port, p.reuse_port = ["127.0.0.1"], 0, False
    p.api_keys, p.api_prefix = [key], prefix
    p.ui = p.ui_mcp_proxy = p.endpoint_metrics = p.endpoint_props = p.endpoint_slots = False
    p.cors_origins, p.cors_origins_explicit, p.cors_credentials = "http://localhost:0", True, False
    p.use_jinja = p.enable_chat_template = False
    tokenizer = Tokenizer.load(path / TOKENIZER)
    check_gguf(path / FILE, facts, tokenizer.vocabulary())
    try:
        server = xllamacpp.Server(p)
    except RuntimeError as error:
        raise CheckpointError(f"llama.cpp cannot read {path / FILE}: {error}", "export the run again") from error
    return GgufEngine(server, tokenizer, key, prefix)


class GgufEngine(Engine):
    """A server of llama.cpp in this process.

    Args:
        server: the `xllamacpp.Server`.
        tokenizer: the tokenizer of the run; llama.cpp is given ids.
        key: what the server asks for.
        prefix: what its paths begin with.
    """

    def __init__(self, server: Any, tokenizer: Tokenizer, key: str, prefix: str) -> None:
        self._server, self._t, self._prefix = server, tokenizer, prefix
        self._headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        self.n_tokens = tokenizer.vocab_size

    def generate(
        self, prompts: Sequence[list[int]], decode: DecodeConfig, n_new: int, places: Sequence[tuple[int, int]]
    ) -> list[list[int]]:
        t, generated = self._t, list[list[int]]()
        settings = {"temperature": decode.temperature, "top_k": decode.top_k, "top_p": decode.top_p}
        settings |= {"min_p": decode.min_p, "samplers": ["top_k", "top_p", "min_p", "temperature"]}
        for prompt, (row, n_before) in zip(prompts, places, strict=True):
            answer = self._complete(
                prompt,
                n_predict=n_new,
                seed=(decode.decode_seed + 1_000_003 * row + n_before) % 2**31,
                logit_bias=[[token, False] for token in (t.pad_id, t.unk_id, t.bos_id, t.mask_id)],
                **settings,
            )
            ids = answer["tokens"]
            ended = answer.get("stop_type") == "eos" and ids[-1:] != [t.eos_id]
            generated.append([*ids, t.eos_id] if ended else ids)
        return generated

    def logits(self, ids: list[int]) -> np.ndarray:
        """Return log-probabilities after the last positions."""
        rows = np.zeros((min(N_POSITIONS, len(ids)), self._t.vocab_size))
        # Of a token that is part of a character llama.cpp reports nothing, so that another is made sure of.
        letter = [[self._t.encode("e")[0], 1000.0]]
        for row, end in enumerate(range(len(ids) - len(rows) + 1, len(ids) + 1)):
            answer = self._complete(ids[:end], n_predict=1, n_probs=rows.shape[1], temperature=0, logit_bias=letter)
            for one in answer["completion_probabilities"][0]["top_logprobs"]:
                rows[row, one["id"]] = one["logprob"]
        return rows

    def _complete(self, prompt: list[int], **settings: Any) -> dict[str, Any]:
        data = json.dumps({"prompt": prompt, "return_tokens": True, **settings}).encode("utf-8")
        url = f"{self._server.listening_address}{self._prefix}/completion"
        try:
            # Without the proxies of the environment, which would receive the key.
            with _OPENER.open(urllib.request.Request(url, data, self._headers)) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            reason = error.read().decode("utf-8", "replace")
            raise UsageError(f"llama.cpp refuses a request: {reason}") from error
