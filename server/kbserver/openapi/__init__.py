"""The OpenAPI document, generated from the declarations of the routes and recorded examples."""
