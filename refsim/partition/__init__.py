"""From a quantized `torch.export` program to graphs with layouts, as ExecuTorch's Vulkan partitioner does it.

`lower.lower` is the way in. It prepares the program (``passes/``), divides it (`partitioner`), fuses quantized
operators (``patterns/``), gives every tensor a layout (``passes/tag_layouts``, ``repset/``), and serializes the result.

Modules that handle a program import torch. The tables do not: `features`, `constraints`, `nodes`, `repset`, `refusal`.
Elsewhere only `refsim.aten` imports it, and only for a float operator that its own table lacks.
"""
