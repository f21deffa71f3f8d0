"""Who asks: the keys of this server's clients and what each of them may do. Handed headers by the edge; hands on a
`Caller` or refuses. Any room may hold a caller; nothing here imports a room that does.
"""
