"""Which kernel runs a product, and why: databases, predicted times, and the choice by them.

It asks families through their interface alone, and enqueues nothing.
"""
