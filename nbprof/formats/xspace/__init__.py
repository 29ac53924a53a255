"""What do the bytes of an XSpace say? A protocol buffer, decoded by numpy with no protobuf."""
