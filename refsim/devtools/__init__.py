"""What joins other people's tools: ETDump, Inspector and ETRecord of ExecuTorch, and Model Explorer."""
