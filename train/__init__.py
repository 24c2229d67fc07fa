"""Data, losses, the training loop, checkpoints and run configurations."""

if __name__ != "dualwave.train":
    raise ImportError(f"import dualwave.train instead of {__name__}, which would be a second copy")
