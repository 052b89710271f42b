"""Small language models: weights in 4 bits by torchao, in 8 by ExecuTorch's Vulkan quantizer, and static int8."""

from __future__ import annotations

from typing import Any

from bench.zoo.model import DYNAMIC_4, STATIC, WEIGHT_4, WEIGHT_8, Input, Model, tokens

WORDS = 64
_TEXT, _ROWS = tokens(8, WORDS), (Input((1, 4, 64)),)


def _model(name: str, cls: str, scheme: str, inputs: tuple[Input, ...] = _TEXT, **options: Any) -> Model:
    return Model(name, "language", f"bench.zoo.networks.language:{cls}", inputs, (), options, scheme)


MODELS = (
    _model("feed_8da4w", "Feed", DYNAMIC_4, _ROWS),
    _model("feed_4w", "Feed", WEIGHT_4, _ROWS),
    _model("feed_8w", "Feed", WEIGHT_8, _ROWS),
    _model("feed_int8", "Feed", STATIC, _ROWS),
    _model("encoder_8da4w", "Encoder", DYNAMIC_4),
    _model("encoder_int8", "Encoder", STATIC),
    _model("gpt_8da4w", "Decoder", DYNAMIC_4, gated=False),
    _model("gpt_4w", "Decoder", WEIGHT_4, gated=False),
    _model("gpt_int8", "Decoder", STATIC, gated=False),
    _model("llama_8da4w", "Decoder", DYNAMIC_4, gated=True),
    _model("llama_4w", "Decoder", WEIGHT_4, gated=True),
    _model("llama_8w", "Decoder", WEIGHT_8, gated=True),
    _model("mamba_8da4w", "Mamba", DYNAMIC_4),
)
