"""Delegate blobs (``VK00``): the graph of a Vulkan delegate and its constants, read, checked and written."""
