"""From a quantized `torch.export` program to graphs with layouts: patterns, representations, passes, serializer.

The only part of refsim that imports torch, and only where a program is involved: importing this package, or
`refsim.partition.repset`, does not.
"""
