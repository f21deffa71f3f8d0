"""Text as it is compared and cut: words, which text speaks of a question, and the passages of a long one that do."""
