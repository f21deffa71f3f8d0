"""What the model may call: `web_search` and `open_page`."""
