"""Kernels of our own under the calling conventions of ExecuTorch's Vulkan backend, right ones and wrong ones.

They stand in for the modules of a user's build, which the project may not hold: same names, bindings, uniform blocks,
push words, specialization constants and weight texels. `build` makes spirv/ from glsl/.
"""
