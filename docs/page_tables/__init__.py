"""What makes the tables of the documentation, a module for each subject; docs/tables.py writes them into the pages."""
