"""Check, repair, archive and erase the notes of an app."""
