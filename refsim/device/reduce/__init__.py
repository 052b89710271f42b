"""Make a program smaller while a command still fails on it: fewer operators, plainer memory, smaller tensors."""
