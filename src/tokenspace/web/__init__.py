"""The page of ``tokenspace explore``: what a table says in JSON, a server for this machine, and one file.

``explorer`` answers the questions, ``app`` makes HTTP of the answers, ``server`` listens, ``export`` writes
the page as one file. Nothing outside the command line imports this room.
"""
