"""The service's own file formats, and its folder for temporary files.

In: files of updates that a user wrote; the changes of views.
Out: updates as words, sorted by time; change files, byte for byte reproducible.
Read first: updatefiles/ for reading and changefiles.py for writing; scratch.py is independent of both.
"""
