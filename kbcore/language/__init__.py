"""Reading of text, files and model answers into facts and rules, and answers in natural
language.
"""
