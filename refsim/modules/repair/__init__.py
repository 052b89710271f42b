"""Looks for the one change of a user's module that makes its kernel right, by trying edits of its instructions.

`code` knows what stands where in a module, `kinds` and `edits` list what may be changed, `schema` puts many edits into
one module and keeps them from harm, and `search` tries them and says what was found.
"""
