"""Native kernels: each module writes functions in the notation of refsim.cpu.ir."""
