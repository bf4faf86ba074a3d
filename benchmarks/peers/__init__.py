"""Programs that train with another library, run by that library's own interpreter."""
