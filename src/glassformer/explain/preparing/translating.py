"""A source sentence, and its translation: the model's own, or one that was given."""

from __future__ import annotations

from typing import cast

import torch

from glassformer.config import DecodeConfig
from glassformer.decode import Hypothesis
from glassformer.explain.decode_log import DecodeLog, LoggedHypothesis, translate
from glassformer.explain.preparing.prepared import (
    Prepared,
    Wrote,
    check_room,
    following_of,
    padded,
    warnings_of,
)
from glassformer.explain.request import TraceRequest
from glassformer.explain.streams import Span, decoded_spans, make_stream
from glassformer.explain.subject import Subject
from glassformer.models import Translator
from glassformer.models.ensemble import Ensemble


def prepare(subject: Subject, request: TraceRequest, settings: DecodeConfig) -> Prepared:
    """The source with its end token, and the target after [BOS]: the best that a search finds, or the one given."""
    t, model = subject.task.tokenizer, cast("Translator | Ensemble", subject.model)
    most, empty = subject.task.config.text.max_len, not request.text.strip()
    ids, spans = ([], []) if empty else (t.encode(request.text), t.spans(request.text))
    notes = warnings_of(ids, range(min(most, len(ids))), t, "the text", "head")
    source: list[int] = [*ids[:most], t.eos_id]
    check_room(len(source), request.pad, model.max_len)
    src = make_stream(t, "source", source, [*spans[:most], None], request.text, n_pad=request.pad)
    if request.target is not None:
        target, target_spans = t.encode(request.target), t.spans(request.target)
        notes += warnings_of(target, range(min(most, len(target))), t, "the target", "head", empty_is_odd=False)
        written, text = Hypothesis(target[:most], 0.0, 0.0, True), request.target
        written_at: list[Span | None] = [*target_spans[:most]]
        decode = DecodeLog("given", settings)
    else:
        if empty:  # as in prediction, where the model is not asked
            nothing = LoggedHypothesis.from_hypothesis(Hypothesis([], 0.0, 0.0, True), t)
            decode = DecodeLog("sample" if settings.sample else "beam", settings, [nothing])
        else:
            decode = translate(model, t, source, settings, list(request.prefix))
        best = decode.hypotheses[0]
        written = Hypothesis(best.ids, best.score, best.log_prob, best.finished)
        text, written_at = decoded_spans(t, best.ids)
        notes += [] if best.finished else [f"cut: no end came within {len(best.ids)} tokens"]
    tgt_in = [t.bos_id, *written.ids][: model.max_len]
    n_given = len(tgt_in) if decode.kind == "given" else 1 + len(request.prefix)
    tgt = make_stream(t, "target", tgt_in, [None, *written_at][: len(tgt_in)], text, n_given=n_given)
    inputs = padded(src, subject, "src", "src_padding_mask")
    inputs["tgt_in"] = torch.tensor([tgt_in], device=subject.device)
    following = following_of(written.ids, written.finished, t.eos_id, len(tgt_in))
    wrote = Wrote(0 if decode.kind == "given" else n_given - 1, 1, subject.task.suppress_tokens)
    return Prepared(inputs, [src, tgt], [*range(len(tgt_in))], following, decode, text, notes, wrote, 0)
