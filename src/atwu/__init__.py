"""atwu"""
