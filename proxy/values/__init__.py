"""What travels through the house: events, requests, errors, server-sent events, Markdown. Plain values and pure
readers that every room may hold; nothing here imports another room.
"""
