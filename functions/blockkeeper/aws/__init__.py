"""Adapters to AWS: the only modules that import boto3."""
