"""Configuration of a run as frozen dataclasses, one file per section.

A recipe is a configuration in TOML; the flags of `train` are its fields. Settings of a single data set or optimizer are
in an inner section, which has an effect only while it is selected. This package imports only the standard library, so
that `--help` is fast.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from glassformer.config.settings import (
    AdamConfig,
    AdamWConfig,
    DataConfig,
    DatesConfig,
    DecodeConfig,
    FilesConfig,
    ModelConfig,
    Multi30kConfig,
    MuonConfig,
    SGDConfig,
    TextConfig,
    TrainConfig,
    idle,
)

__all__ = [
    "AdamConfig",
    "AdamWConfig",
    "Config",
    "DataConfig",
    "DatesConfig",
    "DecodeConfig",
    "FilesConfig",
    "ModelConfig",
    "Multi30kConfig",
    "MuonConfig",
    "SGDConfig",
    "TextConfig",
    "TrainConfig",
    "idle",
]


@dataclass(frozen=True)
class Config:
    """Configuration of a run."""

    task: str = ""
    """Name of the task."""
    recipe: str = ""
    """Name of the recipe; empty if it was made in Python."""
    note: str = ""
    """Note for the report."""
    auto: tuple[str, ...] = ()
    """Settings that are chosen from the size of the training data, unless they are given."""
    data: DataConfig = field(default_factory=DataConfig)
    text: TextConfig = field(default_factory=TextConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)
