"""What is kept between requests, in this process or in a Redis that many share. Handed bytes with an owner and a time
to live; hands them back to that owner alone.
"""
