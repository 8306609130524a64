"""Encode a source sentence for a translator, and translate it unless the request has a target."""

from __future__ import annotations

from typing import cast

import torch

from glassformer.config import DecodeConfig
from glassformer.decode import Hypothesis
from glassformer.explain.decode_log import DecodeLog, LoggedHypothesis, translate
from glassformer.explain.inputs.encoded_text import (
    EncodedText,
    GenerationInfo,
    check_length,
    following_tokens,
    input_warnings,
    with_padding_mask,
)
from glassformer.explain.request import MAX_LAYERED_TOKENS, TraceRequest
from glassformer.explain.streams import Span, decoded_spans, make_stream
from glassformer.explain.subject import Subject
from glassformer.models import Translator
from glassformer.models.ensemble import Ensemble


def encode_for_translator(subject: Subject, request: TraceRequest, settings: DecodeConfig) -> EncodedText:
    """Encode the source with its end token, and the target after [BOS]: the best hypothesis or the given target."""
    t, model = subject.task.tokenizer, cast("Translator | Ensemble", subject.model)
    reads, empty = subject.task.config.text.max_len, not request.text.strip()
    max_len = min(reads, MAX_LAYERED_TOKENS - 1)  # and [EOS], or [BOS]
    ids, spans = ([], []) if empty else (t.encode(request.text), t.offsets(request.text))
    warnings = input_warnings(ids, range(min(max_len, len(ids))), t, "the text", "head", reads=reads)
    source: list[int] = [*ids[:max_len], t.eos_id]
    check_length(len(source), request.pad, min(model.max_len, MAX_LAYERED_TOKENS))
    src = make_stream(t, "source", source, [*spans[:max_len], None], request.text, n_pad=request.pad)
    if request.target is not None:
        target, target_spans = t.encode(request.target), t.offsets(request.target)
        warnings += input_warnings(
            target, range(min(max_len, len(target))), t, "the target", "head", reads=reads, warn_if_empty=False
        )
        output, text = Hypothesis(target[:max_len], 0.0, 0.0, True), request.target
        output_spans: list[Span | None] = [*target_spans[:max_len]]
        decode = DecodeLog("given", settings)
    else:
        # As in prediction, an empty text has an empty translation.
        if empty:
            hypothesis = LoggedHypothesis.from_hypothesis(Hypothesis([], 0.0, 0.0, True), t)
            decode = DecodeLog("sample" if settings.sample else "beam", settings, [hypothesis])
        else:
            decode = translate(model, t, source, settings, list(request.prefix))
        best = decode.hypotheses[0]
        output = Hypothesis(best.ids, best.score, best.log_prob, best.finished)
        text, output_spans = decoded_spans(t, best.ids)
        warnings += (
            [] if best.finished else [f"the translation was truncated at {len(best.ids)} tokens, without an end token"]
        )
    tgt_in = [t.bos_id, *output.ids][: min(model.max_len, MAX_LAYERED_TOKENS)]
    if len(tgt_in) <= len(output.ids):
        warnings.append(f"the translation has {len(output.ids)} tokens, of which the first {len(tgt_in) - 1} are shown")
    n_given = len(tgt_in) if decode.kind == "given" else 1 + len(request.prefix)
    tgt = make_stream(t, "target", tgt_in, [None, *output_spans][: len(tgt_in)], text, n_given=n_given)
    inputs = with_padding_mask(src, subject, "src", "src_padding_mask")
    inputs["tgt_in"] = torch.tensor([tgt_in], device=subject.device)
    following = following_tokens(output.ids, output.finished, t.eos_id, len(tgt_in))
    generation = GenerationInfo(0 if decode.kind == "given" else n_given - 1, 1, subject.task.suppress_tokens)
    return EncodedText(
        model_inputs=inputs,
        streams=[src, tgt],
        positions=[*range(len(tgt_in))],
        following=following,
        decode=decode,
        answer=text,
        warnings=warnings,
        generation=generation,
    )
