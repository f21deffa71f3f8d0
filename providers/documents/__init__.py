"""Documents in a folder of the operator's: which there are, what they say, and the index they are found by."""
