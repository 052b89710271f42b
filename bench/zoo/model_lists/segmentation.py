"""U-Nets and other networks whose output is an image."""

from __future__ import annotations

from bench.zoo.model import Input, Model, image


def _model(cls: str, inputs: tuple[Input, ...]) -> Model:
    return Model(cls.lower(), "segmentation", f"bench.zoo.networks.segmentation:{cls}", inputs)


_NAMES = (
    "UNet", "UNetBilinear", "AttentionUNet", "ENet", "FastSCNN", "BiSeNet", "DeepLab", "DepthNet", "LinkNet", "ERFNet",
    "PSPNet", "UNetPlusPlus", "HRNet",
)  # fmt: skip
MODELS = (*(_model(cls, image(32)) for cls in _NAMES), _model("Generator", image(1, 32)))
