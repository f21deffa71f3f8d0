"""The way to models: one client per upstream, profiles of servers, repairs of their answers, and who is asked when one
fails. Handed a Chat Completions body; hands on events, or bytes where they may pass as they are.
"""
