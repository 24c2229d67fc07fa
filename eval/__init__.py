"""Saliency metrics, baselines, pictures and reports."""

if __name__ != "dualwave.eval":
    raise ImportError(f"import dualwave.eval instead of {__name__}, which would be a second copy")
