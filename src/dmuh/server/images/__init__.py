"""Image files of strangers.

upload_check.py      which files may be uploaded
decoders.py          a pool of processes that decode, each with a bound on time and memory
decoder_process.py   one such process and the pipe to it
decode.py            what is done in it: pixels for the network, or a thumbnail
files.py             the files behind the catalogue, and their thumbnails
"""
