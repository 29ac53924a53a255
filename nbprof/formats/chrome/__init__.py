"""What do the bytes of a Chrome trace (JSON) say?"""
