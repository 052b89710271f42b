"""Small classics of many fields."""

from __future__ import annotations

from bench.zoo.model import Input, Model, image


def _model(cls: str, *inputs: Input) -> Model:
    return Model(cls.lower(), "classic", f"bench.zoo.networks.classic:{cls}", inputs)


MODELS = (
    _model("LeNet5", *image(28, 1)),
    _model("NetworkInNetwork", *image(32)),
    _model("SENet", *image(32)),
    _model("Discriminator", *image(32)),
    _model("VAE", Input((1, 64))),
    _model("PointNet", Input((1, 32, 4))),
    _model("DLRM", Input((2, 16)), Input((2, 3), 32)),
    _model("DeepFM", Input((2, 4), 32)),
    _model("FTTransformer", Input((1, 7))),
    _model("InceptionTime", Input((1, 4, 1, 64))),
    _model("NBEATS", Input((1, 32))),
    _model("Siamese", *image(32), *image(32)),
    _model("DQN", *image(44, 4)),
)
