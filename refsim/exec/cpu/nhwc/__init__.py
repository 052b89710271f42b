"""Between any layout and NHWC scratch, for the kernels of all families."""
