"""Imports trained embedding tables into a model repository."""
