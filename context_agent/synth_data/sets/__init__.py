"""Task sets: splits, the folder of a set, its data card and its export."""
