"""Train the one-page Transformer on generated dates, and record how long it took and how much is right.

    python docs/book/one_page_dates.py      # writes docs/book/results/plain/one-page.json

The task: English dates in six formats, American and British, to ISO 8601. It needs torch alone. No day of the
validation or of the test is in the training. The settings were chosen on the validation days.
"""

import hashlib
import json
import os
import platform
import random
import time
from datetime import date, timedelta
from pathlib import Path

import torch
from one_page import BEGIN, END, PAD, Config, EncoderDecoder, shift, train, translate

STEPS, LEARNING_RATE, THREADS = 1000, 2e-3, 2

MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
FORMATS = [
    "US {m}/{d}/{y}",
    "US {month} {d}, {y}",
    "US {weekday:.3}, {month:.3} {d}, {y}",
    "GB {d}/{m}/{y}",
    "GB {d} {month} {y}",
    "GB {weekday:.3} {d} {month:.3} {y}",
]


def write(day, form):
    """Return a day as people write it, after the country, which settles the order."""
    month, weekday = MONTHS[day.month - 1], DAYS[day.weekday()]
    return form.format(d=day.day, m=day.month, y=day.year, month=month, weekday=weekday)


def split_days():
    """Return the days of a hundred years in three parts: training, validation, test."""
    days = [date(1950, 1, 1) + timedelta(days=i) for i in range(36_525)]
    random.Random(2017).shuffle(days)
    return days[4_000:], days[:2_000], days[2_000:4_000]


CHARS = sorted(set("".join([*FORMATS, *MONTHS, *DAYS, "0123456789-"])) - set("{}"))
IDS = {char: i for i, char in enumerate(CHARS, start=3)}  # after PAD, BEGIN and END
VOCAB_SIZE = 3 + len(CHARS)


def to_ids(texts):
    """Return the ids (B, L) of texts, each from BEGIN to END, padded on the right."""
    rows = [torch.tensor([BEGIN, *(IDS[c] for c in text), END]) for text in texts]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


def to_text(ids):
    """Return the characters of ids, up to END."""
    ids = ids.tolist()
    ids = ids[: ids.index(END)] if END in ids else ids
    return "".join(CHARS[i - 3] for i in ids if i > END)


def batches(days, n_steps, size=64, seed=0):
    """Yield what the model reads, source and target, and the tokens to predict."""
    draw = random.Random(seed)
    for _ in range(n_steps):
        chosen = draw.choices(days, k=size)
        source = to_ids([write(day, draw.choice(FORMATS)) for day in chosen])
        target, answers = shift(to_ids([day.isoformat() for day in chosen]))
        yield (source, target), answers


def exact_match(model, days, seed=1):
    """Return the share of days, each in a format drawn at random, that are right."""
    draw, right = random.Random(seed), 0
    for part in (days[i : i + 250] for i in range(0, len(days), 250)):
        source = to_ids([write(day, draw.choice(FORMATS)) for day in part])
        written = map(to_text, translate(model, source, n_new=12))
        right += sum(text == str(day) for text, day in zip(written, part, strict=True))
    return right / len(days)


BOOK = Path(__file__).parent
RECORD = BOOK / "results" / "plain" / "one-page.json"


def code_hash():
    """Return a hash of the two files that decide the result."""
    files = (BOOK / name for name in ("one_page.py", "one_page_dates.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]


def measure():
    """Train once, test once, and return the record of it."""
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    days, valid, test = split_days()
    model = EncoderDecoder(Config(dropout=0.0), VOCAB_SIZE)
    began, cpu = time.perf_counter(), time.process_time()
    losses = train(model, batches(days, STEPS), LEARNING_RATE)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
    return {
        "command": "python docs/book/one_page_dates.py",
        "code_sha256": code_hash(),
        "hardware": f"{platform.machine()}, {THREADS} threads of {os.cpu_count()} cores",
        "torch": torch.__version__.partition("+")[0],
        "parameters": sum(p.numel() for p in model.parameters()),
        "steps": STEPS,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu_seconds, 1),
        "losses": [round(loss, 3) for loss in losses[:: STEPS // 10]],
        "valid": {"days": len(valid), "exact_match": exact_match(model, valid)},
        "test": {"days": len(test), "exact_match": exact_match(model, test)},
    }


if __name__ == "__main__":
    record = measure()
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(record, indent=1))
