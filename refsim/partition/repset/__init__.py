"""Representations: where a tensor may live and in which layout, and the sets of them that operators allow.

A representation is a storage type and a memory layout; the layouts are the rows of `refsim.core.layout`. Rules and sets
have the names of ExecuTorch's Vulkan partitioner.
"""
