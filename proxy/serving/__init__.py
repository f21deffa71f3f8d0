"""The HTTP server: the process and its listener, the edge, the routes, delivery and forwarding. Handed connections;
hands requests to a dialect and sends what comes back.
"""
