"""The APIs that clients speak. Each decodes a body into a request and encodes events into its own answers and errors;
what a request says about search is read in one place.
"""
