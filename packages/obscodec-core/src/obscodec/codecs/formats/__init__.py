"""One byte format a file.

A format is what its page in ``docs/formats`` says, and never knows another format, but for those that share its tiles.
"""
