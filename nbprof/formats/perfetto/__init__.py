"""What do the bytes of a Perfetto trace (protobuf) say?"""
