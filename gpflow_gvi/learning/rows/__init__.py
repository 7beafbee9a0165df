"""The rows that are learned from: in memory, in files or in blocks, their parts and their units."""
