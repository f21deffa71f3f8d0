"""The APIs that clients speak; each file decodes a body into a request and encodes events into its answer."""
