"""The service: an API and a page over a collection of images. No torch.

catalogue.py  what is known of the images, in SQLite      filling.py    how they get there
database.py   its file, and errors as sentences           locating.py   where their files are
layout.py     its tables, and checksums of rows           soundness.py  whether it is as it was written
searcher.py   the index over it, and answers              writer.py     changes that survive a crash
batcher.py    concurrent requests worked on together      uploads.py    what may be sent
service.py    all of that, without HTTP                   pictures.py   files and thumbnails
routes.py     the API                                     api.py        the application
guard.py      what every request has to pass              running.py    the socket and the server
"""
