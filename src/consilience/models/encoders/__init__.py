"""Pretrained encoders of images and texts."""
