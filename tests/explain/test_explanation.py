"""Tests of explanations: answers equal `predict`, tensors equal the forward pass, and omissions are reported.

The log of a beam search is compared with a naive search; logging does not change the search.
"""

from __future__ import annotations

import gc
import json
import math
import weakref
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.browser.models import subject_of
from tests.decode.toys import BOS, EOS, PAD, TableDecoder, log_probs, random_table
from tests.helpers.for_each import for_each

from glassformer.config import DecodeConfig
from glassformer.decode.incremental import TranslationDecoder
from glassformer.decode.search import SearchLog, beam_search
from glassformer.errors import CheckpointError, DivergedError, UsageError
from glassformer.explain.capture.slices import take_slice
from glassformer.explain.edits.effects import prediction_index
from glassformer.explain.explanation import Explanation, TraceRequest, compute_decoding, explain
from glassformer.explain.inputs import logged_search, translate
from glassformer.explain.page.manifest import plain, run_info
from glassformer.run import Run
from glassformer.runs.model_folder import save_checkpoint, save_snapshot
from glassformer.training.loop import TrainState

TEXTS = {"classify": "a b good c, d", "translate": "abcde", "lm": "abc ba"}
Runs = dict[str, Run]


@pytest.fixture(scope="module")
def runs() -> Runs:
    return {name: subject_of((name, {})) for name in TEXTS}


@for_each(
    ("name", "text", "options"),
    [
        ("translate", "abcde", {"beam_size": 4, "n_best": 3}),
        ("translate", "abcdefg" * 5, {"beam_size": 1}),
        ("translate", "  ", {"beam_size": 2}),
        ("translate", "", {"sample": True}),
        ("translate", "gab", {"sample": True, "temperature": 0.7, "n_best": 2}),
        ("lm", "abc ba", {"decode_seed": 1}),
        *(("lm", text, {"decode_seed": 0}) for text in ("abc ba", "", "abcd " * 9)),
    ],
)
def test_what_is_written_is_that_of_predict(runs: Runs, name: str, text: str, options: dict[str, Any]) -> None:
    e = runs[name].explain(text, **options, max_new_tokens=9)
    n = e.decode.settings.max_new_tokens  # fewer where the context of a language model is full
    assert (n < 9) == any("max_new_tokens was lowered" in warning for warning in e.warnings)
    expected, best = runs[name].predict(text, **options, max_new_tokens=n), e.decode.hypotheses
    assert e.answer["headline"] == expected["text" if name == "lm" else "translation"]
    assert name == "lm" or e.answer["headline"] == e.streams[1].text
    assert name == "lm" or best[0].score == pytest.approx(expected["score"], abs=1e-5)
    others = [hypothesis["translation"] for hypothesis in expected.get("n_best", [])]
    assert [hypothesis.text for hypothesis in best[: len(others)]] == others
    assert all(len(stream) <= 25 for stream in e.streams), "24, and the start token of a translation"


@for_each("name", TEXTS)
def test_tensors_equal_the_forward_pass_and_the_manifest(runs: Runs, name: str) -> None:
    e = runs[name].explain(TEXTS[name], beam_size=2, max_new_tokens=8)
    with torch.no_grad():
        expected = e.subject.model(**e.model_inputs)[0].numpy()
    np.testing.assert_allclose(e.tensor("logits"), expected, atol=1e-5)
    for node in e.manifest()["nodes"]:
        values = e.tensor(node["id"])
        assert values.shape == tuple(axis["size"] for axis in node["axes"])
        assert values.dtype == {"f32": np.float32, "i32": np.int32, "u8": np.uint8}[node["value"]]
        assert (node["min"], node["max"]) == (values.min(), values.max())
    named = dict(e.subject.model.named_parameters())
    for id, param in e.manifest()["params"].items():
        np.testing.assert_array_equal(e.tensor(id), named[id].detach().numpy())
        assert [axis["size"] for axis in param["axes"]] == list(named[id].shape)
    assert all(check.ok for check in e.checks)
    log, answer, streams = compute_decoding(runs[name], e.request)
    manifest = e.manifest()
    assert (plain(log), answer) == (manifest["decode"], manifest["answer"])
    assert plain(streams) == manifest["streams"]


def test_predictions_rank_the_logits(runs: Runs) -> None:
    e = runs["translate"].explain("abcde", beam_size=2)
    best = e.decode.hypotheses[0]
    tokens = [*best.ids, 3 if best.finished else None]
    logits = torch.from_numpy(e.tensor("logits")).double()
    assert [p.position for p in e.predictions] == list(range(len(e.streams[1])))
    for t, p in enumerate(e.predictions):
        assert p.logsumexp == pytest.approx(logits[t].logsumexp(-1).item(), abs=1e-9)
        order = logits[t].argsort(descending=True, stable=True)[:50].tolist()
        assert [c.id for c in p.top] == order
        assert [np.float32(c.logit) for c in p.top] == [np.float32(logits[t, i].item()) for i in order]
        assert all(c.log_prob == pytest.approx(c.logit - p.logsumexp, abs=1e-6) for c in p.top)
        assert (p.actual and p.actual.id) == tokens[t]
        if p.actual is not None:
            assert p.rank == int((logits[t] > logits[t, p.actual.id]).sum())


def test_tensor_slices_equal_indexing(runs: Runs) -> None:
    e = runs["translate"].explain("abcde", beam_size=2)
    whole = e.tensor("decoder.0.cross.weights")
    for part, index in {
        "head:1": np.s_[1],
        "token:0-2": np.s_[:, 0:2],
        "key:3.0": np.s_[:, :, [3, 0]],
        "key:2;head:0": np.s_[0, :, 2],
        "head:0;token:1;key:1-3": np.s_[0, 1, 1:3],
    }.items():
        np.testing.assert_array_equal(e.tensor("decoder.0.cross.weights", part), whole[index])
    table = e.tensor("tgt_embedding.weight")
    np.testing.assert_array_equal(e.tensor("tgt_embedding.weight", "vocab:7.5"), table[[7, 5]])


@for_each(
    "part", "head:2 head:-1 head:1-1 head:0-3 vocab:0 head:0;head:1 head:1.9 head:0; head:9999999999 head:١".split()
)
def test_malformed_slices_are_refused(part: str) -> None:
    with pytest.raises(UsageError):
        take_slice(torch.zeros(2, 3, 4), ["head", "token", "key"], part)


def test_an_empty_text_and_truncated_and_unknown_tokens_are_warned_of(runs: Runs) -> None:
    for run in runs.values():
        e = run.explain("", max_new_tokens=3)
        assert any("is empty" in warning for warning in e.warnings)
        assert np.isfinite(e.tensor("logits")).all()
        json.dumps(e.manifest(), allow_nan=False)
    e = runs["classify"].explain("")
    assert (
        e.streams[0].padding == [True] and not e["encoder.0.self.mask"].any() and not e["encoder.0.self.weights"].any()
    )
    text, run = " ".join(["a"] * 20 + ["zzz"] + ["b"] * 20), subject_of(("classify", {}), truncate="head+tail")
    e = run.explain(text)
    assert "the text was truncated from 41 to 24 tokens, keeping its beginning and end" in e.warnings
    stream = e.streams[0]
    assert [text[a:b] for a, b in stream.spans] == ["a"] * 12 + ["b"] * 12 == stream.pieces
    assert "1 of 3 tokens of the text is unknown to the model" in run.explain("a zzz b").warnings
    assert run.explain("a zzz b").streams[0].unknown == [False, True, False]


def test_a_given_target_is_scored(runs: Runs) -> None:
    run = runs["translate"]
    e = run.explain("abc", target="cba")
    assert e.decode.kind == "given" and e.answer["headline"] == "cba" == e.streams[1].text
    assert e.streams[1].n_given == len(e.streams[1]) == 4
    ids = [*run.task.tokenizer.encode("cba"), 3]
    log_probs = torch.from_numpy(e.tensor("logits")).log_softmax(-1)
    expected = sum(log_probs[t, i].item() for t, i in enumerate(ids))
    assert e.decode.hypotheses[0].log_prob == pytest.approx(expected, abs=1e-5)
    assert [p.actual.id for p in e.predictions if p.actual] == ids


def is_decoded_as_traced(e: Explanation) -> bool:
    """Return whether decoding, with cached keys, summed up the log-probabilities of the single pass."""
    first = 0 if len(e.streams) > 1 else e.decode.first
    total = sum(p.actual.log_prob for p in e.predictions[first:] if p.actual is not None)
    return e.decode.hypotheses[0].log_prob == pytest.approx(total, rel=1e-4, abs=1e-4)


@for_each("name", ["translate", "lm"])
def test_a_prefix_is_forced(runs: Runs, name: str) -> None:
    run = runs[name]
    free = run.explain("abc", max_new_tokens=6)
    other = next(c.id for c in free.predictions[0].top if c.id > 4 and c.id != free.decode.hypotheses[0].ids[0])
    e = explain(run, TraceRequest("abc", prefix=(other, other), decode={"max_new_tokens": 6}))
    stream = e.streams[-1]
    assert e.decode.prefix == [other, other] == stream.ids[stream.n_given - 2 : stream.n_given]
    if name == "translate":
        assert e.decode.hypotheses[0].ids[:2] == [other, other]
    assert all(check.ok for check in e.checks) and is_decoded_as_traced(e)


@for_each(
    ("name", "request_", "first"),
    [
        ("classify", {}, 0),
        ("translate", {}, 0),
        ("translate", {"prefix": [7, 8]}, 2),
        ("lm", {}, 5),
        ("translate", {"target": "abc"}, 0),
        ("lm", {"prefix": [7, 8]}, 7),
    ],
)
def test_the_first_generated_token_is_shown_first(runs: Runs, name: str, request_: dict[str, Any], first: int) -> None:
    """The default of a request, as of `--json`, and a saved page start at the same token."""
    e = explain(runs[name], TraceRequest.from_dict({"text": TEXTS[name]} | request_))
    info = e.manifest()["decode"]
    assert info["first"] == first == prediction_index(e, None)
    assert name == "classify" or next(i for i in e.generated if e.predictions[i].actual) == first
    fixed = {"classify": 0, "translate": 1, "lm": e.streams[-1].n_given - len(request_.get("prefix", ()))}
    assert info["n_fixed"] == fixed[name]


@for_each(
    ("name", "request_", "message"),
    [
        ("classify", {"target": "b"}, "target does not apply"),
        ("lm", {"target": "b"}, "target does not apply"),
        ("classify", {"prefix": (5,)}, "prefix does not apply"),
        ("translate", {"prefix": (5,), "target": "b"}, "not both"),
        ("translate", {"prefix": (99999,)}, "from 0 to 11"),
        ("lm", {"prefix": (3,)}, "an ordinary token"),
        ("translate", {"prefix": (7,) * 30}, "leaves nothing"),
        ("translate", {"decode": {"n_best": 3, "beam_size": 2}}, "n_best"),
        ("translate", {"prefix": (7,), "decode": {"sample": True}}, "prefixes"),
        ("lm", {"checkpoint": "step-00000007"}, "no checkpoint"),
    ],
)
def test_invalid_requests_are_refused(runs: Runs, name: str, request_: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        explain(runs[name], TraceRequest("a", **request_))


def test_options_that_do_not_exist_or_have_a_wrong_type_are_refused(runs: Runs) -> None:
    with pytest.raises(UsageError, match="beams"):
        runs["lm"].explain("abc", beams=3)
    with pytest.raises(UsageError, match="all members answer together"):
        runs["classify"].predict("a good film", member=1)
    e: Any = explain(runs["translate"], "a b c")
    calls = {
        "a slice as text": lambda wrong: e.tensor("encoder.0.self.weights", wrong),
        "the index of a prediction": lambda wrong: e.sweep("contributions", prediction=wrong),
        "the explanation of a second text": lambda wrong: e.sweep("states", wrong),
        "the path of an .html file": e.save,
    }
    for expected, call in calls.items():
        for wrong in (1.5, [1], object(), True):
            with pytest.raises(UsageError, match=f"^expected {expected}, not ") as caught:
                call(wrong)
            assert caught.value.hint
    with pytest.raises(UsageError, match="a second text, not 'a c b'"):
        e.sweep("states", "a c b")
    with pytest.raises(UsageError, match="file, not ''"):
        e.save("")
    assert e.sweep("contributions", prediction=np.int64(0)) == e.sweep("contributions", prediction=0)


def test_an_unfinished_translation_and_a_full_context(runs: Runs) -> None:
    run = subject_of(("translate", {"output_bias": True}))
    run.model.get_parameter("output_bias").detach()[3] = -99  # [EOS] is out of reach
    e = run.explain("abcdefg", beam_size=1, max_new_tokens=200)
    assert len(e.decode.hypotheses[0].ids) == len(e.streams[1]) == 25 and "truncated" in e.answer["detail"]
    assert e.predictions[-1].actual is not None and is_decoded_as_traced(e) and all(c.ok for c in e.checks)
    e = runs["lm"].explain("abcdefg" * 6, max_new_tokens=12)
    stream = e.streams[0]
    assert len(stream) <= 24 and any("keeping its end" in warning for warning in e.warnings)
    assert all(check.ok for check in e.checks) and is_decoded_as_traced(e)
    joined = "".join(stream.text[a:b] for a, b in stream.spans)
    assert stream.text.endswith(joined) and stream.text.startswith("abcdefg" * 6)


@for_each(
    ("name", "max_len", "kept"),
    [("classify", 700, "beginning"), ("translate", 512, "beginning"), ("lm", 700, "end"), ("lm", 520, "end")],
)
def test_a_text_above_512_tokens_is_cut_with_a_sentence(name: str, max_len: int, kept: str) -> None:
    run = subject_of((name, {"n_layers": 1}), max_len=max_len)
    e = explain(run, TraceRequest("a b c d e f g " * 100, decode={} if name == "classify" else {"max_new_tokens": 2}))
    n = len(e.streams[0])
    assert (250 < n <= 512 and n <= e.records["logits"].shape[0]) or name in ("classify", "translate")
    assert any("truncated from" in one and f"keeping its {kept}" in one for one in e.warnings)
    assert max_len == 512 or any("may answer differently" in warning for warning in e.warnings)
    with torch.no_grad():
        logits = e.subject.model(**e.model_inputs)[0]
    torch.testing.assert_close(e.records["logits"].value, logits, atol=1e-5, rtol=0)
    np.testing.assert_array_equal(e.tensor(next(iter(e.records))), e.streams[0].ids)


def test_weights_that_are_not_finite_are_refused() -> None:
    run = subject_of(("classify", {}))
    with torch.no_grad():
        next(run.model.parameters()).fill_(float("nan"))
    with pytest.raises(DivergedError):
        run.explain("a b")


def test_checkpoints_and_snapshots_are_explained(tmp_path: Path) -> None:
    run = subject_of(("classify", {}))
    run.path, state = tmp_path, TrainState(run.task.build_model(), run.task)
    assert state.ema is not None
    for tensor in state.ema.values():
        tensor.mul_(0.5)  # so that the two sets of weights differ
    state.progress.best_step = 20
    save_checkpoint(tmp_path / "checkpoints", 20, state.tensors(), {"progress": asdict(state.progress)}, keep=9)
    save_snapshot(tmp_path / "snapshots", 16, {k: 2 * v for k, v in state.ema.items()})
    name = "encoder.layers.0.feed_forward.up_proj.weight"
    own = dict(run.model.named_parameters())[name].detach()
    expected = {"step-00000016": 2 * state.ema[name], "step-00000020": state.ema[name], "model": own}
    assert [(c["name"], c["step"]) for c in run_info(run)["checkpoints"]] == [*zip(expected, (16, 20, 20), strict=True)]
    for checkpoint, weights in expected.items():
        np.testing.assert_array_equal(run.explain("a b", checkpoint=checkpoint).tensor(name), weights.numpy())
    facts = run.explain("a b", checkpoint="step-00000020").manifest()["model"]
    assert (facts["checkpoint"], facts["step"], len(facts["sha256"])) == ("step-00000020", 20, 64)
    request = TraceRequest("a b good", checkpoint="step-00000016")
    a, b = explain(run, request), explain(run, replace(request, text="bad"))
    assert a.subject.model is b.subject.model is not run.model
    model = weakref.ref(a.subject.model)
    del a, b
    gc.collect()
    assert model() is None, "and nothing keeps it afterwards"
    damaged = tmp_path / "checkpoints" / "step-00000020" / "state.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(CheckpointError):
        run.explain("a", checkpoint="step-00000020")


FORMS = [*((name, {}) for name in TEXTS), ("translate", {"target": "abc"}), ("translate", {"decode": {"sample": True}})]


@for_each(("name", "request_"), FORMS)
def test_every_pass_has_full_precision(runs: Runs, name: str, request_: dict[str, Any]) -> None:
    """Simulate a GPU with fewer bits under "medium": decoding, erasing and tracing must have the same precision."""
    run, seen = runs[name], []
    stack = run.model.encoder if name == "classify" else run.model.decoder
    handle = stack.register_forward_pre_hook(lambda *_: seen.append(torch.get_float32_matmul_precision()))
    try:
        explanation = explain(run, TraceRequest.from_dict({"text": TEXTS[name]} | request_))
        explanation.attribute("erase")
        explanation.attribute("integrated_gradients")
    finally:
        handle.remove()
    assert len(seen) > 3 and set(seen) == {"highest"}


def test_an_explanation_is_read_by_the_ids_of_its_steps(runs: Runs) -> None:
    e = explain(runs["classify"], "a good film")
    id = "encoder.1.self.weights"
    assert id in list(e) and isinstance(e[id], np.ndarray)
    assert np.array_equal(e[id], e.tensor(id)) and np.array_equal(e[id], np.asarray(e.trace[id]))
    node = e.records[id].without_value()
    assert repr(node) == repr(e.records[id]) and node.value.is_meta, "its shape alone, and no numbers"
    for read in (e.__getitem__, e.tensor, e.records.__getitem__, e.trace.__getitem__, e.what_if):
        typed = "encoder.1.self.weight" + ("=0" if read == e.what_if else "")
        with pytest.raises(UsageError) as caught:
            read(typed)
        assert "encoder.1.self.weight" in caught.value.message and id in caught.value.hint
    for wrong in (5, None, [1]):
        with pytest.raises(UsageError, match="no tensor"):
            e[wrong]  # type: ignore[index]


def test_results_are_short_in_a_notebook(runs: Runs) -> None:
    for name, text in TEXTS.items():
        e = explain(runs[name], text)
        stack = "decoder" if name == "lm" else "encoder"
        many = [f"{stack}.0.self.head{head}=0" for head in (0, 1)] * 20
        results = [e, e.plot, e.what_if(*many[:2]), e.what_if(*many), e.attribute()]
        for result in (*results, *(e.sweep(kind) for kind in ("parts", "keys", "layers", "contributions"))):
            assert len(repr(result)) <= 300 and "\n" not in repr(result) and " at 0x" not in repr(result)


RUN = subject_of(("translate", {}))
TOKENIZER = RUN.task.tokenizer
SPECIAL = {"bos": BOS, "eos": EOS, "pad": PAD}
SIZE = TOKENIZER.vocab_size


def search(table: torch.Tensor, config: DecodeConfig, prefix: list[int], log: SearchLog | None = None):
    return beam_search(TableDecoder(table), [9], config, **SPECIAL, prefixes=[prefix], log=log)[0]


@for_each("seed", range(6))
@for_each(("beam_size", "penalty", "n_prefix"), [(1, 1.0, 0), (3, 0.6, 0), (4, 1.0, 2)])
def test_what_is_recorded_equals_a_naive_search(seed: int, beam_size: int, penalty: float, n_prefix: int) -> None:
    table, prefix = random_table(seed, 1, SIZE), [5, 6][:n_prefix]
    config = DecodeConfig(beam_size=beam_size, length_penalty=penalty, n_best=min(2, beam_size))
    logged, steps = logged_search(lambda log: search(table, config, prefix, log), TOKENIZER)
    plain = search(table, config, prefix)
    assert [(h.ids, h.score, h.log_prob, h.finished) for h in logged[: len(plain)]] == [
        (h.ids, h.score, h.log_prob, h.finished) for h in plain
    ]
    live: list[tuple[list[int], float]] = [([], 0.0)]
    for t, step in enumerate(steps):
        extensions = []
        for parent, (ids, total) in enumerate(live):
            step_log_probs = log_probs(table, 0, ids)
            free = [v for v in range(SIZE) if v not in (PAD, BOS)]
            for v in [prefix[t]] if t < n_prefix else free:
                extensions.append((total + step_log_probs[v], parent, v, step_log_probs[v]))
        extensions.sort(key=lambda e: -e[0])
        wanted = 1 if beam_size == 1 else 2 * beam_size
        assert [(c.parent, c.id) for c in step] == [(p, v) for _, p, v, _ in extensions[:wanted]]
        lived: list[tuple[list[int], float]] = []
        for rank, (c, (total, parent, v, log_prob)) in enumerate(zip(step, extensions, strict=False)):
            assert (c.total, c.log_prob) == pytest.approx((total, log_prob), abs=1e-5)
            assert c.score == pytest.approx(total / (t + 1) ** penalty, abs=1e-5)
            assert c.finished == (v == EOS and rank < beam_size)
            lives = v != EOS and len(lived) < beam_size
            assert c.row == (len(lived) if lives else None)
            if lives:
                lived.append(([*live[parent][0], v], total))
        live = lived
    n_finished = sum(c.finished for step in steps for c in step)
    assert sum(h.finished for h in logged) == n_finished
    for h in logged:  # each is linked to its candidates
        assert h.end is not None
        t, index = h.end
        path = [steps[t][index]]
        for step in reversed(steps[:t]):
            path.append(next(c for c in step if c.row == path[-1].parent))
        assert [c.id for c in reversed(path)] == [*h.ids, *[EOS] * h.finished]
        assert math.fsum(c.log_prob for c in path) == pytest.approx(h.log_prob, abs=1e-5)


def test_a_log_skips_finished_sentences_and_names_its_kind() -> None:
    """One of 16 sentences ends at once: it stays in the batch, but is no longer logged."""
    model: Any = RUN.model
    decoder, heard = TranslationDecoder(model, torch.arange(16)[:, None] % SIZE), list[list[int]]()
    longest, config = [1] + [4] * 15, DecodeConfig(beam_size=2)
    beam_search(decoder, longest, config, **SPECIAL, log=lambda step: heard.append(step.sentence.tolist()))
    assert heard[0] == list(range(16))
    assert all(0 not in sentences for sentences in heard[1:]) and len(heard) > 1
    sampled = translate(model, TOKENIZER, [5, 6, EOS], DecodeConfig(sample=True, n_best=3, max_new_tokens=5), [])
    assert (sampled.kind, len(sampled.hypotheses), sampled.steps) == ("sample", 3, [])
    searched = translate(model, TOKENIZER, [5, 6, EOS], DecodeConfig(beam_size=2, max_new_tokens=5), [7])
    assert (searched.kind, searched.prefix, searched.hypotheses[0].ids[0]) == ("beam", [7], 7)
