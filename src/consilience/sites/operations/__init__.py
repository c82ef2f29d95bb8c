"""Certificates, invitations and processes."""
