"""How the runtime of another build calls its kernels: what it binds, pushes, specializes and launches, as data."""
