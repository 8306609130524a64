"""Requests from a page: each is checked before a model is run. And the thread that does one after the other."""

from __future__ import annotations

import gc
import json
import threading
import weakref
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.for_each import for_each
from tests.helpers.forking import until

from glassformer.config import DecodeConfig
from glassformer.errors import UsageError
from glassformer.explain.page.service import Worker
from glassformer.explain.request import TraceRequest


def test_a_request_round_trips_through_json_and_takes_every_decoding_setting() -> None:
    decode = {f.name: f.default for f in fields(DecodeConfig)}
    del decode["bleu_tokenize"]  # of scoring, not of decoding
    data = {"text": "ein\u2028Satz", "prefix": [7, 8], "decode": decode, "checkpoint": "step-00000016"}
    assert TraceRequest.from_dict(json.loads(json.dumps(data))).to_json() == data
    assert TraceRequest.from_dict({"text": "a", "target": ""}).to_json() == {"text": "a", "target": ""}


@for_each(
    ("data", "named"),
    [
        (None, "must be a table"),
        ({}, "'text'"),
        ({"text": 3}, "text must be a string"),
        ({"text": "\ud800"}, "text must be a string, at most"),
        ({"text": "x" * 2**21}, "1,048,576"),
        ({"text": "a", "txt": 1}, "'txt'"),
        ({"text": "a", "target": []}, "target"),
        ({"text": "a", "prefix": "12"}, "prefix"),
        ({"text": "a", "prefix": [1, -1]}, r"prefix must be an array, .* at \[1\]"),
        ({"text": "a", "prefix": [10**5000]}, "got list at"),
        ({"text": "a", "prefix": [1] * 5000}, "at most 4,096 long"),
        ({"text": "a", "member": 10**9}, "member"),
        ({"text": "a", "checkpoint": "../../etc"}, "checkpoint"),
        ({"text": "a", "checkpoint": "step-1\n"}, "checkpoint"),
        ({"text": "a", "member": -1}, r"member must be a whole number in \[0, 99\]"),
        ({"text": "a", "member": 1e300}, "member"),
        ({"text": "a", "decode": []}, "decode"),
        ({"text": "a", "decode": {"beams": 2}}, "'beams'"),
        ({"text": "a", "decode": {"beam_size": 10**6}}, "beam_size"),
        ({"text": "a", "decode": {"temperature": float("nan")}}, "temperature"),
        ({"text": "a", "decode": {"max_new_tokens": 10**7}}, "max_new_tokens"),
    ],
)
def test_a_refusal_names_the_invalid_field(data: Any, named: str) -> None:
    with pytest.raises(UsageError, match=named) as caught:
        TraceRequest.from_dict(data)
    assert len(caught.value.message) < 200


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(data=st.dictionaries(st.sampled_from([f.name for f in fields(TraceRequest)]), JSON))
def test_any_json_is_a_request_or_is_refused(data: dict[str, Any]) -> None:
    try:
        request = TraceRequest.from_dict(data)
    except UsageError:
        return
    assert isinstance(request.text, str) and all(type(i) is int for i in request.prefix)


def test_cancelled_work_is_not_done_and_closing_drops_what_waits() -> None:
    worker, gate, done = Worker(), threading.Event(), []
    first = worker.submit(gate.wait)
    until(first.running)
    cancelled, dropped = worker.submit(lambda: done.append(1)), worker.submit(lambda: done.append(2))
    assert cancelled.cancel()
    threading.Timer(0.1, gate.set).start()
    worker.close()
    assert first.done() and dropped.cancelled() and done == []
    assert not worker._thread.is_alive()


def test_an_answer_is_not_kept() -> None:
    class Large:
        pass

    worker = Worker()
    future = worker.submit(Large)
    kept = weakref.ref(future.result(5))
    del future
    worker.submit(lambda: None).result(5)
    gc.collect()
    assert kept() is None
    worker.close()
