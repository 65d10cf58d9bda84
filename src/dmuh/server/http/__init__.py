"""Between bytes and requests, for clients that may mean harm.

server.py        the socket, and the server behind it
connections.py   which connection is closed when there are too many
protocol.py      HTTP/1.1 with a bound on everything that a request may take
guard.py         host, origin, token, rate and time of every request, headers of every answer
uploads.py       the bytes of uploads, bounded together
"""
