"""What the file of an experiment can say: a part for each of its nouns, and for each kind of it.

A new kind is a new entry in the table of its noun: the name of a class, or a function.
"""
