"""torchvision's classifiers."""

from __future__ import annotations

from typing import Any

from bench.zoo.model import Model, image


def _model(name: str, size: int = 64, source: str = "", **options: Any) -> Model:
    source = f"torchvision.models:{source or name}"
    return Model(name, "torchvision", source, image(size), options={"num_classes": 12, **options})


_SWIN = {"patch_size": [4, 4], "embed_dim": 32, "depths": [1, 1], "num_heads": [2, 4], "window_size": [4, 4]}

MODELS = (
    _model("squeezenet1_0"),
    _model("squeezenet1_1"),
    _model("resnet18"),
    _model("alexnet", dropout=0.0),
    _model("mobilenet_v2"),
    _model("mobilenet_v3_small"),
    _model("mobilenet_v3_large"),
    _model("shufflenet_v2_x0_5"),
    _model("mnasnet0_5"),
    _model("vgg11", 32),
    _model("regnet_x_400mf"),
    _model("regnet_y_400mf"),
    _model("resnet34"),
    _model("resnet50"),
    _model("resnext50_32x4d"),
    _model("googlenet", aux_logits=False, init_weights=False),
    _model("inception_v3", 96, aux_logits=False, init_weights=False),
    _model("densenet121", 32),
    _model("efficientnet_b0"),
    _model("convnext_tiny", 32),
    _model("vision_transformer", 32, "VisionTransformer", image_size=32, patch_size=8, num_layers=2, num_heads=2,
           hidden_dim=32, mlp_dim=64),
    _model("swin", 32, "SwinTransformer", **_SWIN),
    _model("mnasnet1_0"),
    _model("shufflenet_v2_x1_0"),
)  # fmt: skip
