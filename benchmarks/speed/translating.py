"""Part d: translating with one checkpoint, ours and converted for every peer.

Without a checkpoint the weights are random, and the end token is made impossible: every implementation then takes
the same number of steps for every sentence, so that nothing but their speed is compared, and no data is needed.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from benchmarks.speed.child import Child, ChildError
from benchmarks.speed.load import OtherLoad
from benchmarks.speed.options import Options
from benchmarks.speed.registry import PEERS, precisions
from benchmarks.speed.table import Figure, Section, busy, rounded
from benchmarks.speed.training import SETTLING_SECONDS, interruptible, log, settle, wait_for_quiet
from benchmarks.speed.workloads import FIRST_WORD, make_texts, word_of

if TYPE_CHECKING:
    from glassformer.models import Translator

STEPS = 20
"""Tokens of every translation where the weights are random."""
BULK_SECONDS = 60.0
"""Fewer sentences than asked for where ours would take longer, with a beam of 4."""
ALONE = 50
"""Sentences translated one at a time in a round."""
MODES = (("bulk", 1), ("bulk", 4), ("one", 1), ("one", 4))
COLUMNS = (
    "implementation",
    "row",
    "bulk, greedy, sentences/s",
    "bulk, beam 4, sentences/s",
    "÷ ours, beam 4",
    "one, greedy, p50 / p95 ms",
    "one, beam 4, p50 / p95 ms",
    "as ours",
    "peak MB",
    "remarks",
)


@dataclass
class Row:
    """One row while it is measured; `rounds` by mode."""

    peer: str
    name: str
    settings: dict[str, Any]
    child: Child | None = None
    about: dict[str, Any] = field(default_factory=dict)
    rounds: dict[tuple[str, int], list[dict[str, Any]]] = field(default_factory=lambda: {mode: [] for mode in MODES})
    others: list[float | None] = field(default_factory=list)
    why_not: str = ""

    @property
    def title(self) -> str:
        """Return the peer's name in the table."""
        return PEERS[self.peer].title

    def found(self, beam: int) -> list[list[int]]:
        """Return its translations in bulk."""
        return self.rounds["bulk", beam][-1]["found"]

    @property
    def facts(self) -> dict[str, Any]:
        """Return the row for the JSON file, without the translations."""
        rounds = {
            f"{how} {beam}": [{k: v for k, v in r.items() if k != "found"} for r in some]
            for (how, beam), some in self.rounds.items()
        }
        facts = {"peer": self.title, "row": self.name, "settings": self.settings, "others": self.others}
        return facts | self.about | {"rounds": rounds, "why_not": self.why_not}


def run_translating(options: Options) -> Section:
    """Measure the table of part d."""
    rows = wanted_rows(options)
    with ExitStack() as closing, tempfile.TemporaryDirectory(prefix="bench-") as folder:
        checkpoint = save_checkpoint(Path(folder), options)
        for row in rows:
            row.why_not = row.why_not or start(row, folder, options, closing)
        running = [row for row in rows if not row.why_not]
        n = sentences_for(running[0], checkpoint["n"]) if running else 0
        interrupted = interruptible(lambda: measure_all(running, n, options))
    section = section_of(rows, n, checkpoint, options)
    section.interrupted = interrupted
    return section


def measure_all(rows: list[Row], n: int, options: Options) -> None:
    """Measure every row in every mode, in interleaved rounds."""
    for _ in options.rounds():
        for how, beam in MODES:
            for row in rows:
                measure(row, how, beam, n if how == "bulk" else min(ALONE, n), options)


def wanted_rows(options: Options) -> list[Row]:
    """Return the rows of the peers that translate."""
    bf16 = "bf16" in precisions()
    fp32 = {"compute_type": "float32", "workers": False, "batch_tokens": 0}
    best = {"workers": True, "batch_tokens": 2048}
    rows = {
        "ours": {"fp32": {"precision": "fp32"}, **({"bf16": {"precision": "bf16"}} if bf16 else {})},
        "ctranslate2": {
            "fp32, defaults": fp32,
            "fp32, its best": fp32 | best,
            "int8, its best": fp32 | best | {"compute_type": "int8"},
        },
        "transformers": {
            "defaults": {"bf16": False, "ours": False},
            "its best": {"bf16": bf16, "ours": False},
            "with our settings": {"bf16": bf16, "ours": True},
        },
    }
    wanted = []
    for peer in (peer for peer in options.peers if peer in rows):
        if reason := PEERS[peer].why_not():
            wanted.append(Row(peer, "", {}, why_not=f"not run: {reason}"))
            continue
        chosen = {n: s for n, s in rows[peer].items() if not options.rows or n.startswith(options.rows)}
        wanted += [Row(peer, name, settings) for name, settings in chosen.items()]
    return wanted


def save_checkpoint(folder: Path, options: Options) -> dict[str, Any]:
    """Write the checkpoint for all peers (`peers/translating.py`); what it is, for the table."""
    if options.checkpoint is None:
        model, answer = random_translator(options)
    else:
        model, answer = trained_translator(options)
    from glassformer.models.build import d_ff_of
    from glassformer.nn.embeddings import sinusoidal

    c = model.config
    weights = {name: p.detach().numpy() for name, p in model.named_parameters()}
    weights["positions"] = sinusoidal(model.max_len, c.d_model).numpy()
    vocab_size = len(weights["tgt_embedding.weight"])
    answer["sizes"] = asdict(c) | {"d_ff": d_ff_of(c), "vocab_size": vocab_size, "max_len": model.max_len}
    np.savez(folder / "weights.npz", allow_pickle=False, **weights)
    (folder / "model.json").write_text(json.dumps(answer), encoding="utf-8")
    return {"n": len(answer["sources"]), "steps": answer["steps"], "sizes": answer["sizes"], "run": answer["run"]}


def random_translator(options: Options) -> tuple[Translator, dict[str, Any]]:
    """Return random weights that generate only words, and sentences of Multi30k's lengths."""
    import torch

    from glassformer.config import ModelConfig
    from glassformer.models import Translator

    w = options.workload("b")
    torch.manual_seed(0)
    config = ModelConfig(n_layers=w.n_layers, d_model=w.d_model, n_heads=w.n_heads, activation="relu", pre_norm=True)
    model = Translator(config, w.vocab_size, w.max_len + 1)
    with torch.no_grad():
        # Sublayers that say more than the word itself, or every word would be followed by itself.
        for name, p in model.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                p.mul_(20)
        # The last norm adds 8 times a unit vector to every state; specials have the opposite of it for their row.
        unit = torch.nn.functional.normalize(torch.randn(w.d_model), dim=0)
        dict(model.named_parameters())["decoder.norm.bias"].copy_(8 * unit)
        model.tgt_embedding.weight[:FIRST_WORD] = -5 * unit
    texts = make_texts(w, options.sentences)
    sources = [texts.ids[a:b].tolist() for a, b in zip(texts.offsets[:-1], texts.offsets[1:], strict=True)]
    words = [" ".join(map(word_of, ids[:-1])) for ids in sources]
    return model, {"sources": sources, "words": words, "steps": STEPS, "run": None}


def trained_translator(options: Options) -> tuple[Translator, dict[str, Any]]:
    """Return a run's model and the test sentences of its data, repeated until there are enough."""
    import glassformer
    from glassformer.data.datasets.local_files import load_text_data

    run = glassformer.load(str(options.checkpoint), device="cpu")
    data = load_text_data(run.task.schema, run.config.data)
    texts = (data.test or data.valid).text
    texts = [texts[i % len(texts)] for i in range(options.sentences)]
    eos = run.task.tokenizer.eos_id
    sources = [[*ids[: run.config.text.max_len], eos] for ids in run.task.tokenizer.encode_batch(texts)]
    answer = {"sources": sources, "words": texts, "steps": None, "run": str(Path(str(options.checkpoint)).resolve())}
    return run.model, answer  # pyright: ignore[reportReturnType]


def start(row: Row, folder: str, options: Options, closing: ExitStack) -> str:
    """Start a row's process and wait until it is warm; why that failed, or nothing."""
    log(f"{row.title}, {row.name}: warming up")
    peer = PEERS[row.peer]
    module = {"ours": "ours_translating", "transformers": "hugging_face_translating"}.get(row.peer, peer.module)
    spec = {"checkpoint": folder, "settings": row.settings}
    row.child = closing.enter_context(Child(peer.python, f"benchmarks.speed.peers.{module}", spec, options.variables))
    try:
        row.about = row.child.answer()
    except ChildError as error:
        return f"not run: {error}"
    return ""


def sentences_for(row: Row, most: int) -> int:
    """Return how many sentences the first row translates with a beam of 4 in `BULK_SECONDS` on this machine."""
    assert row.child is not None
    probe = min(most, 128)
    seconds = row.child.request(how="bulk", beam=4, which=list(range(probe)))["seconds"]
    return min(most, max(probe, round(probe / seconds * BULK_SECONDS / 100) * 100))


def measure(row: Row, how: str, beam: int, n: int, options: Options) -> None:
    """Measure one round of one mode of a row."""
    if not options.anyway:
        wait_for_quiet(options.wait)
    assert row.child is not None
    settle(options.settling(SETTLING_SECONDS), lambda: row.child and row.child.request(how="one", beam=beam, which=[0]))
    with OtherLoad() as load:
        answer = row.child.request(how=how, beam=beam, which=list(range(n)))
    row.rounds[how, beam].append(answer)
    row.others.append(load.cores)
    speed = n / answer["seconds"]
    log(f"{row.title}, {row.name}: {how}, beam {beam}: {speed:,.1f} sentences/s, others {load.cores or 0:.2f} cores")


def section_of(rows: list[Row], n: int, checkpoint: dict[str, Any], options: Options) -> Section:
    """Return the table."""
    for row in rows:
        row.why_not = row.why_not or ("" if all(row.rounds.values()) else "not measured: interrupted")
    s = checkpoint["sizes"]
    section = Section(f"(d) translating: {s['n_layers']}+{s['n_layers']} layers, d {s['d_model']}", COLUMNS)
    ours = next((row for row in rows if row.peer == "ours" and not row.why_not), None)
    section.rows = [cells(row, ours, n, options.anyway) for row in rows]
    section.summary = summary_of(rows, n, options.anyway)
    section.facts = [row.facts for row in rows] + [{"checkpoint": checkpoint, "sentences": n}]
    steps, n_rounds = checkpoint["steps"], max(len(row.rounds["one", 4]) for row in rows)
    how = (
        f"random weights that cannot generate an end token, so that every translation takes exactly {steps} steps in "
        "every implementation"
        if steps
        else f"the weights of {checkpoint['run']}, which end sentences themselves"
    )
    section.notes.append(
        f"{n:,} sentences in bulk, {min(ALONE, n)} one at a time, {n_rounds} interleaved rounds; {how}. "
        '"As ours": share of translations with a beam of 4 that are token for token those of the first row.'
    )
    return section


def summary_of(rows: list[Row], n: int, anyway: bool) -> list[tuple[str, str, str, str]]:
    """Return the best of ours and of the others, in bulk with a beam of 4 and one sentence at a time."""
    shown = [row for row in rows if not row.why_not and busy(row.others, anyway)[0]]
    ours, others = [[row for row in shown if (row.peer == "ours") == own] for own in (True, False)]
    if not (ours and others):
        return []

    def speed(row: Row) -> float:
        return statistics.median(n / r["seconds"] for r in row.rounds["bulk", 4])

    def latency(row: Row) -> float:
        return float(np.median([s for r in row.rounds["one", 4] for s in r["latencies"]]))

    def named(row: Row) -> str:
        return f"{row.title}, {row.name}"

    best, other = max(ours, key=speed), max(others, key=speed)
    bulk = f"{rounded(speed(best))} sentences/s ({best.name})", f"{named(other)}: {rounded(speed(other))}"
    first, second = min(ours, key=latency), min(others, key=latency)
    alone = [f"{rounded(1000 * latency(row))} ms" for row in (first, second)]
    return [
        (f"translating {n:,} sentences, beam 4", *bulk, f"{speed(best) / speed(other):.2f} ×"),
        (
            "translating one sentence, beam 4, p50",
            f"{alone[0]} ({first.name})",
            f"{named(second)}: {alone[1]}",
            f"{latency(first) / latency(second):.2f} × the time",
        ),
    ]


def cells(row: Row, ours: Row | None, n: int, anyway: bool) -> list[str]:
    """Return a row of the table."""
    if row.why_not:
        return [row.title, row.name, *["–"] * 7, row.why_not]
    shown, remark = busy(row.others, anyway)
    if ours is not None and not as_long(row.found(4), ours.found(4)):
        shown, remark = False, "void: its translations are not as long as ours"
    bulk = {beam: Figure([n / r["seconds"] for r in row.rounds["bulk", beam]]) for beam in (1, 4)}
    alone = [percentiles([s for r in row.rounds["one", beam] for s in r["latencies"]]) for beam in (1, 4)]
    our_speed = None if ours is None else statistics.median(n / r["seconds"] for r in ours.rounds["bulk", 4])
    ratio = "–" if our_speed is None else f"{bulk[4].median / our_speed:.2f}"
    figures = [bulk[1].text(), bulk[4].text(), ratio, *alone] if shown else ["–"] * 5
    same = "–" if ours is None else f"{same_share(row.found(4), ours.found(4)):.0%}"
    return [row.title, row.name, *figures, same, rounded(row.rounds["one", 4][-1]["peak_mb"]), remark]


def as_long(found: list[list[int]], reference: list[list[int]]) -> bool:
    """Return True if as many tokens were generated, within 3%; otherwise steps are saved and not only time."""
    return abs(sum(map(len, found)) / max(1, sum(map(len, reference))) - 1) <= 0.03


def same_share(found: list[list[int]], reference: list[list[int]]) -> float:
    """Return the share of equal translations."""
    return statistics.fmean(a == b for a, b in zip(found, reference, strict=True))


def percentiles(seconds: list[float]) -> str:
    """Return p50 and p95 in milliseconds."""
    return " / ".join(rounded(1000 * float(np.percentile(seconds, q))) for q in (50, 95))
