"""What does a trace of PyTorch (Kineto) mean?"""
