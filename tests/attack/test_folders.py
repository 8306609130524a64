"""A folder of somebody else is refused with one kind of error, in bounded time and memory, or answers as it did."""

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.helpers.hostile import BYTES, Attack, edit_json, file_attacks, forge, key_attacks, peak_bytes, query, remove
from tests.helpers.small import config_of, data_of, small_run
from tests.helpers.tiny_runs import SMALL, Outcome, Runs

from glassformer import load
from glassformer.config import ModelConfig, TextConfig
from glassformer.models.build import without_memory
from glassformer.runs.model_folder import save_model
from glassformer.tasks import restoring
from glassformer.text.tokenizer import Tokenizer
from glassformer.training.finalize import model_metadata

TEXT = "a good film"
MODEL = ["config.json", "model.safetensors", "tokenizer.json", "manifest.json", "README.md"]
RECORDS = ["evaluation.json", "data.json", "env.json", "metrics.jsonl"]
RUN = ["config.toml", "predictions.jsonl", "tokenizer.json", *RECORDS]
FAST = {repr(x)[:40] for x in (None, -1, 10**35, float("nan"), "x" * 100_000, [[1], ["x"]], {"a": {"b": []}})}


@dataclass(frozen=True)
class Victims:
    """What is attacked, the data to query it with, and its right answer."""

    run: Path
    table: Path
    answer: Outcome


@pytest.fixture(scope="module")
def victims(tmp_path_factory: pytest.TempPathFactory, runs: Runs) -> Victims:
    run = tmp_path_factory.mktemp("victims") / "run"
    words = ["--text.tokenizer", "word", "--text.ngrams", "50", "--text.bigrams", "20"]
    assert query("train", "classify", "--train-file", runs.table, "--out", run, *words, *SMALL).ok
    return Victims(run, runs.table, query("predict", run, TEXT, "--json"))


def judge(victims: Victims, folder: Path, attacks: Iterable[Attack], *commands: str) -> Counter[int]:
    """Ask every command of every forged folder; return how often each exit code came."""
    codes: Counter[int] = Counter()
    broken = []
    for attack in attacks:
        forged = forge(victims.run, folder / "forged", attack, seal=True)
        for command in commands:
            arguments: dict[str, tuple[Any, ...]] = {
                "predict": (TEXT, "--json"),
                "explain": (TEXT, "--json"),
                "evaluate": ("--test-file", victims.table, "--json"),
                "compare": (victims.run,),
            }
            answer = query(command, forged, *arguments.get(command, ()))
            codes[answer.code] += 1
            # Of the configuration a forger chooses what it says: labels that a file of texts does not hold (3), or
            # a scale at which all logits are NaN (5).
            of_its_own = attack.file == "model/config.json" and (
                (answer.code, command) == (3, "evaluate") or (answer.code == 5 and "NaN" in answer.err)
            )
            if not (answer.code in (0, 4) or of_its_own) or (answer.code == 4 and "bug" in answer.err):
                broken.append(f"{command}, {attack}: exit {answer.code}, {answer.err.strip()[-200:]}")
            # A folder that is sealed again has an owner, who chooses what the configuration says and what parts a text
            # into words; all else is either refused or has no effect.
            chosen = attack.file == "model/config.json" or "pre_tokenizer" in attack.name
            same = answer.out == victims.answer.out or chosen
            if answer.code == 0 and command == "predict" and not same:
                broken.append(f"{command}, {attack}: another answer, {answer.out[:200]}")
    assert not broken, "\n".join(broken)
    assert peak_bytes() < BYTES
    return codes


def record(victims: Victims, file: str) -> Any:
    text = (victims.run / file).read_text("utf-8")
    return json.loads(text.split("\n")[0] if file.endswith(".jsonl") else text)


FILES = [*((f"model/{file}", ("predict",)) for file in MODEL), *((file, ("doctor", "compare")) for file in RUN)]


@pytest.mark.parametrize(("file", "commands"), FILES)
def test_every_file_is_refused_or_does_not_matter(victims, tmp_path, file, commands):
    codes = judge(victims, tmp_path, file_attacks(file), *commands)
    assert codes[0] == 0 or file == "model/README.md" or "model/" not in file


@pytest.mark.parametrize("file", ["model/config.json", *RECORDS])
def test_values_of_other_types_are_refused(victims, tmp_path, file):
    attacks, is_model = key_attacks(file, record(victims, file), depth=1), file not in RECORDS
    values = [attack for attack in attacks if is_model or attack.name.split(" = ")[-1] in FAST]
    codes = judge(victims, tmp_path, values, "predict" if is_model else "doctor")
    # Versions and machine are not read, and lines of the log that are damaged are left out and counted.
    assert codes[4] > 0 or file in ("env.json", "metrics.jsonl"), "none is refused"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "depth", "commands"),
    [
        *((file, 3, ("doctor", "compare")) for file in RECORDS),
        ("model/config.json", 2, ("predict", "evaluate")),
        ("model/tokenizer.json", 3, ("predict",)),
        *((file, 0, ("predict", "evaluate", "explain")) for file in ("config.toml", *(f"model/{m}" for m in MODEL))),
    ],
)
def test_every_key_of_every_record(victims, tmp_path, file, depth, commands):
    attacks = [*(key_attacks(file, record(victims, file), depth) if depth else file_attacks(file))]
    judge(victims, tmp_path, attacks[:: 3 if file == "model/tokenizer.json" and depth else 1], *commands)


PARTS = ["checkpoints", "snapshots", "plots", "means", "exports", "model", "metrics.jsonl", "predictions.jsonl"]
PARTS += ["plots/deeper"]


def outside(folder: Path) -> Path:
    """A folder of somebody, with what cleaning up would delete."""
    own = folder / "own"
    (own / ".tmp-notes").mkdir(parents=True)
    (own / ".tmp-notes" / "n.txt").write_text("kept", "utf-8")
    (own / "metrics.jsonl").write_text("own\n", "utf-8")
    (own / "old.png").write_bytes(b"own")
    return own


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def unfinished(victims: Victims, run: Path) -> Path:
    shutil.copytree(victims.run, run)
    for name in ("model", "evaluation.json", "report.md"):
        remove(run / name)
    return run


@pytest.mark.parametrize("part", PARTS)
def test_a_run_with_a_link_is_not_resumed(victims, tmp_path, part):
    run, own = unfinished(victims, tmp_path / "run"), outside(tmp_path)
    before = contents(own)
    remove(run / part)
    (run / part).symlink_to(own / part if "." in part else own)
    answer = query("train", "--resume", run)
    assert answer.code == 4 and "is a link" in answer.err
    assert contents(own) == before


def test_the_run_itself_may_be_a_link(victims, tmp_path):
    unfinished(victims, tmp_path / "disk" / "run")
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    (tmp_path / "linked").symlink_to(tmp_path / "disk" / "run")
    assert query("train", "--resume", tmp_path / "linked").code == 0
    assert (tmp_path / "disk" / "run" / "report.md").is_file()
    assert query("predict", tmp_path / "runs" / "run", "a good film", "--json").out == victims.answer.out


def test_a_linked_seed_is_refused(tmp_path):
    seeds, own = tmp_path / "seeds", outside(tmp_path)
    seeds.mkdir()
    config = '{"seeds": [1, 2], "config": {"task": "classify"}}'
    (seeds / "seeds.json").write_text(config, "utf-8")
    (seeds / "seed-1").symlink_to(own)
    before = contents(own)
    assert query("train", "--resume", seeds).code == 4
    assert contents(own) == before


Edit = Callable[[dict[str, Any]], Any]


def forged(victims: Victims, folder: Path, file: str, edit: Edit) -> Path:
    attack = Attack(file, "", lambda path: edit_json(path, edit))
    return forge(victims.run, folder / "forged", attack, seal=True)


def normalizer(**values: Any) -> Edit:
    return lambda content: content.update(normalizer=values)


TOKENIZERS: dict[str, Edit] = {
    "a precompiled map": normalizer(type="Precompiled", precompiled_charsmap="AAAA"),
    "merges dropped by chance": lambda c: c["model"].update(dropout=0.5),
    "an id beyond the vocabulary": lambda c: c["model"]["vocab"].update(film=10**6),
    "a negative id": lambda c: c["model"]["vocab"].update(film=-1),
    "an id twice": lambda c: c["model"]["vocab"].update(film=5),
    "a token more": lambda c: c["model"]["vocab"].update(extra=len(c["model"]["vocab"])),
    "a bigram of unknown words": lambda c: c["model"]["spelling"]["bigrams"].append([5, 10**6]),
    "a bigram of three words": lambda c: c["model"]["spelling"]["bigrams"].append([5, 6, 7]),
    "an n-gram more": lambda c: c["model"]["spelling"]["ngrams"].append("<xy"),
    "an n-gram of nothing": lambda c: c["model"]["spelling"].update(ngrams=[""]),
    "a spelling of another type": lambda c: c["model"].update(spelling=5),
    "an added token beyond": lambda c: c["added_tokens"].append({"id": 10**9, "content": "[x]"}),
    "an added token without text": lambda c: c["added_tokens"].append({"id": 5, "content": ""}),
    "two names of one id": lambda c: c["added_tokens"].append({"id": 5, "content": "[x]"}),
    "other special tokens": lambda c: c["added_tokens"][0].update(content="[NONE]"),
}


@pytest.mark.parametrize("edit", TOKENIZERS.values(), ids=TOKENIZERS)
def test_a_tokenizer_of_other_parts_or_ids_is_refused(victims, tmp_path, edit):
    answer = query("predict", forged(victims, tmp_path, "model/tokenizer.json", edit), "aaaa")
    assert answer.code == 4, answer.err


def test_what_a_file_does_around_a_text_is_left_out(victims, tmp_path):
    def edit(content: dict[str, Any]) -> None:
        content.update(truncation={"max_length": 1}, padding={"strategy": {"Fixed": 10**9}})
        content.update(post_processor={"type": "ByteLevel"})

    sound = query("predict", forged(victims, tmp_path / "sound", "model/tokenizer.json", lambda content: None), TEXT)
    found = query("predict", forged(victims, tmp_path / "edited", "model/tokenizer.json", edit), TEXT)
    assert (found.code, found.out) == (0, sound.out)


def test_positions_are_bounded_by_their_table(victims, tmp_path):
    """A table of 10⁶ positions of this width has 64 MB, and of a wider model it is refused."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(restoring, "MAX_POSITIONS", 1 << 20)
        path = forged(victims, tmp_path, "model/config.json", lambda c: c["text"].update(max_len=1_000_000))
        assert query("predict", path, TEXT).code == 4


def test_numbers_that_overflow_are_no_answer(victims, tmp_path):
    path = forged(victims, tmp_path, "model/config.json", lambda c: c["model"].update(embedding_init_std=1e308))
    answer = query("predict", path, TEXT)
    assert answer.code == 5 and "logits are NaN" in answer.err


def test_shapes_take_no_memory_and_draw_no_number():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    with without_memory():
        layer = torch.nn.Linear(1 << 20, 1 << 20)
        torch.nn.init.xavier_uniform_(layer.weight)
        torch.nn.init.normal_(layer.bias)
    assert layer.weight.is_meta and torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize("kind", ["byte-bpe", "word"])
def test_a_tokenizer_of_64k_entries_still_loads(tmp_path, kind):
    trained = Tokenizer.train(["a b"], TextConfig(tokenizer=kind, vocab_size=300))
    content = json.loads(trained.to_json())
    vocabulary = content["model"]["vocab"]
    vocabulary |= {f"token{i}": i for i in range(len(vocabulary), 65536)}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content, indent=2), "utf-8")
    began = time.perf_counter()
    assert Tokenizer.load(path).vocab_size == 65536
    assert time.perf_counter() - began < 60


@pytest.mark.slow
def test_a_model_of_100_million_weights_still_loads(tmp_path):
    config = replace(config_of("lm"), model=ModelConfig(n_layers=14, d_model=768, n_heads=12))
    task = small_run(config, data_of("lm")).task
    weights = dict(task.build_model().named_parameters())
    assert sum(p.numel() for p in weights.values()) > 99e6
    tokenizer = {"tokenizer.json": task.tokenizer.to_json().encode()}
    save_model(tmp_path / "model", model_metadata(task), weights, tokenizer, "")
    assert load(tmp_path / "model", device="cpu").predict("a", max_new_tokens=1)
