"""What speaks HTTP to clients and models. Nothing is imported here: `groundwire --help` pays for it."""

__version__ = "0.2.0"  # the one place where it is written: see pyproject.toml
