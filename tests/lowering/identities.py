"""The network that shows what identities on int8 layouts are worth: FourPixelShuffles with identities put in.

Programs lose such copies before they are tagged, so they are put behind the fused pixel shuffles by hand.
"""

from __future__ import annotations

#: Behind each of the four pixel shuffles: a clone before the next stage, and a view in front of the last convolution.
BEHIND = (("clone", "default"), ("clone", "default"), ("clone", "default"), ("view_copy", "default"))
#: What the identities take -> clones that the graph dispatches: those three, and transitions around all four.
CLONES = {"float layouts": 11, "float and int8 layouts": 3}
