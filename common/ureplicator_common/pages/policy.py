"""What a page may load: all from its own server, and no script that stands in the page itself."""

PAGE_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:;"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Value of the header `Content-Security-Policy`."""
