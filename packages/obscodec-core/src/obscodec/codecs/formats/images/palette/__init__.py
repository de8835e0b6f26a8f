"""Images of few colours, as places in a palette.

Colours become places, and places ranks. It never writes bits: the groups of ``pred`` do.
"""
