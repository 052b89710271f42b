"""Files that refsim reads and writes: one module or folder for each format.

- ``vkgraph/`` delegate blobs, ``pte/`` programs; what these two share is in ``flatbuffer/``, `literals` and `limits`
- `npz` arrays, `dumps` the buffers of a run, `cases` one call with its inputs and its output
- `recordings` runs of ET-VK's own kernels, `profiles` how a device rounds
"""
