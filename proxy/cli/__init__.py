"""The command line, one file per command. Handed arguments and the environment; reads the config, puts the house
together and prints. Nothing else in `proxy` imports from here.
"""
