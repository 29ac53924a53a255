"""Values to bytes and back, exactly: `container` holds named values in blocks, `values` and
`frames` describe one value as JSON and blocks, `records` lists the dataclasses among them.
"""
