"""Process groups and collectives."""

if __name__ != "dualwave.parallel":
    raise ImportError(
        f"import dualwave.parallel instead of {__name__}, which would be a second copy"
    )
