"""Example scenarios: requests sent to real servers, recorded as the examples of the OpenAPI
document.
"""
