"""The serialized form of graphs: delegate blobs (``VK00``) and the .pte container (``ET12``)."""
