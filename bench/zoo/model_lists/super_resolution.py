"""Super-resolution, denoising and style transfer."""

from __future__ import annotations

from bench.zoo.model import Model, image

MODELS = tuple(
    Model(cls.lower(), "super-resolution", f"bench.zoo.networks.super_resolution:{cls}", image(16))
    for cls in (
        "SRCNN",
        "ESPCN",
        "FSRCNN",
        "EDSR",
        "CARN",
        "IMDN",
        "ABPN",
        "DnCNN",
        "StyleTransfer",
        "VDSR",
        "SRResNet",
        "RCAN",
        "LapSRN",
    )
)
