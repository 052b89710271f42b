"""Keyword spotting and other work on sound."""

from __future__ import annotations

from bench.zoo.model import Input, Model


def _model(cls: str, *shape: int) -> Model:
    return Model(cls.lower(), "audio", f"bench.zoo.networks.audio:{cls}", (Input(shape),))


MODELS = (
    _model("DSCNN", 1, 1, 49, 10),
    _model("BCResNet", 1, 1, 40, 50),
    _model("TCResNet", 1, 40, 1, 98),
    _model("MatchboxNet", 1, 40, 64),
    _model("M5", 1, 1, 2000),
    _model("ConvTasNet", 1, 1, 400),
    _model("Autoencoder", 1, 64),
    _model("Conformer", 1, 16, 32),
    _model("CNNTrad", 1, 1, 32, 40),
    _model("TCN", 1, 16, 32),
    _model("GatedCNN", 1, 1, 4, 64),
)
