"""What speaks HTTP to clients and models."""
