"""Replay: the buffer, the log behind it, and the tree that draws by priority."""
