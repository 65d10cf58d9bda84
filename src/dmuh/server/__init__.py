"""The service: an API and a page over a collection of images. No torch.

catalogue.py  what is known of the images, in SQLite      filling.py    how they get there
database.py   its file, and errors as sentences           locating.py   where their files are
layout.py     its tables, and checksums of rows           soundness.py  whether it is as it was written
searcher.py   the index over it, and answers              writer.py     changes that survive a crash
batcher.py    concurrent requests worked on together      uploads.py    what may be sent
decoding.py   processes that decode what is sent          looking.py    what they do with an image
opening.py    files of others                             pictures.py   files and thumbnails
service.py    all of that, without HTTP                   arrivals.py   uploads on their way
routes.py     the API                                     api.py        the application
guard.py      what every request has to pass              connections.py  who has to go when there are too many
protocol.py   HTTP for those who mean harm                running.py    the socket and the server
"""
