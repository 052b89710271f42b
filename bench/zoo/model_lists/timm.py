"""timm's classifiers."""

from __future__ import annotations

from typing import Any

from bench.zoo.model import Model, image


def _model(name: str, size: int = 64, **options: Any) -> Model:
    return Model(name, "timm", "timm:create_model", image(size), (name,), {"num_classes": 12, **options})


MODELS = (
    _model("lcnet_050"),
    _model("mobilenetv4_conv_small"),
    _model("mobilenetv3_small_050"),
    _model("resnet10t"),
    _model("resnet14t"),
    _model("tinynet_e"),
    _model("efficientnet_lite0"),
    _model("ghostnet_050"),
    _model("repvgg_a0"),
    _model("mobileone_s0"),
    _model("ese_vovnet19b_dw"),
    _model("dla46_c"),
    _model("dla34"),
    _model("starnet_s1", depths=(1, 1, 2, 1)),
    _model("convnext_atto", depths=(1, 1, 2, 1)),
    _model("convnextv2_atto", depths=(1, 1, 2, 1)),
    _model("inception_next_atto", depths=(1, 1, 2, 1)),
    _model("poolformerv2_s12", layers=(1, 1, 1, 1)),
    _model("mobilevit_xxs"),
    _model("edgenext_xx_small"),
    _model("fastvit_t8", layers=(1, 1, 1, 1)),
    _model("efficientformer_l1", 224),
    _model("efficientvit_b0"),
    _model("levit_128s", 224),
    _model("deit_tiny_patch16_224", 32, img_size=32, patch_size=8, depth=2, embed_dim=32, num_heads=2),
    _model("xcit_nano_12_p16_224", 32, img_size=32, depth=1, cls_attn_layers=1, embed_dim=32),
    _model("hardcorenas_a"),
    _model("fbnetc_100"),
    _model("semnasnet_075"),
    _model("mixnet_s"),
    _model("rexnet_100"),
    _model("seresnet18", 64),
    _model("ecaresnet26t", 64, layers=(1, 1, 1, 1)),
    _model("skresnet18"),
    _model("res2net50d", layers=(1, 1, 1, 1)),
    _model("resnest14d"),
    _model("resnetblur18"),
    _model("cspresnet50"),
    _model("selecsls42"),
    _model("mambaout_femto", depths=(1, 1, 1, 1)),
)
