"""The tuner, which searches configurations by measured trials and writes database records; and
calibration, which fits the coefficients of predicted times.
"""
