"""The service: an API and a page over the images of a catalogue. No torch.

service.py         Service: everything that can be done with the catalogue and its images, without HTTP
searcher.py        Searcher: the search indexes over the catalogue
stored_codes.py    StoredCodes: the codes of its rows, as queries
milvus_mirror.py   MilvusMirror: the same codes in Milvus, where that searches
duplicates.py      Duplicates: groups of images that are the same or nearly so
finding.py         Finding: what is looked for among all images, in a thread of its own
label_review.py    LabelReview: images whose labels are probably wrong, and what a person says of them
json_answers.py    answers as JSON text
batcher.py         Batcher: items of concurrent requests worked on together
limits.py          Limits: what the service allows
metrics.py         ServiceMetrics: what Prometheus reads

api/               the application, its routes and what they take and give
http/              between bytes and requests: socket, protocol, connections, guard, receiving of uploads
images/            image files: which may be uploaded, processes that decode them, files and thumbnails that are sent
map/               places of the images on a map
page/              the page in the browser: HTML, CSS, JavaScript
"""
