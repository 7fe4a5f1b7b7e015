"""``oracle bench``: times searches on this machine."""
