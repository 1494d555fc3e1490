"""Content policy of pages: all is loaded from their own server, and no script stands in a page itself."""

PAGE_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:;"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Value of the header `Content-Security-Policy`."""
