"""The tuner: it searches configurations by measured trials and writes database records."""
