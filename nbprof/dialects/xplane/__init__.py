"""What does an XSpace of TensorFlow or JAX mean?"""
