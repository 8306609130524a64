"""Fetch a model of the Hugging Face hub into a folder of regular files, through `huggingface_hub`, an extra.

Only safetensors, JSON, text and SentencePiece files are fetched, of sizes that are known and bounded before. Each is
compared with the hash that the hub gives, and copied out of the library's cache, which is made of links.

The list of the files is kept once all of them are there, so that without a network the same model comes from the cache.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from glassformer.data.download import cache_dir
from glassformer.errors import CheckpointError, DataError, GlassformerError, UsageError
from glassformer.interop.export_facts import library
from glassformer.interop.source_folder import PICKLES, WEIGHTS
from glassformer.utils.atomic_io import write_json
from glassformer.utils.safe_read import LIMITS, read_json_object, sha256_regular

logger = logging.getLogger(__name__)

NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
"""Organisation and name of a model."""
SUFFIXES = {".json", ".txt", ".spm", ".model"}
"""Ends of the names of small files: settings, vocabularies, merges, SentencePiece models."""
OTHERS = {"README.md", "1_Pooling/config.json"}
SMALL, LARGE = LIMITS["tokenizer"], 16 << 30
"""Largest size of a small file, and of a file of weights, in bytes."""
TIMEOUT = 10.0
"""Seconds to wait for an answer."""
_SHARD = re.compile(r"model-[0-9]{5}-of-[0-9]{5}\.safetensors")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_LOG_IN = "ask for access on its page, and log in: hf auth login"


class HubFile(NamedTuple):
    """A file of a model: its size, and its SHA-256, or its git hash where the hub gives no other."""

    name: str
    size: int
    sha256: str | None
    git_hash: str | None


def is_hub_name(source: Path | str) -> bool:
    """Return whether a source is a name on the hub; a folder of the same name here comes first."""
    return NAME.fullmatch(str(source)) is not None and not Path(source).exists()


def fetch_model(name: str, revision: str | None, folder: Path) -> str:
    """Copy the files of a model into a folder; return the hash of its revision.

    Raises:
        UsageError: `huggingface_hub` is not installed; there is no such model or revision, or no access to it.
        DataError: the hub cannot be reached, or the download is damaged.
        CheckpointError: the model has no safetensors, or a file is too large.
    """
    hub = library("a name on the Hugging Face hub", "hub", "huggingface_hub")
    endpoint = os.environ.get("HF_ENDPOINT") or None
    kept = _list_file(endpoint, name, revision)
    place = {"endpoint": endpoint, "cache_dir": os.environ.get("HF_HUB_CACHE") or None, "etag_timeout": TIMEOUT}
    try:
        commit, files = _listed(hub.HfApi(endpoint=endpoint), name, revision)
    except _UnreachableError as error:
        if (found := _kept_list(kept)) is None:
            raise
        commit, files = found
        place["local_files_only"] = True
        logger.warning(f"{error.message}: its files are those that were fetched before, at {commit[:12]}")
    else:
        total = sum(file.size for file in files)
        logger.info(f"fetching {len(files)} files, {total / 2**20:,.1f} MiB, of {name} at {commit[:12]}")
    for file in files:
        with _in_one_sentence(name, revision):
            path = Path(hub.hf_hub_download(name, file.name, revision=commit, **place))
        _check(name, file, path)
        target = folder / file.name
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(path, target)
    with suppress(GlassformerError, OSError):  # a cache that cannot be written is no reason to fail
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_json(kept, {"commit": commit, "files": [list(file) for file in files]})
    return commit


class _UnreachableError(DataError):
    """The hub gives no answer."""


def _listed(api: Any, name: str, revision: str | None) -> tuple[str, list[HubFile]]:
    """Return the hash of a revision, and the files to fetch, as the hub lists them."""
    with _in_one_sentence(name, revision):
        info = api.model_info(name, revision=revision, files_metadata=True, timeout=TIMEOUT)
    files = _chosen(name, [_file_of(one) for one in info.siblings or ()])
    if not isinstance(info.sha, str) or not _COMMIT.fullmatch(info.sha):
        raise DataError(f"the hub gives no hash of the revision of {name}", "try again later")
    return info.sha, files


def _list_file(endpoint: str | None, name: str, revision: str | None) -> Path:
    """Return the file that keeps the list of a model's files."""
    key = hashlib.sha256(json.dumps([endpoint, name, revision]).encode()).hexdigest()
    return cache_dir() / "hub-lists" / f"{key[:32]}.json"


def _kept_list(path: Path) -> tuple[str, list[HubFile]] | None:
    """Return what `_listed` did when all files were fetched; None where that was never so."""
    try:
        content = read_json_object(path)
        files = [HubFile(*file) for file in content["files"]]
        commit = content["commit"]
    except (GlassformerError, OSError, KeyError, TypeError):
        return None
    is_sound = isinstance(commit, str) and _COMMIT.fullmatch(commit) and all(map(_is_kept, files))
    return (commit, files) if is_sound else None


def _is_kept(file: HubFile) -> bool:
    hashes = all(one is None or isinstance(one, str) for one in (file.sha256, file.git_hash))
    named = isinstance(file.name, str) and (file.name in OTHERS or PurePosixPath(file.name).name == file.name)
    return named and hashes and type(file.size) is int


def _file_of(sibling: Any) -> HubFile:
    """Return what the hub says of a file; a size that it does not give is -1."""
    lfs = sibling.lfs or {}
    size = sibling.size if type(sibling.size) is int else -1
    return HubFile(str(sibling.rfilename), size, lfs.get("sha256"), sibling.blob_id)


def _chosen(name: str, files: list[HubFile]) -> list[HubFile]:
    """Return the files to fetch, after their sizes are checked."""
    names = {file.name for file in files}
    weights = {WEIGHTS} if WEIGHTS in names else {each for each in names if _SHARD.fullmatch(each)}
    if not weights:
        if pickle := next((each for each in PICKLES if each in names), None):
            hint = "look for a revision with safetensors, or another copy of the model"
            hint = "fetch a model of CTranslate2 yourself, and import its folder" if pickle == "model.bin" else hint
            raise CheckpointError(f"{name} has its weights in {pickle} alone, and only safetensors are fetched", hint)
        raise CheckpointError(f"{name} holds no {WEIGHTS}", "name a model of transformers")
    found = [file for file in files if file.name in weights | OTHERS or _is_small(file.name)]
    for file in found:
        most = LARGE if file.name in weights else SMALL
        if not 0 <= file.size <= most:
            size = f"has {file.size:,} bytes, more than {most:,}" if file.size >= 0 else "has no size on the hub"
            raise CheckpointError(f"{name}: {file.name[:80]} {size}", "import another model")
    return found


def _is_small(name: str) -> bool:
    """Return whether a file beside the weights is of a kind that is read."""
    return PurePosixPath(name).name == name and "\\" not in name and PurePosixPath(name).suffix in SUFFIXES


def _check(name: str, file: HubFile, path: Path) -> None:
    """Compare a file of the cache with what the hub says of it."""
    real = path.resolve()
    size = real.stat().st_size
    sound = size == file.size
    if sound and file.sha256:
        sound = sha256_regular(real) == file.sha256
    elif sound and file.git_hash and file.size <= SMALL:
        blob = b"blob %d\0" % size + real.read_bytes()
        sound = hashlib.sha1(blob, usedforsecurity=False).hexdigest() == file.git_hash
    if not sound:
        raise DataError(f"{name}: {file.name} is not as the hub has it", f"delete {real}, and import again")


@contextmanager
def _in_one_sentence(name: str, revision: str | None) -> Iterator[None]:
    """Turn the errors of the library into ours."""
    import huggingface_hub.errors as errors

    try:
        yield
    except GlassformerError:
        raise
    except errors.GatedRepoError as error:
        raise UsageError(f"{name} is given only to those who were granted access", _LOG_IN) from error
    except errors.RevisionNotFoundError as error:
        raise UsageError(f"{name} has no revision {str(revision)[:80]!r}", "look at its page") from error
    except errors.RepositoryNotFoundError as error:
        message = f"{name} is no folder here, and the hub has no model of this name, or it is private"
        raise UsageError(message, f"check the name; of a private one, {_LOG_IN}") from error
    except errors.HFValidationError as error:
        raise UsageError(f"{name} is no name of a model: {' '.join(str(error).split())[:200]}") from error
    except errors.HfHubHTTPError as error:
        status = getattr(error.response, "status_code", "an error")
        raise DataError(f"the hub answers {status} for {name}", "try again later") from error
    except Exception as error:  # of the library's many, and of those that it uses for the network
        why = " ".join(str(error).split())[:200]
        message = f"{name} is no folder here, and cannot be fetched from the hub: {why or type(error).__name__}"
        raise _UnreachableError(message, "check the network; or import a folder that was fetched elsewhere") from error
