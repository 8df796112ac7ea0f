"""Bridges to other libraries, each in a module that loads its library only when it is used.

hub           releases on Hugging Face's Hub, or in a folder laid out like one
images        released images as a data set of PyTorch
mlflow_log    figures of a releasable report in MLflow
"""
