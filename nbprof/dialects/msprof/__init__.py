"""What does a profile of an Ascend NPU (msprof) mean?"""
