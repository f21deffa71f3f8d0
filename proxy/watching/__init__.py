"""What is seen of each request, and who is told: the log and the metrics. Rooms tell the request's observer what
happens in them; each listener is one file. Any room may hold an observer; nothing here imports one that does.
"""
