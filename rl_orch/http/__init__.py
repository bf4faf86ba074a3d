"""HTTP for every server of ours: access, limits, problems, connections, serving."""
