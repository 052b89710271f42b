"""Detection, poses and faces."""

from __future__ import annotations

from bench.zoo.model import Model, image


def _model(cls: str, size: int = 64) -> Model:
    return Model(cls.lower(), "detection", f"bench.zoo.networks.detection:{cls}", image(size))


MODELS = (
    _model("YOLOv3"),
    _model("YOLOv5"),
    _model("YOLOv8"),
    _model("YOLOX", 32),
    _model("SSDLite"),
    _model("CenterNet"),
    _model("FCOS"),
    _model("BlazeFace", 32),
    _model("Hourglass", 32),
    _model("MobileFaceNet", 16),
    _model("TinyYOLOv2", 32),
    _model("EfficientDet"),
    _model("DETR"),
    _model("PFLD"),
)
