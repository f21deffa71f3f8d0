"""Reaching the open web safely: the guard, the fetcher, the extractor."""
