"""Random configurations of every operator, and whole models, on executors of one machine or of many."""
