"""Providers: each as encode, decode and send, apart."""
