"""Hugging Face's transformers with tiny configurations: built by bench/zoo/networks/transformer.py."""

from __future__ import annotations

from typing import Any

from bench.zoo.model import Input, Model, image, tokens

WORDS = 64


def _model(name: str, cls: str, inputs: tuple[Input, ...], output: str, **config: Any) -> Model:
    source = "bench.zoo.networks.transformer:build"
    return Model(name, "transformers", source, inputs, (cls, output), config)


_TEXT = {"vocab_size": WORDS, "num_hidden_layers": 2, "max_position_embeddings": 32, "num_attention_heads": 2}
_BERT = {**_TEXT, "hidden_size": 32, "intermediate_size": 64, "hidden_dropout_prob": 0.0}
_VISION = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
           "image_size": 32, "patch_size": 8}  # fmt: skip
_LLAMA = {**_BERT, "num_key_value_heads": 1, "use_cache": False}

MODELS = (
    _model("bert", "Bert", tokens(8, WORDS), "last_hidden_state", **_BERT),
    _model("roberta", "Roberta", tokens(8, WORDS), "last_hidden_state", **_BERT),
    _model("electra", "Electra", tokens(8, WORDS), "last_hidden_state", **_BERT, embedding_size=32),
    _model("distilbert", "DistilBert", tokens(8, WORDS), "last_hidden_state", vocab_size=WORDS, n_layers=2, n_heads=2,
           dim=32, hidden_dim=64, max_position_embeddings=32),
    _model("albert", "Albert", tokens(8, WORDS), "last_hidden_state", **_BERT, embedding_size=16),
    _model("mobilebert", "MobileBert", tokens(8, WORDS), "last_hidden_state", **_BERT, embedding_size=16,
           intra_bottleneck_size=16, num_feedforward_networks=2),
    _model("squeezebert", "SqueezeBert", tokens(8, WORDS), "last_hidden_state", **_BERT, embedding_size=32,
           q_groups=2, k_groups=2, v_groups=2, post_attention_groups=1, intermediate_groups=2, output_groups=2),
    _model("vit", "ViT", image(32), "last_hidden_state", **_VISION),
    _model("deit", "DeiT", image(32), "last_hidden_state", **_VISION),
    _model("segformer", "Segformer", image(64), "last_hidden_state", num_encoder_blocks=2, depths=[1, 1],
           sr_ratios=[4, 2], hidden_sizes=[16, 32], patch_sizes=[7, 3], strides=[4, 2], num_attention_heads=[1, 2],
           mlp_ratios=[2, 2]),
    _model("wav2vec2", "Wav2Vec2", (Input((1, 800)),), "last_hidden_state", vocab_size=32, hidden_size=32,
           num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, conv_dim=(16, 16, 16),
           conv_stride=(5, 4, 2), conv_kernel=(10, 4, 3), num_feat_extract_layers=3, num_conv_pos_embeddings=8,
           num_conv_pos_embedding_groups=2),
    _model("gpt2", "GPT2", tokens(8, WORDS), "last_hidden_state", vocab_size=WORDS, n_positions=32, n_embd=32,
           n_layer=2, n_head=2, use_cache=False),
    _model("llama", "Llama", tokens(8, WORDS), "last_hidden_state", **_LLAMA),
    _model("mobilevit", "MobileViT", image(64), "last_hidden_state", image_size=64, hidden_sizes=[16, 24, 32],
           neck_hidden_sizes=[8, 8, 16, 24, 32, 32, 64], num_attention_heads=2, output_stride=32),
    _model("regnet", "RegNet", image(64), "last_hidden_state", embedding_size=16, hidden_sizes=[16, 32, 64, 64],
           depths=[1, 1, 1, 1], groups_width=8),
    _model("poolformer", "PoolFormer", image(64), "last_hidden_state", depths=[1, 1, 1, 1],
           hidden_sizes=[16, 32, 48, 64]),
)  # fmt: skip
