"""Inside a delegate on a user's device: files whose intermediate values are outputs, and what came out of them."""
