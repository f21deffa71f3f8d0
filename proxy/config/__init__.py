"""What an operator may say, reading it, and errors that help. Handed a path and the environment; hands everybody a
frozen `Config`. Any room may hold it; of the others it imports `values` alone.
"""
