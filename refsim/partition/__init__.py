"""From a quantized `torch.export` program to graphs with layouts, as ExecuTorch's Vulkan partitioner does it.

`lower.lower` is the way in. It prepares the program (``passes/``), divides it (`partitioner`), fuses quantized
operators (``patterns/``), gives every tensor a layout (``passes/tag_layouts``, ``repset/``), and serializes the result.

No other part of refsim imports torch. Importing this package, or `refsim.partition.repset`, does not import it either.
"""
