"""The compiled loops over frames and their ids.

Each gets arrays and addresses that its caller owns, and never allocates what outlives the call.
"""
