"""One file per service. `providers.registry` holds the table of them."""
