"""Runs refsim's launches on a real Vulkan device through Kompute.

Importing this package imports neither ``kp`` nor the Vulkan loader: both are looked for when a device is
opened, so that the absence of either is a typed error with the command that mends it, never a failed import.
"""
