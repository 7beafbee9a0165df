"""What the file of an experiment can say: a part for each of its nouns, and for each kind of it."""
