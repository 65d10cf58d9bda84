"""The API: a route is a function in routes.py; its parameters and answers are described in schemas.py."""
