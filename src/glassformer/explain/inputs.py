"""From a request to what the model is called with: a text encoded as its task encodes it, and decoded.

The three tasks differ here as they do in `tasks/`: what is cut, where an end token stands, who writes the
target. Nothing is captured yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, cast

import torch

from glassformer.config import DecodeConfig
from glassformer.data.corpus import truncate
from glassformer.decode import Hypothesis
from glassformer.decode.sampling import window_start
from glassformer.errors import UsageError
from glassformer.explain.checkpoints import Subject
from glassformer.explain.decode_log import DecodeLog, LoggedHypothesis, never_written, translate, write
from glassformer.explain.request import TraceRequest
from glassformer.explain.spelled import paired, spelled
from glassformer.explain.streams import Span, Stream, make_stream, written_spans
from glassformer.models import LanguageModel, Translator
from glassformer.models.bigrams import BigramEmbedding
from glassformer.text.tokenizer import Tokenizer

NEW_TOKENS = 40
"""What a language model writes for an explanation unless told otherwise; a page is soon full."""
FULL_LENGTH = 128
"""Longest streams that are captured whole, see `tensors.py`."""


@dataclass(frozen=True)
class Wrote:
    """Where the model's own writing begins, and what it may not write; the mirror of `Wrote` in web/src/types.ts.

    Attributes:
        first: the position after which the first token stands that the model chose itself, or, where a whole
            translation was given, that it was asked about. 0 for a classifier, which writes nothing.
        n_fixed: tokens of the last stream that no prefix can change: [BOS], or the prompt as it was typed.
        banned: ids that are never written.
    """

    first: int
    n_fixed: int
    banned: list[int]


@dataclass(frozen=True)
class Prepared:
    """A text, ready to be captured.

    Attributes:
        model_inputs: arguments of the model by name, a batch of one: tensors, and a classifier's `Spelling`.
        streams: their tokens, ["text"] or ["source", "target"].
        positions: rows of the last stream whose prediction is shown; [None] for a classifier.
        following: the token that in fact comes after each of the positions, None where none does.
        decode: how the target came about.
        answer: what the model wrote; empty for a classifier.
        warnings: what the user should know about the input.
        wrote: what the page must know of how a text is written here.
    """

    model_inputs: dict[str, Any]
    streams: list[Stream]
    positions: list[int | None]
    following: list[int | None]
    decode: DecodeLog
    answer: str
    warnings: list[str]
    wrote: Wrote


def prepare(subject: Subject, request: TraceRequest) -> Prepared:
    """Encode and decode a text just as prediction would.

    Raises:
        UsageError: the request asks what this task, vocabulary or context cannot give.
    """
    tokenizer, task = subject.task.tokenizer, subject.task.name
    for name, tasks in (("target", ("translate",)), ("prefix", ("translate", "lm"))):
        if getattr(request, name) and task not in tasks:
            raise UsageError(f"{name} means nothing to a model that was trained to {task}")
    if request.prefix and request.target is not None:
        raise UsageError("a request has a target or a prefix, not both")
    _check_prefix(request.prefix, tokenizer)
    match task:
        case "classify":
            return _classify(subject, request)
        case "translate":
            return _translate(subject, request)
        case "lm":
            return _write(subject, request)
        case other:
            raise UsageError(f"a model trained to {other} cannot be looked into yet")


def decode_settings(subject: Subject, changes: dict[str, Any]) -> DecodeConfig:
    """The run's settings with some of them changed; a language model writes less than it would elsewhere.

    Raises:
        UsageError: there is no setting of a name.
    """
    config = subject.task.config.decode
    unknown = sorted(changes.keys() - {f.name for f in fields(DecodeConfig)})
    if unknown:
        raise UsageError(f"decode has no field {unknown[0]!r}")
    if subject.task.name == "lm":
        config = replace(config, sample=True, max_new_tokens=min(NEW_TOKENS, config.max_new_tokens))
    return replace(config, **changes)


def _classify(subject: Subject, request: TraceRequest) -> Prepared:
    t, text = subject.task.tokenizer, subject.task.config.text
    ids, spans = t.encode(request.text), t.spans(request.text)
    kept = truncate(list(range(len(ids))), text.max_len, text.truncate)
    notes = _warnings(ids, kept, t, "the text", text.truncate)
    ids, spans = [ids[i] for i in kept], [spans[i] for i in kept]
    # A batch of one empty text is one token of padding, which takes no part.
    n_pad = request.pad or (0 if ids else 1)
    _check_room(len(ids), n_pad, text.max_len)
    stream = make_stream(t, "text", ids, spans, request.text, n_pad=n_pad)
    inputs = _padded(stream, subject, "ids", "padding_mask")
    if t.spelling is not None:
        stream, spelling = spelled(t, stream, kept)
        inputs["spelling"] = spelling.to(subject.device)
    if isinstance(bigrams := getattr(subject.model, "bigrams", None), BigramEmbedding):
        stream = paired(stream, bigrams)
    decode = DecodeLog("none", subject.task.config.decode)
    return Prepared(inputs, [stream], [None], [None], decode, "", notes, Wrote(0, 0, []))


def _translate(subject: Subject, request: TraceRequest) -> Prepared:
    t, model = subject.task.tokenizer, cast(Translator, subject.model)
    most, empty = subject.task.config.text.max_len, not request.text.strip()
    ids, spans = ([], []) if empty else (t.encode(request.text), t.spans(request.text))
    notes = _warnings(ids, range(min(most, len(ids))), t, "the text", "head")
    source: list[int] = [*ids[:most], t.eos_id]
    _check_room(len(source), request.pad, model.max_len)
    src = make_stream(t, "source", source, [*spans[:most], None], request.text, n_pad=request.pad)
    settings = decode_settings(subject, dict(request.decode))
    if request.target is not None:
        target, target_spans = t.encode(request.target), t.spans(request.target)
        notes += _warnings(target, range(min(most, len(target))), t, "the target", "head", empty_is_odd=False)
        written, text = Hypothesis(target[:most], 0.0, 0.0, True), request.target
        written_at: list[Span | None] = [*target_spans[:most]]
        decode = DecodeLog("given", settings)
    else:
        if empty:  # as in prediction, where the model is not asked
            nothing = LoggedHypothesis.of(Hypothesis([], 0.0, 0.0, True), t)
            decode = DecodeLog("sample" if settings.sample else "beam", settings, [nothing])
        else:
            decode = translate(model, t, source, settings, list(request.prefix))
        best = decode.hypotheses[0]
        written = Hypothesis(best.ids, best.score, best.log_prob, best.finished)
        text, written_at = written_spans(t, best.ids)
        notes += [] if best.finished else [f"cut: no end came within {len(best.ids)} tokens"]
    tgt_in = [t.bos_id, *written.ids][: model.max_len]
    n_given = len(tgt_in) if decode.kind == "given" else 1 + len(request.prefix)
    tgt = make_stream(t, "target", tgt_in, [None, *written_at][: len(tgt_in)], text, n_given=n_given)
    inputs = _padded(src, subject, "src", "src_padding_mask")
    inputs["tgt_in"] = torch.tensor([tgt_in], device=subject.device)
    following = _following(written.ids, written.finished, t.eos_id, len(tgt_in))
    wrote = Wrote(0 if decode.kind == "given" else n_given - 1, 1, [t.pad_id, t.bos_id])
    return Prepared(inputs, [src, tgt], [*range(len(tgt_in))], following, decode, text, notes, wrote)


def _write(subject: Subject, request: TraceRequest) -> Prepared:
    t, model = subject.task.tokenizer, cast(LanguageModel, subject.model)
    own, own_spans = t.encode(request.text), t.spans(request.text)
    notes = _warnings(own, range(len(own)), t, "the prompt", "tail")
    prompt: list[int] = [*(own or [t.eos_id]), *request.prefix]
    # What the sampler sees of a prompt beyond the context, and goes on seeing until its window jumps.
    seen_from = window_start(len(prompt), model.max_len)
    if seen_from:
        notes.append(
            f"of {len(prompt)} tokens of the prompt only the last {len(prompt) - seen_from} are read"
        )
    settings = decode_settings(subject, dict(request.decode))
    room = max(1, model.max_len - (len(prompt) - seen_from))
    if "max_new_tokens" not in request.decode:
        shown = FULL_LENGTH - len(prompt) if len(prompt) < FULL_LENGTH else NEW_TOKENS
        settings = replace(settings, max_new_tokens=min(settings.max_new_tokens, shown, room))
    elif settings.max_new_tokens > room:
        notes.append(f"only {room} more tokens fit in the {model.max_len} that the model sees at once")
        settings = replace(settings, max_new_tokens=room)
    decode, new = write(model, t, prompt, settings)
    decode = replace(decode, prefix=list(request.prefix))
    everything = [*prompt, *new.ids]
    text, spans = _joined(t, request.text, own_spans, everything, len(own))
    ids = everything[seen_from : seen_from + model.max_len]
    _check_room(len(ids), request.pad, model.max_len)
    stream = make_stream(
        t, "text", ids, spans[seen_from : seen_from + len(ids)], text,
        n_given=len(prompt) - seen_from, n_pad=request.pad,
    )  # fmt: skip
    inputs = {"ids": torch.tensor([stream.ids], device=subject.device)}  # causal: padding behind is not seen
    following = _following(everything[seen_from + 1 :], new.finished, t.eos_id, len(ids))
    wrote = Wrote(stream.n_given - 1, stream.n_given - len(request.prefix), never_written(t))
    return Prepared(inputs, [stream], [*range(len(ids))], following, decode, t.decode(new.ids), notes, wrote)


def _joined(
    t: Tokenizer, prompt: str, spans: Sequence[Span], ids: list[int], n_own: int
) -> tuple[str, list[Span | None]]:
    """Prompt and continuation as one text, and the characters of each token: the prompt's as it was typed.

    Args:
        t: the tokenizer. prompt: what was typed. spans: of its tokens.
        ids: all tokens. n_own: how many of them the prompt was encoded to.
    """
    begin = len(ids[:n_own]) or 1  # an empty prompt is one end token
    whole, all_spans = written_spans(t, ids)
    shift = len(prompt) - len(t.decode(ids[:begin]))
    text = prompt + whole[len(prompt) - shift :]
    own: list[Span | None] = [*spans] if n_own else [None]
    low = len(prompt)
    rest: list[Span | None] = [
        None if s is None else (max(low, s[0] + shift), max(low, s[1] + shift)) for s in all_spans[begin:]
    ]
    return text, [*own, *rest]


def _following(ids: Sequence[int], finished: bool, eos: int, n: int) -> list[int | None]:
    """The token after each of n positions, when ids are those after the first."""
    after: list[int | None] = [*ids, eos] if finished else [*ids]
    return [after[i] if i < len(after) else None for i in range(n)]


def _padded(stream: Stream, subject: Subject, ids: str, mask: str) -> dict[str, Any]:
    """Ids (1, L) under their name, and the mask of the real ones where some are padding."""
    inputs = {ids: torch.tensor([stream.ids], device=subject.device)}
    if any(stream.padding):
        inputs[mask] = ~torch.tensor([stream.padding], device=subject.device)
    return inputs


def _warnings(
    ids: Sequence[int], kept: Sequence[int], t: Tokenizer, what: str, keep: str, empty_is_odd: bool = True
) -> list[str]:
    """What was cut or is unknown, each in a sentence."""
    notes: list[str] = []
    if not ids and empty_is_odd:
        notes.append(f"{what} is empty: what is shown says only what the model does with nothing")
    if len(kept) < len(ids):
        part = {
            "head": "the beginning is",
            "tail": "the end is",
            "head+tail": "the beginning and the end are",
        }
        notes.append(f"{what} is cut from {len(ids)} to {len(kept)} tokens: {part[keep]} read")
    n_unknown = sum(ids[i] == t.unk_id for i in kept)
    if n_unknown:
        verb = "is" if n_unknown == 1 else "are"
        told = f"{n_unknown} of {len(kept)} tokens of {what} {verb} unknown to the model"
        notes.append(told + (", which still reads how they are spelled" if t.spelling else ""))
    return notes


def _check_prefix(prefix: Sequence[int], t: Tokenizer) -> None:
    for place, token in enumerate(prefix):
        if not 0 <= token < t.vocab_size:
            raise UsageError(
                f"prefix[{place}] is {token}, and the vocabulary has ids 0 to {t.vocab_size - 1}"
            )
        if token in (t.pad_id, t.bos_id, t.eos_id):
            raise UsageError(
                f"prefix[{place}] is {t.pieces([token])[0]}, after which nothing can be written",
                "a prefix is ordinary tokens",
            )


def _check_room(n_tokens: int, n_pad: int, max_len: int) -> None:
    if n_pad and n_tokens + n_pad > max_len:
        raise UsageError(
            f"{n_tokens} tokens and {n_pad} of padding are more than the {max_len} the model reads",
            f"pad with {max(0, max_len - n_tokens)} or fewer",
        )
