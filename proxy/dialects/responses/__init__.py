"""The Responses API: its requests and items in, its events and objects out, its history as chat messages, and what is
kept of a response between requests.
"""
