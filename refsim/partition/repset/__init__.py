"""Representations: where a tensor may live and in which layout, and the sets of them that operators allow.

A representation is a storage type and a memory layout. The names are those of ExecuTorch's Vulkan partitioner,
because its users and its unit tests speak them; the layouts are the rows of `refsim.core.layout`.
"""
