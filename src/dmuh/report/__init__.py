"""Reports: figures, contact sheets and self-contained pages from what runs left on disk."""
