"""Where models live; each lane turns a model's answer into events."""
