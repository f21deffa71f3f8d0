"""A request becomes an answer: the offer, the loop (pure), the engine (the only driver), citations, hidden turns and
the search that comes first. Handed requests by a dialect; hands it batches of events.
"""
