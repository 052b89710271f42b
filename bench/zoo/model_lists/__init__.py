"""The catalogue in parts: one file a family, data only."""

from bench.zoo.model_lists import (
    audio,
    classic,
    detection,
    language,
    segmentation,
    super_resolution,
    timm,
    torchvision,
    transformers,
)

#: Small ones first: they take least time, and show most differences.
ALL = (
    classic.MODELS,
    super_resolution.MODELS,
    audio.MODELS,
    detection.MODELS,
    segmentation.MODELS,
    language.MODELS,
    transformers.MODELS,
    timm.MODELS,
    torchvision.MODELS,
)
